// Where the pieces of a panel with scales lie, and its scales as numbers, for a lane type V (vector_*.inl). Included
// inside a target region and an anonymous namespace.
//
// A kernel's loop must not ask P16 for an offset: the questions branch on the kind of scales, and
// inlined functions of a header must not be left as symbols of an instruction set
// (kernels/target.h). So a call asks everything once, here.
//
// Needs V; gives kParts, GroupWalk and Places for gemm_float.inl and the FP8 rows on bf16 units.

using F = V::F;
using I = V::I;
constexpr std::int64_t kLanes = V::kLanes;
constexpr int kParts = static_cast<int>(kPanelRows / kLanes);  // vectors of a panel's rows

// The groups of consecutive blocks.
// A counter instead of k / group: a division per block would cost more than the block's scale.
// For example groups of 128 columns and steps of 32: four calls give 0, the next four 1.
struct GroupWalk {
  // Steps of a group, and how many are left of the one at hand.
  std::int64_t blocks, left;
  std::size_t group = 0;

  // `columns`: of one step of the caller. A group is a whole number of steps, which the kernel's
  // group_multiple has made sure of; whole rows never reach the end of the count.
  GroupWalk(const P16& m, std::int64_t columns)
      : blocks(m.groups.is_whole() ? INT64_MAX : m.group() / columns), left(blocks) {}
  // The group of the step that begins, so it is called once per step.
  std::size_t next() {
    if (left == 0) ++group, left = blocks;
    --left;
    return group;
  }
};

// Addresses in a panel, so that no loop asks the matrix again.
// `stride` is from panel to panel; kernels that take two panels at once reach the second by it.
struct Places {
  // Bytes; bias and zeros from the panel's first byte. group_bytes: scales of one group, of all
  // lanes.
  std::size_t stride, header, bias, zeros, group_bytes;
  // The type that a scale has in the panel. These kernels never see that of W4A8.
  Scales scales;
  bool shared, has_zeros, has_bias;  // shared: one scale for all rows of the panel
  // 8, 128 or 0: what offsets subtract from every code.
  float zero_code;  // where there are no zero points

  explicit Places(const P16& m)
      : stride(m.panel_bytes()),
        header(m.header_bytes()),
        bias(m.bias_offset()),
        zeros(m.zero_offset()),
        group_bytes(usize(m.scale_lanes()) * m.scale_bytes()),
        scales(m.scales),
        shared(m.scale_lanes() == 1),
        has_zeros(m.has_zeros),
        has_bias(m.has_bias),
        zero_code(static_cast<float>(code_bias(m.element))) {}

  // Of strip s (part of a panel, then panels) and group g of the panels at `panel`.
  // A strip is one vector of rows: on AVX2 a panel has two, on AVX-512 one. With two panels, strips
  // of the second come behind those of the first. The branches are the same for the whole call, so
  // the processor predicts them; a template per type of scales would multiply the code of every
  // kernel by five.
  [[gnu::always_inline]] F scale(const std::byte* panel, int s, std::size_t g) const {
    const std::byte* first = panel + usize(s / kParts) * stride + g * group_bytes;
    if (shared) return V::set(*reinterpret_cast<const float*>(first));
    const std::byte* at = first + usize(s % kParts) * (group_bytes / kParts);
    if (scales == Scales::bf16) return V::from_bits(V::shl<16>(V::load_u16(at)));
    if (scales == Scales::e8m0) return V::load_e8m0(at);
    if (scales == Scales::e4m3) return V::load_e4m3(at);
    return scales == Scales::f16 ? V::load_f16(at) : V::load(reinterpret_cast<const float*>(at));
  }
  // A byte each, widened: float(code - zero) is then one exact subtraction.
  [[gnu::always_inline]] F zero(const std::byte* panel, int s, std::size_t g) const {
    return V::to_float(V::load_u8(panel + usize(s / kParts) * stride + zeros + g * kPanelRows + s % kParts * kLanes));
  }
};
