// Codes of e4m3 as bf16, which holds all of them exactly, for a lane type V (vector_*.inl): the low and the high bytes
// of vectors that unpacking gives (layouts/p16/p16.h). Included inside a target region and an anonymous namespace.
//
// The bits s eeee mmm of a normal number become s eeee+120 mmm0000, whose high byte depends on the high four bits of
// the code alone and whose low byte on the low four, which it holds. Where the exponent is 0 or 1 both are corrected by
// what the low four bits say: nothing of a normal number. No float operation takes part, so no flag of a processor can
// flush a subnormal code. (Codes of NaN give a number; conversion lets none pass.)

constexpr unsigned float8_byte(unsigned code, int shift) {
  return std::bit_cast<std::uint32_t>(small_to_f32(kE4m3, code)) >> shift & 0xff;
}
template <class Of>
constexpr std::array<std::uint8_t, 16> float8_table(Of of) {
  std::array<std::uint8_t, 16> bytes{};
  for (unsigned i = 0; i < 16; ++i) bytes[i] = static_cast<std::uint8_t>(of(i));
  return bytes;
}
// By the high four bits of a code: the high byte. By its low four: what corrects either byte.
constexpr auto kHigh = float8_table([](unsigned i) { return float8_byte(i << 4 | 8, 24); });
constexpr auto kHighSmall = float8_table([](unsigned i) { return float8_byte(i, 24) ^ float8_byte(8, 24); });
constexpr auto kLowSmall = float8_table([](unsigned i) { return float8_byte(i, 16) ^ i << 4; });

struct Float8Bytes {
  I low, high;

  [[gnu::always_inline]] explicit Float8Bytes(I codes) : Float8Bytes(of_normal(codes)) {
    const I small = V::add_u8(V::and_i(codes, V::set_u8(0x7f)), V::set_u8(0x70));  // bit 7: neither exponent
    low = V::xor_i(low, V::shuffle_u8(V::repeated(kLowSmall.data()), small));
    high = V::xor_i(high, V::shuffle_u8(V::repeated(kHighSmall.data()), small));
  }
  // Of codes whose exponents are not 0.
  [[gnu::always_inline]] static Float8Bytes of_normal(I codes) {
    return {V::and_i(V::shl_u16<4>(codes), V::set_u8(0xf0)),
            V::shuffle_u8(V::repeated(kHigh.data()), V::and_i(V::shr_u16<4>(codes), V::set_u8(0x0f)))};
  }
  // A pair of bf16 in each lane, of columns 0 and 1 and of columns 2 and 3.
  template <int Pair>
  [[gnu::always_inline]] I pairs() const {
    return Pair == 0 ? V::unpack_low_u8(low, high) : V::unpack_high_u8(low, high);
  }

 private:
  [[gnu::always_inline]] Float8Bytes(I l, I h) : low(l), high(h) {}
};
