// W4A8-int8 on p16, AVX-VNNI: one 256-bit vpdpbusd per 8 rows, 4 k and token.
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/ref/w4a8.h"
#include "kernels/target.h"
#include "kernels/x86/rows.h"

MOE_TARGET_BEGIN("avx2,fma,f16c,avxvnni")

namespace moe {
namespace {

constexpr int kTileRows = 5;
constexpr std::ptrdiff_t kAhead = 8192;  // bytes between prefetch and use

inline __m256i load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i broadcast4(const std::int8_t* p) {
  std::int32_t v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

struct Dot {
  static constexpr bool kInMemory = false;
  template <int N>
  static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {  // k 4j..4j+3: low nibbles of the vectors, then high ones
      __m256i first = load(w + 64 * (j % 4)), second = load(w + 64 * (j % 4) + 32);
      if (j >= 4) first = _mm256_srli_epi16(first, 4), second = _mm256_srli_epi16(second, 4);
      first = _mm256_and_si256(first, mask);
      second = _mm256_and_si256(second, mask);
#pragma GCC unroll 8
      for (int m = 0; m < N; ++m) {
        const __m256i x = broadcast4(a + 64 * m + 4 * j);
        c[0][m] = _mm256_dpbusd_avx_epi32(c[0][m], first, x);
        c[1][m] = _mm256_dpbusd_avx_epi32(c[1][m], second, x);
      }
    }
  }
};

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/quantise_tok8.inl"

#include "kernels/body/w4a8_256.inl"

}  // namespace

const Kernel kW4a8AvxVnni = {.id = &kKernelIds[*kernel_index("w4a8_tok8_p16_avxvnni")],
                             .exact = true,
                             .tile_rows = kTileRows,
                             .steps = &avx2::kSteps,
                             .quantise = quantise,
                             .gemm = gemm};

}  // namespace moe

MOE_TARGET_END
