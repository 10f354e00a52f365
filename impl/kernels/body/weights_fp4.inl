// Codes of e2m1 of body/gemm_float.inl against float32: each is looked up. Scales of e8m0 per block of 32 columns or
// more (MXFP4), or of e4m3 per half a block (NVFP4).
// A look-up of floats needs no product with a half at the end: the table has the values.

template <bool Halves>
struct Float4 : Float32Rows {
  static constexpr bool kScaled = true, kShared = true, kHalves = Halves, kTensorScale = true;
  static constexpr std::int64_t kColumns = Halves ? kBlockK / 2 : kBlockK;
  static constexpr std::size_t kQuadBytes = 64;
  struct Offset {};
  static Offset offset(F) { return {}; }

  // The code of column c and half h is at bit 8c + 4h of a lane; choose() looks at the low four
  // bits only, so a shift is all that is needed.
  template <int H, int Column>
  [[gnu::always_inline]] static F value(const std::byte* quad, const Offset&) {
    static constexpr auto kValues = [] {
      std::array<float, 16> values{};
      for (unsigned i = 0; i < 16; ++i) values[i] = small_to_f32(kE2m1, i);
      return values;
    }();
    constexpr int kBit = Column * 8 + H * 4;
    I v = V::load_i(quad);
    if constexpr (kBit != 0) v = V::template shr<kBit>(v);
    return V::choose(kValues.data(), v);
  }
};

// Groups of whole blocks, or all columns as one; else halves of blocks.
// MXFP4 may have longer groups than 32: the scale then serves several blocks (GroupWalk).
void gemm_float4(const GemmArgs& a) {
  const Groups& groups = a.matrix->groups;
  (groups.is_even() && groups.as_written() % kBlockK != 0 ? gemm<Float4<true>> : gemm<Float4<false>>)(a);
}
