// The tile registers of one gemm, for up to kTileRows tokens. Included inside a target region and an anonymous
// namespace that define kTileRows.

constexpr int kSubRows = 16;
constexpr int kSubs = kTileRows / kSubRows;

// Tile registers: 0-3 sums (token half, panel), 4 and 5 activations, 6 and 7 weights.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {};

  explicit TileConfig(int tokens) {
    for (int tile = 0; tile < 8; ++tile) rows[tile] = static_cast<std::uint8_t>(tile < 6 ? tokens : 16);
  }
};

// The tokens of a tile in parts of equal size: the last parts may overlap, which computes rows twice, alike.
struct Parts {
  int count, rows, n;
  explicit Parts(int tokens)
      : count((tokens + kSubRows - 1) / kSubRows), rows((tokens + count - 1) / count), n(tokens) {}
  int first(int part) const { return std::min(part * rows, n - rows); }
};
