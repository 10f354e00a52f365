// What the x86 files share: the steps of an instruction set, and quantizers that several rows use.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels {

// Serves AVX-VNNI too: the steps are float work, which AVX-VNNI does not change.
namespace avx2 {
extern const Elementwise kSteps;
}
// The quantizers are defined once, in the file of a VNNI row, and the AMX and BF16 rows call them:
// their tiles have the same bytes, and the few-token path of AMX hands its tile to the VNNI row.
namespace avx512 {
extern const Elementwise kSteps;
void quantize_tok8(const QuantizeArgs& args);
void quantize_blocks(const QuantizeArgs& args);  // blk8
void quantize_symmetric(const QuantizeArgs& args);
// blk16: each code as a high and a low int8 digit.
void quantize_digits(const QuantizeArgs& args);
// The row as bf16. The input was bf16 and widened exactly, so this gives the input's bits back; the
// middle row was rounded to bf16 by its activation.
void quantize_bf16(const QuantizeArgs& args);
// The row as 8-bit floats, in bf16 numbers.
void quantize_float8_halves(const QuantizeArgs& args);
}  // namespace avx512

}  // namespace moe::kernels
