// What the layouts of other engines' float kernels ask of a layer, beyond vLLM's own checks: nothing is accepted that
// could not be written (float_oracles.md 2.9). And the sizes to which vLLM pads a layer first.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "oracle/backend.h"

namespace moe::oracle {

struct LayerSizes {
  std::int64_t hidden = 0, intermediate = 0;
  friend constexpr bool operator==(const LayerSizes&, const LayerSizes&) = default;
};
// Of MXFP4 weights, zero filled, before anything else is made of them (float_oracles.md 2.4).
LayerSizes mxfp4_padded(std::string_view backend, DeviceType device, LayerSizes sizes);

// This rank's share of a layer in a layout of layouts/floats/float_layout.h.
Layout float_layout_of(const Query& q, LayoutKind kind, const LayoutShape& shape);

// Cells `needs` of the rows.
namespace float_needs {
MaybeNeed sizes(const Query& q, const Trial& offer);       // of a row that writes a float layout
MaybeNeed bf16_sizes(const Query& q, const Trial& offer);  // and bfloat16 activations
MaybeNeed sgl_kernel(const Query& q, const Trial& offer);  // vLLM's CPU kernel for bfloat16
MaybeNeed marlin(const Query& q, const Trial& offer);
MaybeNeed trtllm_fp8(const Query& q, const Trial& offer);  // also MXFP8
MaybeNeed trtllm_nvfp4(const Query& q, const Trial& offer);
MaybeNeed swizzled(const Query& q, const Trial& offer);     // block scales in tiles of 128 rows
MaybeNeed interleaved(const Query& q, const Trial& offer);  // gate and up by 64 rows
MaybeNeed deep_gemm(const Query& q, const Trial& offer);
MaybeNeed aiter(const Query& q, const Trial& offer);
MaybeNeed vnni(const Query& q, const Trial& offer);
MaybeNeed cutlass_w4a8(const Query& q, const Trial& offer);
}  // namespace float_needs

}  // namespace moe::oracle
