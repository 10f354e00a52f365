// Sums of 32 k of e2m1 codes for 16 rows and N tokens with AVX-VNNI, as dot_avxvnni.inl has them. Included inside a
// target region and an anonymous namespace, after dot_avxvnni.inl and symmetric_tile.inl.
//
// vpdpbusd adds in 32 bits, so there is no bound to watch as in the AVX2 form; low and high nibbles
// are kept apart only for NVFP4, or to have two chains.

struct Fp4Dot {
  static constexpr int kBytes = 256;
  static constexpr bool kDoubled = true;
  static constexpr bool kBiased = true;  // sums begin at the correction
  static constexpr bool kInMemory = false;

  template <int N>
  [[gnu::always_inline]] static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    add<N>(w, a, reinterpret_cast<__m256i(&)[1][2][N]>(c));
  }
  // One sum, or one of columns 0..15 and one of 16..31.
  // c[Sums - 1]: with one sum both halves go into it.
  template <int N, int Sums>
  [[gnu::always_inline]] static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[Sums][2][N]) {
    if constexpr (N > 2) {
      add_half<0, N>(w, a, c[0]);
      add_half<1, N>(w, a, c[Sums - 1]);
    } else if constexpr (Sums == 2) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) step<0>(w, a, j, c[0]), step<1>(w, a, j, c[1]);
    } else {  // sums of their own for the high nibbles, to hide the latency of the dot
      __m256i high[2][N] = {};
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) step<0>(w, a, j, c[0]), step<1>(w, a, j, high);
#pragma GCC unroll 2
      for (int m = 0; m < N; ++m) {
        c[0][0][m] = _mm256_add_epi32(c[0][0][m], high[0][m]);
        c[0][1][m] = _mm256_add_epi32(c[0][1][m], high[1][m]);
      }
    }
  }

  // Of the low nibbles, or S: of the high ones.
  template <int S, int N>
  [[gnu::always_inline]] static inline void add_half(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) step<S>(w, a, j, c);
  }

  [[gnu::always_inline]] static __m256i operand(__m256i nibbles) {
    return _mm256_shuffle_epi8(V::repeated(kE2m1Codes.data()), _mm256_and_si256(nibbles, _mm256_set1_epi8(15)));
  }
  // Vector j of the low nibbles, or S: of the high ones.
  template <int S, int N>
  [[gnu::always_inline]] static inline void step(const std::byte* w, const std::int8_t* a, int j, __m256i (&c)[2][N]) {
    const std::byte* at = w + 64 * j;
    if constexpr (N > 2) asm volatile("" : "+r"(at));  // loaded again: there is no register to keep it in
    __m256i first = load(at), second = load(at + 32);
    if constexpr (S == 1) first = _mm256_srli_epi16(first, 4), second = _mm256_srli_epi16(second, 4);
    first = operand(first), second = operand(second);
#pragma GCC unroll 8
    for (int m = 0; m < N; ++m) {
      const __m256i x = broadcast4(a + 64 * m + 4 * j + 16 * S);
      c[0][m] = _mm256_dpbusd_avx_epi32(c[0][m], first, x);
      c[1][m] = _mm256_dpbusd_avx_epi32(c[1][m], second, x);
      if constexpr (N > 2) asm volatile("" : "+x"(c[0][m]), "+x"(c[1][m]));  // no broadcast waits in a register
    }
  }
};
