// What the rows for symmetric activations share: the words of a tile as they walk them, from row `first` on
// (corrections, and a scale per token or per block of k), the scales of weights, and the places of a call. Included
// inside a target region and an anonymous namespace that define V.

inline const std::int32_t* tile_words(const GemmArgs& a) {
  return reinterpret_cast<const std::int32_t*>(a.tile + a.shape.code_bytes(a.n));
}

struct PerToken {
  static constexpr bool kBlocks = false, kZeros = false;
  static constexpr int kSums = 0;
  static constexpr int kPlanes = 1;
  const std::int32_t* corr;  // [groups][n]
  const float* scale;        // [n]
  PerToken(const GemmArgs& a, int first)
      : corr(tile_words(a) + first),
        scale(reinterpret_cast<const float*>(tile_words(a) + a.shape.group_count() * a.n) + first) {}
};
struct PerBlock {
  static constexpr bool kBlocks = true, kZeros = false;
  static constexpr int kSums = 0;
  static constexpr int kPlanes = 1;
  const std::int32_t* corr;  // [sums][n]
  const float* scale;        // [blocks][n]
  PerBlock(const GemmArgs& a, int first)
      : corr(tile_words(a) + first),
        scale(reinterpret_cast<const float*>(tile_words(a) + a.shape.sum_count() * a.n) + first) {}
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
// For weights with byte scales where no sum is longer than a block: each block has so many sums, one, or one of each
// half, with corrections and scales of their own. (kSums = 0: groups, and blocks of activations within them.)
template <class Facts, int Sums>
struct Each : Facts {
  static constexpr int kSums = Sums;
  using Facts::Facts;
};

// Where the scales of the groups of a panel lie, in order.
struct ScaleWalk {
  enum class Kind { bf16, f16, f32, sixteenth, e4m3, e8m0 };
  Kind kind;
  std::size_t at;                // within the panel
  std::size_t step, other_step;  // in turn: the scales of g = 32 lie in pairs before their unit

  explicit ScaleWalk(const P16& m)
      : kind(kind_of(m)), at(m.scale_offset(0, 0)), step(kPanelRows * m.scale_bytes()), other_step(step) {
    if (m.grouping() == Grouping::g32) other_step = m.unit_bytes() - step;
  }
  static Kind kind_of(const P16& m) {
    if (m.scale_bytes() == 4) return m.scales == Scales::w4a8 ? Kind::sixteenth : Kind::f32;
    if (m.scale_bytes() == 1) return m.scales == Scales::e4m3 ? Kind::e4m3 : Kind::e8m0;
    return m.scales == Scales::f16 ? Kind::f16 : Kind::bf16;
  }
  [[gnu::always_inline]] void next() {
    at += step;
    std::swap(step, other_step);
  }
};

// Of the rows of a panel from `lane` on.
[[gnu::always_inline]] inline V::F load_scales(const ScaleWalk& walk, const std::byte* panel, std::size_t lane = 0) {
  using Kind = ScaleWalk::Kind;
  const bool wide = walk.kind == Kind::f32 || walk.kind == Kind::sixteenth;
  const std::byte* at = panel + walk.at + lane * (wide ? 4 : 2);
  if (wide) {
    const V::F s = V::load(reinterpret_cast<const float*>(at));
    return walk.kind == Kind::f32 ? s : V::mul(s, V::set(16.0f));
  }
  if (walk.kind == Kind::f16) return V::load_f16(at);
  return V::from_bits(V::shl<16>(V::load_u16(at)));
}

// The same of scales that are bytes.
template <class Facts>
[[gnu::always_inline]] inline V::F load_byte_scales(ScaleWalk::Kind kind, const std::byte* at) {
  return Facts::kSums != 2 && kind == ScaleWalk::Kind::e8m0 ? V::load_e8m0(at) : V::load_e4m3(at);
}

// The scales of the sums of a panel, in order.
struct SumWalk {
  const std::byte* at;
  std::int64_t sums, left;  // of a group

  SumWalk(const std::byte* panel, std::int64_t sums_of_group) : at(panel), sums(sums_of_group), left(sums) {}
  [[gnu::always_inline]] void next() {
    if (--left != 0) return;
    at += kPanelRows;
    left = sums;
  }
};

// A call, and where the pieces of its panels and its tile lie: asked for once.
template <class Facts>
struct Call {
  const GemmArgs& a;
  int n;
  std::size_t stride, header, unit_header, zeros, tensor_scale, bias;  // of a panel
  bool has_tensor_scale, has_bias;
  std::int64_t groups, per_group, together;  // in blocks of 32 k; with one scale of activations
  std::int64_t sums;                         // of a group, with kSums; groups are blocks then
  ScaleWalk scales;
  const std::int8_t* codes;
  Facts words;

  // flatten: no inline function of a header may be left as a symbol of this instruction set
  [[gnu::flatten]] explicit Call(const GemmArgs& args)
      : a(args),
        n(args.n),
        stride(args.matrix->panel_bytes()),
        header(args.matrix->header_bytes()),
        unit_header(args.matrix->unit_header()),
        zeros(args.matrix->zero_offset()),
        tensor_scale(args.matrix->tensor_scale_offset()),
        bias(args.matrix->bias_offset()),
        has_tensor_scale(args.matrix->has_tensor_scale()),
        has_bias(args.matrix->has_bias),
        groups(Facts::kSums != 0 ? args.shape.blocks() : args.matrix->group_count()),
        per_group(Facts::kSums != 0 ? 1
                  : groups == 1     ? args.shape.blocks()
                                    : args.matrix->group() / 32),
        together(args.shape.scaled_columns() / 32),
        sums(args.matrix->groups.is_whole() ? INT64_MAX : args.matrix->group() * std::max(Facts::kSums, 1) / 32),
        scales(*args.matrix),
        codes(reinterpret_cast<const std::int8_t*>(args.tile)),
        words(args, 0) {}
};

// Results of sums with codes that are twice the values, of the rows of a panel from `lane` on.
template <class Facts>
[[gnu::always_inline]] inline V::F halved(const Call<Facts>& call, V::F sum, const std::byte* panel,
                                          std::size_t lane = 0) {
  const V::F half = V::mul(sum, V::set(0.5f));
  if (!call.has_tensor_scale) return half;
  return V::mul(half, V::load(reinterpret_cast<const float*>(panel + call.tensor_scale) + lane));
}

// The form for a matrix of e2m1; Of<Facts>::gemm multiplies.
template <template <class> class Of, class Facts>
inline void gemm_fp4_as(const GemmArgs& a) {
  const std::int64_t columns = a.shape.summed_columns();
  if (columns < 32) return Of<Each<Facts, 2>>::gemm(a);
  if constexpr (Facts::kPlanes != 1)
    if (columns > 32) return Of<Facts>::gemm(a);
  Of<Each<Facts, 1>>::gemm(a);
}

// Codes of e2m1 as bytes without a sign: twice the value, and 12 (P16::sum_factor).
constexpr std::array<std::uint8_t, 16> kE2m1Codes = [] {
  std::array<std::uint8_t, 16> codes{};
  for (unsigned i = 0; i < 16; ++i) codes[i] = static_cast<std::uint8_t>(2.0f * small_to_f32(kE2m1, i) + 12.0f);
  return codes;
}();
