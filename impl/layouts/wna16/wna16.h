// Writers and readers of the layouts of wna16_layout.h, one matrix of one expert at a time. The file of a layout
// defines its form: wna16_forms::<kind>.
//
// The plain form is that of layouts/rows.h with all rows of the matrix (gate, then up). A writer fills the parts that
// the layout has; a reader gives the plain form back, with zero points as the bytes say them. Rows of a layout with a
// permutation come back in the checkpoint's order.
//
// Layouts of one family share almost everything but where a field lies, so a form is three
// functions and a word; the family (wna16.cpp) does ids, checks, rounding of scales and counting
// for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/result.h"
#include "layouts/families.h"
#include "layouts/rows.h"
#include "layouts/wna16/wna16_layout.h"

namespace moe {

// Rows [first, first + count) of a matrix, which become the first rows of a plain form.
// Panels on the fly read 16 rows at a time; all other readers take the whole matrix.
struct RowRange {
  std::int64_t first, count;
};

using Wna16Out = ExpertTensors<std::byte>;
using Wna16In = ExpertTensors<const std::byte>;
// First byte of a part of a matrix; nullptr: the layout has none.
template <class Byte>
Byte* part(const ExpertTensors<Byte>& tensors, const Wna16Matrix& m, LayoutPart p) {
  return tensors[part_name(m.which, p)].data();
}

// A constant table of functions, like LayoutFamily.
struct Wna16Form {
  std::string_view word;  // in ids
  // Type and shape of a part, without a name; nullopt: the layout has none.
  MaybeTensor (*tensor)(const Wna16Matrix& m, LayoutPart p);
  // Whether tiles and blocks divide the sizes of both matrices, and everything in them has a place.
  // A kernel of another engine does not check its sizes: a matrix that its tiles do not divide
  // would be read beyond its end there.
  bool (*fits)(const Layout& layout, const Wna16Matrix& w13, const Wna16Matrix& w2);
  // g_idx of `rows` in [0, groups) where the matrix has an order, checked by the reader of the checkpoint.
  // It cannot fail: whatever can be wrong was asked before (fits, check_zeros, round_scales).
  void (*write)(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out);
  // A stored order that is none (format): a packed file may hold anything.
  Check (*read)(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows);
};
// One for each kind of the family, in a file of its own.
// The macros expand to nothing for kinds of other families, so a new family breaks this file until
// it says how it stands to forms.
namespace wna16_forms {
#define MOE_FORM_torch(kind_)
#define MOE_FORM_kai(kind_)
#define MOE_FORM_floats(kind_)
#define MOE_FORM_wna16(kind_) extern const Wna16Form kind_;
#define MOE_P16(...)
#define MOE_NAMED(kind_, number_, family_) MOE_FORM_##family_(kind_)
#include "layouts/layout_kinds.inc"
#undef MOE_FORM_torch
#undef MOE_FORM_kai
#undef MOE_FORM_floats
#undef MOE_FORM_wna16
}  // namespace wna16_forms
// nullptr: a kind of another family.
const Wna16Form* wna16_form(LayoutKind kind);

// Parts of w13 and w2 in turn.
// The one walk behind the list of tensors and the list of what is absent, so both always agree.
template <class Take>
void each_wna16_part(const Layout& layout, Take take) {
  const Wna16Form& form = *wna16_form(layout.kind);
  const Wna16Matrix w13 = wna16_matrix(layout, Which::w13), w2 = wna16_matrix(layout, Which::w2);
  for (const PartNames& row : kPartNames)
    if (kWna16Parts.has(row.part))
      for (const Wna16Matrix* m : {&w13, &w2}) take(row.tensor.of(m->which), form.tensor(*m, row.part));
}

// All rows of a matrix.
void write_wna16(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out);
Check read_wna16(const Wna16Matrix& m, const Wna16In& in, CanonicalRows& rows);
// Some rows of a matrix without activation order, into `rows`, which has its shape (of more rows, if need be) and
// keeps its memory: for panels that are made on the fly.
// It cannot fail for a layout that is valid(): the only fault of these readers is an order that is
// none.
void read_wna16_rows(const Wna16In& in, Which which, const RowRange& range, CanonicalRows& rows);

// Marlin with int8 activations, once the scales of all experts are written: they become int16 in units of
// `global`, in place, the largest magnitude 4096. A tensor whose scales are all 0 is refused (invalid_argument, subject
// `name`).
// 4096 is vLLM's number (wna16.md). `global` is one for all experts, so this runs once, at the end.
Check fold_marlin_scales(DType dtype, std::span<std::byte> scales, std::string_view name, std::byte* global);
// Marlin's codes and the places of its scales alone, of a matrix without activation order: column c of the layout takes
// row marlin_scale_source, and back.
// Float layouts of Marlin use the same tiles for 4- and 8-bit codes, whatever the codes mean.
void write_marlin_weight(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out);
void read_marlin_weight(const Wna16Matrix& m, const std::byte* in, CanonicalRows& rows);
std::int64_t marlin_scale_source(bool grouped, std::int64_t c);
std::int64_t marlin_scale_place(bool grouped, std::int64_t row);

// --- what they share --------------------------------------------------------------------------------
// Forms are free functions in files of their own, so helpers stand here and not in a base class.

// What Wna16Form::tensor gives.
// The name is filled in by the family, which knows the part and the matrix.
inline MaybeTensor a_tensor(DType dtype, std::vector<std::int64_t> shape) {
  return LayoutTensor{.name = {}, .dtype = dtype, .shape = std::move(shape)};
}
inline MaybeTensor a_tensor_if(bool has, DType dtype, std::vector<std::int64_t> shape) {
  return has ? a_tensor(dtype, std::move(shape)) : std::nullopt;
}
inline MaybeTensor shared_tensor(DType dtype, std::vector<std::int64_t> shape) {
  return LayoutTensor{.name = {}, .dtype = dtype, .shape = std::move(shape), .shared = true};
}
// Whether a number divides all of these sizes.
bool divides(std::int64_t step, std::initializer_list<std::int64_t> sizes);
// Space for the matrix of the checkpoint, all zero; values instead of codes for dense.
// vnni always has zero points, stored or not: its kernel subtracts one in any case.
void shape_plain(const Wna16Matrix& m, CanonicalRows& rows);

// Stored fields and zero points of the plain form: unsigned, as the checkpoint has them.
// Layouts of other engines store codes as their checkpoints do (unsigned), the plain form has them
// signed. The class adds the bias back in one place.
class Wna16Fields {
 public:
  Wna16Fields(const Wna16Matrix& m, const CanonicalRows& rows)
      : m_(m), rows_(rows), bias_(1 << (m.bits - 1)), group_(m.group() > 0 ? m.group() : 1) {}

  unsigned field(std::int64_t n, std::int64_t k) const { return static_cast<unsigned>(rows_.row(n)[k] + bias_); }
  // As it goes into a tensor.
  // With zero_shift, because some of vLLM's readers add or subtract one again. The sum may leave
  // the field's range: check_zeros() refuses that for layouts that pack zero points.
  int zero(std::int64_t n, std::int64_t g) const {
    const int real = rows_.zeros.empty() ? bias_ : at(rows_.zeros, n * rows_.groups + g);
    return real + m_.zero_shift;
  }
  float scale(std::int64_t n, std::int64_t g) const { return rows_.row_scales(n)[g]; }
  // Equal groups are computed, not looked up: most checkpoints have no g_idx.
  std::int64_t group_of(std::int64_t k) const { return rows_.g_idx.empty() ? k / group_ : at(rows_.g_idx, k); }
  int code_bias() const { return bias_; }

 private:
  const Wna16Matrix& m_;
  const CanonicalRows& rows_;
  int bias_;
  std::int64_t group_;
};

// Bias rows of `dtype`; permuted and padded ones do it themselves.
void write_bias(const Wna16Matrix& m, const CanonicalRows& rows, DType dtype, std::byte* out);
void read_bias(const RowRange& range, DType dtype, const std::byte* in, CanonicalRows& rows);
// int32 [K]: the order given, or k / group.
// A layout that has this tensor has it for every matrix, so plain groups get their list, too.
void write_g_idx(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out);

}  // namespace moe
