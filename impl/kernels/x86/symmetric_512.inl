// Integer weights with symmetric integer activations, 512-bit vectors. Included inside a target region and an anonymous
// namespace that define V and kTileRows, after read_ahead.inl, dot_avx512.inl and symmetric_tile.inl. The float steps
// are those of kernels/ref/symmetric.h, in its order.
//
// Two panels at a time meet up to eight rows of codes: 32 registers hold their 16 sums, the
// operands of both panels and the mask. Functions are cut so that the loops over columns spill
// nothing.
//
// From the outside in: gemm looks up gemm_rows by the number of tokens, which takes one or two
// panels at a time (run_panels), panels walks over groups and blocks and does the float steps,
// Block makes the sums.

// The sum of token i: of its row, or of its two rows of digits, which began at nothing.
// 255 * high as a shift and a subtraction. The correction of blk16 is in 32 bits and joins here,
// times the zero point where there are some.
template <class Facts, class Sums, int P>
// p: of the panels, i: of the tokens of this call. corr: from its first token on.
[[gnu::always_inline]] inline __m512 sum_of(const Sums& b, int p, int i, [[maybe_unused]] const std::int32_t* corr,
                                            [[maybe_unused]] const __m512i (&zeros)[P]) {
  if constexpr (Facts::kPlanes == 1) {
    return b.sum(p, i);
  } else {
    const __m512i high = b.total(p, 2 * i), start = _mm512_set1_epi32(corr[i]);
    const __m512i sum = _mm512_add_epi32(_mm512_sub_epi32(_mm512_slli_epi32(high, 8), high), b.total(p, 2 * i + 1));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(sum, Facts::kZeros ? _mm512_mullo_epi32(start, zeros[p]) : start));
  }
}

// What one sum of a block adds, where each has a scale of its own: of all its columns, or of half H.
// MXFP4 and NVFP4: 8 or 4 products and then float steps, so results f share the registers' time
// with sums.
// `t` belongs to the caller, who moves its corrections on behind each sum and its scales behind
// each block.
template <class Codes, class Facts, int H, int P, int N>
// w: codes of the block in the first panel, `stride` bytes from those in the second. codes: of the
// call's first row in the block. f: [panel][token], added to.
[[gnu::always_inline]] inline void add_sum(const std::byte* w, std::size_t stride, const std::int8_t* codes,
                                           ScaleWalk::Kind kind, SumWalk& each, const Facts& t, __m512 (&f)[P][N]) {
  if constexpr (P * N > 8) asm volatile("" : "+m"(f));               // in memory: registers are for the sums of codes
  Block<Codes, P, N * Facts::kPlanes, Facts::kSums == 2 ? 2 : 4> b;  // two halves hide what four chains would
  if constexpr (Facts::kPlanes != 1)
    b.start_at_nothing();
  else
    b.start(t.corr, nullptr);
  if constexpr (Facts::kSums == 2)
    b.template add_half<H>(w, stride, codes);
  else
    b.add(w, stride, codes);
  const __m512i no_zeros[P] = {};
  __m512 scale[P];
  for (int p = 0; p < P; ++p) scale[p] = load_byte_scales<Facts>(kind, each.at + usize(p) * stride);
  each.next();
  for (int i = 0; i < N; ++i) {
    const __m512 s = _mm512_set1_ps(t.scale[i]);
    for (int p = 0; p < P; ++p)
      f[p][i] = _mm512_fmadd_ps(sum_of<Facts>(b, p, i, t.corr, no_zeros), _mm512_mul_ps(scale[p], s), f[p][i]);
  }
}

// Whether memory bounds two panels at a time, with so many tokens: int8 always, int4 while digits are few.
// Codes::kSteps == 1 is int8: twice the bytes of int4 for the same products.
template <class Codes, class Facts, int P, int N>
constexpr bool kPairs = P == 2 && (Codes::kSteps == 1 || (Facts::kPlanes == 2 && N <= 3));

// P panels and N tokens of the tile from token `first` on.
// noinline: each is large, and inlined into run_panels GCC would mix their registers.
template <class Codes, class Facts, int P, int N>
// panel: the first of P. out: of the tile's first token in that panel's first row. `reading` goes
// on from call to call.
[[gnu::noinline]] void panels(const Call<Facts>& c, const std::byte* panel, int first, float* out,
                              Ahead<Codes, P, kPairs<Codes, Facts, P, N>>& reading) {
  constexpr int kRows = N * Facts::kPlanes;
  // n is the whole tile: corrections and scales of a block have the tile's n words, codes its rows.
  const int n = c.n, rows = n * Facts::kPlanes;
  const std::size_t stride = c.stride, unit_header = c.unit_header;
  const std::int64_t groups = c.groups, per_group = c.per_group, together = c.together;
  // Of the first row of codes that this call takes.
  const auto* codes = c.codes + first * Facts::kPlanes * kUnitK;
  // Pointers of the first token that this call takes.
  Facts t = c.words;
  t.corr += first;
  t.scale += first;
  // A copy in registers for the loop, written back behind it.
  auto ahead = reading;
  const std::byte* w = panel + c.header + unit_header;
  ahead.header(panel, c.header + unit_header);
  __m512 f[P][N];
  for (auto& row : f)
    for (auto& x : row) x = _mm512_setzero_ps();
  ScaleWalk scales = c.scales;
  [[maybe_unused]] SumWalk each(panel, c.sums);
  std::int64_t k = 0;
  for (std::int64_t g = 0; g < groups; ++g, scales.next()) {
    // `groups` counts blocks here, see Call.
    if constexpr (Facts::kSums != 0) {
      ahead.block(w);
      if constexpr (Facts::kPlanes == 2 && N == 1) ahead.digits(codes + block_offset(g, rows));
      add_sum<Codes, Facts, 0>(w, stride, codes + block_offset(g, rows), scales.kind, each, t, f);
      t.corr += n;
      if constexpr (Facts::kSums == 2) {
        t.scale += t.between;
        add_sum<Codes, Facts, 1>(w, stride, codes + block_offset(g, rows), scales.kind, each, t, f);
        t.corr += n;
      }
      t.scale += n;
      w += Codes::kBytes;
      continue;
    }
    __m512 scale[P];
    for (int p = 0; p < P; ++p)
      if constexpr (Codes::kDoubled)
        scale[p] = load_byte_scales<Facts>(scales.kind, panel + usize(p) * stride + scales.at);
      else
        scale[p] = load_scales(scales, panel + usize(p) * stride);
    __m512i zeros[P] = {};
    if constexpr (Facts::kZeros)
      for (int p = 0; p < P; ++p) zeros[p] = load_zeros(panel + usize(p) * stride + c.zeros + g * kPanelRows);
    // Groups end at whole blocks of 32 columns, so no product is cut.
    const std::int64_t end = k + per_group;
    if constexpr (Facts::kBlocks) {
      for (; k < end; t.corr += n, t.scale += n) {
        Block<Codes, P, kRows> b;
        if constexpr (Facts::kPlanes != 1)
          b.start_at_nothing();
        else if constexpr (Facts::kZeros)
          b.start_at_zeros(t.corr, zeros);
        else
          b.start(t.corr, nullptr);
        // A sum ends with the block of activations or with the weights' group, whichever is
        // shorter.
        const std::int64_t last = Facts::kPlanes == 1 ? k + 1 : std::min(k + together, end);
        // At least one block: `together` is at least 1.
        do {
          ahead.block(w);
          if constexpr (Facts::kPlanes == 2 && N == 1) ahead.digits(codes + block_offset(k, rows));
          b.add(w, stride, codes + block_offset(k, rows));
          w += Codes::kBytes;
          if (k % 2 != 0 && unit_header != 0) ahead.unit(w, unit_header), w += unit_header;
        } while (++k < last);
        // Float steps of a block: the scale of the activations is broadcast once and serves P
        // panels.
        for (int i = 0; i < N; ++i) {
          const __m512 s = _mm512_set1_ps(t.scale[i]);
          for (int p = 0; p < P; ++p)
            f[p][i] = _mm512_fmadd_ps(sum_of<Facts>(b, p, i, t.corr, zeros), _mm512_mul_ps(scale[p], s), f[p][i]);
        }
      }
      // Per token: one sum per weight group; the row's scale comes behind all groups.
    } else {
      Block<Codes, P, N> b;
      b.start(t.corr, nullptr);
      for (; k < end; ++k) {
        ahead.block(w);
        b.add(w, stride, codes + block_offset(k, n));
        w += Codes::kBytes;
        if (k % 2 != 0 && unit_header != 0) ahead.unit(w, unit_header), w += unit_header;
      }
      for (int p = 0; p < P; ++p)
        for (int i = 0; i < N; ++i) f[p][i] = _mm512_fmadd_ps(b.sum(p, i), scale[p], f[p][i]);
      t.corr += n;
    }
  }
  reading = ahead;
  for (int p = 0; p < P; ++p, panel += stride) {
    const __m512 bias = c.has_bias ? load_f32(panel + c.bias) : _mm512_setzero_ps();
    for (int i = 0; i < N; ++i) {
      __m512 r = f[p][i];
      // Per token the row's scale comes once, at the end; with blocks it is in each fma already.
      if constexpr (!Facts::kBlocks) r = _mm512_mul_ps(r, _mm512_set1_ps(t.scale[i]));
      if constexpr (Codes::kDoubled) r = halved(c, r, panel);
      _mm512_storeu_ps(out + (first + i) * c.a.ld + p * kPanelRows, _mm512_add_ps(r, bias));
    }
  }
}

// Panels from `begin` on, P at a time, all with the same tokens.
template <class Codes, class Facts, int P, int N>
void run_panels(const Call<Facts>& c, std::int64_t begin, std::int64_t end, int first) {
  const GemmArgs& a = c.a;
  Ahead<Codes, P, kPairs<Codes, Facts, P, N>> ahead(a, c.stride);
  for (std::int64_t p = begin; p + P <= end; p += P) {
    const std::byte* panel = a.panels + usize(p) * c.stride;
    panels<Codes, Facts, P, N>(c, panel, first, a.out + p * kPanelRows, ahead);
  }
}

// Up to so many tokens are bound by memory, which one stream of weights serves best; more meet two panels at a time. A
// last panel alone meets two tokens at a time.
// int8 has twice the bytes per product, so memory is the limit for more tokens; with digits two
// products follow each byte, so for fewer.
template <class Codes, class Facts>
constexpr int kStreamTokens = Facts::kPlanes == 2  ? 1
                              : Codes::kSteps == 1 ? 4
                                                   : 2;

// An odd number of panels leaves one for which code with P = 2 does not exist; two tokens at a time
// have as many sums as two panels and one.
template <class Codes, class Facts, int N>
[[gnu::noinline]] void last_panel(const Call<Facts>& c, int first) {
  const std::int64_t end = c.a.panel_count, p = end - 1;
  // The stream reads on behind the last panel once per pair of tokens; those lines are in the cache
  // then.
  for (int row = 0; row + 2 <= N; row += 2) run_panels<Codes, Facts, 1, 2>(c, p, end, first + row);
  if constexpr (N % 2 != 0) run_panels<Codes, Facts, 1, 1>(c, p, end, first + N - 1);
}
// N tokens of the tile from `first` on: run_panels takes all of them at once, but for a last panel.
template <class Codes, class Facts, int N>
void gemm_rows(const Call<Facts>& c, int first) {
  if constexpr (N <= kStreamTokens<Codes, Facts>) {
    run_panels<Codes, Facts, 1, N>(c, 0, c.a.panel_count, first);
  } else {
    run_panels<Codes, Facts, 2, N>(c, 0, c.a.panel_count, first);
    if (c.a.panel_count % 2 != 0) last_panel<Codes, Facts, N>(c, first);
  }
}

// A struct, because arrays are no return values of constexpr functions.
template <class Facts>
struct ByTokens {
  void (*of[kTileRows / Facts::kPlanes])(const Call<Facts>&, int first);
};
template <class Codes, class Facts, int... Tokens>
constexpr ByTokens<Facts> by_tokens(std::integer_sequence<int, Tokens...>) {
  return {{gemm_rows<Codes, Facts, Tokens + 1>...}};
}
template <class Codes, class Facts>
void gemm(const GemmArgs& a) {
  constexpr int kMost = kTileRows / Facts::kPlanes;
  static constexpr ByTokens<Facts> kBy = by_tokens<Codes, Facts>(std::make_integer_sequence<int, kMost>());
  if (a.n <= kMost) return kBy.of[a.n - 1](Call<Facts>(a), 0);
  // An AMX row hands over more tokens than a tile of this one has: several parts of the same weights.
  const int parts = (a.n + kMost - 1) / kMost;
  for (int i = 0; i < parts; ++i) {
    GemmArgs some = a;
    some.part = a.part * parts + i;
    some.parts = a.parts * parts;
    kBy.of[std::min(a.n - i * kMost, kMost) - 1](Call<Facts>(some), i * kMost);
  }
}
template <class Codes>
void gemm_blocks(const GemmArgs& a) {
  (a.matrix->has_zeros ? gemm<Codes, PerBlockZeros> : gemm<Codes, PerBlock>)(a);
}
template <class Codes>
void gemm_16(const GemmArgs& a) {
  (a.matrix->has_zeros ? gemm<Codes, Per16Zeros> : gemm<Codes, Per16>)(a);
}
// Of e2m1.
template <class Codes>
struct Fp4 {
  template <class Facts>
  struct With {
    static void gemm(const GemmArgs& a) { kernels::gemm<Codes, Facts>(a); }
  };
};
template <class Codes, class Facts>
void gemm_fp4(const GemmArgs& a) {
  gemm_fp4_as<Fp4<Codes>::template With, Facts>(a);
}
