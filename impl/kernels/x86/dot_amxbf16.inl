// The products of a chain of bf16 (amx_tiles.inl). A B tile is 32 k x 16 weight rows, half a unit of bf16 as it lies; a
// piece of a bf16 tile is the A tile. Included inside a target region and an anonymous namespace.
//
// tdpbf16ps takes pairs: tile row j of B holds columns 2j and 2j + 1 of 16 weight rows, which is
// vector j of a bf16 unit. Its sums are float32, and the order of additions is the instruction's
// own.

constexpr std::size_t kPieceBytes = 1024;  // of 32 k of a panel

struct Product {
  template <int kPart, int kPanel>
  [[gnu::always_inline]] static inline void add() {  // the intrinsics want literal numbers
    if constexpr (kPart == 0 && kPanel == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kPart == 0 && kPanel == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kPart == 1 && kPanel == 0) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kPart == 1 && kPanel == 1) _tile_dpbf16ps(3, 5, 7);
  }
};
