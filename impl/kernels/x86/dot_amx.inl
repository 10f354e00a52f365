// How units of integer weights become B tiles of AMX-INT8, and which product they want: of signed bytes, or of unsigned
// ones. Included inside a target region and an anonymous namespace.
//
// tdpbssd and tdpbsud multiply 16 rows of 64 bytes with a B tile of 16 x 64 and add to 16 x 16
// int32. A unit of p16 is such a B tile when its codes are bytes: tile row j holds 4 columns of 16
// weight rows.

// int4 has to be expanded in any case, and an instruction for signed bytes exists, so the bias is
// taken off while expanding: sums then need no correction.
struct Nibbles {
  static constexpr bool kExpands = true;
  static constexpr bool kBiased = false;          // the B tile has values: sums want no correction
  static constexpr std::size_t kUnitBytes = 512;  // of a panel
  // Registers as amx_tiles.inl assigns them. `if constexpr`, because a register number must be a
  // literal.
  template <int kStep, int kPanel>
  [[gnu::always_inline]] static inline void dot() {  // the intrinsics want literal numbers
    if constexpr (kStep == 0 && kPanel == 0) _tile_dpbssd(0, 2, 4);
    if constexpr (kStep == 0 && kPanel == 1) _tile_dpbssd(1, 2, 5);
    if constexpr (kStep == 1 && kPanel == 0) _tile_dpbssd(0, 3, 6);
    if constexpr (kStep == 1 && kPanel == 1) _tile_dpbssd(1, 3, 7);
  }
  // The same product in the registers of a chain.
  template <int kPart, int kPanel>
  [[gnu::always_inline]] static inline void add() {
    if constexpr (kPart == 0 && kPanel == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (kPart == 0 && kPanel == 1) _tile_dpbssd(1, 4, 7);
    if constexpr (kPart == 1 && kPanel == 0) _tile_dpbssd(2, 5, 6);
    if constexpr (kPart == 1 && kPanel == 1) _tile_dpbssd(3, 5, 7);
  }
  // The first or the second half of a unit's B tile, for `expanded`; `zero`: the codes of value 0 of the bytes' rows.
  // Tile rows 8h + j are low nibbles, 8h + 4 + j high ones: that undoes the 16 columns' distance of
  // nibbles in a byte. `zero` is 8, or the zero points of the 16 rows, four bytes each.
  [[gnu::always_inline]] static inline void expand(const std::byte* unit, std::uint8_t* expanded, int half,
                                                   __m512i zero) {
    const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int row = half * 8 + i;
      const __m512i v = _mm512_loadu_si512(unit + 64 * (half * 4 + i));
      const __m512i low = _mm512_and_si512(v, mask), high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
      _mm512_store_si512(expanded + 64 * row, _mm512_sub_epi8(low, zero));
      _mm512_store_si512(expanded + 64 * (row + 4), _mm512_sub_epi8(high, zero));
    }
  }
  // Where the B tile of a unit lies.
  [[gnu::always_inline]] static inline const void* tile(const std::byte* unit, std::uint8_t* expanded, __m512i zero) {
    expand(unit, expanded, 0, zero);
    expand(unit, expanded, 1, zero);
    return expanded;
  }
};
// int8 units are B tiles as they lie: nothing is copied. Codes stay unsigned, so the correction
// stays, and the A operand is signed: tdpbsud.
struct Bytes {
  static constexpr bool kExpands = false;
  static constexpr bool kBiased = true;
  static constexpr std::size_t kUnitBytes = 1024;
  template <int kStep, int kPanel>
  [[gnu::always_inline]] static inline void dot() {
    if constexpr (kStep == 0 && kPanel == 0) _tile_dpbsud(0, 2, 4);
    if constexpr (kStep == 0 && kPanel == 1) _tile_dpbsud(1, 2, 5);
    if constexpr (kStep == 1 && kPanel == 0) _tile_dpbsud(0, 3, 6);
    if constexpr (kStep == 1 && kPanel == 1) _tile_dpbsud(1, 3, 7);
  }
  template <int kPart, int kPanel>
  [[gnu::always_inline]] static inline void add() {
    if constexpr (kPart == 0 && kPanel == 0) _tile_dpbsud(0, 4, 6);
    if constexpr (kPart == 0 && kPanel == 1) _tile_dpbsud(1, 4, 7);
    if constexpr (kPart == 1 && kPanel == 0) _tile_dpbsud(2, 5, 6);
    if constexpr (kPart == 1 && kPanel == 1) _tile_dpbsud(3, 5, 7);
  }
  [[gnu::always_inline]] static inline const void* tile(const std::byte* unit, std::uint8_t*, __m512i) { return unit; }
};
