// What the x86 files share: the steps of an instruction set, and quantisers that several rows use.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels {

namespace avx2 {
extern const Elementwise kSteps;
}
namespace avx512 {
extern const Elementwise kSteps;
void quantise_tok8(const QuantArgsRow& args);
void quantise_symmetric(const QuantArgsRow& args);
void quantise_digits(const QuantArgsRow& args);
void quantise_bf16(const QuantArgsRow& args);
}  // namespace avx512

}  // namespace moe::kernels
