// Activations that `compute` quantizes to floats, as the file of float weights says (float_oracles.md 9.6).
#include "config/quantization/float_acts.h"

#include "base/text.h"
#include "config/fields.h"

namespace moe::config {
namespace {

bool is_float(const std::optional<QuantArgs>& a, int bits) {
  return a && a->type == NumType::floating && a->num_bits == bits;
}
bool has_powers_of_two(const Quantization& q) { return read_as(q.format) == Format::mxfp8_quantized; }

// The file's own rule for rows of 8-bit floats; weight-only files have none.
std::optional<FloatActs> rule_of(const Quantization& q) {
  const std::optional<QuantArgs>& a = q.input_activations;
  if (has_powers_of_two(q)) return kMxActs;
  if (!a || a->strategy == Strategy::token) return FloatActs{};
  if (a->strategy == Strategy::tensor)  // dynamic: of a token, whose bits depend on no other one
    return FloatActs{a->dynamic == Dynamic::no ? FloatScale::tensor : FloatScale::token};
  return FloatActs{FloatScale::group, a->group_size.value_or(0), a->scale_format == ScaleFormat::ue8m0};
}

constexpr std::string_view kInputs = "/quantization/input_activations";

Check not_built(const std::string& pointer, std::string_view what) {
  return fail(Code::unsupported, pointer, cat(pointer, ": ", what, "; compute a16 takes any"));
}

Check check_symmetric(const QuantArgs& a) {
  return a.symmetric ? ok() : not_built(cat(kInputs, "/symmetric"), "floats of activations have no zero points");
}

// Rules of activations that float rows cannot follow.
Check check_float8(const Config& c) {
  const Quantization& q = c.quantization;
  const std::optional<QuantArgs>& a = q.input_activations;
  if (!a) return ok();
  MOE_CHECK(check_symmetric(*a));
  const std::string strategy(at(kStrategyNames, a->strategy));
  if (has_powers_of_two(q)) {
    const bool mx = a->strategy == Strategy::group && a->group_size == kMxActs.columns && a->dynamic == Dynamic::yes;
    return mx ? ok()
              : not_built(
                    cat(kInputs, "/strategy"),
                    "with MXFP8 weights compute a8 takes dynamic groups of 32 columns, whose scales are powers of "
                    "two, not these activations");
  }
  if (a->strategy == Strategy::token || a->strategy == Strategy::tensor) return ok();
  if (a->strategy != Strategy::group || a->dynamic != Dynamic::yes)
    return not_built(cat(kInputs, "/strategy"),
                     cat("compute a8 takes tensor, token or dynamic group for 8-bit floats, not ",
                         a->strategy == Strategy::group ? "a static group" : strategy));
  if (*a->group_size % kMxActs.columns != 0)
    return not_built(cat(kInputs, "/group_size"),
                     cat("compute a8 takes groups of a multiple of 32 columns, not ", *a->group_size));
  return ok();
}

}  // namespace

Check check_float_acts(const fields::Members& members, const Config& c) {
  const std::optional<QuantArgs>&w = c.quantization.weights, &a = c.quantization.input_activations;
  const auto refuse = [&](const char* expected) {
    return fields::fault(members.at("compute"),
                         cat("found ", fields::brief(*members.get("compute")), ", which needs ", expected));
  };
  switch (c.compute) {
    case Compute::automatic:
    case Compute::a16:
      return ok();
    case Compute::a4:
      if (c.quantization.is_mxfp4()) return ok();
      if (!c.quantization.is_nvfp4()) return refuse("MXFP4 or NVFP4 weights");
      if (!is_float(a, 4)) return refuse("input_activations of 4-bit floats, whose second scale is in the file");
      if (a->dynamic == Dynamic::yes)
        return refuse("input_activations whose second scale is in the file (dynamic \"local\")");
      if (a->group_size == w->group_size) return check_symmetric(*a);
      return not_built(cat(kInputs, "/group_size"), "compute a4 takes the groups of NVFP4 weights, 16 columns");
    case Compute::mxfp8:
      return c.quantization.is_mxfp4() ? ok() : refuse("MXFP4 weights");
    case Compute::a8:
      break;
  }
  if (!is_float(w, 8) || !w->symmetric) return ok();
  if (a && !is_float(a, 8)) return refuse("input_activations that are 8-bit floats or absent");
  return check_float8(c);
}

Error whole_batches_unsupported() {
  const std::string place = cat(kInputs, "/dynamic");
  return fail(Code::unsupported, place,
              cat(place,
                  ": activations with one scale for a whole batch, as bit_compat vllm asks, are not computed on a "
                  "CPU; bit_compat libmoe takes a scale for each token"));
}

bool Config::scales_whole_batches() const {
  const std::optional<QuantArgs>& a = quantization.input_activations;
  const bool whole = a && a->strategy == Strategy::tensor && a->dynamic != Dynamic::no;
  return bit_compat == Policy::vllm && selection_policy == Policy::libmoe && whole && float8_acts();
}

std::optional<FloatActs> Config::float8_acts() const {
  if (compute == Compute::mxfp8) return kMxActs;
  return compute == Compute::a8 && quantization.is_fp8() ? rule_of(quantization) : std::nullopt;
}
bool Config::takes_float4_acts() const { return compute == Compute::a4; }
bool Config::takes_input_scales() const {
  if (takes_float4_acts()) return quantization.is_nvfp4();
  const std::optional<FloatActs> acts = float8_acts();
  return acts && acts->scale == FloatScale::tensor;
}

}  // namespace moe::config
