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
std::optional<UnmetNeed> sizes(const Query& q, const Trial& offer);       // of a row that writes a float layout
std::optional<UnmetNeed> bf16_sizes(const Query& q, const Trial& offer);  // and bfloat16 activations
std::optional<UnmetNeed> sgl_kernel(const Query& q, const Trial& offer);  // vLLM's CPU kernel for bfloat16
std::optional<UnmetNeed> marlin(const Query& q, const Trial& offer);
std::optional<UnmetNeed> trtllm_fp8(const Query& q, const Trial& offer);  // also MXFP8
std::optional<UnmetNeed> trtllm_nvfp4(const Query& q, const Trial& offer);
std::optional<UnmetNeed> swizzled(const Query& q, const Trial& offer);     // block scales in tiles of 128 rows
std::optional<UnmetNeed> interleaved(const Query& q, const Trial& offer);  // gate and up by 64 rows
std::optional<UnmetNeed> deep_gemm(const Query& q, const Trial& offer);
std::optional<UnmetNeed> aiter(const Query& q, const Trial& offer);
std::optional<UnmetNeed> vnni(const Query& q, const Trial& offer);
std::optional<UnmetNeed> cutlass_w4a8(const Query& q, const Trial& offer);
}  // namespace float_needs

}  // namespace moe::oracle
