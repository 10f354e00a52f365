// Weights of any element against rows of 4-byte values (float32, or pairs of bf16: x86/*bf16.cpp), for a lane type V
// (vector_*.inl). Included inside a target region and an anonymous namespace that define kTileRows, after
// places.inl and read_ahead.inl.
//
// Definition (kernels/ref/float.h): per block of 32 columns one chain of fma in ascending order, where groups of
// weights are halves of blocks two; the block's sum times its scale is added to the result; the bias comes last. Blocks
// are chains of their own, so few rows walk several of them at once, and many rows several panels, to keep the fma
// units busy; no result depends on which.
//
// Floats are multiplied without packing them to integers here: the result has the bits of the
// scalar row, and the cost is one expansion of a code per weight and tile, not per row. All
// parameters are template arguments (W what weights are, S strips, B blocks, N rows), so that sums
// are in registers.
//
// What a W says (weights_*.inl, Floats below, x86/bf16_avx512bf16.cpp):
//
// kScaled      block sums meet a scale
// kQuadBytes   bytes of 4 columns of a panel
// kShared      both halves of a block lie in the same bytes (4-bit codes)
// kColumns     columns of a step, in which groups are counted
// kHalves      groups are halves of blocks (NVFP4)
// kTensorScale there may be a second scale (NVFP4)
// Offset       what `value` subtracts, made once per group
// value<H, C>  column C of a quad, of half H, as a vector of weights
// fma          the product; vdpbf16ps for pairs
//
// A call, from the outside in: gemm picks a Step by the number of rows, walk goes over panels,
// panels over blocks, add_blocks makes the sums of B blocks and scales them, Blocks::column
// multiplies.
//
// Registers, for 8 rows on AVX-512: two panels are S = 2 strips, so a block has 16 sums in
// registers, two vectors of weights and one broadcast; the results of all blocks (f) are in memory
// then. On AVX2 6 rows are 12 sums, since one panel has two strips. With one row and 4 blocks at
// once there are 4 independent sums per strip, which is what hides the latency of the fma.

// The length of a chain in ref/float.h, which this must equal.
constexpr std::int64_t kBlockK = 32;

// The columns of a block as vectors of rows. A quad is 4 consecutive columns; quads of the two halves of a block share
// their bytes (int4) or follow each other.
// A W says how one quad becomes vectors of weights. What it inherits from here is for activations
// that are float32; pairs of bf16 have their own fma and unit (x86/bf16_avx512bf16.cpp).
struct Float32Rows {
  static constexpr std::int64_t kColumns = kBlockK;  // of a block, as weight groups count them
  static constexpr bool kHalves = false;             // groups are halves of blocks, with scales of e4m3
  static constexpr bool kTensorScale = false;        // there may be a second scale
  static std::int64_t blocks(const TileShape& shape) { return shape.blocks(); }
  [[gnu::always_inline]] static F fma(F x, F w, F sum) { return V::fma(x, w, sum); }
};

// f32, bf16 and f16 weights: there is no scale, so a block's sum is added and not multiplied.
template <Element E>
struct Floats : Float32Rows {
  static constexpr bool kScaled = false;
  // 4 columns of 16 rows, of 4 or 2 bytes.
  static constexpr std::size_t kQuadBytes = E == Element::f32 ? 256 : 128;
  static constexpr bool kShared = false;
  // Integers carry what is subtracted from a code; other weights carry nothing.
  struct Offset {};
  static Offset offset(F) { return {}; }
  // Column H * 16 + 4 * quad + Column of the block.
  // The innermost step. Weights of all strips are made first, then each activation is broadcast
  // once and meets all of them. x: n * 16 is the distance of rows within a piece of 16 columns.
  template <int H, int Column>
  [[gnu::always_inline]] static F value(const std::byte* quad, const Offset&) {
    if constexpr (E == Element::f32) {
      return V::load(reinterpret_cast<const float*>(quad) + Column * kPanelRows);
    } else {
      // Two columns lie in one 32-bit lane. bf16: the even one is moved up, the odd one is there
      // already and only loses the other's bits.
      const I pair = V::load_i(quad + Column / 2 * 64);
      if constexpr (E == Element::bf16)
        return V::from_bits(Column % 2 == 0 ? V::shl<16>(pair)
                                            : V::and_i(pair, V::set_i(static_cast<std::int32_t>(0xffff0000u))));
      else
        return V::widen_f16(Column % 2 == 0 ? V::and_i(pair, V::set_i(0xffff)) : V::shr<16>(pair));
    }
  }
};

// What is fetched. Panels that meet one tile: weights that come `distance` bytes later in the same panel, at its end
// those of the panels to come. Panels that meet several: the call's share of the panels to come.
// Loads of weights are spread over all columns of a block and so are fetches: a burst of them could
// hold up the loads that the arithmetic waits for.
// `later` belongs to the panel or panels that come after those at hand, also in the next call.
struct Fetched {
  // w is compared with `end` to see whether what comes `distance` later is still in this panel.
  const std::byte *end, *later;  // of the first panel at hand; the weights of the first panel to come
  std::ptrdiff_t distance;
  bool into_l2;
  // nullptr: lines are fetched one by one; else each turn takes a piece of the call's share.
  Share* share;

  // The hint is an immediate operand, so the choice is a branch.
  [[gnu::always_inline]] void fetch(const std::byte* line) const {
    if (into_l2) return Stream::lines<_MM_HINT_T1>(line, 64);
    Stream::lines<_MM_HINT_T0>(line, 64);
  }

  // At the end of a panel the address goes on in the next one by as much as it is beyond.
  const std::byte* of(const std::byte* w) const {
    return end - w > distance ? w + distance : later + (distance - (end - w));
  }
};

// S vectors of rows (parts of a panel, then panels), B blocks, N tile rows.
// One step of the loop: B blocks of 32 columns times S strips times N rows. B > 1 makes independent
// chains: an fma takes 4 cycles and two start per cycle, so 8 must be under way.
template <class W, int S, int B, int N>
struct Blocks {
  static constexpr std::int64_t kBytes = W::kQuadBytes * (W::kShared ? 4 : 8);
  static constexpr int kValues = 32 * N;  // of the tile's rows
  static constexpr std::size_t kLines = W::kQuadBytes / 64;
  static constexpr std::int64_t kTurns = W::kShared ? 4 : 8;  // quads at which something is fetched
  // All sums of a step, in registers as long as B * S * N fits (at_once sees to it).
  F c[B][S][N];

  // Strips of a panel lie 32 bytes (AVX2) apart within each vector of 64.
  static constexpr int part_offset(int s) { return s % kParts * kLanes * 4; }

  template <int H, int Column>
  // quad: in the first block and panel. x: of the first row. o: per block and strip.
  [[gnu::always_inline]] void column(const std::byte* quad, std::size_t stride, const float* x,
                                     const typename W::Offset (&o)[B][S]) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      F w[S];
#pragma GCC unroll 4
      for (int s = 0; s < S; ++s)
        w[s] = W::template value<H, Column>(quad + b * kBytes + usize(s / kParts) * stride + part_offset(s), o[b][s]);
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        const F xn = V::set(x[b * kValues + n * 16 + Column]);
#pragma GCC unroll 4
        for (int s = 0; s < S; ++s) c[b][s][n] = W::fma(xn, w[s], c[b][s][n]);
      }
    }
  }

  // Half a block: 16 columns in quads. Int4 weights have both halves in the same bytes (kShared),
  // so the address does not move for the second one, and nothing is fetched again.
  template <int H>
  // later: the line to fetch first; it moves on with each turn and covers B blocks.
  [[gnu::always_inline]] void half(const std::byte* w, std::size_t stride, const float* x,
                                   const typename W::Offset (&o)[B][S], const Fetched& ahead, const std::byte* later) {
    if constexpr (!W::kShared) w += H * 4 * W::kQuadBytes, later += H * 4 * W::kQuadBytes * B;
    x += H * 16 * N;
#pragma GCC unroll 1
    for (int quad = 0; quad < 4; ++quad, w += W::kQuadBytes, x += 4) {
      // Each line of weights is asked for once per turn: for codes that both halves share, in the
      // first half.
      if constexpr (H == 0 || !W::kShared) {
        if (ahead.share != nullptr) {
          ahead.share->advance();
        } else {
#pragma GCC unroll 16
          for (std::size_t i = 0; i < kLines * B; ++i, later += 64) {
#pragma GCC unroll 4
            for (std::size_t p = 0; p < S / kParts; ++p) ahead.fetch(later + p * stride);
          }
        }
      }
      column<H, 0>(w, stride, x, o);
      column<H, 1>(w, stride, x, o);
      column<H, 2>(w, stride, x, o);
      column<H, 3>(w, stride, x, o);
    }
  }

  // Sums begin at +0, as in the definition.
  [[gnu::always_inline]] void clear() {
    for (auto& block : c)
      for (auto& strip : block)
        for (F& sum : strip) sum = V::set(0.0f);
  }

  [[gnu::always_inline]] void multiply(const std::byte* w, std::size_t stride, const float* x,
                                       const typename W::Offset (&o)[B][S], const Fetched& ahead) {
    clear();
    const std::byte* later = ahead.of(w);
    half<0>(w, stride, x, o, ahead, later);
    half<1>(w, stride, x, o, ahead, later);
  }
};

// Of weights without zero points whose groups are halves of blocks.
// NVFP4: 16 columns have a scale, so a block's halves are two sums. The order is half 0, half 1,
// block by block, ascending in k.
template <class W, int S, int B, int N>
// w: codes of the first of B blocks. x: the tile's values there. f: [strip][row], added to.
[[gnu::always_inline]] inline void add_halves(const Places& at, const std::byte* panel, const std::byte* w,
                                              const float* x, const Fetched& ahead, GroupWalk& groups, F (*f)[N]) {
  const typename W::Offset none[B][S] = {};
  const std::byte* later = ahead.of(w);
  Blocks<W, S, B, N> halves[2];
  halves[0].clear(), halves[1].clear();
  halves[0].template half<0>(w, at.stride, x, none, ahead, later);
  halves[1].template half<1>(w, at.stride, x, none, ahead, later);
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b)
    for (const auto& sums : halves) {
      const std::size_t g = groups.next();
#pragma GCC unroll 4
      for (int s = 0; s < S; ++s) {
        const F scale = at.scale(panel, s, g);
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) f[s][n] = V::fma(sums.c[b][s][n], scale, f[s][n]);
      }
    }
}

// Sums of B blocks are made at once and added one after the other: the chains overlap, the order of
// the additions to f does not change.
template <class W, int S, int B, int N>
// As add_halves. Offsets and scales are loaded per group and strip; the group of each block comes
// from the walk, since B blocks may lie in several.
[[gnu::always_inline]] inline void add_blocks(const Places& at, const std::byte* panel, const std::byte* w,
                                              const float* x, const Fetched& ahead, GroupWalk& groups, F (*f)[N]) {
  if constexpr (W::kHalves) return add_halves<W, S, B, N>(at, panel, w, x, ahead, groups, f);
  std::size_t g[B] = {};
  typename W::Offset offsets[B][S];
  if constexpr (W::kScaled)
    for (int b = 0; b < B; ++b) {
      g[b] = groups.next();
      for (int s = 0; s < S; ++s)
        // Per group, so it is outside of the loop over columns.
        offsets[b][s] = W::offset(at.has_zeros ? at.zero(panel, s, g[b]) : V::set(at.zero_code));
    }
  Blocks<W, S, B, N> sums;
  sums.multiply(w, at.stride, x, offsets, ahead);
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b)
#pragma GCC unroll 4
    for (int s = 0; s < S; ++s) {
      if constexpr (W::kScaled) {
        const F scale = at.scale(panel, s, g[b]);
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) f[s][n] = V::fma(sums.c[b][s][n], scale, f[s][n]);
      } else {
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) f[s][n] = V::add(f[s][n], sums.c[b][s][n]);
      }
    }
}

// Not whole: the last panel is there alone and is taken for both.
// at.stride = 0 makes the second panel the first one again, and both are stored to the same place
// with equal bits. So there is no code for a single last panel.
template <class W, int P, int B, int N>
// panel: the first of P. later: the first of those to come. out: of row 0 in the panel's first
// column.
void panels(const GemmArgs& a, Places at, const std::byte* panel, bool whole, float* out, const std::byte* later,
            Share* share) {
  constexpr int S = P * kParts;
  using Sums = Blocks<W, S, B, N>;
  const auto* x = reinterpret_cast<const float*>(a.tile);
  // Both move on together: w by whole blocks of codes, x by whole blocks of values of all N rows.
  const std::byte* w = panel + at.header;
  const std::ptrdiff_t column = whole ? kPanelRows : 0;
  const Fetched ahead{panel + at.stride, later + at.header, a.prefetch.ahead, a.prefetch.into_l2, share};
  if (!whole) at.stride = 0;
  // The header of the next panels is fetched at once: it is needed first.
  for (std::size_t p = 0; p < P; ++p)
    for (std::size_t line = 0; line < at.header; line += 64) ahead.fetch(later + p * at.stride + line);
  GroupWalk groups(*a.matrix, W::kColumns);
  F sums[S][N];
  // The empty asm hides where f points: GCC would otherwise keep f in registers and spill the
  // blocks' sums, which are used 32 times as often.
  F(*f)[N] = sums;
  if constexpr (S * N > 10) asm("" : "+r"(f) : : "memory");  // in memory: registers are for the blocks' sums
  for (int s = 0; s < S; ++s)
    for (int n = 0; n < N; ++n) f[s][n] = V::set(0.0f);
  // The last block may be cut short by K: codes and values behind it are 0 and take part.
  std::int64_t left = W::blocks(a.shape);
  for (; left >= B; left -= B, w += B * Sums::kBytes, x += B * Sums::kValues)
    add_blocks<W, S, B, N>(at, panel, w, x, ahead, groups, f);
  // Blocks that are no multiple of B, one at a time. The sums are the same ones.
  if constexpr (B > 1)
    for (; left > 0; --left, w += Sums::kBytes, x += Sums::kValues)
      add_blocks<W, S, 1, N>(at, panel, w, x, ahead, groups, f);
  // NVFP4's second scale comes once per result, before the bias (numerics.md 2.2).
  if constexpr (W::kTensorScale)
    for (int s = 0; s < S && a.matrix->has_tensor_scale(); ++s) {
      const std::byte* scale = panel + usize(s / kParts) * at.stride + a.matrix->tensor_scale_offset();
      for (int n = 0; n < N; ++n)
        f[s][n] = V::mul(f[s][n], V::load(reinterpret_cast<const float*>(scale) + s % kParts * kLanes));
    }
  for (int s = 0; s < S; ++s) {
    const std::byte* bias = panel + usize(s / kParts) * at.stride + at.bias;
    const F add = at.has_bias ? V::load(reinterpret_cast<const float*>(bias) + s % kParts * kLanes) : V::set(0.0f);
    for (int n = 0; n < N; ++n)
      V::store(out + n * a.ld + s / kParts * column + s % kParts * kLanes, V::add(f[s][n], add));
  }
}

// Panels and blocks at once that keep the fma units busy with N rows, the sums in registers. One stream of weights is
// what memory likes best, two panels share the loads of a row's values.
// Weights without scales have the most bytes: up to 4 rows memory decides, and one stream is best.
// Scaled ones are smaller, so arithmetic decides earlier, and two panels halve the loads of
// activations.
// "Few registers" is AVX2: with one or two rows it takes two blocks at once, else one.
struct AtOnce {
  int panels, blocks;
};
template <class W>
constexpr AtOnce at_once(int n) {
  if (!W::kScaled && n <= 4) return {1, 1};
  // AVX2: a panel has two strips already, and 16 registers do not hold two panels.
  if (kParts == 2) return {1, n > 2 ? 1 : 2};  // few registers
  return {n <= 2 && !W::kShared ? 1 : 2, n <= 2 ? 4 : n <= 4 ? 2 : 1};
}

// The code for a number of rows, the panels that it takes at once, and how often it fetches for a row of that shape.
// One function per number of rows: N is a constant in it, so n rows need exactly n sums per strip.
// Pointers to functions in a constant table: the number of rows is looked up once per call.
struct Step {
  // `panels` for one number of rows.
  void (*run)(const GemmArgs& a, Places at, const std::byte* panel, bool whole, float* out, const std::byte* later,
              Share* share);
  int panels;
  std::int64_t (*turns)(const TileShape& shape);
  bool in_order;  // where that is liked, nothing but a panel's codes in a row is read
};

// Not a template: the walk over panels is the same for all W and N and would be compiled dozens of
// times.
[[gnu::noinline]] inline void walk(const GemmArgs& a, const Step& step) {
  const Places at(*a.matrix);
  const std::byte* panel = a.panels;
  // A single row of unscaled weights is the only case that reads nothing but codes, one after the
  // other.
  const bool in_order = step.in_order && a.prefetch.in_order, shared = in_order || a.parts > 1;
  // 0 steps: no share, so that reading in order is not disturbed by fetches.
  Share share(a, at.stride, in_order ? 0 : step.turns(a.shape) * ceil_div(a.panel_count, std::int64_t{step.panels}));
  for (std::int64_t p = 0; p < a.panel_count; p += step.panels) {
    const std::int64_t later = p + step.panels;
    const std::byte* next = panel + usize(step.panels) * at.stride;
    // Behind the last panel of the call reading goes on at a.next. Without a next one it fetches
    // this panel again, which is in the cache and costs nothing but the instruction.
    const std::byte* ahead = later < a.panel_count ? next : a.next != nullptr ? a.next : panel;
    step.run(a, at, panel, later <= a.panel_count, a.out + p * kPanelRows, ahead, shared ? &share : nullptr);
    panel = next;
  }
}

// How often advance() is called for a panel, so that Share can cut its bytes evenly.
template <class W, int B>
std::int64_t turns(const TileShape& shape) {
  const std::int64_t blocks = W::blocks(shape);
  return (blocks / B + blocks % B) * Blocks<W, 1, 1, 1>::kTurns;
}
template <class W, int N>
constexpr Step step_of() {
  constexpr AtOnce f = at_once<W>(N);
  return {panels<W, f.panels, f.blocks, N>, f.panels, turns<W, f.blocks>, !W::kScaled && N == 1};
}
template <class W, int... Rows>
constexpr std::array<Step, kTileRows> by_rows(std::integer_sequence<int, Rows...>) {
  return {step_of<W, Rows + 1>()...};
}

template <class W>
void gemm(const GemmArgs& a) {
  static constexpr auto kByRows = by_rows<W>(std::make_integer_sequence<int, kTileRows>());
  walk(a, at(kByRows, a.n - 1));
}
