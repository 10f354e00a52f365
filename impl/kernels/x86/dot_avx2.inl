// Sums of 32 k for 16 rows and N tokens with AVX2. Included inside a target region and an anonymous namespace.
// Dot::add<N>(w, a, c): codes at w, rows of activations at a, 64 bytes apart; adds to c[half][token].
//
// AVX2 has no product of bytes with 32-bit sums. vpmaddubsw multiplies unsigned by signed bytes and
// adds two products in int16 with saturation, so bounds matter here: whatever is summed in int16
// must stay below 2^15 for all inputs, or results would silently be wrong.
//
// What the 256-bit engines (w4a8_256.inl, symmetric_256.inl) ask of a Dot:
//
// kBytes       of the codes of 32 columns of a panel
// kDoubled     codes are twice the values of e2m1; the engine halves results
// kBiased      codes are unsigned, so sums begin at a correction
// kInMemory    sums of more than two rows are left in memory, since the products need the registers
// add<N>       adds the products of 32 columns for N rows of codes
// add_half<H>  of 16 columns; only e2m1's AVX-VNNI form has it, as the engine asks for it only there
//
// What 64 bytes of an int4 panel hold, for j = 0..3 of a block of 32 columns (256 bits are one
// half):
//
// byte            0 1 2 3          4 5 6 7          ...  60 61 62 63
// row             0                1                     15
// low nibble      4j .. 4j+3       the same columns
// high nibble     16+4j .. 16+4j+3 the same columns
//
// So the operand of a product is a mask or a shift and a mask, and the activation is four
// neighbouring codes of a row, broadcast. For int8 a vector has the columns 4j..4j+3 alone, j =
// 0..7.

// vmovdqu costs nothing where memory is aligned, as panels are.
inline __m256i load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
// Four codes of a row to all lanes: one vpbroadcastd from memory. memcpy, because the bytes are no
// int32.
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
  // Of 32 columns of 16 rows.
  static constexpr int kBytes = 256;
  static constexpr bool kDoubled = false;
  static constexpr bool kBiased = true;  // sums begin at the correction
  static constexpr bool kInMemory = true;
  // Two halves times four tokens are 8 of the 16 registers; two vectors of codes, the broadcast,
  // two products and the masks take the rest.
  static constexpr int kTogether = 4;
  // 8 tokens as 4 + 4, 5 as 3 + 2: turns of almost equal size.
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
    // Low nibbles are columns 4j..4j+3 of the first 16, high ones of the second 16 (kernels.md 2).
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
  // An empty asm that claims to change both sums: the compiler cannot reorder additions across it.
  [[gnu::always_inline]] static inline void in_order(__m256i& a, __m256i& b) { asm("" : "+x"(a), "+x"(b)); }
};

// Eight bits: |w| as the unsigned operand, the sign moved to the activation (-127 at least, so it can change sign). A
// pair of products is at most 2 * 128 * 127 < 2^15.
struct ByteDot {
  static constexpr int kBytes = 512;
  static constexpr bool kDoubled = false;
  // The code's bias of 128 is taken off by the xor, so sums need no correction; kernels with zero
  // points subtract 128 from those instead (load_zeros).
  static constexpr bool kBiased = false;
  static constexpr bool kInMemory = true;
  template <int N>
  static inline void add(const std::byte* w, const std::int8_t* a, __m256i (&c)[2][N]) {
    // xor with -128 turns an unsigned code into value = code - 128 in two's complement.
    const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
    // One half of the rows after the other: N sums, value, size and the broadcast just fit.
    for (int half = 0; half < 2; ++half) {
      __m256i sum[N];
#pragma GCC unroll 8
      for (int m = 0; m < N; ++m) sum[m] = c[half][m];
#pragma GCC unroll 2
      for (int j = 0; j < 8; ++j) {
        const __m256i value = _mm256_xor_si256(load(w + 64 * j + 32 * half), flip), size = _mm256_abs_epi8(value);
#pragma GCC unroll 8
        for (int m = 0; m < N; ++m) {
          // vpsignb gives 0 where the value is 0, which is right as well. Its one trap is -128,
          // which cannot change its sign: quantizing never makes that code.
          const __m256i x = _mm256_sign_epi8(broadcast4(a + 64 * m + 4 * j), value);
          sum[m] = _mm256_add_epi32(sum[m], _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), ones));
        }
      }
#pragma GCC unroll 8
      for (int m = 0; m < N; ++m) c[half][m] = sum[m];
    }
  }
};
