// moe why: all candidates for a layer, in the order in which they are tried, and the reason for each refusal.
#include "tool/commands.h"
#include "tool/layers.h"

namespace moe_tool {
namespace {

struct WhyOptions {
  std::string directory;
  std::int64_t layer = -1;
  std::string kernel;
  std::string target = "this";
};

// A candidate is meant by its kernel's name, a part of it (amxint8), or its backend's whole name.
bool meant(const Json& candidate, const std::string& word) {
  return candidate.value("kernel", "").find(word) != std::string::npos || candidate.value("backend", "") == word;
}

Json examine(const WhyOptions& options) {
  const TargetMachine target = target_of(options.target);
  const OpenModel model = open_model(options.directory);
  const std::int64_t number = layer_with_experts(model, options.layer);
  const std::vector<ModelLayer> layers = layers_of(model, target, {number});
  const ModelLayer& layer = layers.front();
  if (!layer.selection) throw Failure(kNo, layer.problem);
  Json candidates = Json::array();
  std::vector<std::string> names;
  for (const Json& candidate : layer.candidates) {
    names.push_back(candidate.value("kernel", ""));
    if (!options.kernel.empty() && !meant(candidate, options.kernel)) continue;
    candidates.push_back(candidate);
  }
  if (candidates.empty() && !options.kernel.empty()) {
    const std::string near = nearest_word(options.kernel, names);
    throw Failure(
        kUsage,
        fmt::format("--kernel '{}': no candidate for layer {} has such a name{}; without --kernel all are shown",
                    printable(options.kernel), number, near.empty() ? "" : fmt::format(", did you mean '{}'?", near)));
  }
  Json out = {{"command", "why"}, {"directory", options.directory}, {"layer", number}, {"target", target.name}};
  out["weights"] = layer.format;
  out["name"] = layer.facts.value("name", "");
  out["backend"] = layer.backend;
  out["kernel"] = layer.kernel;
  out["layout"] = layer.layout;
  out["warning"] = document_of(moe_selection_to_json, layer.selection.get()).value("warning", "");
  out["converted"] = model.document.contains("converted");
  if (!layer.problem.empty()) out["problem"] = layer.problem;
  out["candidates"] = std::move(candidates);
  return out;
}

void show(const Json& found, const WhyOptions& options, const Session& session) {
  const Screen& screen = session.out;
  const std::string problem = found.value("problem", "");
  session.line(
      "{}, {} weights: {}", screen.toned(printable(found.value("name", "")), Tone::kBold), found.value("weights", ""),
      problem.empty() ? fmt::format("{} of {}, layout {}", screen.toned(found.value("kernel", ""), Tone::kGood),
                                    found.value("backend", ""), found.value("layout", ""))
                      : screen.toned(problem, Tone::kBad));
  Table table({{"", false, false}, {"backend", false, false}, {"kernel", false, false}, {"why", false, true}});
  for (const Json& candidate : found["candidates"]) {
    const bool accepted = candidate.value("accepted", false);
    const bool chosen = candidate.value("chosen", false);
    const std::string subject = candidate.value("subject", "");
    const std::string detail = candidate.value("detail", "");
    const std::string refused = subject.starts_with('/') ? fmt::format("{}: {}", subject, detail) : detail;
    table.row({accepted ? screen.yes() : screen.no(), candidate.value("backend", ""), candidate.value("kernel", ""),
               chosen     ? screen.toned("taken: the first that accepts", Tone::kGood)
               : accepted ? "accepts; one above it is taken"
                          : refused});
  }
  session.text(table.text(screen));
  if (const std::string warning = found.value("warning", ""); !warning.empty()) session.warn(warning);
  const std::string directory = shell_word(options.directory);
  const std::string target = for_text(options.target);
  if (!problem.empty() && found.value("converted", false)) {
    session.next(fmt::format("moe convert DIR OUT, with the model that {} was made from", directory));
  } else if (!problem.empty()) {
    session.next(fmt::format("moe why {} --for amx (or another machine: moe why --help)", directory));
  } else if (target.empty()) {
    session.next(fmt::format("moe bench {}", directory));
  } else if (found.value("converted", false)) {
    session.next(fmt::format("copy {} to such a machine", directory));
  } else {
    session.next(fmt::format("moe convert {} OUT{}", directory, target));
  }
}

}  // namespace

void declare_why(CLI::App& command, Session& session) {
  const auto options = std::make_shared<WhyOptions>();
  add_directory(command, options->directory);
  command.add_option("--layer", options->layer, "The layer; by default the first that has experts")
      ->check(whole_number())
      ->type_name("N")
      ->default_str("");
  command
      .add_option("--kernel", options->kernel,
                  "Only kernels whose name has this in it; exit code 1 if none of them accepts")
      ->type_name("K");
  add_target(command, options->target);
  command.callback([options, &session] {
    const Json found = examine(*options);
    session.document(found);
    show(printable_document(found), *options, session);
    bool accepted = false;
    for (const Json& candidate : found["candidates"]) accepted = accepted || candidate.value("accepted", false);
    if (!accepted || found.contains("problem")) session.exit_code = kNo;
  });
}

}  // namespace moe_tool
