// Sums of 32 k for 16 rows and N tokens with AVX-VNNI: one 256-bit vpdpbusd per 8 rows, 4 k and token. Included inside
// a target region and an anonymous namespace; the interface is that of dot_avx2.inl.
//
// The VEX form of vpdpbusd, which processors without AVX-512 have. There are 16 registers: six
// tokens times two halves are 12 sums, and everything here is about keeping those where they are.

inline __m256i load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i broadcast4(const std::int8_t* p) {
  std::int32_t v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

struct NibbleDot {
  static constexpr int kBytes = 256;
  static constexpr bool kDoubled = false;
  static constexpr bool kBiased = true;  // sums begin at the correction
  // The engine then keeps sums in registers as locals of one function.
  static constexpr bool kInMemory = false;
  template <int N>
  static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    // Few tokens leave registers free and sums too few to hide 5 cycles.
    if constexpr (N <= 2) return add_few<N>(w, a, c);
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {  // the low nibbles of a vector, then its high ones
      const std::byte* at = w + 64 * (j / 2);
      asm volatile("" : "+r"(at));  // loaded again: there is no register to keep it in
      __m256i first = load(at), second = load(at + 32);
      if (j % 2 == 1) first = _mm256_srli_epi16(first, 4), second = _mm256_srli_epi16(second, 4);
      first = _mm256_and_si256(first, mask);
      second = _mm256_and_si256(second, mask);
#pragma GCC unroll 8
      for (int m = 0; m < N; ++m) {
        const __m256i x = broadcast4(a + 64 * m + 4 * (j / 2) + 16 * (j % 2));
        c[0][m] = _mm256_dpbusd_avx_epi32(c[0][m], first, x);
        c[1][m] = _mm256_dpbusd_avx_epi32(c[1][m], second, x);
        // Without it GCC loads all broadcasts first, and there is no register for more than one.
        asm volatile("" : "+x"(c[0][m]), "+x"(c[1][m]));  // in this order: no broadcast waits in a register
      }
    }
  }
  // Sums of their own for the high nibbles, to hide the latency of the dot.
  // Low and high nibbles are two chains per sum; they are joined at the end of the 32 columns.
  template <int N>
  [[gnu::always_inline]] static inline void add_few(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i high[2][N];
#pragma GCC unroll 2
    for (int m = 0; m < N; ++m) high[0][m] = high[1][m] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m256i first = load(w + 64 * j), second = load(w + 64 * j + 32);
      const __m256i low0 = _mm256_and_si256(first, mask), low1 = _mm256_and_si256(second, mask);
      const __m256i high0 = _mm256_and_si256(_mm256_srli_epi16(first, 4), mask),
                    high1 = _mm256_and_si256(_mm256_srli_epi16(second, 4), mask);
#pragma GCC unroll 2
      for (int m = 0; m < N; ++m) {
        const __m256i x = broadcast4(a + 64 * m + 4 * j), y = broadcast4(a + 64 * m + 4 * j + 16);
        c[0][m] = _mm256_dpbusd_avx_epi32(c[0][m], low0, x);
        c[1][m] = _mm256_dpbusd_avx_epi32(c[1][m], low1, x);
        high[0][m] = _mm256_dpbusd_avx_epi32(high[0][m], high0, y);
        high[1][m] = _mm256_dpbusd_avx_epi32(high[1][m], high1, y);
      }
    }
#pragma GCC unroll 2
    for (int m = 0; m < N; ++m) {
      c[0][m] = _mm256_add_epi32(c[0][m], high[0][m]);
      c[1][m] = _mm256_add_epi32(c[1][m], high[1][m]);
    }
  }
};

// Unsigned codes as they are, so sums begin at the correction; there is nothing to unpack.
struct ByteDot {
  static constexpr int kBytes = 512;
  static constexpr bool kDoubled = false;
  static constexpr bool kBiased = true;
  static constexpr bool kInMemory = false;
  template <int N>
  static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m256i first = load(w + 64 * j), second = load(w + 64 * j + 32);
#pragma GCC unroll 8
      for (int m = 0; m < N; ++m) {
        const __m256i x = broadcast4(a + 64 * m + 4 * j);
        c[0][m] = _mm256_dpbusd_avx_epi32(c[0][m], first, x);
        c[1][m] = _mm256_dpbusd_avx_epi32(c[1][m], second, x);
      }
    }
  }
};
