// int4 and int8 weights with scales and zero points on p16 with float32 rows, AVX-512: body/gemm_float.inl and
// body/weights_wna16.inl for 16 lanes.
#include <immintrin.h>

#include <array>
#include <bit>
#include <utility>

#include "kernels/ref/float.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl")

namespace moe::kernels {
namespace {

constexpr int kTileRows = tile_rows("w4a16_f32_p16_avx512vnni");

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/places.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

#include "kernels/body/weights_wna16.inl"

// int4 without zero points: the low 4 bits of a lane choose its value from a table.
struct Table : Float32Rows {
  static constexpr bool kScaled = true, kShared = true;
  static constexpr std::size_t kQuadBytes = 64;
  struct Offset {};
  static Offset offset(F) { return {}; }

  template <int H, int Column>
  [[gnu::always_inline]] static F value(const std::byte* quad, const Offset&) {
    constexpr int kBit = Column * 8 + H * 4;
    const F values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    I v = V::load_i(quad);
    if constexpr (kBit != 0) v = V::shr<kBit>(v);
    return _mm512_permutexvar_ps(v, values);
  }
};

void gemm_int4(const GemmArgs& a) { a.matrix->has_zeros ? gemm<IntCodes<4>>(a) : gemm<Table>(a); }

}  // namespace

constinit const Kernel kernel_rows::w4a16_f32_p16_avx512vnni =
    kernel_row("w4a16_f32_p16_avx512vnni", avx512::kSteps, ref::copy_floats, gemm_int4);
constinit const Kernel kernel_rows::w8a16_f32_p16_avx512vnni =
    kernel_row("w8a16_f32_p16_avx512vnni", avx512::kSteps, ref::copy_floats, gemm<IntCodes<8>>);

}  // namespace moe::kernels

MOE_TARGET_END
