// The integer elements of body/gemm_float.inl: codes become float(code - zero) by filling the mantissa of a power of
// two with them and subtracting that power and the zero point, both exactly.
//
// A code at bit b < 16 of a lane under the exponent of 2^(23 - b) is the value 2^(23 - b) + code. So only the codes of
// the upper half of a lane need a shift.

template <int Bits>
struct IntCodes : Float32Rows {
  static constexpr bool kScaled = true;
  static constexpr std::size_t kQuadBytes = 64;
  static constexpr bool kShared = Bits == 4;
  static constexpr int kPlaces = 16 / Bits;  // in the lower half of a lane
  struct Offset {
    F of[kPlaces];  // 2^(23 - b) + zero
  };

  static constexpr std::int32_t power(int place) { return (127 + 23 - place * Bits) << 23; }

  [[gnu::always_inline]] static Offset offset(F zero) {
    Offset o;
    for (int i = 0; i < kPlaces; ++i) o.of[i] = V::add(V::from_bits(V::set_i(power(i))), zero);
    return o;
  }
  template <int H, int Column>
  [[gnu::always_inline]] static F value(const std::byte* quad, const Offset& o) {
    constexpr int kPlace = Column % 2 * (8 / Bits) + (kShared ? H : 0);
    I v = V::load_i(quad);
    if constexpr (Column >= 2) v = V::template shr<16>(v);
    v = V::and_or(v, V::set_i(((1 << Bits) - 1) << kPlace * Bits), V::set_i(power(kPlace)));
    return V::sub(V::from_bits(v), o.of[kPlace]);
  }
};
