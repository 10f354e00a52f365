// W4A8-int8 on p16, AVX2: vpmaddubsw with sums kept in int16 over 32 k.
//
// Codes are at most 15, so 8 steps of 2 * 15 * 128 stay below 2^15: a 32-k block costs 8 vpmaddubsw, 7 vpaddw and one
// vpmaddwd per 8 rows and token. The unpacked codes of a block stay in 8 registers for all tokens.
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/ref/w4a8.h"
#include "kernels/target.h"
#include "kernels/x86/rows.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe {
namespace {

constexpr int kTileRows = 8;
constexpr std::ptrdiff_t kAhead = 8192;  // bytes between prefetch and use

inline __m256i load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i broadcast4(const std::int8_t* p) {
  std::int32_t v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

struct Dot {
  static constexpr bool kInMemory = true;
  template <int N>
  static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256i codes[8];  // k 4j..4j+3: low nibbles of the vectors, then high ones
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m256i v = load(w + 64 * j + 32 * half);
        codes[j] = _mm256_and_si256(v, mask);
        codes[4 + j] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
      }
#pragma GCC unroll 8
      for (int m = 0; m < N; ++m) {
        __m256i s = _mm256_maddubs_epi16(codes[0], broadcast4(a + 64 * m));
#pragma GCC unroll 8
        for (int j = 1; j < 8; ++j)
          s = _mm256_add_epi16(s, _mm256_maddubs_epi16(codes[j], broadcast4(a + 64 * m + 4 * j)));
        c[half][m] = _mm256_add_epi32(c[half][m], _mm256_madd_epi16(s, ones));
      }
    }
  }
};

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/quantise_tok8.inl"

#include "kernels/body/w4a8_256.inl"

}  // namespace

const Kernel kW4a8Avx2 = {.id = &kKernelIds[*kernel_index("w4a8_tok8_p16_avx2")],
                          .exact = true,
                          .tile_rows = kTileRows,
                          .steps = &avx2::kSteps,
                          .quantise = quantise,
                          .gemm = gemm};

}  // namespace moe

MOE_TARGET_END
