// Which tensors each layout has, and how large. See wna16_layout.h.
#include "layouts/wna16/wna16_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"
#include "layouts/families.h"

namespace moe {
namespace {

using Shape = std::vector<std::int64_t>;

struct Entry {
  DType dtype;
  Shape shape;  // without E
  bool shared = false;
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
      return Entry{DType::f16, {1}, true};
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
      return Entry{DType::i32, {0}, true};
    case Wna16Kind::vnni:
      return m.awq ? std::nullopt : MaybeEntry(g_idx(m.k));
    default:
      return std::nullopt;
  }
}

MaybeEntry sort_indices(const Wna16Matrix& m) {
  if (m.kind == Wna16Kind::marlin) return g_idx(m.act_order ? m.k : 0);
  if (m.kind == Wna16Kind::xpu) return Entry{DType::i32, {0}, true};
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
  return m.folded_scales ? MaybeEntry(Entry{DType::f32, {}, true}) : std::nullopt;
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
  const Wna16Matrix w13 = l.matrix(true), w2 = l.matrix(false);
  for (std::size_t p = 0; p < kWna16Parts; ++p) {
    take(kWna16Names[p].w13, kParts[p](w13));
    take(kWna16Names[p].w2, kParts[p](w2));
  }
}

}  // namespace

std::int64_t Wna16Layout::padded_intermediate() const {
  if (kind != Wna16Kind::marlin) return intermediate;
  return round_up(intermediate, std::lcm(std::int64_t{64}, groups.is_even() ? groups.as_written() : std::int64_t{1}));
}

Wna16Matrix Wna16Layout::matrix(bool w13) const {
  const std::int64_t padded = padded_intermediate();
  Wna16Matrix m{.kind = kind, .bits = bits, .halves = w13 && gated ? 2 : 1};
  m.half_rows = w13 ? intermediate : hidden;
  m.padded_half_rows = w13 ? padded : hidden;
  m.k = w13 ? hidden : intermediate;
  m.padded_k = w13 ? hidden : padded;
  m.groups = w13 ? groups13 : groups2;
  m.padded_groups = !w13 && padded != intermediate && groups.is_even() ? groups.count_in(padded) : m.groups;
  m.has_zeros = has_zeros;
  // vLLM's emulation classes have no bias, its dense 8-bit one no zero points.
  const bool emulation = kind == Wna16Kind::on_the_fly || kind == Wna16Kind::dense;
  m.has_bias = has_bias && !(emulation && bit_compat_vllm);
  if (kind == Wna16Kind::dense && bits == 8 && bit_compat_vllm) m.has_zeros = false;
  m.awq = awq;
  m.act_order = act_order && kind == Wna16Kind::marlin;
  m.zero_shift = zero_shift;
  m.input = kind == Wna16Kind::marlin ? input : MarlinInput::none;
  m.scale = scale;
  m.bias = bias;
  m.number = number;
  m.swap_halves = kind == Wna16Kind::trtllm && w13;
  if (kind == Wna16Kind::marlin) {
    // The kernel goes by the number of rows; vLLM by the group against the intermediate size of one partition.
    const std::int64_t size_k = w13 || awq ? intermediate : m.padded_groups * groups.as_written();
    m.grouped_scales =
        !m.eight_bit() && (bit_compat_vllm ? groups.is_even() && groups.as_written() < size_k : m.padded_groups > 1);
    m.folded_scales = input == MarlinInput::int8 && m.groups > 1;
    m.zeros_in_nibbles = has_zeros && (awq || !bit_compat_vllm);
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
  each_part(*this, [&](std::string_view name, MaybeEntry entry) {
    if (entry) list.push_back({name, entry->dtype, std::move(entry->shape), entry->shared});
  });
  if (kind == Wna16Kind::marlin && multiprocessors > 0)
    list.push_back({kWorkspace, DType::i32, {4 * multiprocessors}, true});
  return list;
}

std::vector<std::string_view> Wna16Layout::absent() const {
  std::vector<std::string_view> names;
  each_part(*this, [&](std::string_view name, const MaybeEntry& entry) {
    if (!entry) names.push_back(name);
  });
  return names;
}

bool Wna16Layout::fits() const {
  const std::int64_t rows13 = gated ? 2 * intermediate : intermediate;
  const auto divides = [](std::int64_t step, std::initializer_list<std::int64_t> sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t size) { return size % step == 0; });
  };
  const Wna16Matrix w13 = matrix(true), w2 = matrix(false);
  switch (kind) {
    case Wna16Kind::marlin:
      if (act_order && (awq || input != MarlinInput::none || padded_intermediate() != intermediate)) return false;
      return divides(64, {hidden}) && (input != MarlinInput::fp8 || bits == 4);
    case Wna16Kind::trtllm:
      return bits == 4 && gated && !has_zeros && !act_order && !has_bias && w13.group() == 32 && w2.group() == 32 &&
             divides(256, {hidden, intermediate});
    case Wna16Kind::xpu:
      return bits == 4 && !has_zeros && !act_order && divides(2, {hidden, intermediate});
    case Wna16Kind::vnni:
      for (const Wna16Matrix& m : {w13, w2})
        if (m.group() % (m.group() < 128 ? 4 : 128) != 0) return false;
      return bits == 4 && !act_order && divides(32, {rows13, hidden});
    case Wna16Kind::on_the_fly:
      if (act_order || (has_zeros && bits == 8)) return false;
      return bits == 8 || divides(2, {rows13, hidden, intermediate});
    case Wna16Kind::dense:
      return true;
  }
  return false;
}

// --- as a Layout -------------------------------------------------------------------------------------------

namespace {

constexpr std::array kKinds = {LayoutKind::wna16_marlin, LayoutKind::wna16_trtllm,     LayoutKind::wna16_xpu,
                               LayoutKind::wna16_vnni,   LayoutKind::wna16_on_the_fly, LayoutKind::wna16_dense};
constexpr std::array kWords = {"marlin/", "trtllm/mxint4", "xpu/", "vnni/", "on_the_fly/", "dense/"};
constexpr std::array kInputWords = {"", "-int8", "-fp8"};

constexpr std::int64_t kMaxMultiprocessors = 4096;

bool is_float(DType t) { return t == DType::f16 || t == DType::bf16 || t == DType::f32; }

bool is_variant(const LayoutVariant& v) {
  return v.zero_shift >= -1 && v.zero_shift <= 1 && v.multiprocessors >= 0 &&
         v.multiprocessors <= kMaxMultiprocessors && is_float(v.bias) && is_float(v.number) && !v.input_scales &&
         !v.gate_up_pairs && !v.fnuz;
}

std::size_t kind_index(LayoutKind kind) {
  return usize(std::find(kKinds.begin(), kKinds.end(), kind) - kKinds.begin());
}

}  // namespace

std::string_view wna16_output(std::string_view spelled) {
  constexpr std::array<std::array<std::string_view, 2>, 3> kSpellings = {
      {{"qweight", "weight"}, {"scales", "scale"}, {"qzeros", "zero_point"}}};
  if (spelled == kWorkspace) return kWorkspace;
  for (const bool w13 : {true, false}) {
    const std::string_view matrix = w13 ? "w13" : "w2";
    if (spelled.substr(0, matrix.size()) != matrix) continue;
    std::string_view part = "weight";
    if (spelled != matrix) {
      if (spelled[matrix.size()] != '_') continue;
      part = spelled.substr(matrix.size() + 1);
    }
    for (const auto& [vllms, ours] : kSpellings)
      if (part == vllms) part = ours;
    for (const Wna16Names& names : kWna16Names)
      if ((w13 ? names.w13 : names.w2).substr(matrix.size() + 1) == part) return w13 ? names.w13 : names.w2;
  }
  return {};
}

bool is_wna16_kind(LayoutKind kind) { return kind_index(kind) < kKinds.size(); }
LayoutKind layout_kind_of(Wna16Kind kind) { return at(kKinds, kind); }

LayoutVariant variant_of(const Wna16Layout& l) {
  return {.input = l.input,
          .awq = l.awq,
          .bit_compat_vllm = l.bit_compat_vllm,
          .channel_wise = l.groups.is_whole(),
          .zero_shift = l.zero_shift,
          .bias = l.bias,
          .number = l.number,
          .multiprocessors = l.multiprocessors};
}

Wna16Layout wna16_of(const Layout& layout) {
  const LayoutVariant& v = layout.variant;
  const P16Matrix &w13 = layout.w13, &w2 = layout.w2;
  return {.kind = static_cast<Wna16Kind>(kind_index(layout.kind)),
          .bits = w13.element == Element::int8 ? 8 : 4,
          .experts = layout.experts,
          .hidden = w13.k,
          .intermediate = w2.k,
          .groups = v.channel_wise ? Groups::whole() : Groups::even(w13.group()),
          .groups13 = w13.group_count(),
          .groups2 = w2.group_count(),
          .gated = w13.halves == 2,
          .awq = v.awq,
          .act_order = w13.has_order,
          .has_zeros = w13.has_zeros,
          .has_bias = w13.has_bias,
          .bit_compat_vllm = v.bit_compat_vllm,
          .zero_shift = v.zero_shift,
          .input = v.input,
          .scale = w13.scales == Scales::bf16  ? DType::bf16
                   : w13.scales == Scales::f32 ? DType::f32
                                               : DType::f16,
          .bias = v.bias,
          .number = v.number,
          .multiprocessors = v.multiprocessors};
}

std::string wna16_id(const Layout& layout) {
  const Wna16Layout l = wna16_of(layout);
  std::string s = at(kWords, l.kind);
  if (l.kind == Wna16Kind::marlin) s += l.awq ? "awq-" : "gptq-";
  if (l.kind != Wna16Kind::trtllm) s += cat("b", l.bits);
  s += "-" + grouping_word(layout.w13);
  if (grouping_word(layout.w2) != grouping_word(layout.w13)) s += "," + grouping_word(layout.w2);
  if (l.kind != Wna16Kind::vnni) s += cat("-", dtype_name(l.kind == Wna16Kind::dense ? l.number : l.scale));
  if (l.has_zeros) s += "-zp";
  if (l.act_order) s += "-ao";
  s += at(kInputWords, l.input);
  if (l.has_bias) s += "-bias";
  return s + (l.bit_compat_vllm ? "-vllm/1" : "/1");
}

bool is_wna16(const Layout& layout) {
  const P16Matrix &w13 = layout.w13, &w2 = layout.w2;
  const bool same = w13.element == w2.element && w13.scales == w2.scales && w13.has_zeros == w2.has_zeros &&
                    w13.has_order == w2.has_order && w13.has_bias == w2.has_bias && w13.k == w2.half_rows &&
                    w13.half_rows == w2.k && w2.halves == 1;
  const bool rows = layout.kind == LayoutKind::wna16_xpu || layout.kind == LayoutKind::wna16_on_the_fly;
  const bool scales = w13.scales == Scales::f16 || w13.scales == Scales::bf16 || (w13.scales == Scales::f32 && rows);
  if (!same || !is_integer(w13.element) || !scales || w13.scale_rows != 1 || w2.scale_rows != 1) return false;
  const Wna16Layout l = wna16_of(layout);
  // Without a channel mark the group is one number; with it there is one group.
  const bool groups = l.groups.is_whole() ? w13.group_count() == 1 && w2.group_count() == 1 : w13.group() == w2.group();
  return is_variant(layout.variant) && groups && l.fits();
}

void list_wna16(Layout& layout) {
  for (Wna16Tensor& t : wna16_of(layout).tensors())
    layout.tensors.push_back({.name = t.name, .dtype = t.dtype, .shape = std::move(t.shape), .shared = t.shared});
}

int vllm_zero_shift(Wna16Kind kind, bool awq, bool has_zeros, ZeroPoints stored) {
  const int below = stored == ZeroPoints::plus_one ? -1 : 0;
  if (kind == Wna16Kind::vnni) {
    if (has_zeros) return awq ? below : below + 1;
    return awq ? -1 : 0;
  }
  return has_zeros ? below : 0;
}

}  // namespace moe
