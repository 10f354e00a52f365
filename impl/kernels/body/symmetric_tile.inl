// The words of a tile with symmetric activations as the kernels walk them, from row `first` on: corrections, and a
// scale per token or per block of k. Included inside an anonymous namespace.

inline const std::int32_t* tile_words(const GemmArgs& a) {
  return reinterpret_cast<const std::int32_t*>(a.tile + a.shape.code_bytes() * static_cast<std::size_t>(a.n));
}

struct PerToken {
  static constexpr bool kBlocks = false, kZeros = false;
  static constexpr int kPlanes = 1;
  const std::int32_t* corr;  // [groups][n]
  const float* scale;        // [n]
  PerToken(const GemmArgs& a, int first)
      : corr(tile_words(a) + first),
        scale(reinterpret_cast<const float*>(tile_words(a) + a.shape.groups() * a.n) + first) {}
};
struct PerBlock {
  static constexpr bool kBlocks = true, kZeros = false;
  static constexpr int kPlanes = 1;
  const std::int32_t* corr;  // [blocks][n]
  const float* scale;        // [blocks][n]
  PerBlock(const GemmArgs& a, int first)
      : corr(tile_words(a) + first),
        scale(reinterpret_cast<const float*>(tile_words(a) + a.shape.scale_count() * a.n) + first) {}
};
// For weights with zero points.
struct PerBlockZeros : PerBlock {
  static constexpr bool kZeros = true;  // sums begin at corr * zero point
  using PerBlock::PerBlock;
};
// Codes of 16 bits as two digits: a token has two rows of codes.
struct Per16 : PerBlock {
  static constexpr int kPlanes = 2;
  using PerBlock::PerBlock;
};
struct Per16Zeros : Per16 {
  static constexpr bool kZeros = true;
  using Per16::Per16;
};
