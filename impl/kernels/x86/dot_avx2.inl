// Sums of 32 k for 16 rows and N tokens with AVX2. Included inside a target region and an anonymous namespace.
// Dot::add<N>(w, a, c): codes at w, rows of activations at a, 64 bytes apart; adds to c[half][token].

inline __m256i load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i broadcast4(const std::int8_t* p) {
  std::int32_t v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

// vpmaddubsw with sums kept in int16 over 32 k: codes are at most 15, so 8 steps of 2 * 15 * 128 stay below 2^15, and a
// block costs 8 vpmaddubsw, 7 vpaddw and one vpmaddwd per 8 rows and token. Up to four tokens at a time: their sums
// stay in registers and both halves of the rows share the broadcasts. Unpacking again for the next four costs less than
// a broadcast for each half, on machines that load twice a cycle.
struct NibbleDot {
  static constexpr int kBytes = 256;
  static constexpr bool kDoubled = false;
  static constexpr bool kBiased = true;  // sums begin at the correction
  static constexpr bool kInMemory = true;
  static constexpr int kTogether = 4;
  template <int N>
  static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    constexpr int kTurns = (N + kTogether - 1) / kTogether, kFirst = (N + kTurns - 1) / kTurns;
    add_rows<0, kFirst>(w, a, c);
    if constexpr (kFirst < N) add_rows<kFirst, N - kFirst>(w, a, c);
  }
  template <int kFirst, int kCount, int N>
  [[gnu::always_inline]] static inline void add_rows(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    static_assert(kCount <= kTogether);
    const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i s[2][kCount];
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {  // the low nibbles of a vector, then its high ones
      __m256i first = load(w + 64 * (j / 2)), second = load(w + 64 * (j / 2) + 32);
      if (j % 2 == 1) first = _mm256_srli_epi16(first, 4), second = _mm256_srli_epi16(second, 4);
      first = _mm256_and_si256(first, mask), second = _mm256_and_si256(second, mask);
#pragma GCC unroll 4
      for (int m = 0; m < kCount; ++m) {
        const __m256i x = broadcast4(a + 64 * (kFirst + m) + 4 * (j / 2) + 16 * (j % 2));
        const __m256i p0 = _mm256_maddubs_epi16(first, x), p1 = _mm256_maddubs_epi16(second, x);
        s[0][m] = j == 0 ? p0 : _mm256_add_epi16(s[0][m], p0);
        s[1][m] = j == 0 ? p1 : _mm256_add_epi16(s[1][m], p1);
        in_order(s[0][m], s[1][m]);
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < kCount; ++m) {
      c[0][kFirst + m] = _mm256_add_epi32(c[0][kFirst + m], _mm256_madd_epi16(s[0][m], ones));
      c[1][kFirst + m] = _mm256_add_epi32(c[1][kFirst + m], _mm256_madd_epi16(s[1][m], ones));
    }
  }
  // GCC makes trees of sums, whose products no longer fit into the registers.
  [[gnu::always_inline]] static inline void in_order(__m256i& a, __m256i& b) { asm("" : "+x"(a), "+x"(b)); }
};

// Eight bits: |w| as the unsigned operand, the sign moved to the activation (-127 at least, so it can change sign). A
// pair of products is at most 2 * 128 * 127 < 2^15.
struct ByteDot {
  static constexpr int kBytes = 512;
  static constexpr bool kDoubled = false;
  static constexpr bool kBiased = false;
  static constexpr bool kInMemory = true;
  template <int N>
  static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256i sum[N];
#pragma GCC unroll 8
      for (int m = 0; m < N; ++m) sum[m] = c[half][m];
#pragma GCC unroll 2
      for (int j = 0; j < 8; ++j) {
        const __m256i value = _mm256_xor_si256(load(w + 64 * j + 32 * half), flip), size = _mm256_abs_epi8(value);
#pragma GCC unroll 8
        for (int m = 0; m < N; ++m) {
          const __m256i x = _mm256_sign_epi8(broadcast4(a + 64 * m + 4 * j), value);
          sum[m] = _mm256_add_epi32(sum[m], _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), ones));
        }
      }
#pragma GCC unroll 8
      for (int m = 0; m < N; ++m) c[half][m] = sum[m];
    }
  }
};
