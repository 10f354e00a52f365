// Sums of 32 k of e2m1 codes for 16 rows and N tokens with AVX2, as dot_avx2.inl has them. Included inside a target
// region and an anonymous namespace, after dot_avx2.inl and symmetric_tile.inl.
//
// Doubled e2m1 values plus 12 are 0 to 24, so AVX2 can use the same product of unsigned and signed
// bytes as for int4. Only the bound differs: 24 instead of 15.

// Codes are at most 24 (kE2m1Codes): 4 steps of 2 * 24 * 127 stay below 2^15, so the low nibbles of 32 k, which are 16
// columns, have their sums in int16, and the high ones have theirs. Rows are taken four at a time, whose sums stay in
// registers; where that is not all of them the operands are made once, into L1.
// 8 steps would be 48768, above 2^15, hence the two sums. For NVFP4 that is what it needs in any
// case: its low nibbles are one group of 16 columns, the high ones the next.
struct Fp4Dot {
  static constexpr int kBytes = 256;
  static constexpr bool kDoubled = true;
  static constexpr bool kBiased = true;  // sums begin at the correction
  static constexpr bool kInMemory = true;
  static constexpr int kTogether = 4;

  template <int N>
  [[gnu::always_inline]] static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    add<N>(w, a, reinterpret_cast<__m256i(&)[1][2][N]>(c));
  }
  // One sum, or one of columns 0..15 and one of 16..31.
  template <int N, int Sums>
  [[gnu::always_inline]] static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[Sums][2][N]) {
    if constexpr (N <= kTogether) {
      add_rows<0, N>(Packed{w}, a, c);
    } else {
      const Unpacked operands(w);
      constexpr int kFirst = (N + 1) / 2;
      add_rows<0, kFirst>(operands, a, c);
      add_rows<kFirst, N - kFirst>(operands, a, c);
    }
  }

  // Vector j of 4, of its rows 0..7 or 8..15; S: of the high nibbles.
  // The mask is needed for the low nibbles, too: vpshufb gives 0 where bit 7 of an index is set.
  struct Packed {
    const std::byte* w;
    template <int S>
    [[gnu::always_inline]] __m256i at(int j, int half) const {
      __m256i v = load(w + 64 * j + 32 * half);
      if constexpr (S == 1) v = _mm256_srli_epi16(v, 4);
      return _mm256_shuffle_epi8(V::repeated(kE2m1Codes.data()), _mm256_and_si256(v, _mm256_set1_epi8(15)));
    }
  };
  // 512 bytes on the stack, which stay in L1. Looking up again for the second turn would cost 16
  // shuffles.
  struct Unpacked {
    __m256i operands[2][4][2];
    [[gnu::always_inline]] explicit Unpacked(const std::byte* w) {
      const Packed packed{w};
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          operands[0][j][half] = packed.at<0>(j, half);
          operands[1][j][half] = packed.at<1>(j, half);
        }
    }
    template <int S>
    [[gnu::always_inline]] __m256i at(int j, int half) const {
      return operands[S][j][half];
    }
  };

  // Sums 1: both halves are widened to 32 bits before they are added, since the sum of two int16
  // sums may not fit 16 bits.
  template <int kFirst, int kCount, class Operands, int Sums, int N>
  [[gnu::always_inline]] static inline void add_rows(const Operands& w, const std::int8_t* a,
                                                     __m256i (&c)[Sums][2][N]) {
    if constexpr (Sums == 2) {
      const auto into = [](__m256i(&sums)[2][N]) {
        return [&sums](int m, __m256i first, __m256i second) { add_to(sums, kFirst + m, first, second); };
      };
      nibbles<0, kFirst, kCount>(w, a, into(c[0]));
      nibbles<1, kFirst, kCount>(w, a, into(c[1]));
    } else {
      __m256i low[2][kCount], high[2][kCount];
      nibbles<0, kFirst, kCount>(w, a,
                                 [&](int m, __m256i first, __m256i second) { low[0][m] = first, low[1][m] = second; });
      nibbles<1, kFirst, kCount>(
          w, a, [&](int m, __m256i first, __m256i second) { high[0][m] = first, high[1][m] = second; });
#pragma GCC unroll 4
      for (int m = 0; m < kCount; ++m) add_to(c[0], kFirst + m, low[0][m], low[1][m]);
#pragma GCC unroll 4
      for (int m = 0; m < kCount; ++m) add_to(c[0], kFirst + m, high[0][m], high[1][m]);
    }
  }
  // vpmaddwd with ones adds neighbouring int16 to int32.
  template <int N>
  [[gnu::always_inline]] static inline void add_to(__m256i (&c)[2][N], int m, __m256i first, __m256i second) {
    const __m256i ones = _mm256_set1_epi16(1);
    c[0][m] = _mm256_add_epi32(c[0][m], _mm256_madd_epi16(first, ones));
    c[1][m] = _mm256_add_epi32(c[1][m], _mm256_madd_epi16(second, ones));
  }
  // Sums in int16 of the low nibbles, or S: of the high ones; those of a row are handed to `done` when they are.
  // `done` is called as soon as a row's sums are complete, so they need not be kept for the others.
  template <int S, int kFirst, int kCount, class Operands, class Done>
  [[gnu::always_inline]] static inline void nibbles(const Operands& w, const std::int8_t* a, const Done& done) {
    static_assert(kCount <= kTogether);
    __m256i s[2][kCount];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m256i first = w.template at<S>(j, 0), second = w.template at<S>(j, 1);
#pragma GCC unroll 4
      for (int m = 0; m < kCount; ++m) {
        const __m256i x = broadcast4(a + 64 * (kFirst + m) + 4 * j + 16 * S);
        const __m256i p0 = _mm256_maddubs_epi16(first, x), p1 = _mm256_maddubs_epi16(second, x);
        s[0][m] = j == 0 ? p0 : _mm256_add_epi16(s[0][m], p0);
        s[1][m] = j == 0 ? p1 : _mm256_add_epi16(s[1][m], p1);
        NibbleDot::in_order(s[0][m], s[1][m]);
        if (j == 3) done(m, s[0][m], s[1][m]);
      }
    }
  }
};
