// What a row of an oracle packs a config's weights into, and what that asks of a kernel.
#include "layouts/families.h"
#include "layouts/floats/float_layout.h"
#include "layouts/p16/p16.h"
#include "layouts/p16/p16_layout.h"
#include "layouts/wna16/wna16_layout.h"
#include "oracle/backend.h"
#include "oracle/rules/float_needs.h"
#include "oracle/rules/wna16_needs.h"

namespace moe::oracle {

EnumSet<ActFormat> acts_of(const Config& c) {
  if (c.float8_acts()) return {ActFormat::e4m3};
  if (c.takes_float4_acts()) return {ActFormat::e2m1};
  // Float activations are not quantized: 16 bits are closer to the model (float_oracles.md 9.6).
  const std::optional<QuantArgs>& a = c.quantization.input_activations;
  const bool quantized = a && a->type == NumType::integer;
  if (quantized || c.compute == Compute::a8) {
    const bool blocks = c.activation_quant == ActivationQuant::block32 ||
                        (c.activation_quant == ActivationQuant::automatic && !quantized);
    return blocks ? EnumSet{ActFormat::blk8} : EnumSet{ActFormat::tok8};
  }
  EnumSet acts{ActFormat::f32};
  if (c.in_dtype == DType::bf16) acts = acts.with({ActFormat::bf16});
  if (c.in_dtype != DType::f32 && c.compute == Compute::automatic) acts = acts.with({ActFormat::blk16});
  return acts;
}

KernelNeeds needs_of(const Config& c, const Accepts& row, LayoutKind layout) {
  const bool zeros = c.quantization.weights && !c.quantization.weights->symmetric;
  return {.layout = layout, .acts = row.acts & acts_of(c), .zeros = zeros};
}

LayoutKind layout_kind(const Query& q, const Accepts& row) {
  if (q.layer == nullptr) return LayoutKind::none;
  const bool ours = !(row.layouts == EnumSet<LayoutKind>());
  for (const NamedChoice& named : row.other_layouts) {
    if (named.needs != Isa::scalar && !q.platform.runs(named.needs)) continue;  // conversion runs anywhere
    if (named.arch != Arch::automatic && named.arch != q.platform.arch) continue;
    if (!named.devices.has(q.platform.type)) continue;
    if (!ours || !has_kernels(named.layout)) return named.layout;
    if (pick(needs_of(*q.layer, row, named.layout))) return named.layout;
  }
  LayoutKind kind = LayoutKind::none;  // one with kernels for the activations, else any for the weights
  for (const KernelId& k : kKernelIds) {
    if (!row.layouts.has(k.layout) || p16_element(k.layout) != weight_element(*q.layer)) continue;
    if (pick(needs_of(*q.layer, row, k.layout))) return k.layout;
    if (kind == LayoutKind::none) kind = k.layout;
  }
  return kind;
}

namespace {

std::int64_t scale_rows_of(const Quantization& z) {
  if (!z.weights || z.weights->type != NumType::floating) return 1;
  if (z.has_one_scale()) return kAllRows;
  return z.weights->block_structure ? moe::scale_rows_of((*z.weights->block_structure)[0]) : 1;
}

}  // namespace

Layout layout_of(const Query& q, const Accepts& row) {
  const LayoutKind kind = layout_kind(q, row);
  const Config& c = *q.layer;
  const bool wna16 = c.quantization.is_wna16();
  const bool ordered = wna16 && c.quantization.weights->actorder == ActOrder::group;
  std::optional<Groups> w2_groups;
  if (ordered && c.parallel.tp_size > 1 && c.weight_groups().is_even())
    w2_groups = Groups::uneven(c.weight_groups().count_in(c.intermediate_size));
  const LayoutShape shape = {.experts = c.num_held_experts(),
                             .hidden = c.hidden_dim,
                             .intermediate = c.intermediate_size_per_partition,
                             .groups = c.weight_groups(),
                             .gated = is_gated(c.activation),
                             .has_bias = c.has_bias,
                             .scales = q.oracle == OracleId::w4a8_int8 ? Scales::w4a8 : Scales::f32,
                             .has_zeros = wna16 && !c.quantization.weights->symmetric,
                             .has_order = ordered,
                             .element = weight_element(c).value_or(Element::int4),
                             .w2_groups = w2_groups,
                             .scale_rows = scale_rows_of(c.quantization)};
  if (p16_element(kind)) {
    Layout l = p16_layout(kind, shape);
    l.variant.bit_compat_vllm = c.bit_compat == Policy::vllm && may_share_scales(l);
    l.variant.input_scales = c.takes_input_scales() && may_have_input_scales(l);
    return l;
  }
  if (is_wna16_kind(kind)) return wna16_layout(q, kind, shape);
  if (is_float_kind(kind)) return float_layout_of(q, kind, shape);
  if (layout_family(kind) != nullptr) return make_named_layout(kind, shape);
  return Layout{.kind = LayoutKind::foreign, .w13 = {}, .w2 = {}, .experts = c.num_held_experts()};
}

}  // namespace moe::oracle
