// The routed sums of some output columns: begin, add by ascending expert, identity experts, factor, one rounding.
#include <algorithm>

#include "run/engine/engine_run.h"

namespace moe::run {

// The routed sums of a chunk of output columns, whose results are there.
void Sums::sum_up(std::int64_t chunk) const {
  const std::int64_t column = chunk * kCallPanels * kPanelRows,
                     columns = std::min(kCallPanels * kPanelRows, s.row_floats() - column);
  float* acc = all + column * c.tokens;
  start(acc, column, columns);
  for (std::int32_t i = 0; i < rows.num_active; ++i) {
    const std::int32_t slot = rows.active[i].first_slot;
    s.steps->combine({.acc = acc,
                      .acc_ld = columns,
                      .tokens = rows.slot_token + slot,
                      .weights = rows.slot_weight == nullptr ? nullptr : rows.slot_weight + slot,
                      .y = rows.results + slot * rows.ld + column,
                      .ld = rows.ld,
                      .rows = rows.active[i].slots,
                      .count = columns,
                      .rounded = s.rounded,
                      .dtype = s.in_dtype});
  }
  if (c.identity != nullptr) add_identity(acc, column, columns);
  write_out(acc, column, columns);
}

void Sums::start(float* acc, std::int64_t column, std::int64_t columns) const {
  if (!c.accumulate || s.output_scale != 1.0f) {
    std::fill_n(acc, c.tokens * columns, 0.0f);
    return;
  }
  const std::int64_t size = s.out_dtype == DType::f32 ? 4 : 2;
  const std::int64_t valid = std::min(columns, s.hidden - column);
  for (std::int64_t t = 0; t < c.tokens; ++t)
    s.steps->widen(s.out_dtype, c.out.data + (t * c.out.strides[0] + column) * size, valid, acc + t * columns);
}

// The tokens themselves, as the output of one more expert after all others.
void Sums::add_identity(float* acc, std::int64_t column, std::int64_t columns) const {
  const std::int64_t size = s.in_dtype == DType::f32 ? 4 : 2;
  alignas(64) float x[kCallPanels * kPanelRows];
  for (std::int32_t t = 0; t < c.tokens; ++t) {
    if (c.identity[t] == 0.0f) continue;
    for (std::int64_t i = 0; i < columns; i += std::ssize(x)) {
      const std::int64_t count = std::min<std::int64_t>(std::ssize(x), columns - i);
      const std::int64_t valid = std::clamp<std::int64_t>(s.hidden - column - i, 0, count);
      std::fill(x + valid, x + count, 0.0f);
      const std::int64_t at = t * c.hidden.strides[0] + column + i;
      s.steps->widen(s.in_dtype, c.hidden.data + at * size, valid, x);
      s.steps->combine({.acc = acc + i,
                        .acc_ld = columns,
                        .tokens = &t,
                        .weights = c.identity + t,
                        .y = x,
                        .ld = count,
                        .rows = 1,
                        .count = count,
                        .rounded = s.rounded,
                        .dtype = s.in_dtype});
    }
  }
}

void Sums::write_out(float* acc, std::int64_t column, std::int64_t columns) const {
  const std::int64_t size = s.out_dtype == DType::f32 ? 4 : 2;
  const std::int64_t valid = std::min(columns, s.hidden - column);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    float* row = acc + t * columns;
    std::byte* dst = c.out.data + (t * c.out.strides[0] + column) * size;
    if (s.output_scale != 1.0f) {
      for (std::int64_t i = 0; i < valid; ++i) {
        row[i] = row[i] * s.output_scale;
        if (c.accumulate) {
          float before;
          s.steps->widen(s.out_dtype, dst + i * size, 1, &before);
          row[i] = before + row[i];
        }
      }
    }
    s.steps->narrow(s.out_dtype, row, valid, dst);
  }
}

Check sum_results(const SumRules& rules, const GivenRows& rows, float* acc, const EngineCall& call) {
  const Sums sums{rules, call, rows, acc};
  auto body = [&](std::size_t i) { sums.sum_up(static_cast<std::int64_t>(i)); };
  return call.parallel.each(ceil_div(rules.row_floats() / kPanelRows, kCallPanels), body);
}

}  // namespace moe::run
