// moe convert: a model's layers into a directory of packed files; what is there already is not made again.
#include <algorithm>

#include "tool/bar.h"
#include "tool/commands.h"
#include "tool/layers.h"
#include "tool/machine.h"

namespace moe_tool {
namespace {

struct ConvertOptions {
  std::string directory;
  std::string out;
  std::string layers;
  std::string target = "this";
  bool verify = false;
  int threads = 0;
};

Json convert(const ConvertOptions& options, const Session& session) {
  const TargetMachine target = target_of(options.target);
  const OpenModel model = open_model(options.directory, options.threads);
  const auto last = moe_checkpoint_layer_count(model.checkpoint.get()) - 1;
  std::vector<std::int64_t> numbers;
  if (!options.layers.empty()) numbers = number_list(options.layers, last, "--layers");

  auto request = sized<moe_checkpoint_options>();
  request.platform = target.platform.get();
  request.patch_json = target.patch.empty() ? nullptr : target.patch.data();
  request.patch_len = target.patch.size();
  request.layers = numbers.empty() ? nullptr : numbers.data();
  request.num_layers = numbers.size();
  request.load_flags = options.verify ? MOE_LOAD_VERIFY : 0;
  const double start = seconds_now();
  std::int64_t made = 0;
  {
    Bar bar(session, "convert");
    request.control = bar.control();
    try {
      call(moe_checkpoint_convert, model.context.get(), model.checkpoint.get(), options.out.c_str(), &request);
    } catch (const Failure& failure) {
      if (failure.status() != MOE_ERR_CANCELLED) throw;
      bar.clear();
      throw Failure(kInterrupted, fmt::format("interrupted; whole layers stay in {}, and the same command goes on",
                                              shell_word(options.out)));
    }
    made = bar.layers_converted();
  }
  const double seconds = seconds_now() - start;

  const auto written = make<CheckpointHandle>(moe_checkpoint_open, model.context.get(), options.out.c_str(), nullptr,
                                              std::size_t{0}, nullptr);
  const Json document = document_of(moe_checkpoint_to_json, written.get());
  std::uint64_t bytes = 0;
  Json layers = Json::array();
  for (const Json& layer : document["layers"]) {
    if (!layer.value("converted", false)) continue;
    bytes += layer.value("bytes", std::uint64_t{0});
    layers.push_back(layer.value("layer", std::int64_t{0}));
  }
  Json out = {{"command", "convert"}, {"directory", options.directory}, {"out", options.out}, {"target", target.name}};
  out["layers"] = std::move(layers);
  out["layers_made"] = made;
  out["bytes"] = bytes;
  out["seconds"] = seconds;
  out["converted"] = document.value("converted", Json::object());
  out["runs_here"] = target.here;
  return out;
}

void show(const Json& found, const ConvertOptions& options, const Session& session) {
  const auto count = static_cast<std::int64_t>(found["layers"].size());
  const auto made = found.value("layers_made", std::int64_t{0});
  const Json& converted = found["converted"];
  const std::string source = converted.value("source", "");
  if (made == 0) {
    session.line("nothing to do: {} in {} {} up to date (source {})", count_text(count, "layer"),
                 shell_word(options.out), count == 1 ? "is" : "are", source);
  } else {
    session.line("{}, {} in {}{}", count_text(count, "layer"), bytes_text(found.value("bytes", 0.0)),
                 clock_text(found.value("seconds", 0.0)), made == count ? "" : fmt::format(" ({} made now)", made));
    session.line("wrote {}: config.json, manifest.json, {}; source {}", shell_word(options.out),
                 count_text(count, "packed file"), source);
  }
  const bool is_cpu = converted.value("platform", "").starts_with("cpu");  // moe runs on nothing else
  session.next(found.value("runs_here", true) ? fmt::format("moe bench {}", shell_word(options.out))
                                              : fmt::format("copy {} to such a machine{}", shell_word(options.out),
                                                            is_cpu ? ", then moe bench there" : ""));
}

}  // namespace

void declare_convert(CLI::App& command, Session& session) {
  const auto options = std::make_shared<ConvertOptions>();
  add_directory(command, options->directory);
  add_directory(command, options->out, "OUT", "Where the packed files go; made if its parent is there");
  command.add_option("--layers", options->layers, "Only these, such as 0-3,7; by default all that have experts")
      ->type_name("LIST");
  add_target(command, options->target);
  command.add_flag("--verify", options->verify, "Compare the hashes of files that are there already");
  command.add_option("-t,--threads", options->threads, "Threads; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command.callback([options, &session] {
    const Json found = convert(*options, session);
    session.document(found);
    show(printable_document(found), *options, session);
  });
}

}  // namespace moe_tool
