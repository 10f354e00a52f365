// Codes of e4m3 as bf16, which holds all of them exactly, for a lane type V (vector_*.inl): the low and the high bytes
// of vectors that unpacking gives (layouts/p16/p16.h). Included inside a target region and an anonymous namespace.
//
// The bits s eeee mmm of a normal number become s eeee+120 mmm0000, whose high byte depends on the high four bits of
// the code alone and whose low byte on the low four, which it holds. Where the exponent is 0 or 1 both are corrected by
// what the low four bits say: nothing of a normal number. No float operation takes part, so no flag of a processor can
// flush a subnormal code. (Codes of NaN give a number; conversion lets none pass.)
//
// Bytes and not 16-bit lanes: a table look-up (vpshufb) gives 16 or 64 answers per instruction, and
// the layout puts the two columns of a pair where unpacking leaves them side by side. On AVX2,
// AVX-512 and AMX-BF16 the same three look-ups serve 32 or 64 codes.
//
// Needs base/float_formats.h and V; gives Float8Bytes for weights_float8.inl and the FP8 rows on
// bf16 units.
//
// Two examples. 0x38 is 1.0 (exponent 7): its high four bits choose 0x3f, its low four bits 8
// become 0x80, and 0x3f80 is 1.0 in bf16. 0x01 is 2^-9, a subnormal: the same steps give 0x3c10,
// the corrections for 1 are 0x07 and 0x10, and 0x3b00 is 2^-9.

// The byte at bit `shift` of the code's float32, whose upper half is its bf16: 24 the high one, 16
// the low one. The tables come from small_to_f32, so they cannot disagree with the definition.
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
// vpshufb looks at four bits of an index. A byte of the result depends on seven or eight bits of
// the code only where the number is subnormal, and there one correction by the low four bits is
// enough. kHigh is made with bit 3 set: it changes no high byte of a normal number, and without it
// entry 0 would be that of a subnormal one. kHighSmall is relative to code 8, which is what entry 0
// gave.
constexpr auto kHigh = float8_table([](unsigned i) { return float8_byte(i << 4 | 8, 24); });
constexpr auto kHighSmall = float8_table([](unsigned i) { return float8_byte(i, 24) ^ float8_byte(8, 24); });
constexpr auto kLowSmall = float8_table([](unsigned i) { return float8_byte(i, 16) ^ i << 4; });

struct Float8Bytes {
  I low, high;

  [[gnu::always_inline]] explicit Float8Bytes(I codes) : Float8Bytes(of_normal(codes)) {
    // Without the sign, 0x70 is added: bytes of at least 0x10, whose exponent is 2 or more, get bit
    // 7, and vpshufb answers 0 for those. So normal numbers are xor'ed with 0.
    const I small = V::add_u8(V::and_i(codes, V::set_u8(0x7f)), V::set_u8(0x70));  // bit 7: neither exponent
    low = V::xor_i(low, V::shuffle_u8(V::repeated(kLowSmall.data()), small));
    high = V::xor_i(high, V::shuffle_u8(V::repeated(kHighSmall.data()), small));
  }
  // Of codes whose exponents are not 0.
  // Without the corrections, for a caller that has looked at the codes (x86/float8_amxbf16.cpp).
  [[gnu::always_inline]] static Float8Bytes of_normal(I codes) {
    return {V::and_i(V::shl_u16<4>(codes), V::set_u8(0xf0)),
            V::shuffle_u8(V::repeated(kHigh.data()), V::and_i(V::shr_u16<4>(codes), V::set_u8(0x0f)))};
  }
  // A pair of bf16 in each lane, of columns 0 and 1 and of columns 2 and 3.
  // bf16 pairs are what vdpbf16ps and tdpbf16ps take; the float32 rows split them again by a shift
  // and a mask.
  template <int Pair>
  [[gnu::always_inline]] I pairs() const {
    return Pair == 0 ? V::unpack_low_u8(low, high) : V::unpack_high_u8(low, high);
  }

 private:
  [[gnu::always_inline]] Float8Bytes(I l, I h) : low(l), high(h) {}
};
