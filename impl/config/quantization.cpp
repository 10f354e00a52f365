// The member "quantization" in its two forms, a named scheme or the arguments of compressed-tensors,
// and the frame of "hf_quantization_config", whose content hf_quantization.cpp reads.
//
//   arguments -> format (given or inferred) -> does it hold the weights? -> do groups divide the sizes?
#include "config/quantization.h"

#include <array>

#include "config/fields.h"
#include "config/sections.h"

namespace moe {
namespace {

using fields::Members;

// clang-format off
// What a format can hold: number type, bits and group size, 0 = any.
struct Container {
  NumType type;
  int bits;
  std::int64_t group;
  std::string_view holds;
};
constexpr std::optional<Container> container(Format f) {
  switch (f) {
    case Format::gptq:
    case Format::pack_quantized:
    case Format::int_quantized:        return Container{NumType::integer, 0, 0, "integer weights"};
    case Format::awq:                  return Container{NumType::integer, 4, 0, "4-bit integer weights"};
    case Format::float_quantized:      return Container{NumType::floating, 8, 0, "8-bit float weights"};
    case Format::nvfp4_pack_quantized: return Container{NumType::floating, 4, 16, "4-bit float weights with group_size 16"};
    case Format::mxfp4_pack_quantized:
    case Format::mxfp4_gpt_oss:        return Container{NumType::floating, 4, 32, "4-bit float weights with group_size 32"};
    case Format::mxfp8_quantized:      return Container{NumType::floating, 8, 32, "8-bit float weights with group_size 32"};
    case Format::none:
    case Format::naive_quantized:      break;
  }
  return std::nullopt;
}

constexpr std::array<std::string_view, 7> kMembers = {
    "scheme", "weights", "input_activations", "format", "group_size", "zero_point_convention", "is_transposed"};
constexpr std::array<std::string_view, 8> kMethods = {
    "compressed-tensors", "gptq", "awq", "fp8", "mxfp4", "modelopt", "modelopt_fp4", "quark"};
// clang-format on

constexpr std::string_view kBase = "/quantization";

// {"scheme": ..}: the preset, with its group size replaced if one is given.
Result<Quantization> read_scheme(const Members& members) {
  const json::Value& v = *members.get("scheme");
  const Preset* preset = v.string() == nullptr ? nullptr : find_preset(*v.string());
  if (preset == nullptr) {
    std::vector<std::string_view> names;
    for (const Preset& p : presets()) names.push_back(p.name);
    return fields::unexpected(members.at("scheme"), v, fields::join(names));
  }
  for (const std::string_view other : {"weights", "input_activations"}) {
    if (members.has(other))
      return fields::fault(members.at(other), "given beside scheme, expected one of the two forms");
  }
  Quantization q;
  q.weights = preset->weights;
  q.input_activations = preset->input_activations;
  q.format = preset->format;
  if (!members.has("group_size")) return q;
  if (members.get("group_size")->is_null()) {
    return fields::unexpected(members.at("group_size"), *members.get("group_size"), "an integer in [-1, 65536]");
  }
  MOE_TRY(const std::optional<std::int64_t> g, read_group_size(members));
  if (!q.weights || q.weights->type != NumType::integer || q.weights->strategy != Strategy::group) {
    return fields::fault(members.at("group_size"), "found " + std::to_string(*g) + ", but the grouping of scheme " +
                                                       std::string(preset->name) + " is fixed");
  }
  q.weights->strategy = *g == -1 ? Strategy::channel : Strategy::group;
  q.weights->group_size = *g == -1 ? std::nullopt : g;
  return q;
}

// {"weights": {..}, "input_activations": {..}}
Result<Quantization> read_arguments(const Members& members) {
  if (members.has("group_size"))
    return fields::fault(members.at("group_size"), "given without scheme, expected inside weights");
  if (!members.has("weights")) return fields::missing(members.at("weights"), "weights or a scheme");
  Quantization q;
  MOE_TRY(q.weights, read_quant_args(*members.get("weights"), members.at("weights"), Operand::weights));
  const json::Value* a = members.get("input_activations");
  if (a != nullptr && !a->is_null()) {
    MOE_TRY(q.input_activations, read_quant_args(*a, members.at("input_activations"), Operand::activations));
  }
  q.format = infer_format(q.weights, q.input_activations);
  return q;
}

Check read_storage(const Members& members, Quantization& q) {
  static constexpr std::array<std::string_view, 3> kZeroPoints = {"auto", "as_stored", "plus_one"};
  MOE_TRY(const std::size_t zero_points, members.word("zero_point_convention", kZeroPoints, std::size_t{0}));
  if (zero_points != 0 && !(q.weights && q.weights->type == NumType::integer)) {
    return fields::fault(members.at("zero_point_convention"),
                         "found " + std::string(kZeroPoints[zero_points]) + ", expected auto without integer weights");
  }
  MOE_TRY(const std::optional<bool> transposed, members.boolean("is_transposed"));
  const bool packed = q.format == Format::gptq || q.format == Format::awq || q.format == Format::pack_quantized;
  const std::string format(kFormatNames[static_cast<std::size_t>(q.format)]);
  if (transposed && !packed) {
    return fields::fault(members.at("is_transposed"),
                         "given for format " + format + ", expected gptq, awq or pack-quantized");
  }
  if (transposed && !*transposed && q.format != Format::pack_quantized) {
    return fields::fault(members.at("is_transposed"), "found false, but format " + format + " is always K-first");
  }
  if (!q.weights) return ok();
  std::optional<ZeroPoints> given;
  if (zero_points != 0) given = zero_points == 1 ? ZeroPoints::as_stored : ZeroPoints::plus_one;
  fill_storage(q, given, transposed);
  return ok();
}

Check check_format(const Members& members, const Quantization& q) {
  const std::string found = "found " + std::string(kFormatNames[static_cast<std::size_t>(q.format)]);
  if (!q.weights) {
    if (q.format == Format::none) return ok();
    return fields::fault(members.at("format"), found + ", expected none for weights that are not quantized");
  }
  const QuantArgs& w = *q.weights;
  const std::optional<Container> c = container(q.format);
  const bool holds =
      c ? w.type == c->type && (c->bits == 0 || w.num_bits == c->bits) && (c->group == 0 || w.group_size == c->group)
        : q.format != Format::none;
  if (!holds) {
    return fields::fault(members.at("format"),
                         found + ", which holds " + (c ? std::string(c->holds) : "no quantized weights") + ", for " +
                             std::to_string(w.num_bits) + "-bit " +
                             std::string(kNumTypeNames[static_cast<std::size_t>(w.type)]) + " weights");
  }
  if (w.actorder == ActOrder::group && q.format != Format::gptq && q.format != Format::pack_quantized) {
    return fields::fault(members.at("weights") + "/actorder",
                         found + " as the format, expected gptq or pack-quantized");
  }
  return ok();
}

Result<Quantization> read_strict(const json::Value* object, const Config& config) {
  if (object == nullptr) return Quantization();
  MOE_TRY(const Members members, Members::open(object, std::string(kBase), kMembers));
  const bool scheme = members.has("scheme");
  MOE_TRY(Quantization q, scheme ? read_scheme(members) : read_arguments(members));
  MOE_TRY(q.format, members.word("format", kFormatNames, q.format));
  MOE_CHECK(read_storage(members, q));
  MOE_CHECK(check_format(members, q));
  const std::string blocks_at = std::string(kBase) + (scheme ? "/scheme" : "/weights/block_structure");
  const std::string groups_at = std::string(kBase) + (members.has("group_size") ? "/group_size"
                                                      : scheme                  ? "/scheme"
                                                                                : "/weights/group_size");
  MOE_CHECK(check_sizes(q, config, groups_at, blocks_at));
  return q;
}

Result<Quantization> read_hf(const json::Value& object, const Config& config) {
  const std::string base = "/hf_quantization_config";
  if (object.object() == nullptr) return fields::unexpected(base, object, "an object");
  const std::string method_at = base + "/quant_method";
  const json::Value* method = object.find("quant_method");
  if (method == nullptr) return fields::missing(method_at, fields::join(kMethods));
  if (method->string() == nullptr || !fields::index_of(kMethods, *method->string())) {
    return fields::unexpected(method_at, *method, fields::join(kMethods));
  }
  MOE_TRY(std::optional<HfQuantization> resolved,
          resolve_hf_quantization(object, config.name, config.projection_names));
  Quantization q;
  if (resolved) q = std::move(resolved->quantization);
  q.hf = *method->string();
  MOE_CHECK(check_sizes(q, config, base, base));
  return q;
}

}  // namespace

Check read_quantization(const json::Value& document, Draft& draft) {
  const json::Value *strict = document.find("quantization"), *hf = document.find("hf_quantization_config");
  if (strict != nullptr && hf != nullptr) {
    return fields::fault("/hf_quantization_config", "given beside /quantization, expected one of the two");
  }
  MOE_TRY(draft.config.quantization, hf != nullptr ? read_hf(*hf, draft.config) : read_strict(strict, draft.config));
  return ok();
}

}  // namespace moe
