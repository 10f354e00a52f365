// The routed sums of some output columns: begin, add by ascending expert, identity experts, factor, one rounding.
#include <algorithm>

#include "run/engine/engine_run.h"

namespace moe::run {

// The routed sums of a chunk of output columns, whose results are there.
void EngineRun::sum_up(std::int64_t chunk) const {
  const Plan& p = w.plan;
  const std::int64_t column = chunk * kCallPanels * kPanelRows,
                     columns = std::min(kCallPanels * kPanelRows, w.out_ld - column);
  float* acc = w.acc + column * c.tokens;
  start_sums(acc, column, columns);
  for (std::int32_t i = 0; i < p.num_active; ++i) {
    const std::int32_t slot = p.active[i].first_slot;
    s.kernel->steps->combine({.acc = acc,
                              .acc_ld = columns,
                              .tokens = p.slot_token + slot,
                              .weights = weights_of(slot),
                              .y = w.results + slot * w.out_ld + column,
                              .ld = w.out_ld,
                              .rows = p.active[i].slots,
                              .count = columns,
                              .rounded = s.rounded,
                              .dtype = s.in_dtype});
  }
  if (c.identity != nullptr) add_identity(acc, column, columns);
  write_out(acc, column, columns);
}

void EngineRun::start_sums(float* acc, std::int64_t column, std::int64_t columns) const {
  if (!c.accumulate || s.output_scale != 1.0f) {
    std::fill_n(acc, c.tokens * columns, 0.0f);
    return;
  }
  const std::int64_t size = s.out_dtype == DType::f32 ? 4 : 2;
  const std::int64_t valid = std::min(columns, s.hidden - column);
  for (std::int64_t t = 0; t < c.tokens; ++t)
    s.kernel->steps->widen(s.out_dtype, c.out.data + (t * c.out.strides[0] + column) * size, valid, acc + t * columns);
}

// The tokens themselves, as the output of one more expert after all others.
void EngineRun::add_identity(float* acc, std::int64_t column, std::int64_t columns) const {
  const std::int64_t size = s.in_dtype == DType::f32 ? 4 : 2;
  alignas(64) float x[kCallPanels * kPanelRows];
  for (std::int32_t t = 0; t < c.tokens; ++t) {
    if (c.identity[t] == 0.0f) continue;
    for (std::int64_t i = 0; i < columns; i += std::ssize(x)) {
      const std::int64_t count = std::min<std::int64_t>(std::ssize(x), columns - i);
      const std::int64_t valid = std::clamp<std::int64_t>(s.hidden - column - i, 0, count);
      std::fill(x + valid, x + count, 0.0f);
      const std::int64_t at = t * c.hidden.strides[0] + column + i;
      s.kernel->steps->widen(s.in_dtype, c.hidden.data + at * size, valid, x);
      s.kernel->steps->combine({.acc = acc + i,
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

void EngineRun::write_out(float* acc, std::int64_t column, std::int64_t columns) const {
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
          s.kernel->steps->widen(s.out_dtype, dst + i * size, 1, &before);
          row[i] = before + row[i];
        }
      }
    }
    s.kernel->steps->narrow(s.out_dtype, row, valid, dst);
  }
}

}  // namespace moe::run
