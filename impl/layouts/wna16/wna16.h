// Writers and readers of the layouts of layouts/wna16/wna16_layout.h, one matrix of one expert at a time.
//
// The plain form is that of layouts/rows.h with all rows of the matrix (gate, then up). A writer fills the parts that
// the layout has; a reader gives the plain form back, with zero points as the bytes say them. Rows of a layout with a
// permutation come back in the checkpoint's order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/index.h"
#include "base/result.h"
#include "layouts/rows.h"
#include "layouts/wna16/wna16_layout.h"

namespace moe {

// First byte of each part for one expert; nullptr: the layout has none.
template <class Byte>
struct Wna16Bytes {
  std::array<Byte*, kWna16Parts> part{};
  bool w13 = true;  // which matrix, and of which expert: for messages
  std::int64_t local = 0;
  Byte* operator[](Wna16Part p) const { return at(part, p); }
};
using Wna16Out = Wna16Bytes<std::byte>;
using Wna16In = Wna16Bytes<const std::byte>;

// Rows [first, first + count) of a matrix, which become the first rows of a plain form.
struct RowRange {
  std::int64_t first, count;
};

// g_idx of `rows` in [0, groups) where the matrix has an order, checked by the reader of the checkpoint.
void write_wna16(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out);
// A stored order that is none (format): a packed file may hold anything.
Check read_wna16(const Wna16Matrix& m, const Wna16In& in, CanonicalRows& rows);
// Some rows of a matrix without activation order, into `rows`, which has its shape (of more rows, if need be) and
// keeps its memory.
void read_wna16_rows(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows);

// What all experts share, once their tensors are written: `scales` are those of all experts.
Check finish_wna16(const Wna16Matrix& m, std::string_view name, std::span<std::byte> scales, std::byte* global_scale);
// Marlin with int8 activations, once the scales of all experts are written: they become int16 in units of
// `global`, in place, the largest magnitude 4096. A tensor whose scales are all 0 is refused (invalid_argument, subject
// `name`).
Check fold_marlin_scales(DType dtype, std::span<std::byte> scales, std::string_view name, std::byte* global);

// The layouts. wna16_<name>.cpp.
void write_marlin(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out);
Check read_marlin(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows);
// Marlin's codes and the places of its scales alone, of a matrix without activation order: column c of the layout takes
// row marlin_scale_source, and back.
void write_marlin_weight(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out);
void read_marlin_weight(const Wna16Matrix& m, const std::byte* in, CanonicalRows& rows);
std::int64_t marlin_scale_source(bool grouped, std::int64_t c);
std::int64_t marlin_scale_place(bool grouped, std::int64_t row);
void write_trtllm(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out);
Check read_trtllm(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows);
void write_rows_of_fields(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out);  // xpu, on_the_fly
Check read_rows_of_fields(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows);
void write_vnni(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out);
Check read_vnni(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows);
void write_dense(const Wna16Matrix& m, const CanonicalRows& rows, const Wna16Out& out);
Check read_dense(const Wna16Matrix& m, const Wna16In& in, const RowRange& range, CanonicalRows& rows);

// --- what they share --------------------------------------------------------------------------------

// Space for the matrix of the checkpoint, all zero; values instead of codes for dense.
void shape_plain(const Wna16Matrix& m, CanonicalRows& rows);
void store_number(DType dtype, float x, std::byte* p);  // f32, f16, bf16; nearest even
float load_number(DType dtype, const std::byte* p);

// Stored fields and zero points of the plain form: unsigned, as the checkpoint has them.
class Wna16Fields {
 public:
  Wna16Fields(const Wna16Matrix& m, const CanonicalRows& rows)
      : m_(m), rows_(rows), bias_(m.bits == 4 ? 8 : 128), group_(m.group() > 0 ? m.group() : 1) {}

  unsigned field(std::int64_t n, std::int64_t k) const { return static_cast<unsigned>(rows_.row(n)[k] + bias_); }
  // As it goes into a tensor.
  int zero(std::int64_t n, std::int64_t g) const {
    const int real = rows_.zeros.empty() ? bias_ : at(rows_.zeros, n * rows_.groups + g);
    return real + m_.zero_shift;
  }
  float scale(std::int64_t n, std::int64_t g) const { return rows_.row_scales(n)[g]; }
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
void write_g_idx(const Wna16Matrix& m, const CanonicalRows& rows, std::byte* out);

}  // namespace moe
