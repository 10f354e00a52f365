// The words of a tile with symmetric activations as the kernels walk them: corrections, and a scale per token or per
// block of 32 k. Included inside an anonymous namespace.

struct PerToken {
  static constexpr bool kBlocks = false;
  const std::int32_t* corr;
  const float* scale;  // [n]
  PerToken(const GemmArgs& a, const std::int32_t* words)
      : corr(words), scale(reinterpret_cast<const float*>(words + a.shape.groups() * a.n)) {}
};
struct PerBlock {
  static constexpr bool kBlocks = true;
  const std::int32_t* corr;
  const float* scale;  // [blocks][n]
  PerBlock(const GemmArgs& a, const std::int32_t* words)
      : corr(words), scale(reinterpret_cast<const float*>(words + a.shape.blocks() * a.n)) {}
};
