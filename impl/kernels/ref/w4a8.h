// The scalar row of w4a8 p16: the definition of the family (numerics.md 2), complete and plain.
// Other rows give the same bits; tests compare every one of them with these functions.
#pragma once

#include "kernels/kernel.h"

namespace moe::kernels::ref {

void quantize(const QuantizeArgs& args);
void gemm(const GemmArgs& args);

// How one row is quantized: from its smallest and largest value (0 included on both sides).
// The formulas are KleidiAI's, in its order of operations (w4a8_int8.md 6): another order would
// round some zero points and codes to the neighbour.
struct RowScale {
  float scale, recip;
  // In [-128, 127]. Tiles store -zp, which is what gemm adds.
  std::int32_t zp;
  bool poisoned;  // NaN or Inf in the row: codes 0, recip NaN
};
// A range so small that 255 / range overflows counts as an all-zero row: the codes would be
// undefined.
RowScale row_scale(float rmin, float rmax, bool poisoned);
// The code of one value; halves to even or away from zero.
std::int8_t quant_code(float x, const RowScale& r, bool even);

}  // namespace moe::kernels::ref
