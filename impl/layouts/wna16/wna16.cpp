// The family of the WNA16 layouts: from a form to ids, tensors and bytes, and what the forms share. See wna16.h.
#include "layouts/wna16/wna16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/decimal.h"
#include "base/number_at.h"
#include "base/text.h"

namespace moe {
namespace {

constexpr std::array kInputWords = {"", "-int8", "-fp8"};
constexpr std::int64_t kMaxMultiprocessors = 4096;

std::string id_of(const Layout& l) {
  const Wna16Matrix m = wna16_matrix(l, Which::w13);
  std::string s(wna16_form(l.kind)->word);
  if (l.kind == LayoutKind::wna16_marlin) s += m.awq ? "awq-" : "gptq-";
  if (l.kind != LayoutKind::wna16_trtllm) s += cat("b", m.bits);
  s += "-" + grouping_word(l.w13);
  if (grouping_word(l.w2) != grouping_word(l.w13)) s += "," + grouping_word(l.w2);
  if (l.kind != LayoutKind::wna16_vnni)
    s += cat("-", dtype_name(l.kind == LayoutKind::wna16_dense ? m.number : m.scale));
  if (l.w13.has_zeros) s += "-zp";
  if (l.w13.has_order) s += "-ao";
  s += at(kInputWords, l.variant.input);
  if (l.w13.has_bias) s += "-bias";
  return s + (l.variant.bit_compat_vllm ? "-vllm/1" : "/1");
}

bool is_variant(const LayoutVariant& v) {
  return v.zero_shift >= -1 && v.zero_shift <= 1 && v.multiprocessors >= 0 &&
         v.multiprocessors <= kMaxMultiprocessors && is_float16_or_32(v.bias) && is_float16_or_32(v.number) &&
         !v.input_scales && !v.gate_up_pairs && !v.fnuz;
}

bool is_valid(const Layout& l) {
  const Matrix &w13 = l.w13, &w2 = l.w2;
  const bool same = w13.element == w2.element && w13.scales == w2.scales && w13.has_zeros == w2.has_zeros &&
                    w13.has_order == w2.has_order && w13.has_bias == w2.has_bias && w13.k == w2.half_rows &&
                    w13.half_rows == w2.k && w2.halves == 1;
  const bool rows = l.kind == LayoutKind::wna16_xpu || l.kind == LayoutKind::wna16_on_the_fly;
  const bool scales = w13.scales == Scales::f16 || w13.scales == Scales::bf16 || (w13.scales == Scales::f32 && rows);
  if (!same || !is_integer(w13.element) || !scales || w13.scale_rows != 1 || w2.scale_rows != 1) return false;
  // Without a channel mark the group is one number; with it there is one group.
  const bool groups =
      l.variant.channel_wise ? w13.group_count() == 1 && w2.group_count() == 1 : w13.group() == w2.group();
  return is_variant(l.variant) && groups &&
         wna16_form(l.kind)->fits(l, wna16_matrix(l, Which::w13), wna16_matrix(l, Which::w2));
}

void list_tensors(Layout& l) {
  each_wna16_part(l, [&](std::string_view name, std::optional<LayoutTensor> tensor) {
    if (!tensor) return;
    tensor->name = name;
    l.tensors.push_back(*std::move(tensor));
  });
  if (l.kind == LayoutKind::wna16_marlin && l.variant.multiprocessors > 0)
    l.tensors.push_back({.name = part_name(Which::w13, LayoutPart::workspace),
                         .dtype = DType::i32,
                         .shape = {4 * l.variant.multiprocessors},
                         .shared = true});
}

const LayoutTensor* find(const Layout& layout, Which which, LayoutPart part) {
  for (const LayoutTensor& t : layout.tensors)
    if (t.name == part_name(which, part)) return &t;
  return nullptr;
}

// --- bytes ------------------------------------------------------------------------------------------------

Error does_not_fit(const Wna16Matrix& m, LayoutPart part, std::int64_t local, std::int64_t at, std::int64_t groups,
                   const std::string& what) {
  const std::string name(part_name(m.which, part));
  return fail(Code::invalid_argument, name,
              cat(name, ": ", what, " (local expert ", local, ", row ", at / groups, ", group ", at % groups, ")"));
}

// To the layout's type, where it is that of the activations.
Check round_scales(const Wna16Matrix& m, std::int64_t local, CanonicalRows& rows) {
  if (m.kind == LayoutKind::wna16_vnni || m.kind == LayoutKind::wna16_dense) return ok();
  for (std::size_t i = 0; i < rows.scales.size(); ++i) {
    std::byte stored[4];
    store_float(m.scale, rows.scales[i], stored);
    const float rounded = load_float(m.scale, stored);
    if (rounded == rows.scales[i]) continue;
    if (std::isinf(rounded))
      return does_not_fit(m, LayoutPart::scale, local, static_cast<std::int64_t>(i), rows.groups,
                          cat("scale ", float_text(rows.scales[i]), " is beyond the largest ", dtype_name(m.scale),
                              " number, the type of in_dtype"));
    ++rows.scales_rounded;
    rows.scales[i] = rounded;
  }
  return ok();
}

// Of layouts that pack them like codes; a stored 15 that means 16 has no place there.
Check check_zeros(const Wna16Matrix& m, std::int64_t local, const CanonicalRows& rows) {
  if (m.kind != LayoutKind::wna16_marlin && m.kind != LayoutKind::wna16_on_the_fly) return ok();
  const int most = (1 << m.bits) - 1;
  for (std::size_t i = 0; i < rows.zeros.size(); ++i)
    if (rows.zeros[i] + m.zero_shift > most)
      return does_not_fit(m, LayoutPart::zero_point, local, static_cast<std::int64_t>(i), rows.groups,
                          cat("zero point ", rows.zeros[i], " does not fit the layout's ", m.bits, " bits"));
  return ok();
}

Check write(CanonicalRows& rows, Which which, const Wna16Out& out) {
  const Wna16Matrix m = wna16_matrix(out.layout, which);
  MOE_CHECK(round_scales(m, out.local, rows));
  MOE_CHECK(check_zeros(m, out.local, rows));
  write_wna16(m, rows, out);
  return ok();
}

Check read(const Wna16In& in, Which which, CanonicalRows& rows) {
  return read_wna16(wna16_matrix(in.layout, which), in, rows);
}

// What all experts share, once their tensors are written.
Check finish(const Layout& layout, std::span<const ExpertFacts>, std::byte* payload, std::uint64_t&) {
  for (const Which which : {Which::w13, Which::w2}) {
    const Wna16Matrix m = wna16_matrix(layout, which);
    const LayoutTensor& scale = *find(layout, which, LayoutPart::scale);
    const std::size_t all = layout.end_of(scale) - scale.offset;
    if (m.folded_scales)
      MOE_CHECK(fold_marlin_scales(m.scale, {payload + scale.offset, all}, scale.name,
                                   payload + find(layout, which, LayoutPart::input_global_scale)->offset));
    if (m.kind == LayoutKind::wna16_dense) store_float(DType::f16, 1.0f, payload + scale.offset);  // never read
  }
  return ok();
}

}  // namespace

constinit const LayoutFamily layout_families::wna16 = {
    id_of,
    is_valid,
    list_tensors,
    write,
    read,
    finish,
    {.parts = kWna16Parts.with({LayoutPart::workspace}),
     .brief = {LayoutPart::weight},
     .vllms = {LayoutPart::weight, LayoutPart::scale, LayoutPart::zero_point}}};

const Wna16Form* wna16_form(LayoutKind kind) {
  switch (kind) {  // a kind of a new family does not compile
#define MOE_FORM_torch(kind_) nullptr
#define MOE_FORM_kai(kind_) nullptr
#define MOE_FORM_floats(kind_) nullptr
#define MOE_FORM_wna16(kind_) &wna16_forms::kind_
#define MOE_P16(kind_, ...) case LayoutKind::kind_:
#define MOE_NAMED(...)
#include "layouts/layout_kinds.inc"
    case LayoutKind::none:
    case LayoutKind::foreign:
      return nullptr;
#define MOE_P16(...)
#define MOE_NAMED(kind_, number_, family_) \
  case LayoutKind::kind_:                  \
    return MOE_FORM_##family_(kind_);
#include "layouts/layout_kinds.inc"
  }
  return nullptr;  // a number of a damaged file
}

void write_wna16(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out) {
  wna16_form(m.kind)->write(m, rows, out);
}

Check read_wna16(const Wna16Matrix& m, const Wna16In& in, CanonicalRows& rows) {
  shape_plain(m, rows);
  return wna16_form(m.kind)->read(m, in, {0, m.rows()}, rows);
}

void read_wna16_rows(const Wna16In& in, Which which, const RowRange& range, CanonicalRows& rows) {
  const Wna16Matrix m = wna16_matrix(in.layout, which);
  const Check read = wna16_form(m.kind)->read(m, in, range, rows);
  if (read) rows.clear_from(range.count);  // always: faults are those of an order
}

bool divides(std::int64_t step, std::initializer_list<std::int64_t> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t size) { return size % step == 0; });
}

void shape_plain(const Wna16Matrix& m, CanonicalRows& rows) {
  const bool numbers = m.kind == LayoutKind::wna16_dense;
  rows.count = m.rows();
  rows.k = m.k;
  rows.stride = round_up(m.k, kCanonicalPad);
  rows.groups = numbers ? 0 : m.groups;
  const auto cells = usize(rows.count * rows.stride);
  const auto scales = usize(rows.count * rows.groups);
  rows.codes.assign(numbers ? 0 : cells, 0);
  rows.values.assign(numbers ? cells : 0, 0.0f);
  rows.scales.assign(scales, 0.0f);
  rows.zeros.assign(!numbers && (m.has_zeros || m.kind == LayoutKind::wna16_vnni) ? scales : 0, 0);
  rows.bias.assign(usize(rows.count), 0.0f);
  rows.g_idx.clear();
}

void write_bias(const Wna16Matrix& m, const CanonicalRows& rows, DType dtype, std::byte* out) {
  if (out == nullptr) return;
  for (std::int64_t n = 0; n < m.rows(); ++n) store_float(dtype, at(rows.bias, n), out + n * (dtype_bits(dtype) / 8));
}

void read_bias(const RowRange& range, DType dtype, const std::byte* in, CanonicalRows& rows) {
  if (in == nullptr) return;
  for (std::int64_t i = 0; i < range.count; ++i)
    at(rows.bias, i) = load_float(dtype, in + (range.first + i) * (dtype_bits(dtype) / 8));
}

void write_g_idx(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out) {
  if (out == nullptr) return;
  const Wna16Fields fields(m, rows);
  for (std::int64_t k = 0; k < m.k; ++k) {
    const auto g = static_cast<std::int32_t>(fields.group_of(k));
    std::memcpy(out + k * 4, &g, 4);
  }
}

}  // namespace moe
