// Where the pieces of a panel with scales lie, and its scales as numbers, for a lane type V (vector_*.inl). Included
// inside a target region and an anonymous namespace.

using F = V::F;
using I = V::I;
constexpr std::int64_t kLanes = V::kLanes;
constexpr int kParts = static_cast<int>(kPanelRows / kLanes);  // vectors of a panel's rows

// The groups of consecutive blocks.
struct GroupWalk {
  std::int64_t blocks, left;
  std::size_t group = 0;

  GroupWalk(const P16& m, std::int64_t columns)
      : blocks(m.groups.is_whole() ? INT64_MAX : m.group() / columns), left(blocks) {}
  std::size_t next() {
    if (left == 0) ++group, left = blocks;
    --left;
    return group;
  }
};

// Addresses in a panel, so that no loop asks the matrix again.
struct Places {
  std::size_t stride, header, bias, zeros, group_bytes;
  Scales scales;
  bool shared, has_zeros, has_bias;  // shared: one scale for all rows of the panel
  float zero_code;                   // where there are no zero points

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
  [[gnu::always_inline]] F scale(const std::byte* panel, int s, std::size_t g) const {
    const std::byte* first = panel + usize(s / kParts) * stride + g * group_bytes;
    if (shared) return V::set(*reinterpret_cast<const float*>(first));
    const std::byte* at = first + usize(s % kParts) * (group_bytes / kParts);
    if (scales == Scales::bf16) return V::from_bits(V::shl<16>(V::load_u16(at)));
    if (scales == Scales::e8m0) return V::load_e8m0(at);
    if (scales == Scales::e4m3) return V::load_e4m3(at);
    return scales == Scales::f16 ? V::load_f16(at) : V::load(reinterpret_cast<const float*>(at));
  }
  [[gnu::always_inline]] F zero(const std::byte* panel, int s, std::size_t g) const {
    return V::to_float(V::load_u8(panel + usize(s / kParts) * stride + zeros + g * kPanelRows + s % kParts * kLanes));
  }
};
