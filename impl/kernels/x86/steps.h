// What the x86 files share: the steps of an instruction set, and quantizers that several rows use.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels {

namespace avx2 {
extern const Elementwise kSteps;
}
namespace avx512 {
extern const Elementwise kSteps;
void quantize_tok8(const QuantizeArgs& args);
void quantize_symmetric(const QuantizeArgs& args);
void quantize_digits(const QuantizeArgs& args);
void quantize_bf16(const QuantizeArgs& args);
}  // namespace avx512

}  // namespace moe::kernels
