// moe inspect: what is in a model's directory, which kernels it gets, and whether it fits into the memory.
#include <algorithm>

#include "tool/commands.h"
#include "tool/layers.h"
#include "tool/machine.h"

namespace moe_tool {
namespace {

struct InspectOptions {
  std::string directory;
  std::string target = "this";
  std::int64_t memory = 0;  // bytes; 0: what is free here
};

std::vector<std::string> other_kernels(const ModelLayer& layer) {
  std::vector<std::string> out;
  for (const Json& candidate : layer.candidates)
    if (candidate.value("accepted", false) && !candidate.value("chosen", false))
      out.push_back(candidate.value("kernel", ""));
  return out;
}

// What makes layers one row of the table.
std::string row_key(const ModelLayer& layer) {
  const Json& facts = layer.facts;
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", layer.kind, facts.value("multi_token_prediction", false),
                     facts.value("num_experts", 0), facts.value("top_k", 0), facts.value("hidden_dim", 0),
                     facts.value("intermediate_size", 0), layer.format, layer.kernel, layer.problem,
                     facts.value("converted", false));
}

Json examine(const InspectOptions& options) {
  const TargetMachine target = target_of(options.target);
  const OpenModel model = open_model(options.directory);
  const std::vector<ModelLayer> layers = layers_of(model, target);
  Json out = {{"command", "inspect"}};
  for (const auto& [name, value] : model.document.items())
    if (name != "layers") out[name] = value;
  std::uint64_t packed = 0;
  std::uint64_t on_disk = 0;
  std::int64_t with_experts = 0;
  std::int64_t usable = 0;
  Json list = Json::array();
  Json rows = Json::array();
  std::string last_key;
  std::int64_t not_converted = 0;
  for (const ModelLayer& layer : layers) {
    Json document = json_of(layer);
    const auto disk = layer.facts.value("bytes", std::uint64_t{0});
    if (layer.kind == "experts") {
      document["also_accepted"] = other_kernels(layer);
      ++with_experts;
      usable += layer.problem.empty() ? 1 : 0;
      not_converted += layer.facts.contains("converted") && !layer.facts.value("converted", false) ? 1 : 0;
      packed += layer.packed_bytes;
      on_disk += disk;
    }
    const std::string key = row_key(layer);
    if (key != last_key || rows.empty() || rows.back().value("last", std::int64_t{-1}) + 1 != layer.number) {
      Json row = document;
      row.erase("layer");
      row["first"] = layer.number;
      row["last"] = layer.number;
      row["bytes"] = disk;
      row["packed_bytes"] = layer.packed_bytes;
      rows.push_back(std::move(row));
    } else {
      Json& row = rows.back();
      row["last"] = layer.number;
      row["bytes"] = row.value("bytes", std::uint64_t{0}) + disk;
      row["packed_bytes"] = row.value("packed_bytes", std::uint64_t{0}) + layer.packed_bytes;
    }
    last_key = key;
    list.push_back(std::move(document));
  }
  const MemoryState memory = memory_state();
  const std::uint64_t available = options.memory > 0 ? static_cast<std::uint64_t>(options.memory) : memory.available;
  out["target"] = target.name;
  out["layers_with_experts"] = with_experts;
  out["layers_that_run"] = usable;
  out["layers_not_converted"] = not_converted;
  out["experts_bytes"] = on_disk;
  out["packed_bytes"] = packed;
  out["memory_bytes"] = available;
  out["fits"] = packed <= available;
  out["rows"] = std::move(rows);
  out["layers"] = std::move(list);
  return out;
}

std::string some_of(const Json& names, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) out += (i == 0 ? "" : ", ") + names[i].get<std::string>();
  if (names.size() > most) out += fmt::format(", +{}", names.size() - most);
  return out;
}

// Layers that a converted directory lacks are no fault of it: it may hold those of one host.
bool runs_all_it_has(const Json& found) {
  return found.value("layers_that_run", 0) + found.value("layers_not_converted", 0) ==
         found.value("layers_with_experts", 0);
}

std::int64_t first_that_does_not_run(const Json& found) {
  if (runs_all_it_has(found)) return -1;
  for (const Json& layer : found["layers"])
    if (layer.value("kind", "") == "experts" && layer.contains("problem") && layer.value("converted", true))
      return layer.value("layer", std::int64_t{-1});
  return -1;
}

// A tool may leave all experts as they were.
bool all_stayed_plain(const Json& layers) {
  bool some = false;
  for (const Json& layer : layers) {
    if (layer.value("kind", "") != "experts") continue;
    some = true;
    if (!layer.value("plain", false)) return false;
  }
  return some;
}

void show(const Json& found, const InspectOptions& options, const Session& session) {
  const Screen& screen = session.out;
  const bool converted = found.contains("converted");
  const std::string from = found.value("quantization_from", "");
  std::string head = screen.toned(printable(found.value("class", "model")), Tone::kBold);
  const auto add = [&](const std::string& piece) { head += std::string(screen.dot()) + piece; };
  add(found.value("dtype", ""));
  const std::string but = all_stayed_plain(found["layers"]) ? ", but for its experts" : "";
  if (!converted) add(from.empty() ? "not quantized" : "quantized as " + from + " says" + but);
  add(fmt::format("{}, {} with experts", count_text(static_cast<std::int64_t>(found["layers"].size()), "layer"),
                  found.value("layers_with_experts", 0)));
  if (!converted)
    add(fmt::format("{} in {}, {}", count_text(found.value("tensors", std::int64_t{0}), "tensor"),
                    count_text(found.value("files", std::int64_t{0}), "file"), bytes_text(found.value("bytes", 0.0))));
  if (converted) add("converted");
  for (const std::string& line : wrapped(head, static_cast<std::size_t>(screen.width))) session.line("{}", line);

  const bool here = found.value("target", "") == "this";
  Table table({{"layers", false, false},
               {"experts", true, false},
               {"top_k", true, false},
               {"hidden x width", false, false},
               {"weights", false, false},
               {"on disk", true, false},
               {here ? "here" : "packed", true, false},
               {"kernel", false, false},
               {"also accepted", false, true}});
  Table rest({{"layers", false, false}, {"what", false, true}});
  for (const Json& row : found["rows"]) {
    const std::string range = range_text(row.value("first", std::int64_t{0}), row.value("last", std::int64_t{0})) +
                              (row.value("multi_token_prediction", false) ? " (mtp)" : "");
    if (row.value("kind", "") == "dense") {
      rest.row({range, "dense: no experts"});
      continue;
    }
    if (row.contains("converted") && !row.value("converted", false)) {
      rest.row({range, "not converted"});
      continue;
    }
    if (row.contains("problem")) {
      rest.row({range, fmt::format("{} {}", screen.no(), row.value("problem", ""))});
      if (row.value("kind", "") != "experts") continue;
    }
    const std::string kernel = row.value("kernel", "");
    table.row({range, fmt::format("{}", row.value("num_experts", 0)), fmt::format("{}", row.value("top_k", 0)),
               fmt::format("{} x {}", row.value("hidden_dim", 0), row.value("intermediate_size", 0)),
               row.value("weights", ""), bytes_text(row.value("bytes", 0.0)),
               bytes_text(row.value("packed_bytes", 0.0)), kernel.empty() ? "none" : kernel,
               some_of(row["also_accepted"], 2)});
  }
  if (!table.empty()) session.text(table.text(screen));
  if (!rest.empty()) session.text(rest.text(screen));

  const std::string directory = shell_word(options.directory);
  const double packed = found.value("packed_bytes", 0.0);
  const std::string memory = fmt::format("{} {}", bytes_text(found.value("memory_bytes", 0.0)),
                                         options.memory > 0         ? "may be taken"
                                         : options.target == "this" ? "is free"
                                                                    : "is free on this machine");
  const std::string target = for_text(options.target);
  if (const std::int64_t layer = first_that_does_not_run(found); layer >= 0)
    return session.next(fmt::format("moe why {} --layer {}{}", directory, layer, target));
  if (found.value("layers_that_run", 0) == 0) {
    session.line("{} there is nothing for libmoe to run: {}", screen.no(),
                 converted ? "no layer is converted yet" : "no layer has experts");
    return;
  }
  if (!found.value("fits", true)) {
    session.line("{} does not fit: the experts take {}, {}", screen.no(), bytes_text(packed), memory);
    session.next(
        converted
            ? fmt::format("moe bench {} --layers 0-3", directory)
            : fmt::format("moe convert {} OUT{}: a converted model is mapped, and is read from the disk as it is used",
                          directory, target));
    return;
  }
  session.line("{} fits: the experts take {}, {}", screen.yes(), bytes_text(packed), memory);
  session.next(!converted       ? fmt::format("moe convert {} OUT{}", directory, target)
               : target.empty() ? fmt::format("moe bench {}", directory)
                                : fmt::format("copy {} to such a machine", directory));
}

}  // namespace

void declare_inspect(CLI::App& command, Session& session) {
  const auto options = std::make_shared<InspectOptions>();
  add_directory(command, options->directory);
  add_target(command, options->target);
  command.add_option("--memory", options->memory, "Bytes that the experts may take (4GB, 512MB); 0: what is free here")
      ->transform(CLI::AsSizeValue(true))
      ->transform([](std::string text) {  // before the other: it takes -5 for a number near 2^64
        if (text.empty() || text.front() < '0' || text.front() > '9')
          throw CLI::ValidationError(fmt::format("{} is not an amount of memory, such as 4GB", printable(text)));
        return text;
      })
      ->type_name("BYTES");
  command.callback([options, &session] {
    const Json found = examine(*options);
    session.document(found);
    show(printable_document(found), *options, session);
    if (!runs_all_it_has(found) || found.value("layers_that_run", 0) == 0 || !found.value("fits", true))
      session.exit_code = kNo;
  });
}

}  // namespace moe_tool
