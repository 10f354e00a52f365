// The steps and kernel rows of the x86 files; each file exports nothing else. registry.cpp lists them.
#pragma once

#include "kernels/kernel.h"

namespace moe {

namespace avx2 {
extern const Elementwise kSteps;
}
namespace avx512 {
extern const Elementwise kSteps;
void quantise_tok8(const QuantArgsRow& args);
}  // namespace avx512

extern const Kernel kW4a8AmxInt8, kW4a8Avx512Vnni, kW4a8AvxVnni, kW4a8Avx2;
extern const Kernel kBf16Avx512Vnni, kBf16Avx2, kF16Avx512Vnni, kF16Avx2, kF32Avx512Vnni, kF32Avx2;

}  // namespace moe
