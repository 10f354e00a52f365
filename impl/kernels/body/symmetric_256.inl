// Integer weights with symmetric integer activations, 256-bit vectors: the 16 rows of a panel are two halves of 8
// lanes, done together so that one broadcast of activations serves both. Included inside a target region and an
// anonymous namespace that define V, kTileRows, the Dots (dot_avx2.inl), after read_ahead.inl and symmetric_tile.inl.
// The float steps are those of kernels/ref/symmetric.h, in its order.

// Zero points of 8 rows as the factors of sums of activations, in 32 bits or in the low 16 bits of a lane; unbiased
// dots have subtracted 128 already.
template <class Dot, bool k32>
inline __m256i load_zeros(const std::byte* at) {
  __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  if (!Dot::kBiased) z = _mm256_sub_epi32(z, _mm256_set1_epi32(128));
  return k32 || Dot::kBiased ? z : _mm256_and_si256(z, _mm256_set1_epi32(0xffff));
}

// Where the sums of one call read.
struct BlockCursor {
  const std::byte* w;       // codes of block k
  std::size_t unit_header;  // bytes before each unit
  const std::int8_t* codes;
  std::int64_t k, last;
  const __m256i* zeros;  // of the group, of either half of the rows
  Stream stream;

  // To the next block. Headers of units are asked for as codes are.
  [[gnu::always_inline]] void next(std::size_t code_bytes) {
    stream.fetch(w, code_bytes);
    w += code_bytes;
    if ((k++ & 1) == 0 || unit_header == 0) return;
    stream.fetch(w, unit_header);
    w += unit_header;
  }
};

// What sums begin with: the correction of their row, that times the zero point, nothing (rows of digits).
enum class Start { corr, zeros, nothing };
template <class Facts>
constexpr Start kStart = Facts::kPlanes != 1 ? Start::nothing
                         : Facts::kZeros     ? Start::zeros
                                             : Start::corr;

template <class Dot, Start S, int N>
[[gnu::always_inline]] inline void start(const BlockCursor& b, const std::int32_t* corr, __m256i (&c)[2][N]) {
#pragma GCC unroll 8
  for (int m = 0; m < N; ++m)
    for (int half = 0; half < 2; ++half)
      if constexpr (S == Start::nothing)
        c[half][m] = _mm256_setzero_si256();
      else if constexpr (S == Start::zeros)  // sums of 32 codes have 16 bits
        c[half][m] = _mm256_madd_epi16(_mm256_set1_epi32(corr[m]), b.zeros[half]);
      else
        c[half][m] = Dot::kBiased ? _mm256_set1_epi32(corr[m]) : _mm256_setzero_si256();
}

template <class Dot, Start S, int N>
inline void add_blocks(BlockCursor b, const std::int32_t* corr, __m256i (&c)[2][N]) {
  start<Dot, S>(b, corr, c);
  while (b.k < b.last) {
    const std::byte* w = b.w;
    const std::int8_t* codes = b.codes + block_offset(b.k, N);
    if constexpr (S == Start::nothing && N == 2) b.stream.digits(codes);  // both rows of one token
    b.next(Dot::kBytes);
    Dot::template add<N>(w, codes, c);
  }
}

// Sums of blocks, beginning with their corrections, into out[half][N]. Dot says where the accumulators live: in
// registers as locals of this function alone, or in memory, where its operands need the registers.
template <class Dot, Start S, int N>
inline void sums_of(const BlockCursor& b, const std::int32_t* corr, __m256i* out) {
  auto& sums = *reinterpret_cast<__m256i(*)[2][N]>(out);
  if constexpr (Dot::kInMemory && N > 2) {
    add_blocks<Dot, S, N>(b, corr, sums);
  } else {
    __m256i c[2][N];
    add_blocks<Dot, S, N>(b, corr, c);
#pragma GCC unroll 8
    for (int m = 0; m < N; ++m) sums[0][m] = c[0][m], sums[1][m] = c[1][m];
  }
}

// The sum of half H of a block, in registers.
template <class Dot, Start S, int N, int H>
[[gnu::always_inline]] inline void sum_of_half(const BlockCursor& b, const std::int32_t* corr, __m256i (&sums)[2][N]) {
  __m256i c[2][N];
  start<Dot, S>(b, corr, c);
  Dot::template add_half<H, N>(b.w, b.codes + block_offset(b.k, N), c);
#pragma GCC unroll 8
  for (int m = 0; m < N; ++m) sums[0][m] = c[0][m], sums[1][m] = c[1][m];
}

// Of one block, one sum or one of each half, into out[sum][half of the rows][N].
template <class Dot, Start S, int N, int Sums>
inline void sums_of_block(const BlockCursor& b, const std::int32_t* corr, __m256i* out) {
  auto& sums = *reinterpret_cast<__m256i(*)[Sums][2][N]>(out);
  const std::byte* w = b.w;
  const std::int8_t* codes = b.codes + block_offset(b.k, N);
  if constexpr (S == Start::nothing && N == 2) b.stream.digits(codes);
  b.stream.fetch(w, Dot::kBytes);
  if constexpr (Dot::kInMemory && N > 2) {
    for (int i = 0; i < Sums; ++i) start<Dot, S>(b, corr + i * N, sums[i]);
    Dot::template add<N>(w, codes, sums);
  } else if constexpr (Sums == 2 && N > 2) {  // one after the other
    sum_of_half<Dot, S, N, 0>(b, corr, sums[0]);
    sum_of_half<Dot, S, N, 1>(b, corr + N, sums[1]);
  } else {
    __m256i c[Sums][2][N];
    for (int i = 0; i < Sums; ++i) start<Dot, S>(b, corr + i * N, c[i]);
    Dot::template add<N>(w, codes, c);
#pragma GCC unroll 8
    for (int m = 0; m < N; ++m)
      for (int i = 0; i < Sums; ++i) sums[i][0][m] = c[i][0][m], sums[i][1][m] = c[i][1][m];
  }
}

using SumsOf = void (*)(const BlockCursor&, const std::int32_t*, __m256i*);

// The sum of products of 8 rows with a token's codes: of its row, or of its two rows of digits.
template <class Dot, class Facts>
inline __m256i total(const __m256i* c, std::int32_t corr, [[maybe_unused]] const __m256i& zeros) {
  if constexpr (Facts::kPlanes == 1) {
    return *c;
  } else {
    __m256i sum = _mm256_add_epi32(_mm256_sub_epi32(_mm256_slli_epi32(c[0], 8), c[0]), c[1]);
    if constexpr (Facts::kZeros)
      sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(_mm256_set1_epi32(corr), zeros));
    else if constexpr (Dot::kBiased)
      sum = _mm256_add_epi32(sum, _mm256_set1_epi32(corr));
    return sum;
  }
}

// Known: of tokens, 0 = a.n, and then `sums` knows the number of rows.
template <class Dot, class Facts, int Known>
void symmetric_panel(const Call<Facts>& call, [[maybe_unused]] SumsOf sums, const std::byte* panel, float* out,
                     const Stream& stream) {
  constexpr int kRows = Known == 0 ? kTileRows : Known * Facts::kPlanes;
  const GemmArgs& a = call.a;
  const int n = Known == 0 ? call.n : Known;
  Facts t = call.words;
  BlockCursor at{panel + call.header + call.unit_header, call.unit_header, call.codes, 0, 0, nullptr, stream};
  stream.header(panel, call.header + call.unit_header);
  ScaleWalk scales = call.scales;
  [[maybe_unused]] SumWalk each(panel, call.sums);
  __m256 f[2 * kRows];  // [half][n]
  for (int i = 0; i < 2 * n; ++i) f[i] = _mm256_setzero_ps();
  for (std::int64_t g = 0; g < call.groups; ++g, scales.next()) {
    const std::int64_t last = at.k + call.per_group;
    if constexpr (Facts::kSums != 0) {
      __m256i c[Facts::kSums][2 * kRows];
      at.last = last;
      if constexpr (Known == 0)
        sums(at, t.corr, c[0]);
      else
        sums_of_block<Dot, kStart<Facts>, kRows, Facts::kSums>(at, t.corr, c[0]);
      at.w += Dot::kBytes;
      at.k = last;
      const __m256i* sum = c[0];
      for (int i = 0; i < Facts::kSums; ++i, each.next(), t.corr += n)
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const __m256 scale = load_byte_scales<Facts>(scales.kind, each.at + V::kLanes * half);
          for (int m = 0; m < n; ++m, sum += Facts::kPlanes) {
            const __m256 s = _mm256_mul_ps(scale, _mm256_set1_ps(t.scale[m]));
            const __m256i whole = total<Dot, Facts>(sum, t.corr[m], __m256i{});
            f[half * n + m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), s, f[half * n + m]);
          }
        }
      t.scale += n;
      continue;
    }
    __m256 scale[2];
    for (std::size_t half = 0; half < 2; ++half)
      if constexpr (Dot::kDoubled)
        scale[half] = load_byte_scales<Facts>(scales.kind, panel + scales.at + half * V::kLanes);
      else
        scale[half] = load_scales(scales, panel, half * V::kLanes);
    __m256i zeros[2] = {};
    if constexpr (Facts::kZeros) {
      const std::byte* z = panel + call.zeros + g * kPanelRows;
      zeros[0] = load_zeros<Dot, Facts::kPlanes != 1>(z), zeros[1] = load_zeros<Dot, Facts::kPlanes != 1>(z + 8);
      at.zeros = zeros;
    }
    while (at.k < last) {
      at.last = !Facts::kBlocks ? last : Facts::kPlanes == 1 ? at.k + 1 : std::min(at.k + call.together, last);
      __m256i c[2 * kRows];
      if constexpr (Known == 0)
        sums(at, t.corr, c);
      else
        sums_of<Dot, kStart<Facts>, kRows>(at, t.corr, c);
      at.w += usize(at.last - at.k) * Dot::kBytes + at.unit_header * usize((at.last >> 1) - (at.k >> 1));
      at.k = at.last;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        for (int m = 0; m < n; ++m) {
          __m256 s = scale[half];
          if constexpr (Facts::kBlocks) s = _mm256_mul_ps(s, _mm256_set1_ps(t.scale[m]));
          const __m256i sum = total<Dot, Facts>(c + (half * n + m) * Facts::kPlanes, t.corr[m], zeros[half]);
          f[half * n + m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), s, f[half * n + m]);
        }
      t.corr += n;
      if constexpr (Facts::kBlocks) t.scale += n;
    }
  }
  for (int half = 0; half < 2; ++half) {
    const auto* biases = reinterpret_cast<const float*>(panel + call.bias) + 8 * half;
    const __m256 bias = call.has_bias ? V::load(biases) : _mm256_setzero_ps();
    for (int m = 0; m < n; ++m) {
      __m256 r = f[half * n + m];
      if constexpr (!Facts::kBlocks) r = _mm256_mul_ps(r, _mm256_set1_ps(t.scale[m]));
      if constexpr (Dot::kDoubled) r = halved(call, r, panel, usize(half) * V::kLanes);
      _mm256_storeu_ps(out + m * a.ld + 8 * half, _mm256_add_ps(r, bias));
    }
  }
}

// How many tokens' panels are compiled whole. With a scale for every block a call for its sums would cost a third of
// them: all. Otherwise the sums are nearly all of the time, and they alone are compiled for each number: one token.
template <class Facts>
constexpr int kWhole = Facts::kPlanes == 1 && Facts::kBlocks ? kTileRows : 1;

template <class Dot, class Facts>
struct ByTokens {
  void (*panel)(const Call<Facts>&, SumsOf, const std::byte*, float*, const Stream&);
  SumsOf sums;

  template <int Tokens>
  static constexpr ByTokens of() {
    if constexpr (Tokens <= kWhole<Facts>)
      return {symmetric_panel<Dot, Facts, Tokens>, nullptr};
    else if constexpr (Facts::kSums != 0)
      return {symmetric_panel<Dot, Facts, 0>, sums_of_block<Dot, kStart<Facts>, Tokens * Facts::kPlanes, Facts::kSums>};
    else
      return {symmetric_panel<Dot, Facts, 0>, sums_of<Dot, kStart<Facts>, Tokens * Facts::kPlanes>};
  }
  template <int... Tokens>
  static constexpr std::array<ByTokens, sizeof...(Tokens)> table(std::integer_sequence<int, Tokens...>) {
    return {of<Tokens + 1>()...};
  }
};

template <class Dot, class Facts>
void gemm(const GemmArgs& a) {
  static constexpr auto kTable =
      ByTokens<Dot, Facts>::table(std::make_integer_sequence<int, kTileRows / Facts::kPlanes>());
  const auto [panel, sums] = at(kTable, a.n - 1);
  const Call<Facts> call(a);
  const Stream stream(a, call.stride, a.part == 0 ? a.next : nullptr);
  for (std::int64_t p = 0; p < a.panel_count; ++p)
    panel(call, sums, a.panels + usize(p) * call.stride, a.out + p * kPanelRows, stream);
}

template <class Dot>
void gemm_blocks(const GemmArgs& a) {
  (a.matrix->has_zeros ? gemm<Dot, PerBlockZeros> : gemm<Dot, PerBlock>)(a);
}
template <class Dot>
void gemm_16(const GemmArgs& a) {
  (a.matrix->has_zeros ? gemm<Dot, Per16Zeros> : gemm<Dot, Per16>)(a);
}
// Of e2m1.
template <class Dot>
struct Fp4 {
  template <class Facts>
  struct With {
    static void gemm(const GemmArgs& a) { kernels::gemm<Dot, Facts>(a); }
  };
};
template <class Dot, class Facts>
void gemm_fp4(const GemmArgs& a) {
  gemm_fp4_as<Fp4<Dot>::template With, Facts>(a);
}
