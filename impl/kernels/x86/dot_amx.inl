// How units of integer weights become B tiles of AMX-INT8, and which product they want: of signed bytes, or of unsigned
// ones. Included inside a target region and an anonymous namespace.

struct Nibbles {
  static constexpr bool kExpands = true;
  static constexpr bool kBiased = false;          // the B tile has values: sums want no correction
  static constexpr std::size_t kUnitBytes = 512;  // of a panel
  template <int kStep, int kPanel>
  [[gnu::always_inline]] static inline void dot() {  // the intrinsics want literal numbers
    if constexpr (kStep == 0 && kPanel == 0) _tile_dpbssd(0, 2, 4);
    if constexpr (kStep == 0 && kPanel == 1) _tile_dpbssd(1, 2, 5);
    if constexpr (kStep == 1 && kPanel == 0) _tile_dpbssd(0, 3, 6);
    if constexpr (kStep == 1 && kPanel == 1) _tile_dpbssd(1, 3, 7);
  }
  template <int kPart, int kPanel>
  [[gnu::always_inline]] static inline void add() {
    if constexpr (kPart == 0 && kPanel == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (kPart == 0 && kPanel == 1) _tile_dpbssd(1, 4, 7);
    if constexpr (kPart == 1 && kPanel == 0) _tile_dpbssd(2, 5, 6);
    if constexpr (kPart == 1 && kPanel == 1) _tile_dpbssd(3, 5, 7);
  }
  // The first or the second half of a unit's B tile, for `expanded`; `zero`: the codes of value 0 of the bytes' rows.
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
