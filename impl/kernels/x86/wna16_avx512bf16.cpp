// int4 weights with scales and zero points on p16 with bf16 rows, AVX512-BF16: body/gemm_float.inl on pairs of columns.
//
// A 16-bit lane of the layout holds codes of columns k, k + 16, k + 1, k + 17 of one row, its neighbour those of two
// columns later. So a shift and one table of 32 bf16 values make the operand of vdpbf16ps: code - zero is exact in
// bf16. The tile has the columns of each 32 in the order of these pairs. Its bits are its own (bf16_avx512bf16.cpp).
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/target.h"
#include "kernels/x86/rows.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512bf16")

namespace moe {
namespace {

constexpr int kTileRows = 8;
constexpr std::ptrdiff_t kAhead = 8192;  // bytes of weights between prefetch and use

#include "kernels/x86/vector_avx512.inl"

#include "kernels/body/gemm_float.inl"

// The bf16 values of first, first + 1, .. first + 15, and again after `step`.
struct alignas(64) Table {
  std::array<std::uint16_t, 32> of{};

  constexpr Table(int first, int step) {
    for (int i = 0; i < 32; ++i) {
      const auto v = static_cast<float>(first + i % 16 + i / 16 * step);
      of[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16);
    }
  }
};
constexpr Table kSymmetric(-8, 0), kShifted(-16, 16);

// A quad is the 64 bytes of one vector, a pair of columns per 4 bits of its 16-bit lanes; 16 pairs are a block.
template <bool Zeros>
struct Nibbles : Float32Rows {
  static constexpr bool kScaled = true, kShared = false;
  static constexpr int kHalves = 1;
  static constexpr std::size_t kQuadBytes = 64;
  [[gnu::always_inline]] static F fma(F x, F w, F sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }

  struct Offset {
    I of;  // 16 - zero in both halves of a lane
  };
  [[gnu::always_inline]] static Offset offset(F zero) {
    const I z = _mm512_sub_epi32(V::set_i(16), _mm512_cvtps_epi32(zero));
    return {V::or_i(z, V::shl<16>(z))};
  }
  template <int H, int Column>
  [[gnu::always_inline]] static F value(const std::byte* quad, const Offset& o) {
    I v = V::load_i(quad);
    if constexpr (Column != 0) v = _mm512_srli_epi16(v, 4 * Column);
    if constexpr (Zeros) v = _mm512_add_epi16(V::and_i(v, V::set_i(0x000f000f)), o.of);
    const Table& table = Zeros ? kShifted : kSymmetric;
    return V::from_bits(_mm512_permutexvar_epi16(v, _mm512_load_si512(table.of.data())));
  }
};

void gemm_int4(const GemmArgs& a) { a.matrix->has_zeros ? gemm<Nibbles<true>>(a) : gemm<Nibbles<false>>(a); }

// The pairs of 32 columns in the order that the nibbles of a vector have.
struct alignas(64) Order {
  std::array<std::uint16_t, 32> of{};

  constexpr Order() {
    for (std::uint16_t quad = 0, at = 0; quad < 4; ++quad)
      for (std::uint16_t column = 0; column < 4; ++column)
        for (std::uint16_t second = 0; second < 2; ++second, ++at)
          of[at] = static_cast<std::uint16_t>(4 * quad + column % 2 * 16 + column / 2 + 2 * second);
  }
};
constexpr Order kOrder;

void quantise(const QuantArgsRow& a) {
  avx512::quantise_bf16(a);
  std::byte* piece = a.out.tile + static_cast<std::size_t>(a.out.row) * 64;
  const I order = _mm512_load_si512(kOrder.of.data());
  for (std::int64_t k = 0; k < a.shape.units() * kUnitK; k += 32, piece += static_cast<std::ptrdiff_t>(a.out.n) * 64)
    _mm512_storeu_si512(piece, _mm512_permutexvar_epi16(order, V::load_i(piece)));
}

}  // namespace

const Kernel kW4a16Avx512Bf16 = {.id = &kKernelIds[*kernel_index("w4a16_bf16_p16_avx512bf16")],
                                 .exact = false,
                                 .tile_rows = kTileRows,
                                 .steps = &avx512::kSteps,
                                 .quantise = quantise,
                                 .gemm = gemm_int4};

}  // namespace moe

MOE_TARGET_END
