// Gathering of one expert's tensors. See source_matrix.h. Views have rows first, whatever the format's order.
//
// Row order of a whole w13 (I rows each of gate and up):
//   gate_up      gate 0..I-1, up I..2I-1       up_gate      up 0..I-1, gate I..2I-1
//   interleaved  gate 2i, up 2i+1
// Each is two strided views of one tensor, so nothing is copied; where rows share words, two runs of fields.
#include "convert/source_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/decimal.h"
#include "base/index.h"
#include "base/text.h"
#include "convert/read_rows.h"
#include "layouts/floats/float_layout.h"
#include "layouts/p16/p16.h"
#include "scheme/checkpoint.h"
#include "scheme/tensor_check.h"

namespace moe::convert {
namespace {

struct HalfRows {
  std::int64_t first, step;
};

// A transposed stack comes as a view whose rows are one element apart.
bool lies_by_columns(const TensorView& t) { return t.ndim == 2 && t.strides[0] < t.strides[1]; }

// A tensor with its rows first, and how its owner has it.
struct Taken {
  TensorView view;
  bool columns_first = false;
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

TensorView rows_first(const TensorView& t, const CheckpointTensor& row) {
  TensorView v = t;
  if (!row.k_first()) return v;
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.strides[0], v.strides[1]);
  return v;
}

// Of a code.
int checkpoint_bits(const ConvertJob& job, const Matrix& m) {
  return stored_bits(job.set->format, row_of(m.element).bits);
}

// Of so many halves, one above the other.
MatrixSize source_size(const ConvertJob& job, const Matrix& m, int halves) {
  return {.n = m.half_rows * halves,
          .k = m.columns(),
          .groups = m.source_groups(),
          .num_bits = checkpoint_bits(job, m),
          .block = job.block,
          .halves = halves};
}

struct RolePart {
  Role role;
  TensorKind kind;
  TensorView SourceHalf::*view;
  RowNumbers SourceHalf::*told = nullptr;    // for messages
  RowNumbers SourceHalf::*fields = nullptr;  // of words and scales that rows share
};

bool is_missing(const Check& got) { return !got && got.error().code == Code::missing_weight; }

struct Gather {
  const ConvertJob& job;
  const TensorSource& source;
  const Matrix& matrix;
  bool is_w13;
  LeasedMatrix& out;

  Check take(const RolePart& part, const Place& place, int halves, Taken& taken) {
    const CheckpointTensor& row = *job.set->tensor(part.kind);
    MOE_TRY(TensorLease lease, source.get(place));
    const std::string subject = cat(role_name(part.role), "[", place.expert, "]");
    const TensorShape shape = row.role_shape(source_size(job, matrix, halves));
    MOE_CHECK(check_tensor(lease.view, row, shape.span(), subject));
    taken = {rows_first(lease.view, row), row.k_first() || lies_by_columns(lease.view)};
    out.leases.push_back(std::move(lease));
    return ok();
  }

  // Rows that share an element of a tensor.
  std::int64_t rows_of_element(const CheckpointTensor& row) const {
    return row.rows_of_element(source_size(job, matrix, 1), matrix.half_rows);
  }

  // A half's rows and their numbers in the tensor.
  void place(const RolePart& part, SourceHalf& half, const Taken& taken, HalfRows at, HalfRows told) {
    if (rows_of_element(*job.set->tensor(part.kind)) > 1) {
      half.*part.view = taken.view;
      half.*part.fields = {at.first, at.step};
    } else {
      half.*part.view = every_nth_row(taken.view, at, matrix.half_rows);
    }
    if (part.told != nullptr) half.*part.told = {told.first, told.step, taken.columns_first};
  }

  Check add(const RolePart& part) {
    SourceMatrix& m = out.source;
    Taken taken;
    Check got = take(part, {part.role, m.expert, Half::whole}, matrix.halves, taken);
    if (!is_missing(got) || matrix.halves != 2) {
      MOE_CHECK(std::move(got));
      // Of halves, one element each: they lie behind each other also where their rows do not.
      const bool by_half = job.set->tensor(part.kind)->axes[0] == Axis::halves;
      const W13Layout order = by_half && job.w13_layout == W13Layout::interleaved ? W13Layout::gate_up : job.w13_layout;
      for (int h = 0; h < matrix.halves; ++h) {
        const HalfRows at = matrix.halves == 2 ? half_rows(order, h, matrix.half_rows) : HalfRows{0, 1};
        place(part, m.half[usize(h)], taken, at, at);
      }
      return ok();
    }
    for (int h = 0; h < 2; ++h) {
      MOE_CHECK(take(part, {part.role, m.expert, h == 0 ? Half::w1 : Half::w3}, 1, taken));
      place(part, m.half[usize(h)], taken, {0, 1}, {h * matrix.half_rows, 1});
    }
    return ok();
  }

  // Symmetric weights may come with zero points that say nothing: all the middle code, or in GPTQ files one less.
  Check check_constant_zeros() const {
    const SourceMatrix& m = out.source;
    const int middle = code_bias(matrix.element);
    const int least = job.set->format == Format::gptq ? middle - 1 : middle;
    const int sign = m.zero_points == ZeroPoints::twos_complement ? middle : 0;  // as they are stored
    for (const SourceHalf& half : m.half) {
      const TensorView& t = half.zeros;
      if (t.ndim == 0) continue;
      for (std::int64_t r = 0; r < matrix.half_rows; ++r)
        for (std::int64_t g = 0; g < m.groups; ++g) {
          const int zero = shared_code(m, t, half.zero_fields.first + half.zero_fields.step * r, g);
          if (zero != middle && zero != least)
            return value_error(m, "zero_point", half.zero_rows, r,
                               {g, cat("zero point ", zero - sign, " of symmetric weights, expected ",
                                       least == middle ? "" : cat(least, " or "), middle - sign)});
        }
    }
    return ok();
  }

  // The number of a projection, gate's and up's; nullopt: there is none. Divisors become factors.
  using Numbers = std::optional<std::array<float, 2>>;
  Result<Numbers> numbers(TensorKind kind) {
    const CheckpointTensor* row = job.set->tensor(kind);
    if (row == nullptr) return Numbers();
    const Role role = *role_of(is_w13 ? Projection::up : Projection::down, kind);
    Numbers found;
    bool has_gate = false;
    for (const Half half : {Half::whole, Half::w1, Half::w3}) {
      if (half != Half::whole && matrix.halves != 2) break;
      Taken taken;
      const Place place{role, out.source.expert, half};
      Check got = take({role, kind, nullptr}, place, half == Half::whole ? matrix.halves : 1, taken);
      const bool none = !got && (is_missing(got) || got.error().code == Code::unexpected_weight);
      if (half == Half::w1) has_gate = !none;
      if (half == Half::w3 && has_gate == none)  // one of the two
        return none ? std::move(got.error())
                    : fail(Code::missing_weight, cat(role_name(role), "[", place.expert, "].w1"),
                           cat(role_name(role), "[", place.expert, "].w1 was never set, but that of up is there"));
      if (none) continue;
      MOE_CHECK(std::move(got));
      if (!found) found = std::array{1.0f, 1.0f};
      const TensorView& t = taken.view;
      for (std::int64_t i = 0; i < t.shape[0]; ++i) {
        const std::int64_t place_in_role = half == Half::w3 ? 1 : i;
        MOE_TRY(const float number,
                number_at(t, i, kind, cat(role_name(role), "[", place.expert, ",", place_in_role, "]")));
        const bool up_first = half == Half::whole && job.w13_layout == W13Layout::up_gate && matrix.halves == 2;
        at(*found, up_first ? 1 - place_in_role : place_in_role) = number;
      }
    }
    return found;
  }

  static Result<float> number_at(const TensorView& t, std::int64_t i, TensorKind kind, std::string where) {
    const float given = load_float(t.dtype, t.data + i * t.strides[0] * (dtype_bits(t.dtype) / 8));
    const float number = is_divisor(kind) ? 1.0f / given : given;
    if (std::isfinite(given) && given >= 0.0f && std::isfinite(number)) return number;
    std::string message =
        cat(where, is_divisor(kind) ? ": divisor " : ": scale ", float_text(given), " is not a finite number >= 0");
    if (is_divisor(kind) && given >= 0.0f && std::isfinite(given))
      message = cat(where, ": divisor ", float_text(given), " has no finite reciprocal");
    return fail(Code::invalid_argument, std::move(where), std::move(message));
  }

  // In either form, but not in both.
  Result<Numbers> numbers_of_forms(TensorKind kind) {
    MOE_TRY(const Numbers factors, numbers(kind));
    MOE_TRY(const Numbers divisors, numbers(other_form(kind)));
    if (!factors || !divisors) return factors ? factors : divisors;
    const Projection p = is_w13 ? Projection::up : Projection::down;
    const std::string where = cat(role_name(*role_of(p, other_form(kind))), "[", out.source.expert, "]");
    return fail(Code::unexpected_weight, where,
                cat(where, ": ", role_name(*role_of(p, kind)), " is there too, which says the same in another form"));
  }

  // Of the activations of gate and up or of down: multiplied by them, where a kernel quantizes activations.
  Check add_input_scale() {
    MOE_TRY(const Numbers scales, numbers_of_forms(TensorKind::input_scale));
    if (scales) out.source.input_scale = matrix.halves == 2 ? std::max((*scales)[0], (*scales)[1]) : (*scales)[0];
    return ok();
  }

  Check add_tensor_scale() {
    if (job.set->tensor(TensorKind::scale_2) == nullptr) return ok();
    MOE_TRY(const Numbers scales, numbers_of_forms(TensorKind::scale_2));
    if (!scales) {
      const std::string where =
          cat(role_name(is_w13 ? Role::w13_scale_2 : Role::w2_scale_2), "[", out.source.expert, "]");
      return fail(Code::missing_weight, where, where + " was never set");
    }
    for (std::size_t h = 0; h < 2; ++h) out.source.half[h].tensor_scale = (*scales)[h];
    return ok();
  }

  Check add_zeros() {
    SourceMatrix& m = out.source;
    if (job.set->tensor(TensorKind::zero_point) == nullptr) return ok();
    Check got = add({is_w13 ? Role::w13_zero_point : Role::w2_zero_point, TensorKind::zero_point, &SourceHalf::zeros,
                     &SourceHalf::zero_rows, &SourceHalf::zero_fields});
    if (!job.symmetric) {
      MOE_CHECK(std::move(got));
      m.has_zeros = true;
      return ok();
    }
    if (!got && (got.error().code == Code::missing_weight || got.error().code == Code::unexpected_weight)) return ok();
    MOE_CHECK(std::move(got));
    return check_constant_zeros();
  }

  // The group of each column, of the whole matrix or of gate and up, which must agree.
  Check add_g_idx() {
    SourceMatrix& m = out.source;
    if (job.set->tensor(TensorKind::g_idx) == nullptr) return ok();
    const RolePart part{is_w13 ? Role::w13_g_idx : Role::w2_g_idx, TensorKind::g_idx, nullptr};
    std::array<Taken, 2> taken;
    Check got = take(part, {part.role, m.expert, Half::whole}, matrix.halves, taken[0]);
    taken[1] = taken[0];
    if (is_missing(got) && matrix.halves == 2)
      for (std::size_t h = 0; h < 2; ++h) {
        Check half = take(part, {part.role, m.expert, h == 0 ? Half::w1 : Half::w3}, 1, taken[h]);
        if (h == 0 && is_missing(half)) break;
        MOE_CHECK(std::move(half));
        got = ok();
      }
    const bool none = !got && (got.error().code == Code::missing_weight || got.error().code == Code::unexpected_weight);
    if (none && !job.act_order) return ok();
    MOE_CHECK(std::move(got));
    return check_g_idx(taken[0].view, taken[1].view);
  }

  Check check_g_idx(const TensorView& first, const TensorView& second) {
    SourceMatrix& m = out.source;
    std::vector<std::int32_t> groups(usize(m.k));
    const auto at = [](const TensorView& t, std::int64_t k) {
      return load_once<std::int32_t>(t.data + k * t.strides[0] * 4);
    };
    const bool counts_on = !is_w13 && !job.act_order && m.k > 0 && at(first, 0) == job.w2_first_group;
    const std::int64_t begin = counts_on ? job.w2_first_group : 0, end = begin + m.groups;
    for (std::int64_t k = 0; k < m.k; ++k) {
      const std::int32_t g = at(first, k);
      const std::int64_t plain = job.act_order ? g : begin + k / (m.k / m.groups);
      std::string what;
      if (g < begin || g >= end)
        what = cat("group ", g, " is outside [", begin, ", ", end, ")");
      else if (at(second, k) != g)
        what = cat("gate has group ", g, ", up has ", at(second, k));
      else if (g != plain)
        what = cat("group ", g, ", expected ", plain, " without activation order");
      if (!what.empty()) {
        const std::string place = cat(is_w13 ? "w13" : "w2", "_g_idx[", m.expert, ",", k, "]");
        return fail(Code::invalid_argument, place, place + ": " + what);
      }
      groups[usize(k)] = g;
    }
    if (job.act_order) m.g_idx = std::move(groups);
    return ok();
  }
};

// What of the matrix follows from the job alone.
SourceMatrix described(const ConvertJob& job, const Matrix& matrix, std::int64_t expert, bool is_w13) {
  const Layout& l = job.layout;
  SourceMatrix m;
  m.codes = job.set->codes;
  m.order = job.set->order;
  m.scale_divisor = job.set->scale_divisor;
  m.is_w13 = is_w13;
  m.has_bias = matrix.has_bias;
  m.zero_points = job.zero_points;
  m.bf16_scales =
      matrix.scales == Scales::w4a8 && (job.groups.is_even() || !l.w13.groups.is_whole() || !l.w2.groups.is_whole());
  m.expert = expert;
  m.k = matrix.columns();
  m.groups = matrix.source_count();
  m.halves = matrix.halves;
  m.element = matrix.element;
  if (is_narrow(job.set->format)) m.narrow_bits = checkpoint_bits(job, matrix);
  return m;
}

}  // namespace

Result<LeasedMatrix> lease_matrix(const ConvertJob& job, const TensorSource& source, std::int64_t expert, bool is_w13) {
  const Matrix& matrix = is_w13 ? job.layout.w13 : job.layout.w2;
  LeasedMatrix out;
  out.leases.reserve(12);
  out.source = described(job, matrix, expert, is_w13);
  Gather gather{job, source, matrix, is_w13, out};
  MOE_CHECK(gather.add({is_w13 ? Role::w13_weight : Role::w2_weight, TensorKind::weight, &SourceHalf::codes,
                        &SourceHalf::code_rows, &SourceHalf::code_fields}));
  if (const CheckpointTensor* scales = job.set->tensor(TensorKind::scale)) {
    out.source.groups_of_scale = scales->axes[1] == Axis::group_pairs ? 2 : 1;
    out.source.rows_of_scale = gather.rows_of_element(*scales);
    MOE_CHECK(gather.add({is_w13 ? Role::w13_scale : Role::w2_scale, TensorKind::scale, &SourceHalf::scales,
                          &SourceHalf::scale_rows, &SourceHalf::scale_fields}));
  }
  MOE_CHECK(gather.add_tensor_scale());
  MOE_CHECK(gather.add_input_scale());
  MOE_CHECK(gather.add_zeros());
  MOE_CHECK(gather.add_g_idx());
  if (matrix.has_bias)
    MOE_CHECK(gather.add({is_w13 ? Role::w13_bias : Role::w2_bias, TensorKind::bias, &SourceHalf::bias}));
  return out;
}

Result<std::vector<std::int32_t>> lease_g_idx(const ConvertJob& job, const TensorSource& source, std::int64_t expert,
                                              bool is_w13) {
  const Matrix& matrix = is_w13 ? job.layout.w13 : job.layout.w2;
  LeasedMatrix out;
  out.source = described(job, matrix, expert, is_w13);
  MOE_CHECK((Gather{job, source, matrix, is_w13, out}.add_g_idx()));
  return std::move(out.source.g_idx);
}

std::uint64_t temp_bytes_per_worker(const ConvertJob& job) {
  std::uint64_t most = 0;
  for (const Matrix* m : {&job.layout.w13, &job.layout.w2}) {
    const MatrixSize size = source_size(job, *m, m->halves);
    const std::int64_t plain = is_value(m->element) ? 4 : 1;  // bytes of a code or value
    const bool by_panels = p16_element(job.layout.kind) && !job.layout.variant.bit_compat_vllm;
    const std::int64_t rows = by_panels ? kPanelRows : m->rows();  // that exist in the plain form
    std::uint64_t bytes =
        static_cast<std::uint64_t>(rows * (round_up(m->k, kCanonicalPad) * plain + 4 * m->group_count() + 4)) *
        (m->has_order ? 2 : 1);
    if (is_float_kind(job.layout.kind)) {
      const FloatMatrix to = float_matrix(job.layout, m == &job.layout.w13 ? Which::w13 : Which::w2);
      if (to.form->place == WeightPlace::marlin && !to.is_as_given())
        bytes += static_cast<std::uint64_t>(to.rows() * round_up(to.padded_k, kCanonicalPad));
    }
    for (const CheckpointTensor& row : job.set->tensors) {
      if (row.kind == TensorKind::bias && !m->has_bias) continue;
      if (row.kind == TensorKind::zero_point && job.symmetric) continue;
      if (row.kind == TensorKind::g_idx && !job.act_order) continue;
      if (is_number(row.kind)) continue;
      int bits = 0;
      for (DType t : row.dtypes) bits = std::max(bits, dtype_bits(t));
      std::uint64_t elements = 1;
      const TensorShape shape = row.role_shape(size);
      for (std::int64_t d : shape.span()) elements *= static_cast<std::uint64_t>(d);
      bytes += elements * static_cast<std::uint64_t>(bits) / 8;
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace moe::convert
