// See told_twice.h.
#include "weights/told_twice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "base/decimal.h"
#include "base/float_formats.h"
#include "base/index.h"
#include "base/load.h"
#include "base/number_at.h"
#include "base/text.h"
#include "scheme/tensor_check.h"

namespace moe::weights {
namespace {

// Checkpoints have int64, vLLM's layers the model's type.
constexpr std::array kShapeTypes = {DType::i64, DType::i32, DType::f32, DType::f16, DType::bf16};

double number_at(DType type, const std::byte* p) {
  switch (type) {
    case DType::i64:
      return static_cast<double>(load<std::int64_t>(p));
    case DType::i32:
      return load<std::int32_t>(p);
    default:
      return static_cast<double>(load_float(type, p));
  }
}

// As the type holds it.
double held_in(DType type, std::int64_t n) {
  const auto x = static_cast<float>(n);
  switch (type) {
    case DType::f32:
      return static_cast<double>(x);
    case DType::f16:
      return static_cast<double>(f16_to_f32(f32_to_f16(x)));
    case DType::bf16:
      return static_cast<double>(bf16_to_f32(f32_to_bf16(x)));
    default:
      return static_cast<double>(n);
  }
}

// The first is that of the tensor as it is set.
std::vector<std::array<std::int64_t, 2>> right_shapes(const LayerFacts& facts, Role role, Half half) {
  const Config& c = facts.config();
  const std::int64_t part = c.intermediate_size_per_partition, whole = c.intermediate_size;
  std::vector<std::array<std::int64_t, 2>> shapes;
  for (const std::int64_t width : {part, whole}) {
    if (!is_w13(role)) {
      shapes.push_back({c.hidden_dim, width});
      continue;
    }
    if (facts.gated() && half == Half::whole) shapes.push_back({2 * width, c.hidden_dim});
    shapes.push_back({width, c.hidden_dim});
  }
  return shapes;
}

std::string text_of(double x) { return std::isfinite(x) ? decimal(x) : "no number"; }

}  // namespace

Check check_shapes(const LayerFacts& facts, const NamedRole& role, const TensorView& given, const Place* one) {
  const std::string name = one == nullptr ? role.name : place_name(role, one->expert, one->half);
  const Half half = one == nullptr ? Half::whole : one->half;
  const Dims shape = one == nullptr ? facts.stacked_shape(role.role) : facts.shape(role.role, half);
  if (std::find(kShapeTypes.begin(), kShapeTypes.end(), given.dtype) == kShapeTypes.end())
    return fail(Code::dtype, name, cat(name, ": expected i64, i32, f32, f16 or bf16, got ", dtype_name(given.dtype)));
  MOE_TRY(const CheckpointTensor* row, facts.tensor_of(role));
  CheckpointTensor numbers = *row;
  numbers.dtypes = {given.dtype};
  MOE_CHECK(check_tensor(given, numbers, shape.span(), name));
  const auto right = right_shapes(facts, role.role, half);
  for (std::int64_t e = 0; e < (one == nullptr ? given.shape[0] : 1); ++e) {
    const TensorView t = one == nullptr ? slice0(given, e) : given;
    const auto number = [&](std::int64_t i) {
      return number_at(t.dtype, t.data + i * t.strides[0] * (dtype_bits(t.dtype) / 8));
    };
    const auto is_told = [&](const std::array<std::int64_t, 2>& s) {
      return number(0) == held_in(t.dtype, s[0]) && number(1) == held_in(t.dtype, s[1]);
    };
    if (std::any_of(right.begin(), right.end(), is_told)) continue;
    const std::string where = one == nullptr ? place_name(role, at(facts.experts(), e), half) : name;
    return fail(Code::shape, where,
                cat(where, ": says [", text_of(number(0)), ", ", text_of(number(1)),
                    "], the weights of this config have ", shape_text(right[0])));
  }
  return ok();
}

namespace {

// What a column's group is where nothing says so, or as g_idx says; the halves of a w13 have the same.
Result<std::vector<std::int64_t>> groups_of(const WeightSet& set, const LayerFacts& facts, const SortIndices& which) {
  const std::int64_t k = facts.shape(which.role, Half::whole).d[0];
  std::vector<std::int64_t> groups(usize(k));
  for (const Half half : {Half::whole, Half::w1, Half::w3}) {
    auto given = set.get({which.groups, which.expert, half});
    if (!given && given.error().code == Code::missing_weight) continue;
    if (!given) return given.error();
    for (std::int64_t i = 0; i < k; ++i)
      groups[usize(i)] = load<std::int32_t>(given->view.data + i * given->view.strides[0] * 4);
    return groups;
  }
  const std::int64_t size = facts.config().weight_groups().size_in(k);
  for (std::int64_t i = 0; i < k; ++i) groups[usize(i)] = i / size;
  return groups;
}

}  // namespace

Check check_sorted(const WeightSet& set, const LayerFacts& facts, const SortIndices& which) {
  std::optional<std::vector<std::int64_t>> groups;
  for (const Half half : {Half::whole, Half::w1, Half::w3}) {
    auto given = set.get({which.role, which.expert, half});
    if (!given && given.error().code == Code::missing_weight) continue;
    MOE_TRY(const TensorLease lease, std::move(given));
    if (!groups) {
      MOE_TRY(groups, groups_of(set, facts, which));
    }
    const auto columns = std::ssize(*groups);
    std::vector<bool> seen(usize(columns));
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < columns; ++i) {
      const std::int64_t column = load<std::int32_t>(lease.view.data + i * lease.view.strides[0] * 4);
      std::string what;
      if (column < 0 || column >= columns)
        what = cat("column ", column, " is outside [0, ", columns, ")");
      else if (seen[usize(column)])
        what = cat("column ", column, " is there twice");
      else if (i > 0 && at(*groups, column) < at(*groups, before))
        what = cat("column ", column, " of group ", at(*groups, column), " is behind column ", before, " of group ",
                   at(*groups, before), ": this does not sort ", role_name(which.groups));
      if (!what.empty()) {
        const std::string place = cat(which.name, "[", which.expert, ",", i, "]");
        return fail(Code::invalid_argument, place,
                    cat(place, ": ", what, "; the list may be left out, columns are sorted without it"));
      }
      seen[usize(column)] = true;
      before = column;
    }
  }
  return ok();
}

}  // namespace moe::weights
