// Which tensors each layout has, and how large. See wna16_layout.h.
#include "scheme/wna16_layout.h"

#include <numeric>
#include <optional>

#include "base/checked.h"

namespace moe {
namespace {

using Shape = std::vector<std::int64_t>;

struct Entry {
  DType dtype;
  Shape shape;  // without E where per_expert
  bool per_expert = true;
};
using MaybeEntry = std::optional<Entry>;

constexpr std::int64_t kVnniColumns = 32;
constexpr std::int64_t kVnniSums = 128;  // bytes behind the codes of a block

Entry g_idx(std::int64_t k) { return {DType::i32, {k}}; }

// --- by part ------------------------------------------------------------------------------------------

MaybeEntry weight(const Wna16Matrix& m) {
  const std::int64_t n = m.padded_rows(), k = m.padded_k;
  switch (m.kind) {
    case Wna16Kind::marlin:
      return Entry{DType::i32, {k / 16, n * m.bits / 2}};
    case Wna16Kind::trtllm:
      return Entry{DType::u8, {k / 256, n, 128}};
    case Wna16Kind::xpu:
    case Wna16Kind::on_the_fly:
      return Entry{DType::u8, {n, k * m.bits / 8}};
    case Wna16Kind::vnni:
      return Entry{DType::u8, {n / kVnniColumns, k / m.block_k(), m.block_k() * 16 + kVnniSums}};
    case Wna16Kind::dense:
      return Entry{m.number, {n, k}};
  }
  return std::nullopt;
}

MaybeEntry scale(const Wna16Matrix& m) {
  const std::int64_t n = m.padded_rows();
  switch (m.kind) {
    case Wna16Kind::marlin:
      return Entry{m.scale, {m.padded_groups, n}};
    case Wna16Kind::trtllm:
      return Entry{m.scale, {round_up<std::int64_t>(n, 128) * round_up<std::int64_t>(m.groups, 4)}};
    case Wna16Kind::xpu:
    case Wna16Kind::on_the_fly:
      return Entry{m.scale, {n, m.groups * m.repeat}};
    case Wna16Kind::vnni:
      return Entry{DType::f32, {n / kVnniColumns, m.groups, kVnniColumns}};
    case Wna16Kind::dense:
      return Entry{DType::f16, {1}, false};
  }
  return std::nullopt;
}

MaybeEntry group_index(const Wna16Matrix& m) {
  switch (m.kind) {
    case Wna16Kind::marlin:
      return m.awq ? std::nullopt : MaybeEntry(g_idx(m.act_order ? m.k : 0));
    case Wna16Kind::trtllm:
      return g_idx(m.k);
    case Wna16Kind::xpu:
      return Entry{DType::i32, {0}, false};
    case Wna16Kind::vnni:
      return m.awq ? std::nullopt : MaybeEntry(g_idx(m.k));
    default:
      return std::nullopt;
  }
}

MaybeEntry sort_indices(const Wna16Matrix& m) {
  if (m.kind == Wna16Kind::marlin) return g_idx(m.act_order ? m.k : 0);
  if (m.kind == Wna16Kind::xpu) return Entry{DType::i32, {0}, false};
  return std::nullopt;
}

MaybeEntry zero_point(const Wna16Matrix& m) {
  const std::int64_t n = m.padded_rows();
  if (m.kind == Wna16Kind::vnni) return Entry{DType::i8, {n / kVnniColumns, m.groups, kVnniColumns}};
  if (!m.has_zeros) return std::nullopt;
  if (m.kind == Wna16Kind::marlin) return Entry{DType::i32, {m.padded_groups, n / m.fields()}};
  if (m.kind == Wna16Kind::on_the_fly && m.bits == 4) return Entry{DType::u8, {n / 2, m.groups * m.repeat}};
  return std::nullopt;
}

MaybeEntry input_global_scale(const Wna16Matrix& m) {
  return m.folded_scales ? MaybeEntry(Entry{DType::f32, {}, false}) : std::nullopt;
}

MaybeEntry bias(const Wna16Matrix& m) {
  if (!m.has_bias) return std::nullopt;
  return Entry{m.kind == Wna16Kind::vnni ? DType::f32 : m.bias, {m.padded_rows()}};
}

using PartOf = MaybeEntry (*)(const Wna16Matrix&);
constexpr std::array<PartOf, kWna16Parts> kParts = {
    weight, scale, group_index, sort_indices, zero_point, input_global_scale, bias};

template <class Take>
void each_part(const Wna16Layout& l, Take take) {
  const std::array matrices = {l.matrix(true), l.matrix(false)};
  for (std::size_t p = 0; p < kWna16Parts; ++p)
    for (std::size_t m = 0; m < 2; ++m)
      take(std::string(m == 0 ? "w13_" : "w2_").append(kWna16PartNames[p]), kParts[p](matrices[m]));
}

}  // namespace

std::int64_t Wna16Layout::padded_intermediate() const {
  if (kind != Wna16Kind::marlin) return intermediate;
  return round_up(intermediate, std::lcm(std::int64_t{64}, group_size > 0 ? group_size : std::int64_t{1}));
}

Wna16Matrix Wna16Layout::matrix(bool w13) const {
  const std::int64_t padded = padded_intermediate();
  Wna16Matrix m{.kind = kind, .bits = bits, .halves = w13 && gated ? 2 : 1};
  m.half_rows = w13 ? intermediate : hidden;
  m.padded_half_rows = w13 ? padded : hidden;
  m.k = w13 ? hidden : intermediate;
  m.padded_k = w13 ? hidden : padded;
  m.groups = w13 ? groups13 : groups2;
  m.padded_groups = !w13 && padded != intermediate && group_size > 0 ? padded / group_size : m.groups;
  m.has_zeros = has_zeros;
  // Upstream's emulation classes have no bias, its dense 8-bit one no zero points.
  const bool emulation = kind == Wna16Kind::on_the_fly || kind == Wna16Kind::dense;
  m.has_bias = has_bias && !(emulation && upstream);
  if (kind == Wna16Kind::dense && bits == 8 && upstream) m.has_zeros = false;
  m.awq = awq;
  m.act_order = act_order && kind == Wna16Kind::marlin;
  m.zero_shift = zero_shift;
  m.input = kind == Wna16Kind::marlin ? input : MarlinInput::none;
  m.scale = scale;
  m.bias = bias;
  m.number = number;
  m.swap_halves = kind == Wna16Kind::trtllm && w13;
  if (kind == Wna16Kind::marlin) {
    // The kernel goes by the number of rows; upstream by the group against the intermediate size of one partition.
    const std::int64_t size_k = w13 || awq ? intermediate : m.padded_groups * group_size;
    m.grouped_scales = !m.eight_bit() && (upstream ? group_size != -1 && group_size < size_k : m.padded_groups > 1);
    m.folded_scales = input == MarlinInput::int8 && m.groups > 1;
    m.zeros_in_nibbles = has_zeros && (awq || !upstream);
  }
  if (kind == Wna16Kind::on_the_fly && groups13 > 0 && groups2 > 0) {
    const std::int64_t g1 = hidden / groups13, g2 = intermediate / groups2;
    std::int64_t g = std::gcd(g1, g2);
    while (g > 1 && (hidden % g != 0 || intermediate % g != 0)) g /= 2;
    if (g > 0) m.repeat = static_cast<int>((w13 ? g1 : g2) / g);
  }
  return m;
}

std::vector<Wna16Tensor> Wna16Layout::tensors() const {
  std::vector<Wna16Tensor> list;
  each_part(*this, [&](std::string name, MaybeEntry entry) {
    if (!entry) return;
    if (entry->per_expert) entry->shape.insert(entry->shape.begin(), experts);
    list.push_back({std::move(name), entry->dtype, std::move(entry->shape), entry->per_expert});
  });
  if (kind == Wna16Kind::marlin && multiprocessors > 0)
    list.push_back({"workspace", DType::i32, {4 * multiprocessors}, false});
  return list;
}

std::vector<std::string> Wna16Layout::absent() const {
  std::vector<std::string> names;
  each_part(*this, [&](std::string name, const MaybeEntry& entry) {
    if (!entry) names.push_back(std::move(name));
  });
  return names;
}

int upstream_zero_shift(Wna16Kind kind, bool awq, bool has_zeros, ZeroPoints stored) {
  const int below = stored == ZeroPoints::plus_one ? -1 : 0;
  if (kind == Wna16Kind::vnni) {
    if (has_zeros) return awq ? below : below + 1;
    return awq ? -1 : 0;
  }
  return has_zeros ? below : 0;
}

}  // namespace moe
