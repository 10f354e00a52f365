// The conditions of wna16.md 1.5a and 1.6, one function per layout. See wna16_needs.h.
#include "oracle/rules/wna16_needs.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/index.h"
#include "base/text.h"
#include "layouts/families.h"
#include "layouts/wna16/wna16_layout.h"
#include "oracle/rules/needs.h"

namespace moe::oracle {
namespace {

constexpr const char* kActOrder = "/quantization/weights/actorder";
constexpr const char* kGroupSize = "/quantization/weights/group_size";
constexpr const char* kSymmetric = "/quantization/weights/symmetric";
constexpr const char* kFormat = "/quantization/format";
struct AskedLayer {
  const Config& c;
  const QuantArgs& w;
  const Platform& platform;

  Format format() const { return read_as(c.quantization.format); }
  bool ordered() const { return w.actorder == ActOrder::group; }
  std::int64_t hidden() const { return c.hidden_dim; }
  std::int64_t intermediate() const { return c.intermediate_size_per_partition; }
  std::string format_text() const { return cat("it is ", at(kFormatNames, format())); }
};

MaybeNeed multiples(const AskedLayer& l, std::int64_t of_hidden, std::int64_t of_intermediate) {
  return first(multiple_hidden(of_hidden, l.hidden()), multiple_intermediate(of_intermediate, l.intermediate()));
}

MaybeNeed symmetric(const AskedLayer& l, const char* who) {
  if (l.w.symmetric) return std::nullopt;
  return UnmetNeed{Reject::zero_point, {cat("symmetric weights for ", who), "symmetric is false", kSymmetric}};
}

MaybeNeed natural_order(const AskedLayer& l) {
  if (!l.ordered()) return std::nullopt;
  return UnmetNeed{Reject::act_order, {"weights in the order of the columns", "actorder is group", kActOrder}};
}

MaybeNeed weight_on_output(const AskedLayer& l) {
  if (!l.c.apply_router_weight_on_input) return std::nullopt;
  return UnmetNeed{Reject::routing,
                   {"router weights that count at the output", "apply_router_weight_on_input is true",
                    "/apply_router_weight_on_input"}};
}

MaybeNeed without_bias(const AskedLayer& l) {
  if (!l.c.has_bias) return std::nullopt;
  return UnmetNeed{Reject::bias, {"no bias: its kernel ignores one", "has_bias is true", "/has_bias"}};
}

MaybeNeed four_bit(const AskedLayer& l, const char* what) {
  if (l.w.num_bits == 4) return std::nullopt;
  return UnmetNeed{Reject::quant_scheme,
                   {cat("4-bit weights ", what), cat("num_bits is ", l.w.num_bits), "/quantization/weights/num_bits"}};
}

// Scales are written as activations are.
MaybeNeed half_floats(const AskedLayer& l) {
  if (l.c.in_dtype != DType::f32) return std::nullopt;
  return UnmetNeed{Reject::input_dtype, {"activations of bfloat16 or float16", "in_dtype is float32", "/in_dtype"}};
}

// --- the layouts ----------------------------------------------------------------------------------------------

MaybeNeed marlin_order(const AskedLayer& l) {
  if (!l.ordered()) return std::nullopt;
  const Groups groups = l.c.weight_groups();
  const std::int64_t size = l.intermediate();
  if (groups.count_in(l.hidden()) == 1 || groups.count_in(size) == 1)
    return UnmetNeed{Reject::act_order,
                     {"more than one group with actorder group", "one covers all columns", kActOrder}};
  if (size % 64 == 0 && size % groups.as_written() == 0) return std::nullopt;
  return UnmetNeed{Reject::act_order,
                   {"an intermediate size of whole tiles (64) with actorder group", cat("it is ", size), kActOrder}};
}

MaybeNeed marlin_fp8(const AskedLayer& l) {
  if (l.c.marlin_input_dtype != MarlinInput::fp8) return std::nullopt;
  const std::array<int, 2> cap = l.platform.capability.value_or(std::array<int, 2>{0, 0});
  if (cap[0] == 12 || cap == std::array<int, 2>{8, 9}) return std::nullopt;
  return UnmetNeed{Reject::platform,
                   {"compute capability 8.9 or 12.x for marlin_input_dtype fp8",
                    "the platform is " + platform_text(l.platform), "/marlin_input_dtype"}};
}

MaybeNeed marlin(const AskedLayer& l) {
  const std::int64_t g = l.c.weight_groups().as_written();
  constexpr std::array<std::int64_t, 4> kGroups = {-1, 32, 64, 128};
  if (std::find(kGroups.begin(), kGroups.end(), g) == kGroups.end())
    return UnmetNeed{Reject::group_size,
                     {"channel-wise weights or groups of 32, 64 or 128", cat("it is ", g), kGroupSize}};
  if (l.format() == Format::gptq)
    if (MaybeNeed need = symmetric(l, "format gptq")) return need;
  return first(marlin_fp8(l), half_floats(l), weight_on_output(l), marlin_order(l), multiples(l, 128, 1));
}

MaybeNeed trtllm(const AskedLayer& l) {
  if (l.format() != Format::pack_quantized)
    return UnmetNeed{Reject::weight_layout, {"checkpoint format pack-quantized", l.format_text(), kFormat}};
  if (l.c.weight_groups() != Groups::even(32))
    return UnmetNeed{Reject::group_size, {"groups of 32", cat("it is ", l.c.weight_groups().as_written()), kGroupSize}};
  return first(multiples(l, 256, 256), without_bias(l), natural_order(l));
}

MaybeNeed xpu(const AskedLayer& l) {
  if (l.format() == Format::awq)
    return UnmetNeed{Reject::weight_layout, {"checkpoint format gptq or pack-quantized", l.format_text(), kFormat}};
  return first(four_bit(l, "for XPU"), symmetric(l, "XPU"), natural_order(l), multiples(l, 8, 8));
}

MaybeNeed vnni(const AskedLayer& l) {
  const Groups groups = l.c.weight_groups();
  const std::int64_t group = groups.size_in(l.hidden());
  if (groups.is_whole() && l.hidden() != l.intermediate())
    return UnmetNeed{Reject::group_size,
                     {"groups of one size in both matrices",
                      cat("channel-wise ones have ", l.hidden(), " and ", l.intermediate()), kGroupSize}};
  if (group % (group < 128 ? 4 : 128) != 0)
    return UnmetNeed{Reject::alignment,
                     {"groups of a multiple of 4 up to 128, or of 128", cat("it is ", group), kGroupSize}};
  return first(four_bit(l, "for vLLM's CPU layout"), natural_order(l),
               multiples(l, 32, is_gated(l.c.activation) ? 16 : 32), weight_on_output(l),
               l.c.bit_compat == Policy::vllm ? std::nullopt : without_bias(l));
}

// On a CPU the weights are brought into one of our layouts, for its kernels of 16-bit and float activations.
MaybeNeed runs_here(const AskedLayer& l) {
  if (l.c.compute == Compute::a8)
    return UnmetNeed{Reject::not_built,
                     {"activations in floats for weights of other layouts", "compute is a8", "/compute"}};
  const std::int64_t g = l.c.weight_groups().as_written();
  if (g == -1 || g >= 16 || (g == l.hidden() && g == l.intermediate())) return std::nullopt;
  return UnmetNeed{Reject::group_size,
                   {"channel-wise weights or a group size of at least 16", cat("it is ", g), kGroupSize}};
}

MaybeNeed emulation(const AskedLayer& l, EmulationLayout layout) {
  if (l.platform.type == DeviceType::cpu)
    if (MaybeNeed need = runs_here(l)) return need;
  if (l.c.emulation_layout != layout)
    return UnmetNeed{Reject::user,
                     {cat("emulation_layout ", layout == EmulationLayout::dense ? "dense" : "on_the_fly"),
                      "it is the other one", "/emulation_layout"}};
  if (l.format() == Format::awq)
    if (MaybeNeed need = four_bit(l, "for format awq")) return need;
  if (layout == EmulationLayout::dense) return std::nullopt;
  if (l.w.num_bits == 8)
    if (MaybeNeed need = symmetric(l, "8 bit, whose zero points the layout has no room for")) return need;
  return first(natural_order(l), l.w.num_bits == 4 ? multiples(l, 2, 2) : std::nullopt);
}

}  // namespace

MaybeNeed wna16_need(const Query& q, const Trial& o) {
  if (q.layer == nullptr) return std::nullopt;
  const LayoutKind kind = layout_kind(q, *o.accepts);
  if (!is_wna16_kind(kind)) return std::nullopt;
  const AskedLayer l{*q.layer, *q.layer->quantization.weights, q.platform};
  if (kind == LayoutKind::wna16_marlin) return marlin(l);
  if (kind == LayoutKind::wna16_trtllm) return trtllm(l);
  if (kind == LayoutKind::wna16_xpu) return xpu(l);
  if (kind == LayoutKind::wna16_vnni) return vnni(l);
  return emulation(l, kind == LayoutKind::wna16_dense ? EmulationLayout::dense : EmulationLayout::on_the_fly);
}

Layout wna16_layout(const Query& q, LayoutKind kind, const LayoutShape& given) {
  const Config& c = *q.layer;
  LayoutShape shape = given;
  LayoutVariant v{.awq = c.quantization.format == Format::awq,
                  .bit_compat_vllm = c.bit_compat == Policy::vllm,
                  .channel_wise = c.weight_groups().is_whole(),
                  .bias = c.in_dtype,
                  .number = c.in_dtype};
  const bool marlin = kind == LayoutKind::wna16_marlin;
  // AWQ's kernel of Marlin always reads zero points.
  if (marlin && v.awq) shape.has_zeros = true;
  const bool rows = kind == LayoutKind::wna16_xpu || kind == LayoutKind::wna16_on_the_fly;
  shape.scales = c.in_dtype == DType::f32 && rows                               ? Scales::f32
                 : c.in_dtype == DType::f16 && kind != LayoutKind::wna16_trtllm ? Scales::f16
                                                                                : Scales::bf16;
  if (marlin) {
    v.input = c.marlin_input_dtype;
    v.multiprocessors = q.platform.multiprocessor_count.value_or(0);
  }
  if (v.bit_compat_vllm)
    v.zero_shift = vllm_zero_shift(kind, v.awq, given.has_zeros,
                                   c.quantization.zero_point_convention.value_or(ZeroPoints::as_stored));
  return make_named_layout(kind, shape, v);
}

}  // namespace moe::oracle
