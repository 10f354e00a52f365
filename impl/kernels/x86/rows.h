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
void quantise_symmetric(const QuantArgsRow& args);
void quantise_digits(const QuantArgsRow& args);
void quantise_bf16(const QuantArgsRow& args);
}  // namespace avx512

extern const Kernel kW8a8AmxInt8, kW4a8AmxInt8, kW4a8Avx512Vnni, kW4a8AvxVnni, kW4a8Avx2;
extern const Kernel kW4a8BlockAvx512Vnni, kW4a8BlockZerosAvx512Vnni, kW8a8Avx512Vnni, kW8a8BlockAvx512Vnni;
extern const Kernel kW4a8BlockAvxVnni, kW4a8BlockZerosAvxVnni, kW8a8AvxVnni, kW8a8BlockAvxVnni;
extern const Kernel kW4a8BlockAvx2, kW4a8BlockZerosAvx2, kW8a8Avx2, kW8a8BlockAvx2;
extern const Kernel kW4a16BlkAmxInt8, kW4a16BlkAvx512Vnni, kW4a16BlkAvxVnni, kW4a16BlkAvx2;
extern const Kernel kW8a16BlkAmxInt8, kW8a16BlkAvx512Vnni, kW8a16BlkAvxVnni, kW8a16BlkAvx2;
extern const Kernel kW4a16Avx512Vnni, kW4a16Avx2, kW8a16Avx512Vnni, kW8a16Avx2;
extern const Kernel kBf16AmxBf16, kBf16Avx512Bf16, kBf16Avx512Vnni, kBf16Avx2, kF16Avx512Vnni, kF16Avx2, kF32Avx512Vnni,
    kF32Avx2;

}  // namespace moe
