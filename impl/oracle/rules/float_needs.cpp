// The conditions of float_oracles.md 2.9, one function per layout. See float_needs.h.
#include "oracle/rules/float_needs.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"
#include "layouts/floats/float_layout.h"
#include "oracle/rules/needs.h"

namespace moe::oracle {
namespace {

struct Padding {
  std::string_view begins;  // of the backend's name
  std::int64_t hidden, intermediate;
};
// The first that fits.
constexpr std::array kPaddings = {Padding{"DEEPGEMM", 128, 128}, Padding{"FLASHINFER_CUTLASS", 128, 128},
                                  Padding{"MARLIN", 256, 128}, Padding{"BATCHED_MARLIN", 256, 128},
                                  Padding{"FLASHINFER_TRTLLM", 256, 256}};
constexpr Padding kRocmPadding = {"", 256, 256}, kCpuPadding = {"CPU", 32, 32}, kOtherPadding = {"", 1, 64};

Padding padding_of(std::string_view backend, DeviceType device) {
  for (const Padding& row : kPaddings)
    if (backend.starts_with(row.begins)) return row;
  if (device == DeviceType::rocm) return kRocmPadding;
  return backend == kCpuPadding.begins ? kCpuPadding : kOtherPadding;
}

// A layer as its tensors are when they are packed.
struct Sizes {
  LayerSizes size;
  bool gated;

  std::int64_t w13_rows() const { return (gated ? 2 : 1) * size.intermediate; }
};

Sizes sizes_of(const Query& q, const Trial& o) {
  const Config& c = *q.layer;
  LayerSizes size = {c.hidden_dim, c.intermediate_size_per_partition};
  if (q.oracle == OracleId::mxfp4 || q.oracle == OracleId::mxfp4_deepseek_v4)
    size = mxfp4_padded(o.row->backend, q.platform.type, size);
  return {size, is_gated(c.activation)};
}

MaybeNeed hidden(std::int64_t step, const Sizes& s) { return multiple_hidden(step, s.size.hidden); }
MaybeNeed intermediate(std::int64_t step, const Sizes& s) { return multiple_intermediate(step, s.size.intermediate); }
MaybeNeed w13_rows(std::int64_t step, const Sizes& s) {
  return multiple(s.gated ? "twice intermediate_size_per_partition" : "intermediate_size_per_partition", step,
                  s.w13_rows(), kIntermediate);
}

bool is_strategy(const Query& q, Strategy s) { return q.layer->quantization.weights->strategy == s; }

}  // namespace

LayerSizes mxfp4_padded(std::string_view backend, DeviceType device, LayerSizes sizes) {
  Padding p = padding_of(backend, device);
  if (backend.ends_with("MARLIN") && device == DeviceType::xpu) p.hidden = 128;
  return {round_up(sizes.hidden, p.hidden), round_up(sizes.intermediate, p.intermediate)};
}

namespace float_needs {

MaybeNeed sizes(const Query& q, const Trial& o) {
  const Layout layout = layout_of(q, *o.accepts);
  if (!is_float_kind(layout.kind)) return std::nullopt;
  const FloatForm* form = float_form(layout);
  if (form == nullptr)
    return UnmetNeed{Reject::not_built,
                     {cat("a layout of ", o.row->backend, " for these weights"), "this build has none", ""}};
  const Sizes s = {{padded_hidden(layout), padded_intermediate(layout)}, is_gated(q.layer->activation)};
  return first(hidden(form->hidden_step, s), intermediate(form->intermediate_step, s),
               w13_rows(form->w13_rows_step, s));
}

MaybeNeed bf16_sizes(const Query& q, const Trial& o) {
  if (q.layer->in_dtype != DType::bf16)
    return UnmetNeed{Reject::input_dtype,
                     {"activations of bfloat16", cat("in_dtype is ", q.moe.in_dtype), "/in_dtype"}};
  return sizes(q, o);
}

// By default vLLM brings the weights into an order that its oneDNN chooses.
MaybeNeed sgl_kernel(const Query& q, const Trial& o) {
  constexpr std::string_view kSwitch = "VLLM_CPU_SGL_KERNEL";
  if (!q.env_flag(kSwitch, false))
    return UnmetNeed{Reject::not_built, {cat(kSwitch, " 1, whose layout is known"), "it is not set", "/vllm_env"}};
  if (q.layer->in_dtype != DType::bf16)
    return UnmetNeed{Reject::not_built, {"activations of bfloat16", cat("in_dtype is ", q.moe.in_dtype), "/in_dtype"}};
  return sizes(q, o);
}

// Tiles of 16 inputs and 64 outputs, in both matrices.
MaybeNeed marlin(const Query& q, const Trial& o) {
  if ((q.oracle == OracleId::fp8 || q.oracle == OracleId::nvfp4) && q.layer->in_dtype == DType::f32)
    return UnmetNeed{
        Reject::input_dtype,
        {"activations of bfloat16 or float16, the type of its scales", "in_dtype is float32", "/in_dtype"}};
  if (q.layer->marlin_input_dtype != MarlinInput::none)
    return UnmetNeed{Reject::quant_scheme,
                     {"marlin_input_dtype none for float weights", "it is another", "/marlin_input_dtype"}};
  const Sizes s = sizes_of(q, o);
  return first(hidden(64, s), intermediate(16, s), w13_rows(64, s));
}

// Per tensor: rows in blocks of 32, I padded to 16 or, without a gate, 128. Blocks: of 16, and inputs by 128. MXFP8:
// the swizzled scales have tiles of 128 rows and 4 groups, and no space is left for padding.
MaybeNeed trtllm_fp8(const Query& q, const Trial& o) {
  const Sizes s = sizes_of(q, o);
  if (is_strategy(q, Strategy::tensor)) return hidden(32, s);
  return first(hidden(128, s), intermediate(128, s));
}

// H is padded to 256, I to 16 or, without a gate, 128.
MaybeNeed trtllm_nvfp4(const Query& q, const Trial& o) {
  Sizes s = sizes_of(q, o);
  if (!s.gated) return std::nullopt;
  s.size.intermediate = round_up(s.size.intermediate, std::int64_t{16});
  return intermediate(64, s);
}

// Without a gate the rows are padded.
MaybeNeed swizzled(const Query& q, const Trial& o) {
  const Sizes s = sizes_of(q, o);
  return s.gated ? w13_rows(128, s) : std::nullopt;
}

MaybeNeed interleaved(const Query& q, const Trial& o) { return intermediate(64, sizes_of(q, o)); }

MaybeNeed deep_gemm(const Query& q, const Trial& o) {
  const Sizes s = sizes_of(q, o);
  return first(hidden(128, s), intermediate(128, s));
}

// 16 outputs and 32 inputs; its class has a gate, so that rows of w13 are no further condition.
MaybeNeed aiter(const Query& q, const Trial& o) {
  const Sizes s = sizes_of(q, o);
  return first(hidden(32, s), intermediate(32, s));
}

MaybeNeed vnni(const Query& q, const Trial& o) { return aiter(q, o); }

MaybeNeed cutlass_w4a8(const Query& q, const Trial&) {
  if (q.layer->quantization.weights->actorder != ActOrder::group) return std::nullopt;
  return UnmetNeed{Reject::act_order,
                   {"weights in the order of the columns", "actorder is group", "/quantization/weights/actorder"}};
}

}  // namespace float_needs

Layout float_layout_of(const Query& q, LayoutKind kind, const LayoutShape& shape) {
  const Config& c = *q.layer;
  const std::optional<QuantArgs>& a = c.quantization.input_activations;
  return make_float_layout(
      kind, shape,
      {.activations = c.in_dtype,
       .mx = q.oracle == OracleId::mxfp8 || q.oracle == OracleId::mxfp4 || q.oracle == OracleId::mxfp4_deepseek_v4,
       .powers_of_two = q.env_flag("VLLM_USE_DEEP_GEMM_E8M0", true),
       .static_activations = a && a->dynamic == Dynamic::no,
       .gate_up_pairs = c.activation == Activation::swigluoai,
       .bit_compat_vllm = c.bit_compat == Policy::vllm,
       .fnuz = q.platform.type == DeviceType::rocm && q.platform.gfx.value_or("").starts_with("gfx94")});
}

}  // namespace moe::oracle
