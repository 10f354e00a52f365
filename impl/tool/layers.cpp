// Layers of a model and their kernels.
#include "tool/layers.h"

#include <algorithm>

namespace moe_tool {
namespace {

// "int4-g128", "int8-channel", "fp8-block128x128", "mxfp4", "bf16": from the resolved config, bits as the file has
// them.
std::string format_of(const Json& config, const std::string& container) {
  const Json none = Json::object();
  const auto& quantization =
      config.contains("quantization") && config["quantization"].is_object() ? config["quantization"] : none;
  if (!quantization.contains("weights") || !quantization["weights"].is_object()) {
    const std::string type = config.value("in_dtype", "");
    return type == "bfloat16" ? "bf16" : type == "float16" ? "f16" : type == "float32" ? "f32" : type;
  }
  const Json& weights = quantization["weights"];
  const bool is_narrow = container.starts_with("pack-quantized-w");
  const int bits = is_narrow ? container.back() - '0' : weights.value("num_bits", 0);
  const std::string strategy = weights.value("strategy", "");
  const bool is_float = weights.value("type", "") == "float";
  if (container.starts_with("mxfp") || container.starts_with("nvfp")) return container.substr(0, 5);
  std::string out = fmt::format("{}{}", is_float ? "fp" : "int", bits);
  if (strategy == "group" || strategy == "tensor_group") {
    const Json& group = weights.contains("group_size") ? weights["group_size"] : none;
    if (group.is_number()) out += fmt::format("-g{}", group.get<int>());
  } else if (strategy == "block") {
    const Json& block = weights.contains("block_structure") ? weights["block_structure"] : none;
    if (block.is_array() && block.size() == 2)
      out += fmt::format("-block{}x{}", block[0].get<int>(), block[1].get<int>());
  } else if (!strategy.empty()) {
    out += "-" + strategy;
  }
  if (!weights.value("symmetric", true)) out += "-zp";
  if (weights.contains("actorder") && weights["actorder"].is_string()) out += "-ao";
  return out;
}

std::string family_of(const std::string& layout) { return layout.substr(0, layout.find('/')); }

// A converted layer runs with a kernel that reads the layout of its file, which is not always the layout that this
// machine would convert to: another machine may have made the folder.
void fit_to_file(const OpenModel& model, const TargetMachine& target, ModelLayer& layer) {
  const auto refuse = [&](const std::string& problem) {
    layer.backend = layer.kernel = layer.layout = "";
    layer.packed_bytes = 0;
    layer.problem = problem;
  };
  if (!layer.facts.value("converted", false)) return refuse("not converted");
  layer.packed_bytes = layer.facts.value("bytes", std::uint64_t{0});
  if (!target.here) {  // the library makes layers of this machine alone
    const Json& layouts = model.document["converted"]["layouts"];
    const bool reads = std::any_of(layouts.begin(), layouts.end(), [&](const Json& layout) {
      return family_of(layout.get<std::string>()) == family_of(layer.layout);
    });
    if (!reads)
      refuse(fmt::format("packed as {}, that machine takes {}", layouts.front().get<std::string>(), layer.layout));
    return;
  }
  auto request = sized<moe_checkpoint_options>();
  request.load_flags = MOE_LOAD_MMAP;
  request.platform = target.platform.get();
  try {
    const auto made =
        make<LayerHandle>(moe_checkpoint_layer, model.context.get(), model.checkpoint.get(), layer.number, &request);
    const Json report = document_of(moe_layer_to_json, made.get());
    layer.backend = report.value("backend", "");
    layer.kernel = report.value("kernel", "");
    layer.layout = report.value("layout", "");
    const std::string taken = report.value("selected_kernel", "");
    for (Json& candidate : layer.candidates) candidate["chosen"] = candidate.value("kernel", "") == taken;
  } catch (const Failure& failure) {
    const Json& details = failure.details();
    if (failure.status() != MOE_ERR_NO_BACKEND || !details.contains("stored_layout")) return refuse(failure.what());
    layer.candidates = details.value("candidates", layer.candidates);
    refuse(fmt::format("packed as {}, this machine takes {}", details.value("stored_layout", ""),
                       details.value("layout", "")));
  }
}

}  // namespace

void choose_kernel(const moe_context* context, const TargetMachine& target, ModelLayer& layer) {
  layer.format = format_of(document_of(moe_config_to_json, layer.config.get()), layer.facts.value("format", ""));
  layer.selection = make<SelectionHandle>(moe_select_backend, const_cast<moe_context*>(context), layer.config.get(),
                                          target.platform.get(), std::uint64_t{MOE_SELECT_EXPLAIN_ONLY});
  layer.backend = moe_selection_backend(layer.selection.get());
  layer.kernel = moe_selection_kernel(layer.selection.get());
  layer.layout = moe_selection_layout(layer.selection.get());
  layer.candidates = document_of(moe_selection_to_json, layer.selection.get())["candidates"];
  if (layer.backend.empty()) {
    layer.problem = "none of the kernels accepts it";
    return;
  }
  std::uint64_t alignment = 0;
  moe_error* error = nullptr;
  if (moe_selection_packed_size(layer.selection.get(), &layer.packed_bytes, &alignment, &error) != MOE_OK)
    layer.problem = Failure(error).what();
}

std::vector<ModelLayer> layers_of(const OpenModel& model, const TargetMachine& target,
                                  const std::vector<std::int64_t>& numbers) {
  std::vector<ModelLayer> out;
  for (const Json& facts : model.document["layers"]) {
    ModelLayer layer;
    layer.number = facts.value("layer", std::int64_t{0});
    if (!numbers.empty() && !std::binary_search(numbers.begin(), numbers.end(), layer.number)) continue;
    layer.kind = facts.value("kind", "");
    layer.facts = facts;
    layer.problem = facts.value("problem", "");
    if (layer.kind == "experts" && layer.problem.empty()) {
      try {
        layer.config = make<ConfigHandle>(moe_checkpoint_config, model.checkpoint.get(), layer.number,
                                          target.patch.data(), target.patch.size());
        choose_kernel(model.context.get(), target, layer);
        if (model.document.contains("converted") && layer.problem.empty()) fit_to_file(model, target, layer);
      } catch (const Failure& failure) {
        layer.problem = failure.what();
      }
    }
    out.push_back(std::move(layer));
  }
  return out;
}

std::int64_t layer_with_experts(const OpenModel& model, std::int64_t asked) {
  std::int64_t count = 0;
  std::int64_t first = -1;
  bool lacking = false;  // layers that a converted directory does not have
  std::string problem;
  for (const Json& facts : model.document["layers"]) {
    const auto number = facts.value("layer", std::int64_t{0});
    const std::string kind = facts.value("kind", "");
    ++count;
    const bool absent = !facts.value("converted", true);
    lacking = lacking || absent;
    if (kind == "experts" && !absent && first < 0) first = number;
    if (kind == "other" && problem.empty()) problem = facts.value("problem", "");
    if (number != asked) continue;
    if (kind == "experts") return asked;
    throw Failure(kUsage, kind == "dense"
                              ? fmt::format("--layer {}: it is a dense layer and has no experts", asked)
                              : fmt::format("--layer {}: {}", asked, facts.value("problem", "it has no experts")));
  }
  if (asked >= 0)
    throw Failure(kUsage,
                  fmt::format("--layer {}: the model has {}, counted from 0", asked, count_text(count, "layer")));
  if (first < 0 && lacking) throw Failure(kNo, "no layer of this directory is converted yet");
  if (first < 0) throw Failure(kNo, problem.empty() ? "no layer of this model has experts" : problem);
  return first;
}

Json json_of(const ModelLayer& layer) {
  Json out = layer.facts;
  if (layer.kind != "experts") return out;
  out["weights"] = layer.format;
  out["backend"] = layer.backend;
  out["kernel"] = layer.kernel;
  out["layout"] = layer.layout;
  out["packed_bytes"] = layer.packed_bytes;
  if (!layer.problem.empty()) out["problem"] = layer.problem;
  return out;
}

std::string range_text(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

}  // namespace moe_tool
