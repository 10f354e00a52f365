// The integer elements of body/gemm_float.inl: codes become float(code - zero) by filling the mantissa of a power of
// two with them and subtracting that power and the zero point, both exactly.
//
// A code at bit b < 16 of a lane under the exponent of 2^(23 - b) is the value 2^(23 - b) + code. So only the codes of
// the upper half of a lane need a shift.
//
// No conversion instruction takes part: vcvtdq2ps would cost as much as the fma that it feeds. The
// or builds the float, and the one subtraction is needed for the zero point anyway. Both steps are
// exact: in 2^(23 - b) bit b of the mantissa is worth 1, so a code there counts as itself.
//
// An example: code 5 at bit 4 of a lane is 0x50 in the mantissa. Under the exponent of 2^19 the
// float is 524288 + 5; with zero point 8 the offset is 524296, and the difference is -3.

template <int Bits>
struct IntCodes : Float32Rows {
  static constexpr bool kScaled = true;
  static constexpr std::size_t kQuadBytes = 64;
  static constexpr bool kShared = Bits == 4;
  static constexpr int kPlaces = 16 / Bits;  // in the lower half of a lane
  // Per group, strip and place; made once for 32 columns and all rows.
  struct Offset {
    F of[kPlaces];  // 2^(23 - b) + zero
  };

  // The bits of 2^(23 - b) as a float, b the place's first bit.
  static constexpr std::int32_t power(int place) { return (127 + 23 - place * Bits) << 23; }

  [[gnu::always_inline]] static Offset offset(F zero) {
    Offset o;
    for (int i = 0; i < kPlaces; ++i) o.of[i] = V::add(V::from_bits(V::set_i(power(i))), zero);
    return o;
  }
  // Columns 2 and 3 lie in the upper half of a lane, where the exponent has its bits: they are
  // shifted down.
  template <int H, int Column>
  [[gnu::always_inline]] static F value(const std::byte* quad, const Offset& o) {
    constexpr int kPlace = Column % 2 * (8 / Bits) + (kShared ? H : 0);
    I v = V::load_i(quad);
    if constexpr (Column >= 2) v = V::template shr<16>(v);
    v = V::and_or(v, V::set_i(((1 << Bits) - 1) << kPlace * Bits), V::set_i(power(kPlace)));
    return V::sub(V::from_bits(v), o.of[kPlace]);
  }
};
