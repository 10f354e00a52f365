// Integer weights with symmetric integer activations, 256-bit vectors: the 16 rows of a panel are two halves of 8
// lanes, done together so that one broadcast of activations serves both. Included inside a target region and an
// anonymous namespace that define V, kTileRows, the Dots (dot_avx2.inl), after read_ahead.inl and symmetric_tile.inl.
// The float steps are those of kernels/ref/symmetric.h, in its order.
//
// One text for AVX2 and AVX-VNNI: they differ in Dot, the product of 32 columns. Facts
// (symmetric_tile.inl) says what the activations are. A combination that has no sense is never
// instantiated: the tables at the end name those that are.
//
// From the outside in: gemm takes the functions for the number of tokens, symmetric_panel walks
// over groups and blocks and does the float steps, sums_of (or sums_of_block) makes the integer
// sums of one block or group, Dot multiplies 32 columns. Arrays are [half of the rows][row of
// codes].
//
// Why panels and sums are apart: on 16 registers the sums of six rows of codes take all of them, so
// float results are in memory (f) while a sum is made, and in registers only between two sums.

// Zero points of 8 rows as the factors of sums of activations, in 32 bits or in the low 16 bits of a lane; unbiased
// dots have subtracted 128 already.
// (code - zero) * q summed is sum(code * q) - zero * sum(q), so a zero point is used once per group
// and token. 16 bits suffice for blk8: 32 codes of at most 127 sum up to 4064, so vpmaddwd does it
// in one step of 5 cycles where vpmulld takes 10. blk16 codes are larger and need the 32-bit
// product.
template <class Dot, bool k32>
inline __m256i load_zeros(const std::byte* at) {
  __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  if (!Dot::kBiased) z = _mm256_sub_epi32(z, _mm256_set1_epi32(128));
  return k32 || Dot::kBiased ? z : _mm256_and_si256(z, _mm256_set1_epi32(0xffff));
}

// Where the sums of one call read.
// add_blocks() takes it by value, so that the compiler may keep it in registers.
// k counts blocks of 32 columns from the panel's start; `last` is where the sums end.
struct BlockCursor {
  // Moves with k. In sums_of() it is a copy, so the caller moves its own by the same bytes.
  const std::byte* w;  // codes of block k
  // 64 in the g32 form of W4A8's layout, else 0.
  std::size_t unit_header;  // bytes before each unit
  // Of the whole tile: block_offset(k, rows) finds a block.
  const std::int8_t* codes;
  std::int64_t k, last;
  // Only read where sums begin at zeros.
  const __m256i* zeros;  // of the group, of either half of the rows
  Stream stream;

  // To the next block. Headers of units are asked for as codes are.
  // Odd blocks end a unit.
  [[gnu::always_inline]] void next(std::size_t code_bytes) {
    stream.fetch(w, code_bytes);
    w += code_bytes;
    if ((k++ & 1) == 0 || unit_header == 0) return;
    stream.fetch(w, unit_header);
    w += unit_header;
  }
};

// What sums begin with: the correction of their row, that times the zero point, nothing (rows of digits).
// blk16 begins at nothing, because a correction belongs to the joined sum of both digits (total()).
enum class Start { corr, zeros, nothing };
template <class Facts>
constexpr Start kStart = Facts::kPlanes != 1 ? Start::nothing
                         : Facts::kZeros     ? Start::zeros
                                             : Start::corr;

// A register starts as what would have to be added at the end, so the correction costs no
// instruction of its own.
template <class Dot, Start S, int N>
// corr: [N] of this sum, c: [half of the rows][N], all set.
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

// N: rows of codes, so twice the tokens for blk16. Rows of digits of one token are neighbours.
template <class Dot, Start S, int N>
// corr: [N] of the sum that begins. c comes out as the sums of blocks b.k to b.last - 1.
inline void add_blocks(BlockCursor b, const std::int32_t* corr, __m256i (&c)[2][N]) {
  start<Dot, S>(b, corr, c);
  while (b.k < b.last) {
    // next() moves the cursor and asks for what is `ahead` bytes further, before the products: the
    // fetch has their time to arrive.
    const std::byte* w = b.w;
    const std::int8_t* codes = b.codes + block_offset(b.k, N);
    if constexpr (S == Start::nothing && N == 2) b.stream.digits(codes);  // both rows of one token
    b.next(Dot::kBytes);
    Dot::template add<N>(w, codes, c);
  }
}

// Sums of blocks, beginning with their corrections, into out[half][N]. Dot says where the accumulators live: in
// registers as locals of this function alone, or in memory, where its operands need the registers.
// Most numbers of tokens call it through a pointer: the accumulators are then locals of a small
// function, which the compiler keeps in registers through the loop.
template <class Dot, Start S, int N>
// out: [2][N] vectors of eight int32.
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
// For weights with a scale per 32 or 16 columns (MXFP4, NVFP4): the sum ends with the block, so the
// walk over blocks is the caller's.
template <class Dot, Start S, int N, int Sums>
// corr: [Sums][N], out: [Sums][2][N]. The cursor does not move: the caller knows that it was one
// block.
inline void sums_of_block(const BlockCursor& b, const std::int32_t* corr, __m256i* out) {
  auto& sums = *reinterpret_cast<__m256i(*)[Sums][2][N]>(out);
  const std::byte* w = b.w;
  const std::int8_t* codes = b.codes + block_offset(b.k, N);
  if constexpr (S == Start::nothing && N == 2) b.stream.digits(codes);
  b.stream.fetch(w, Dot::kBytes);
  if constexpr (Dot::kInMemory && N > 2) {
    for (int i = 0; i < Sums; ++i) start<Dot, S>(b, corr + i * N, sums[i]);
    Dot::template add<N>(w, codes, sums);
    // Two sums of more than two rows do not fit 16 registers together.
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

// `out` is an array of vectors and not [2][N], because N differs between the functions behind one
// pointer.
using SumsOf = void (*)(const BlockCursor&, const std::int32_t*, __m256i*);

// The sum of products of 8 rows with a token's codes: of its row, or of its two rows of digits.
// blk16: 255 * high + low in int32. The largest sum, 128 columns of 255 * 32512, stays below 2^31.
template <class Dot, class Facts>
// c: the sum, or two in a row. corr and zeros: of the token and of the 8 rows, looked at for digits
// only.
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
// The float steps of a panel. They are the same for every number of tokens, so for most numbers one
// function with a loop serves; the others are compiled whole (kWhole).
template <class Dot, class Facts, int Known>
// panel: its first byte. out: of token 0 and this panel's first row; tokens are a.ld floats apart.
void symmetric_panel(const Call<Facts>& call, [[maybe_unused]] SumsOf sums, const std::byte* panel, float* out,
                     const Stream& stream) {
  constexpr int kRows = Known == 0 ? kTileRows : Known * Facts::kPlanes;
  const GemmArgs& a = call.a;
  const int n = Known == 0 ? call.n : Known;
  // A copy: the pointers to corrections and scales move along with the blocks.
  Facts t = call.words;
  BlockCursor at{panel + call.header + call.unit_header, call.unit_header, call.codes, 0, 0, nullptr, stream};
  stream.header(panel, call.header + call.unit_header);
  ScaleWalk scales = call.scales;
  [[maybe_unused]] SumWalk each(panel, call.sums);
  // Results so far. For most numbers of tokens they are an array that `n` indexes, hence in memory.
  __m256 f[2 * kRows];  // [half][n]
  for (int i = 0; i < 2 * n; ++i) f[i] = _mm256_setzero_ps();
  // One turn per weight group, or per block of 32 columns where each has its own sum (kSums).
  for (std::int64_t g = 0; g < call.groups; ++g, scales.next()) {
    const std::int64_t last = at.k + call.per_group;
    // One scale per block or half: the float steps are per 32 columns, so they decide the speed and
    // are unrolled over both halves.
    if constexpr (Facts::kSums != 0) {
      // Written whole by the call below, so it is not cleared.
      __m256i c[Facts::kSums][2 * kRows];
      at.last = last;
      if constexpr (Known == 0)
        sums(at, t.corr, c[0]);
      else
        sums_of_block<Dot, kStart<Facts>, kRows, Facts::kSums>(at, t.corr, c[0]);
      at.w += Dot::kBytes;
      at.k = last;
      const __m256i* sum = c[0];
      for (int i = 0; i < Facts::kSums; each.next(), t.corr += n, t.scale += ++i == Facts::kSums ? n : t.between)
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          // The scale of the weights' group for eight rows, as floats; it is made of its byte once
          // for all tokens.
          const __m256 scale = load_byte_scales<Facts>(scales.kind, each.at + V::kLanes * half);
          for (int m = 0; m < n; ++m, sum += Facts::kPlanes) {
            // s_w * s_block first, then one fma: the definition's order (kernels/kernel.h).
            const __m256 s = _mm256_mul_ps(scale, _mm256_set1_ps(t.scale[m]));
            const __m256i whole = total<Dot, Facts>(sum, t.corr[m], __m256i{});
            f[half * n + m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), s, f[half * n + m]);
          }
        }
      continue;
    }
    // One load of scales per group serves all tokens and all blocks of activations in it.
    __m256 scale[2];
    for (std::size_t half = 0; half < 2; ++half)
      if constexpr (Dot::kDoubled)
        scale[half] = load_byte_scales<Facts>(scales.kind, panel + scales.at + half * V::kLanes);
      else
        scale[half] = load_scales(scales, panel, half * V::kLanes);
    __m256i zeros[2] = {};
    // Of both halves, loaded once per group.
    if constexpr (Facts::kZeros) {
      const std::byte* z = panel + call.zeros + g * kPanelRows;
      zeros[0] = load_zeros<Dot, Facts::kPlanes != 1>(z), zeros[1] = load_zeros<Dot, Facts::kPlanes != 1>(z + 8);
      at.zeros = zeros;
    }
    // A weight group may contain several blocks of activations, each with a scale of its own. Per
    // token (kBlocks false) there is one turn.
    while (at.k < last) {
      // Per token: the whole group. blk8: one block. blk16: the blocks that share a scale, at most
      // to the group's end.
      at.last = !Facts::kBlocks ? last : Facts::kPlanes == 1 ? at.k + 1 : std::min(at.k + call.together, last);
      __m256i c[2 * kRows];
      if constexpr (Known == 0)
        sums(at, t.corr, c);
      else
        sums_of<Dot, kStart<Facts>, kRows>(at, t.corr, c);
      // Every second block ends a unit, and then the next unit's header comes (g32).
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
  // The end of the definition, in its order: row scale, halved, tensor scale, bias.
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
// Compiled whole, the number of tokens is known in the float steps as well; that is code for each
// number.
template <class Facts>
constexpr int kWhole = Facts::kPlanes == 1 && Facts::kBlocks ? kTileRows : 1;

// A pair of functions per number of tokens: the panel, and the sums that it calls if it is the
// common one.
template <class Dot, class Facts>
struct ByTokens {
  // The float steps of a panel.
  void (*panel)(const Call<Facts>&, SumsOf, const std::byte*, float*, const Stream&);
  // nullptr where `panel` makes its sums itself.
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

// The entry. `part == 0` alone reads on into the next panels: the other calls for the same weights
// would fetch the same lines.
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
// A class template, because gemm_fp4_as chooses Facts and needs to pass on Dot.
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
