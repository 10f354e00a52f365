// What the integer rows of AVX-512 VNNI share: sums of 32 k for panels and tokens, and reading ahead. Included inside a
// target region and an anonymous namespace, after read_ahead.inl.
//
// vpdpbusd multiplies four unsigned bytes by four signed ones and adds to 32 bits without
// saturation: one instruction for 4 columns of 16 rows. The unsigned operand is the weight, the
// broadcast one the activation.
//
// What the 512-bit engines ask of Codes: kVectors, kSteps and kBytes say how 32 columns lie,
// kDoubled whether codes are twice the values, unpack() makes operands of a vector, operand<H>()
// those of one half (FP4 only).

// vpdpbusd can broadcast its operand from memory, so compilers may fold this into it.
inline __m512i broadcast4(const std::int8_t* p) {
  std::int32_t v;
  std::memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
inline __m512i load(const std::byte* p) { return _mm512_loadu_si512(p); }
inline __m512 load_f32(const std::byte* p) { return _mm512_loadu_ps(p); }
inline __m512i load_zeros(const std::byte* p) {  // of 16 rows
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m512 load_bf16(const std::byte* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

// How 32 k of a panel lie: kVectors vectors of 64 bytes, each the operands of kSteps steps of 4 k that are 16 k apart.
// The one thing in which int4 and int8 differ for this engine. unpack() makes operands once for all
// tokens.
struct Nibbles {
  static constexpr int kVectors = 4, kSteps = 2, kBytes = 256;
  static constexpr bool kDoubled = false;
  template <int P>
  // v: one vector of a panel. codes[s][p]: operands of step s, columns 16 s + 4 j of the block.
  [[gnu::always_inline]] static inline void unpack(__m512i v, __m512i (&codes)[kSteps][P], int p) {
    const __m512i mask = _mm512_set1_epi8(15);
    codes[0][p] = _mm512_and_si512(v, mask);
    // A shift of 16-bit lanes brings neighbours' bits along; the mask removes them. There is no
    // shift of bytes.
    codes[1][p] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
  }
};
// A vector of int8 codes is an operand as it lies.
struct Bytes {
  static constexpr int kVectors = 8, kSteps = 1, kBytes = 512;
  static constexpr bool kDoubled = false;
  template <int P>
  [[gnu::always_inline]] static inline void unpack(__m512i v, __m512i (&codes)[kSteps][P], int p) {
    codes[0][p] = v;
  }
};

// P panels x N tokens; chains > 1 splits a sum to hide the latency of the dot when there are few.
// vpdpbusd takes 5 cycles and one or two start per cycle, so fewer than about 8 sums leave it idle.
// With 1 or 2 sums four chains hide that, with 3 or 4 two. Integer sums may be split: the total is
// the same.
template <class Codes, int P, int N, int MostChains = 4>
struct Block {
  // `MostChains`: 2 where a caller runs two sums beside each other, which hide latency themselves.
  static constexpr int kChains = std::min(MostChains, P* N <= 2 ? 4 : P * N <= 4 ? 2 : 1);
  // 16 rows of a panel in the lanes of each.
  __m512i c[P][N][kChains];

  // `extra`: what a whole row adds at once (W4A8: z times the sum of the weights).
  [[gnu::always_inline]] void start(const std::int32_t* corr, const __m512i* extra) {
    for (int m = 0; m < N; ++m) {
      for (int p = 0; p < P; ++p) {
        c[p][m][0] = _mm512_set1_epi32(corr[m]);
        if (extra != nullptr) c[p][m][0] = _mm512_add_epi32(c[p][m][0], extra[p * N + m]);
        for (int s = 1; s < kChains; ++s) c[p][m][s] = _mm512_setzero_si512();
      }
    }
  }
  // A block of weights with zero points: corr has minus the sums of its 32 activation codes, of 16 bits.
  // vpmaddwd of (corr, sign) with (zero, 0): the upper halves of the lanes do not count. 32 codes
  // of at most 127 fit 16 bits; longer sums go through vpmulld in symmetric_512.inl.
  [[gnu::always_inline]] void start_at_zeros(const std::int32_t* corr, const __m512i (&zeros)[P]) {
    for (int m = 0; m < N; ++m)
      for (int p = 0; p < P; ++p) {
        c[p][m][0] = _mm512_madd_epi16(_mm512_set1_epi32(corr[m]), zeros[p]);
        for (int s = 1; s < kChains; ++s) c[p][m][s] = _mm512_setzero_si512();
      }
  }
  // For rows of digits: corrections join when both digits' sums are one.
  [[gnu::always_inline]] void start_at_nothing() {
    for (auto& panel : c)
      for (auto& row : panel)
        for (auto& x : row) x = _mm512_setzero_si512();
  }
  // 32 k: Codes::kBytes of each panel (w + p * stride), N rows of 32 codes, 64 bytes apart.
  // Rows are 64 bytes apart because a piece of a tile has 64 columns; the second block of a unit
  // begins in the middle of them (block_offset).
  // w: codes of the block in the first panel. a: of the first row of codes.
  [[gnu::always_inline]] void add(const std::byte* w, std::size_t stride, const std::int8_t* a) {
#pragma GCC unroll 8
    for (int j = 0; j < Codes::kVectors; ++j) add_vector(w, stride, a, j);  // in a loop GCC 12 copies all sums per turn
  }
  // 16 k: the operands of step H of each vector.
  // For NVFP4, whose groups of 16 columns are the low or the high nibbles.
  template <int H>
  [[gnu::always_inline]] void add_half(const std::byte* w, std::size_t stride, const std::int8_t* a) {
#pragma GCC unroll 8
    for (int j = 0; j < Codes::kVectors; ++j) {
      __m512i codes[P];
      for (int p = 0; p < P; ++p) codes[p] = Codes::template operand<H>(load(w + usize(p) * stride + j * 64));
#pragma GCC unroll 16
      for (int m = 0; m < N; ++m) {
        const __m512i x = broadcast4(a + 64 * m + 4 * j + 16 * H);
        for (int p = 0; p < P; ++p) c[p][m][j % kChains] = _mm512_dpbusd_epi32(c[p][m][j % kChains], codes[p], x);
      }
    }
  }
  // Vector j of the 32 k.
  [[gnu::always_inline]] void add_vector(const std::byte* w, std::size_t stride, const std::int8_t* a, int j) {
    __m512i codes[Codes::kSteps][P];
    for (int p = 0; p < P; ++p) Codes::template unpack<P>(load(w + usize(p) * stride + j * 64), codes, p);
#pragma GCC unroll 16
    for (int m = 0; m < N; ++m) {
      for (int s = 0; s < Codes::kSteps; ++s) {
        const __m512i x = broadcast4(a + 64 * m + 4 * j + 16 * s);
        // Chains take turns, so that two products for one sum are as far apart as possible.
        const int chain = (Codes::kSteps * j + s) % kChains;
        for (int p = 0; p < P; ++p) c[p][m][chain] = _mm512_dpbusd_epi32(c[p][m][chain], codes[s][p], x);
      }
    }
  }
  // Integer additions: chains may be joined in any order.
  [[gnu::always_inline]] __m512i total(int p, int m) const {
    __m512i t = c[p][m][0];
    for (int s = 1; s < kChains; ++s) t = _mm512_add_epi32(t, c[p][m][s]);
    return t;
  }
  [[gnu::always_inline]] __m512 sum(int p, int m) const { return _mm512_cvtepi32_ps(total(p, m)); }
};

// One panel at a time (few rows, memory-bound) reads a stream; two panels fetch their call's share of the panels to
// come, or (Pairs: memory may bound them, too) are two streams where the machine likes it.
// One object per run over panels, so that streams go on from panel to panel.
template <class Codes, int P, bool Pairs = false>
struct Ahead {
  // All three exist in any object; which one is used is known while compiling but for pair.wanted.
  Stream stream;
  Share share;
  PairOfStreams pair;

  // flatten, so that no inline function of a header stays behind as a symbol of this instruction
  // set.
  [[gnu::flatten]] Ahead(const GemmArgs& a, std::size_t stride)
      : stream(a, stride, a.next), share(a, stride, a.shape.blocks() * (a.panel_count / P)), pair(a, stride) {}
  // The block of codes at w is about to be read.
  [[gnu::always_inline]] void block(const std::byte* w) {
    if constexpr (P == 1)
      stream.fetch(w, Codes::kBytes);
    else if (Pairs && pair.wanted)
      pair.fetch(w, Codes::kBytes);
    else
      share.advance();
  }
  [[gnu::always_inline]] void digits(const std::int8_t* p) const { stream.digits(p); }
  // What lies before the codes of a panel or of a unit is.
  [[gnu::always_inline]] void header(const std::byte* w, std::size_t bytes) {
    if constexpr (P == 1) {
      stream.header(w, bytes);
    } else if (Pairs && pair.wanted) {
      // The end of the first panel of the pair that begins here.
      pair.edge = w + pair.stride;
      pair.fetch(w, bytes);
    }
  }
  [[gnu::always_inline]] void unit(const std::byte* w, std::size_t bytes) {
    if constexpr (P == 1)
      stream.fetch(w, bytes);
    else if (Pairs && pair.wanted)
      pair.fetch(w, bytes);
  }
};
