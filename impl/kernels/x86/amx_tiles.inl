// The walks of the AMX rows, over groups and over all of k.
//
// Groups (pass): the weights of one or two steps of k (64 int8 or 32 bf16 values) with one or two panels, up
// to four B tiles, rest in the tile registers while all tokens of the tile pass, 16 at a time: a product costs half a
// load of activations and nothing else. The sums of a part go to memory among the products of the next part, where the
// stores cost nothing; behind the last product they would wait for it. What becomes of them then (scales, results) is
// done a part later again, so that three parts are under way:
//
//   tile registers   products of part i   products of i + 1   products of i + 2
//   stores           sums of part i - 1   sums of i           sums of i + 1
//   vector units     scales of part i - 2 scales of i - 1     scales of i
//
// A part's number goes on from one pass to the next; behind the last pass the rows finish the last two parts.
//
// All of k (chain): two panels and two parts meet in four sums, which stay in the registers until they are complete.
// Weights pass once for two parts, from L1: fetched or expanded ahead, among the products. Beside them it is the turn
// of the results of the two parts before. Measured on a core of its own and beside a busy one, shares of the peak in
// cache: tests/bench/results/why.md, AMX.
//
// Included inside a target region and an anonymous namespace that define kTileRows.

// The height of a tile register.
constexpr int kPartRows = 16;
constexpr int kMaxParts = kTileRows / kPartRows;
// Two steps and two panels are four B tiles: with two of sums and two of activations all eight
// registers.
constexpr int kSteps = 2;  // of k at a time

// Tile registers of a pass: 0 and 1 sums (panel), 2 and 3 activations (step), 4 to 7 weights (step, panel); of a chain:
// 0 to 3 sums (part, panel), 4 and 5 activations (part), 6 and 7 weights (panel).
// The numbers are literals in the intrinsics of dot_amx.inl and dot_amxbf16.inl: change all three
// together.
constexpr int kPassWeights = 4, kChainWeights = 6;
// ldtilecfg clears all tiles, so it comes before the first product of a call.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {};

  // Tiles of sums and activations have the part's rows, weights always 16. Fewer rows make products
  // and loads shorter in proportion.
  TileConfig(int part, int weights) {
    for (int tile = 0; tile < 8; ++tile) rows[tile] = static_cast<std::uint8_t>(tile < weights ? part : 16);
  }
  [[gnu::always_inline]] void load() const {
    __asm__ volatile("" ::"m"(*this));  // GCC 12's intrinsic says that it reads eight bytes; it reads all of them
    _tile_loadconfig(this);
  }
};

// The rows of a tile in parts of equal size that hold tokens of one or two rows whole: the last parts may overlap,
// which computes rows twice, alike.
// An overlap is simpler than a shorter last part, which would need another configuration. Equal
// inputs give equal sums, so storing a row twice does no harm.
struct Parts {
  // rows: of one part, of all planes; at most 16.
  int count, rows, n;  // n: rows of the whole tile, of all planes
  explicit Parts(int tokens, int planes = 1)
      : count((tokens * planes + kPartRows - 1) / kPartRows),
        rows((tokens + count - 1) / count * planes),
        n(tokens * planes) {}
  // The last part is moved up so that it ends with the tile.
  int first(int part) const { return std::min(part * rows, n - rows); }
};

// Where results of a part stay in vector registers: rows of a part (8, 12 or 16 of at least 8), and parts. As few rows
// as may be, the last part moved up so that it ends with the tile.
struct Cut {
  static constexpr int kFewest = 8;
  int rows = 0, parts = 0;
  explicit Cut(int n) {
    for (const int height : {16, 12, 8}) {
      const int count = (n + height - 1) / height;
      if (height <= n && (parts == 0 || height * count < rows * parts)) rows = height, parts = count;
    }
  }
};

// 16 x 16 sums of one part of the rows with two panels.
// [panel][row][column]: what one tile register holds is one 1 KB piece, stored with a stride of 64.
// T is int32 or float, 4 bytes either way: a tile register does not care.
template <class T>
using PartSums = std::array<std::array<std::array<T, 16>, kPartRows>, 2>;

// Where the B tiles of a pass lie: [step][panel].
// Pointers, because int8 and bf16 units are multiplied where they lie and int4 ones from a buffer.
using Tiles = std::array<std::array<const void*, 2>, kSteps>;

// The products of a pass. Product::dot<step, panel>() adds one to the sums of a panel. `work` does the rest:
//   home(part)           the PartSums of the part; `more`: they are added to
//   in_registers()       the PartSums of those that the part before left in the registers
//   beside(i)            what else there is to do, in quarters, while the products run
//   passed(part, sums)   its sums are in the registers; those of the part before are in memory
// always_inline: `work` is then known and its parts are spread among the products, which is the
// point.
template <class Product, int kPanels, int kPassSteps, class Work>
[[gnu::always_inline]] inline void pass(const Tiles& weights, const std::byte* x, const Parts& parts, bool more,
                                        Work& work) {
  __asm__ volatile("" ::: "memory");  // GCC's tile loads do not say that they read: weights just written are there now
  _tile_loadd(4, weights[0][0], 64);
  if constexpr (kPanels == 2) _tile_loadd(5, weights[0][1], 64);
  if constexpr (kPassSteps == 2) _tile_loadd(6, weights[1][0], 64);
  if constexpr (kPassSteps == 2 && kPanels == 2) _tile_loadd(7, weights[1][1], 64);
  // With one part the sums need not leave the registers between passes of the same group.
  const bool stay = more && parts.count == 1;
  for (int part = 0; part < parts.count; ++part) {
    // 64 bytes are a row of an A tile, in all formats of tiles.
    const std::byte* row = x + parts.first(part) * 64;
    // Asked before home(): it is the last part's place, and the registers still hold its sums.
    auto& before = work.in_registers();
    auto& sums = work.home(part);
    _tile_loadd(2, row, 64);
    // Stores belong to the part before: its products have ended by now, and a store waits for them.
    if (!stay) _tile_stored(0, before[0].data(), 64);
    // A pass that begins a group starts from 0, one that goes on from the sums in memory.
    if (!more) _tile_zero(0);
    if (more && !stay) _tile_loadd(0, sums[0].data(), 64);
    Product::template dot<0, 0>();
    // Between two products of the same tile registers: what stands here runs while they do.
    work.beside(0);
    if constexpr (kPassSteps == 2) _tile_loadd(3, row + parts.n * 64, 64);
    if constexpr (kPanels == 2) {
      if (!stay) _tile_stored(1, before[1].data(), 64);
      if (!more) _tile_zero(1);
      if (more && !stay) _tile_loadd(1, sums[1].data(), 64);
      Product::template dot<0, 1>();
    }
    work.beside(1);
    if constexpr (kPassSteps == 2) Product::template dot<1, 0>();
    work.beside(2);
    if constexpr (kPassSteps == 2 && kPanels == 2) Product::template dot<1, 1>();
    work.beside(3);
    work.passed(part, sums);
  }
}

// Behind the last pass: the sums that are still in the registers.
template <int kPanels, class Sums>
[[gnu::always_inline]] inline void store_sums(Sums& sums) {
  _tile_stored(0, sums[0].data(), 64);
  if constexpr (kPanels == 2) _tile_stored(1, sums[1].data(), 64);
}

// The sums of one or two parts with one or two panels over `steps` of k, left in the registers. The activations of a
// part lie at x[part], `stride` bytes a step; `more`: what a chain left there is added to. Product::add<part, panel>()
// adds to a sum. `work` does the rest:
//   tile(step, panel)     where a B tile lies
//   work(step, quarter)   makes those to come, and what else there is to do
// Two parts and two panels: every load of a tile serves two products. More would need more than the
// eight tile registers.
template <class Product, int kParts, int kPanels, class Work>
[[gnu::always_inline]] inline void chain(std::array<const std::byte*, 2> x, std::size_t stride, std::int64_t steps,
                                         Work work, bool more = false) {
  if (!more) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  // GCC's tile loads do not say that they read: what was written before them is there now. And the order of products
  // and of what is done beside them is meant.
  __asm__ volatile("" ::: "memory");
  // The barrier keeps the compiler from gathering all work behind all products.
  const auto beside = [&](std::int64_t step, int quarter) {
    work(step, quarter);
    __asm__ volatile("" ::: "memory");
  };
  // Loads come just before the product that needs them, and work of the vector units goes between
  // the products, which run on in the meantime.
  for (std::int64_t step = 0; step < steps; ++step, x[0] += stride, x[1] += stride) {
    _tile_loadd(4, x[0], 64);
    _tile_loadd(6, work.tile(step, 0), 64);
    if constexpr (kPanels == 2) _tile_loadd(7, work.tile(step, 1), 64);
    if constexpr (kParts == 2) _tile_loadd(5, x[1], 64);
    Product::template add<0, 0>();
    beside(step, 0);
    if constexpr (kPanels == 2) Product::template add<0, 1>();
    beside(step, 1);
    if constexpr (kParts == 2) Product::template add<1, 0>();
    beside(step, 2);
    if constexpr (kParts == 2 && kPanels == 2) Product::template add<1, 1>();
    beside(step, 3);
  }
}

// Behind a chain: to(part, panel) is where the sums of its first or second part go, rows `stride` bytes apart.
// `to` may be the results themselves, or a buffer whose sums still meet their scales.
template <int kParts, int kPanels, class To>
[[gnu::always_inline]] inline void store_chain(To to, std::ptrdiff_t stride) {
  _tile_stored(0, to(0, 0), stride);
  if constexpr (kPanels == 2) _tile_stored(1, to(0, 1), stride);
  if constexpr (kParts == 2) _tile_stored(2, to(1, 0), stride);
  if constexpr (kParts == 2 && kPanels == 2) _tile_stored(3, to(1, 1), stride);
}

// The panels of a call in pairs, the last one alone: each<panels>(first panel, its column of the results).
// `each` is a template: the number of panels decides which products exist.
template <class Each>
[[gnu::always_inline]] inline void in_pairs(const GemmArgs& a, std::size_t stride, Each each) {
  const std::byte* panel = a.panels;
  std::int64_t p = 0;
  for (; p + 2 <= a.panel_count; p += 2, panel += 2 * stride) each.template operator()<2>(panel, p * kPanelRows);
  if (p < a.panel_count) each.template operator()<1>(panel, p * kPanelRows);
}
