// What the rows for symmetric activations share: the words of a tile as they walk them, from row `first` on
// (corrections, and a scale per token or per block of k), the scales of weights, and the places of a call. Included
// inside a target region and an anonymous namespace that define V.
//
// Facts is a type with constants: kBlocks (a scale per block of activations, else per row), kZeros
// (sums begin at corr * zero point), kSums (see Each), kPlanes (rows of codes per token).
//
// Facts          rows of the list                               kBlocks  kZeros  kSums  kPlanes
// PerToken       w8a8_tok8                                      no       no      0      1
// PerBlock       blk8, e2m1; no zero points                     yes      no      0      1
// PerBlockZeros  blk8, with zero points                         yes      yes     0      1
// Per16          blk16 (and Per16Zeros)                         yes      no      0      2
// Each<.., 1>    MXFP4, sums as long as a block                 yes      no      1      1, 2
// Each<.., 2>    NVFP4, two sums per block                      yes      no      2      1, 2
//
// Corrections, by an example: int4 weights -3 and 2 are stored as 5 and 10. With activations 7 and
// -4 the kernel computes 5*7 + 10*-4 = -5, and corr = -8 * (7 - 4) = -24 makes -29 of it, which is
// -3*7 + 2*-4. A weight with zero point z has corr = -(7 - 4), which kernels multiply by z. Sums
// begin at the correction, so it costs nothing, and all of it is exact in int32.

// The words begin behind all codes of all rows (kernels/tile.h).
inline const std::int32_t* tile_words(const GemmArgs& a) {
  return reinterpret_cast<const std::int32_t*>(a.tile + a.shape.code_bytes(a.n));
}

// W8A8.
struct PerToken {
  static constexpr bool kBlocks = false, kZeros = false;
  static constexpr int kSums = 0;
  static constexpr int kPlanes = 1;
  // `first` in the constructor: a row of the tile, where a call takes only some of them.
  const std::int32_t* corr;  // [groups][n]
  const float* scale;        // [n]
  PerToken(const GemmArgs& a, int first)
      : corr(tile_words(a) + first),
        scale(reinterpret_cast<const float*>(tile_words(a) + a.shape.group_count() * a.n) + first) {}
};
// Blocks and sums are as many, but for NVFP4.
struct PerBlock {
  static constexpr bool kBlocks = true, kZeros = false;
  static constexpr int kSums = 0;
  static constexpr int kPlanes = 1;
  const std::int32_t* corr;  // [sums][n]
  const float* scale;        // [blocks][n]; of NVFP4's e2m1 [sums][n]
  int between;               // from the scale of a block's first sum to that of its second one: n, or 0, the same
  PerBlock(const GemmArgs& a, int first)
      : corr(tile_words(a) + first),
        scale(reinterpret_cast<const float*>(tile_words(a) + a.shape.sum_count() * a.n) + first),
        between(a.shape.scaled_columns() < 32 ? a.n : 0) {}
};
// For weights with zero points.
// A type of its own and not a flag at run time, since the start of every sum differs.
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
// MXFP4 and NVFP4. With kSums set the loops go block by block, and scales are bytes.
template <class Facts, int Sums>
struct Each : Facts {
  static constexpr int kSums = Sums;
  using Facts::Facts;
};

// Where the scales of the groups of a panel lie, in order.
// It advances by addition, since groups are taken in order. g32 is the one layout where the
// distance alternates: two scale lines of a unit are neighbours, then 512 bytes of codes follow.
// A kind and an address: which load is right is decided once per group.
struct ScaleWalk {
  enum class Kind { bf16, f16, f32, sixteenth, e4m3, e8m0 };
  Kind kind;
  // Of group g; next() moves it to that of g + 1.
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
// sixteenth: W4A8 keeps s / 16 for whole rows; times 16 is exact.
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
// Two sums per block mean NVFP4, whose scales are e4m3: the compiler then drops the other branch.
template <class Facts>
[[gnu::always_inline]] inline V::F load_byte_scales(ScaleWalk::Kind kind, const std::byte* at) {
  return Facts::kSums != 2 && kind == ScaleWalk::Kind::e8m0 ? V::load_e8m0(at) : V::load_e4m3(at);
}

// The scales of the sums of a panel, in order.
// A group may be longer than a block (MXFP4 with groups of 64): then its scale serves several sums.
// `sums_of_group` is INT64_MAX for whole rows, whose scale never changes.
struct SumWalk {
  // Scales of the 16 rows, a byte each, as these are the only layouts with scales of a byte.
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
// Everything is const in effect: loops copy what they change.
template <class Facts>
struct Call {
  // The caller's; it outlives the call.
  const GemmArgs& a;
  int n;
  std::size_t stride, header, unit_header, zeros, tensor_scale, bias;  // of a panel
  bool has_tensor_scale, has_bias;
  // With kSums "groups" are blocks, so that one loop serves both.
  std::int64_t groups, per_group, together;  // in blocks of 32 k; with one scale of activations
  std::int64_t sums;                         // of a group, with kSums; groups are blocks then
  // At group 0. A panel's loop takes a copy and adds the panel's address.
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
// Halving the sum is exact but for results that become subnormal; halving the scales instead could
// make a scale subnormal, which slows every fma down.
template <class Facts>
[[gnu::always_inline]] inline V::F halved(const Call<Facts>& call, V::F sum, const std::byte* panel,
                                          std::size_t lane = 0) {
  const V::F half = V::mul(sum, V::set(0.5f));
  if (!call.has_tensor_scale) return half;
  return V::mul(half, V::load(reinterpret_cast<const float*>(panel + call.tensor_scale) + lane));
}

// The form for a matrix of e2m1; Of<Facts>::gemm multiplies.
// summed_columns tells it all: 16 is NVFP4 with two sums, 32 one sum per block. More than 32 only
// comes with blk16, whose blocks of 64 or 128 columns are then sums of several steps.
template <template <class> class Of, class Facts>
inline void gemm_fp4_as(const GemmArgs& a) {
  const std::int64_t columns = a.shape.summed_columns();
  if (columns < 32) return Of<Each<Facts, 2>>::gemm(a);
  if constexpr (Facts::kPlanes != 1)
    if (columns > 32) return Of<Facts>::gemm(a);
  Of<Each<Facts, 1>>::gemm(a);
}

// Codes of e2m1 as bytes without a sign: twice the value, and 12 (P16::sum_factor).
// A table of 16 bytes, made from the definition while compiling, for vpshufb.
constexpr std::array<std::uint8_t, 16> kE2m1Codes = [] {
  std::array<std::uint8_t, 16> codes{};
  for (unsigned i = 0; i < 16; ++i) codes[i] = static_cast<std::uint8_t>(2.0f * small_to_f32(kE2m1, i) + 12.0f);
  return codes;
}();
