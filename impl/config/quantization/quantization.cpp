// The member "quantization" in its two forms, a named scheme or the arguments of compressed-tensors,
// and the frame of "hf_quantization_config", whose content checkpoint_quantization.cpp reads.
//
//   arguments -> format (given or inferred) -> does it hold the weights? -> do groups divide the sizes?
#include "config/quantization/quantization.h"

#include <array>

#include "base/index.h"
#include "base/text.h"
#include "config/field_rows.h"
#include "config/quantization/float_acts.h"
#include "config/sections.h"

namespace moe::config {
namespace {

using fields::Members;

constexpr std::string_view kBase = "/quantization";

// {"scheme": ..}: the preset, with its group size replaced if one is given.
Result<Quantization> read_scheme(const Members& members) {
  const json::Value& v = *members.get("scheme");
  const Preset* preset = v.string() == nullptr ? nullptr : find_preset(*v.string());
  if (preset == nullptr) {
    return fields::unexpected(members.at("scheme"), v, fields::join(kSchemeNames));
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
    return fields::fault(members.at("group_size"),
                         cat("found ", *g, ", but the grouping of scheme ", preset->name, " is fixed"));
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

Check read_format(const Members& members, Quantization& q) {
  return fields::put(members.word("format", kFormatNames, q.format), q.format);
}

// zero_point_convention and is_transposed, which follow from the format together.
Check read_storage(const Members& members, Quantization& q) {
  MOE_TRY(const std::size_t zero_points, members.word("zero_point_convention", kGivenZeroPointsNames, std::size_t{0}));
  if (zero_points != 0 && !(q.weights && q.weights->type == NumType::integer)) {
    return fields::fault(members.at("zero_point_convention"),
                         cat("found ", kGivenZeroPointsNames[zero_points], ", expected auto without integer weights"));
  }
  MOE_TRY(const std::optional<bool> transposed, members.boolean("is_transposed"));
  const bool packed = q.format == Format::gptq || q.format == Format::awq || q.format == Format::pack_quantized;
  const std::string format(at(kFormatNames, q.format));
  if (transposed && !packed) {
    return fields::fault(members.at("is_transposed"),
                         cat("given for format ", format, ", expected gptq, awq or pack-quantized"));
  }
  if (transposed && !*transposed && q.format != Format::pack_quantized) {
    return fields::fault(members.at("is_transposed"), cat("found false, but format ", format, " is always K-first"));
  }
  if (!q.weights) return ok();
  std::optional<ZeroPoints> given;
  if (zero_points != 0) given = static_cast<ZeroPoints>(zero_points - 1);
  const bool may_have_sign = q.format == Format::quark_reorder || q.format == Format::quark_order;
  const bool has_sign = given == ZeroPoints::twos_complement;
  if (q.format == Format::modelopt_int4 ? given && !has_sign : has_sign && !may_have_sign)
    return fields::fault(
        members.at("zero_point_convention"),
        cat("found ", kGivenZeroPointsNames[zero_points], " for format ", format,
            ", expected twos_complement for modelopt-int4, and for quark-reorder and quark-order only"));
  fill_storage(q, given, transposed);
  return ok();
}

void write_weights(const Quantization& q, json::Object& out) {
  out.emplace_back("weights", quant_args_value(q.weights));
}
void write_input_activations(const Quantization& q, json::Object& out) {
  out.emplace_back("input_activations", quant_args_value(q.input_activations));
}
void write_format(const Quantization& q, json::Object& out) {
  out.emplace_back("format", word_value(kFormatNames, q.format));
}
void write_zero_points(const Quantization& q, json::Object& out) {
  static constexpr std::array<std::string_view, 3> kWords = {"as_stored", "plus_one", "twos_complement"};
  const std::optional<ZeroPoints>& z = q.zero_point_convention;
  out.emplace_back("zero_point_convention", z ? word_value(kWords, *z) : json::Value());
}
void write_transposed(const Quantization& q, json::Object& out) {
  out.emplace_back("is_transposed", or_null(q.is_transposed));
}

using Owner = Quantization;
// clang-format off
constexpr fields::Field<Owner> kFields[] = {
#define MOE_FIELD_PLACE(quantization) quantization
#define MOE_FIELDS_QUANTIZATION
#include "config/field_rows.inc"
};
// clang-format on

Check check_format(const Members& members, const Quantization& q) {
  const std::string found = cat("found ", at(kFormatNames, q.format));
  if (!q.weights) {
    if (q.format == Format::none) return ok();
    return fields::fault(members.at("format"), found + ", expected none for weights that are not quantized");
  }
  const QuantArgs& w = *q.weights;
  const FormatRow& f = at(kFormats, q.format);
  const bool limited = !f.holds.empty();
  const bool holds =
      limited ? w.type == f.type && (f.bits == 0 || w.num_bits == f.bits) && (f.group == 0 || w.group_size == f.group)
              : q.format != Format::none;
  if (!holds) {
    return fields::fault(members.at("format"),
                         cat(found, ", which holds ", limited ? f.holds : "no quantized weights", ", for ", w.num_bits,
                             "-bit ", at(kNumTypeNames, w.type), " weights"));
  }
  if (w.actorder == ActOrder::group && q.format != Format::gptq && q.format != Format::pack_quantized) {
    return fields::fault(members.at("weights") + "/actorder",
                         found + " as the format, expected gptq or pack-quantized");
  }
  return ok();
}

Result<Quantization> read_strict(const json::Value* object, const Config& config) {
  if (object == nullptr) return Quantization();
  MOE_TRY(const Members members, fields::open_fields(object, std::string(kBase), kFields));
  const bool scheme = members.has("scheme");
  MOE_TRY(Quantization q, scheme ? read_scheme(members) : read_arguments(members));
  MOE_CHECK(fields::read_fields(members, kFields, q));
  MOE_CHECK(check_format(members, q));
  const std::string blocks_at = cat(kBase, scheme ? "/scheme" : "/weights/block_structure");
  const std::string groups_at = cat(kBase, members.has("group_size") ? "/group_size"
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
  const fields::Words read(kHfMethodNames);
  if (method == nullptr) return fields::missing(method_at, fields::join(read));
  if (method->string() == nullptr || !fields::index_of(kHfMethodNames, *method->string())) {
    return fields::unexpected(method_at, *method, fields::join(read));
  }
  MOE_TRY(std::optional<HfQuantization> resolved,
          resolve_hf_quantization(object, config.name, config.projection_names, config.num_experts));
  Quantization q;
  if (resolved) q = std::move(resolved->quantization);
  q.hf = q.file_method = *method->string();
  MOE_CHECK(check_sizes(q, config, base, base));
  return q;
}

// compute, activation_quant and marlin_input_dtype against the quantization (config.md 13, last row).
Check check_arithmetic(const Members& members, const Config& c) {
  const std::optional<QuantArgs>&w = c.quantization.weights, &a = c.quantization.input_activations;
  const bool int_weights = w && w->type == NumType::integer;
  const bool int8_activations = a && a->type == NumType::integer && a->num_bits == 8;
  const auto refuse = [&](std::string_view key, const char* expected) {
    return fields::fault(members.at(key), cat("found ", fields::brief(*members.get(key)), ", which needs ", expected));
  };
  const bool float_weights = w && w->type == NumType::floating;
  MOE_CHECK(check_float_acts(members, c));
  if (c.compute == Compute::a8 && !float_weights && !(int_weights && (!a || int8_activations))) {
    return refuse("compute", "integer weights, and input_activations that are int8 or absent");
  }
  if (c.compute == Compute::a16 && int_weights && a) return refuse("compute", "a checkpoint without input_activations");
  const bool makes_int8 = c.compute == Compute::a8 && !c.float8_acts();
  if (c.activation_quant != ActivationQuant::automatic && !int8_activations && !makes_int8) {
    return refuse("activation_quant",
                  "int8 input_activations, or compute a8 with weights that are integers or 4-bit floats");
  }
  if (c.marlin_input_dtype == MarlinInput::none) return ok();
  if (!int_weights || a) return refuse("marlin_input_dtype", "integer weights without input_activations");
  if (w->actorder == ActOrder::group) return refuse("marlin_input_dtype", "weights without activation order");
  if (c.marlin_input_dtype == MarlinInput::fp8 && w->num_bits != 4)
    return refuse("marlin_input_dtype", "4-bit weights");
  return ok();
}

}  // namespace

Check read_quantization(const Members& members, Draft& draft) {
  const json::Value *strict = members.get("quantization"), *hf = members.get("hf_quantization_config");
  if (strict != nullptr && hf != nullptr) {
    return fields::fault("/hf_quantization_config", "given beside /quantization, expected one of the two");
  }
  MOE_TRY(draft.config.quantization, hf != nullptr ? read_hf(*hf, draft.config) : read_strict(strict, draft.config));
  return check_arithmetic(members, draft.config);
}
void write_quantization(const Draft& draft, json::Object& out) {
  out.emplace_back("quantization", quantization_value(draft.config.quantization));
}

json::Value quantization_value(const Quantization& q) {
  json::Value v = fields::write_fields(kFields, q);
  if (q.hf) v.set("hf", *q.hf);
  return v;
}

}  // namespace moe::config
