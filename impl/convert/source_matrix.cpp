// Gathering of one expert's tensors. See source_matrix.h.
//
// Row order of a whole w13 (I rows each of gate and up):
//   gate_up      gate 0..I-1, up I..2I-1       up_gate      up 0..I-1, gate I..2I-1
//   interleaved  gate 2i, up 2i+1
// Each is two strided views of one tensor, so nothing is copied.
#include "convert/source_matrix.h"

#include <algorithm>
#include <array>
#include <string>

#include "scheme/checkpoint.h"
#include "scheme/tensor_check.h"

namespace moe {
namespace {

struct HalfRows {
  std::int64_t first, step;
};

// Where the rows of gate (half 0) or up (half 1) lie in a whole w13 tensor.
HalfRows half_rows(W13Layout order, int half, std::int64_t rows) {
  if (order == W13Layout::interleaved) return {half, 2};
  const bool second = (half == 1) == (order == W13Layout::gate_up);
  return {second ? rows : 0, 1};
}

TensorView every_nth_row(const TensorView& t, HalfRows at, std::int64_t count) {
  TensorView v = rows(t, at.first, count);
  v.strides[0] *= at.step;
  return v;
}

// Of a packed word's codes; float tensors have no use for it.
int checkpoint_bits(const P16Matrix& m) { return m.element == Element::int8 ? 8 : 4; }

struct RolePart {
  Role role;
  TensorKind kind;
  TensorView SourceHalf::*view;
};

struct Gather {
  const ConvertJob& job;
  const TensorSource& source;
  const P16Matrix& matrix;
  bool is_w13;
  LeasedMatrix& out;

  // Rows of a part: [rows, columns] or [rows].
  TensorShape shape(const CheckpointTensor& row, std::int64_t n) const {
    return row.shape({.n = n, .k = matrix.k, .group = matrix.group, .num_bits = checkpoint_bits(matrix)});
  }

  Check take(const RolePart& part, const Place& place, std::int64_t n, TensorView& view) {
    const CheckpointTensor& row = *checkpoint_tensor(job.format, part.kind);
    MOE_TRY(TensorLease lease, source.get(place));
    const std::string subject = std::string(role_name(part.role)) + "[" + std::to_string(place.expert) + "]";
    MOE_CHECK(check_tensor(lease.view, row, shape(row, n).span(), subject));
    view = lease.view;
    out.leases.push_back(std::move(lease));
    return ok();
  }

  Check add(const RolePart& part) {
    SourceMatrix& m = out.source;
    const std::int64_t rows_each = matrix.half_rows;
    TensorView whole;
    Check got = take(part, {part.role, m.expert, Shard::whole}, matrix.rows(), whole);
    if (got) {
      for (int h = 0; h < matrix.halves; ++h) {
        SourceHalf& half = m.half[static_cast<std::size_t>(h)];
        const HalfRows at = matrix.halves == 2 ? half_rows(job.w13_layout, h, rows_each) : HalfRows{0, 1};
        half.*part.view = every_nth_row(whole, at, rows_each);
        if (part.kind == TensorKind::scale) half.scale_rows = {at.first, at.step};
        if (part.kind == TensorKind::weight) half.code_rows = {at.first, at.step};
      }
      return ok();
    }
    if (got.error().code != Code::missing_weight || matrix.halves != 2) return got;
    for (int h = 0; h < 2; ++h) {
      SourceHalf& half = m.half[static_cast<std::size_t>(h)];
      MOE_CHECK(take(part, {part.role, m.expert, h == 0 ? Shard::w1 : Shard::w3}, rows_each, half.*part.view));
      const RowNumbers numbers{h * rows_each, 1};
      if (part.kind == TensorKind::scale) half.scale_rows = numbers;
      if (part.kind == TensorKind::weight) half.code_rows = numbers;
    }
    return ok();
  }
};

}  // namespace

Result<LeasedMatrix> lease_matrix(const ConvertJob& job, const TensorSource& source, std::int64_t expert, bool is_w13) {
  const Layout& l = job.layout;
  const P16Matrix& matrix = is_w13 ? l.w13 : l.w2;
  LeasedMatrix out;
  out.leases.reserve(6);
  SourceMatrix& m = out.source;
  m.format = job.format;
  m.is_w13 = is_w13;
  m.has_bias = matrix.has_bias;
  m.bf16_scales = matrix.scales == Scales::w4a8 &&
                  (job.group_size > 0 || l.w13.grouping() != Grouping::channel || l.w2.grouping() != Grouping::channel);
  m.expert = expert;
  m.k = matrix.k;
  m.groups = matrix.groups();
  m.halves = matrix.halves;
  m.element = matrix.element;
  Gather gather{job, source, matrix, is_w13, out};
  MOE_CHECK(gather.add({is_w13 ? Role::w13_weight : Role::w2_weight, TensorKind::weight, &SourceHalf::codes}));
  if (checkpoint_tensor(job.format, TensorKind::scale) != nullptr)
    MOE_CHECK(gather.add({is_w13 ? Role::w13_scale : Role::w2_scale, TensorKind::scale, &SourceHalf::scales}));
  if (matrix.has_bias)
    MOE_CHECK(gather.add({is_w13 ? Role::w13_bias : Role::w2_bias, TensorKind::bias, &SourceHalf::bias}));
  return out;
}

std::uint64_t temp_bytes_per_worker(const ConvertJob& job) {
  std::uint64_t most = 0;
  for (const P16Matrix* m : {&job.layout.w13, &job.layout.w2}) {
    const MatrixSize size{.n = m->rows(), .k = m->k, .group = m->group, .num_bits = checkpoint_bits(*m)};
    const std::int64_t plain = is_integer(m->element) ? 1 : 4;  // bytes of a code or value
    const std::int64_t rows = p16_element(job.layout.kind) ? kPanelRows : m->rows();  // that exist in the plain form
    std::uint64_t bytes =
        static_cast<std::uint64_t>(rows * (round_up(m->k, kCanonicalPad) * plain + 4 * m->groups() + 4));
    for (const CheckpointTensor& row : checkpoint_tensors(job.format)) {
      if (row.kind == TensorKind::bias && !m->has_bias) continue;
      int bits = 0;
      for (DType t : row.dtypes) bits = std::max(bits, dtype_bits(t));
      std::uint64_t elements = 1;
      const TensorShape shape = row.shape(size);
      for (std::int64_t d : shape.span()) elements *= static_cast<std::uint64_t>(d);
      bytes += elements * static_cast<std::uint64_t>(bits) / 8;
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace moe
