// The 8-bit floats of body/gemm_float.inl against float32: e4m3 with whatever scales.
// FP8 and MXFP8 have the same codes; their scales differ and are the business of places.inl. The
// float32 rows are for input that is not bf16 and for machines without bf16 products.

struct Float8 : Float32Rows {
  static constexpr bool kScaled = true, kShared = false;
  static constexpr std::size_t kQuadBytes = 64;
  struct Offset {};
  static Offset offset(F) { return {}; }

  // Of the four columns of a quad two are unpacked at a time; the compiler shares the work between
  // the calls for columns 0 and 1, and 2 and 3.
  template <int H, int Column>
  [[gnu::always_inline]] static F value(const std::byte* quad, const Offset&) {
    const I pairs = Float8Bytes(V::load_i(quad)).template pairs<Column / 2>();
    return V::from_bits(Column % 2 == 0 ? V::shl<16>(pairs)
                                        : V::and_i(pairs, V::set_i(static_cast<std::int32_t>(0xffff0000u))));
  }
};
