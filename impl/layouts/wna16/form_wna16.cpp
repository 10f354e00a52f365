// Between the spans of named tensors and the parts of a matrix. See form_wna16.h.
#include "layouts/wna16/form_wna16.h"

#include <cmath>
#include <string>

#include "base/decimal.h"
#include "base/index.h"
#include "base/text.h"
#include "layouts/wna16/wna16.h"

namespace moe {
namespace {

std::string_view name_of(Matrix which, std::size_t part) {
  return which == Matrix::w13 ? kWna16Names[part].w13 : kWna16Names[part].w2;
}

template <class Byte>
Wna16Bytes<Byte> parts_of(const ExpertTensors<Byte>& tensors, Matrix which) {
  Wna16Bytes<Byte> parts{.w13 = which == Matrix::w13, .local = tensors.local};
  for (std::size_t p = 0; p < kWna16Parts; ++p) parts.part[p] = tensors[name_of(which, p)].data();
  return parts;
}

Wna16Matrix matrix_of(const Layout& layout, Matrix which) { return wna16_of(layout).matrix(which == Matrix::w13); }

const LayoutTensor* find(const Layout& layout, Matrix which, Wna16Part part) {
  for (const LayoutTensor& t : layout.tensors)
    if (t.name == name_of(which, usize(part))) return &t;
  return nullptr;
}

Error does_not_fit(Matrix which, Wna16Part part, std::int64_t local, std::int64_t at, std::int64_t groups,
                   const std::string& what) {
  const std::string name(name_of(which, usize(part)));
  return fail(Code::invalid_argument, name,
              cat(name, ": ", what, " (local expert ", local, ", row ", at / groups, ", group ", at % groups, ")"));
}

// To the layout's type, where it is that of the activations.
Check round_scales(const Wna16Matrix& m, Matrix which, std::int64_t local, CanonicalRows& rows) {
  if (m.kind == Wna16Kind::vnni || m.kind == Wna16Kind::dense) return ok();
  for (std::size_t i = 0; i < rows.scales.size(); ++i) {
    std::byte stored[4];
    store_number(m.scale, rows.scales[i], stored);
    const float rounded = load_number(m.scale, stored);
    if (rounded == rows.scales[i]) continue;
    if (std::isinf(rounded))
      return does_not_fit(which, Wna16Part::scale, local, static_cast<std::int64_t>(i), rows.groups,
                          cat("scale ", float_text(rows.scales[i]), " is beyond the largest ", dtype_name(m.scale),
                              " number, the type of in_dtype"));
    ++rows.scales_rounded;
    rows.scales[i] = rounded;
  }
  return ok();
}

// Of layouts that pack them like codes; a stored 15 that means 16 has no place there.
Check check_zeros(const Wna16Matrix& m, Matrix which, std::int64_t local, const CanonicalRows& rows) {
  if (m.kind != Wna16Kind::marlin && m.kind != Wna16Kind::on_the_fly) return ok();
  const int most = (1 << m.bits) - 1;
  for (std::size_t i = 0; i < rows.zeros.size(); ++i)
    if (rows.zeros[i] + m.zero_shift > most)
      return does_not_fit(which, Wna16Part::zero_point, local, static_cast<std::int64_t>(i), rows.groups,
                          cat("zero point ", rows.zeros[i], " does not fit the layout's ", m.bits, " bits"));
  return ok();
}

Check write_wna16_form(CanonicalRows& rows, Matrix which, const ExpertTensors<std::byte>& out) {
  const Wna16Matrix m = matrix_of(out.layout, which);
  MOE_CHECK(round_scales(m, which, out.local, rows));
  MOE_CHECK(check_zeros(m, which, out.local, rows));
  write_wna16(m, rows, parts_of(out, which));
  return ok();
}

Check read_wna16_form(const ExpertTensors<const std::byte>& in, Matrix which, CanonicalRows& rows) {
  return read_wna16(matrix_of(in.layout, which), parts_of(in, which), rows);
}

Check finish_wna16_form(const Layout& layout, std::span<const ExpertFacts>, std::byte* payload, std::uint64_t&) {
  for (const Matrix which : {Matrix::w13, Matrix::w2}) {
    const LayoutTensor& scale = *find(layout, which, Wna16Part::scale);
    const LayoutTensor* global = find(layout, which, Wna16Part::input_global_scale);
    const std::size_t all = layout.end_of(scale) - scale.offset;
    MOE_CHECK(finish_wna16(matrix_of(layout, which), scale.name, {payload + scale.offset, all},
                           global == nullptr ? nullptr : payload + global->offset));
  }
  return ok();
}

}  // namespace

void read_wna16_form_rows(const ExpertTensors<const std::byte>& in, Matrix which, const RowRange& at,
                          CanonicalRows& rows) {
  read_wna16_rows(matrix_of(in.layout, which), parts_of(in, which), at, rows);
}

constinit const LayoutFamily layout_families::wna16 = {wna16_id,         is_wna16,        list_wna16,
                                                       write_wna16_form, read_wna16_form, finish_wna16_form};

}  // namespace moe
