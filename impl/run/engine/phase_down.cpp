// Phase 2: panels of w2. By experts, where the thread that finishes some output columns sums them up; or by columns,
// whose sums are made on the way.
#include <algorithm>

#include "run/engine/engine_run.h"

namespace moe::run {
namespace {

// The sums that a tile will be added to: they lie apart, beyond L2 when there are many tokens. always_inline: GCC drops
// calls of a function that only prefetches.
[[gnu::always_inline]] inline void prefetch_sums(const float* acc, std::int64_t ld, const std::int32_t* tokens,
                                                 int rows, std::int64_t count) {
  for (int r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < count; i += 16) __builtin_prefetch(acc + tokens[r] * ld + i, 1);
}

}  // namespace

// The results of an expert's slots in some panels.
void EngineRun::multiply_down(const ActiveExpert& e, Range all, const std::byte* after,
                              const ItemScratch& scratch) const {
  const P16& m = s.w2;
  const std::int64_t most = panels_per_call(e, m.panel_bytes(), mid_row);
  const PanelBay bay(s.source);
  for (std::int64_t panel = all.begin, end; panel < all.end; panel = end) {
    const std::int64_t chunk = panel / kCallPanels;
    end = std::min({panel + most, (chunk + 1) * kCallPanels, all.end});
    const std::byte* w2 = panels(bay, Which::w2, e, panel, end - panel);
    const std::byte* next = end < all.end ? panels(Which::w2, e, end) : after;
    for (std::int32_t i = 0; i < e.tiles; ++i) {
      if (cancelled()) return;
      const RowTile& t = w.plan.tiles[e.first_tile + i];
      float* results = w.results + t.slot * w.out_ld + panel * kPanelRows;
      s.kernel->gemm({.matrix = &m,
                      .panels = w2,
                      .panel_count = end - panel,
                      .tile = mid_tile(t),
                      .n = t.rows,
                      .shape = mid,
                      .out = results,
                      .ld = w.out_ld,
                      .next = next,
                      .first = panel,
                      .part = i,
                      .parts = e.tiles,
                      .prefetch = s.prefetch,
                      .scratch = scratch.of_gemm()});
    }
    const auto done = static_cast<std::int32_t>(end - panel);
    const bool last = w.unsummed[chunk].count.fetch_sub(done, std::memory_order_acq_rel) == done;
    if (last && s.expert_norm.empty() && !c.rows_only) sums().sum_up(chunk);
  }
}

// All experts' results in some output columns, and their sums.
void EngineRun::multiply_columns(const Claim& claim) const {
  if (claim.item < 0 || cancelled()) return;
  const Plan& p = w.plan;
  const P16& m = s.w2;
  const Range stripe = down.stripe(claim.node), part = down.item(claim.node, claim.item);
  const std::int64_t begin = stripe.begin + part.begin, end = stripe.begin + part.end;
  const std::int64_t column = begin * kPanelRows, columns = (end - begin) * kPanelRows;
  const Sums sum = sums();
  float* acc = w.acc + column * c.tokens;
  sum.start(acc, column, columns);
  const ItemScratch scratch(bays, w.scratch);
  const PanelBay bay(s.source);
  float* const y = scratch.results();
  for (std::int32_t i = 0; i < p.num_active; ++i) {
    if (cancelled()) return;
    const ActiveExpert& e = p.active[i];
    const std::byte* after = i + 1 < p.num_active ? panels(Which::w2, p.active[i + 1], begin) : nullptr;
    const std::int64_t step = panels_per_call(e, m.panel_bytes(), mid_row);
    for (std::int64_t panel = begin; panel < end; panel += step) {
      const std::int64_t count = std::min(step, end - panel), ld = count * kPanelRows;
      const std::byte* w2 = panels(bay, Which::w2, e, panel, count);
      const std::byte* next = panel + count < end ? panels(Which::w2, e, panel + count) : after;
      for (std::int32_t j = 0; j < e.tiles; ++j) {
        const RowTile& t = p.tiles[e.first_tile + j];
        prefetch_sums(acc + (panel - begin) * kPanelRows, columns, p.slot_token + t.slot, t.rows, ld);
        s.kernel->gemm({.matrix = &m,
                        .panels = w2,
                        .panel_count = count,
                        .tile = mid_tile(t),
                        .n = t.rows,
                        .shape = mid,
                        .out = y,
                        .ld = ld,
                        .next = next,
                        .first = panel,
                        .part = j,
                        .parts = e.tiles,
                        .prefetch = s.prefetch,
                        .scratch = scratch.of_gemm()});
        s.kernel->steps->combine({.acc = acc + (panel - begin) * kPanelRows,
                                  .acc_ld = columns,
                                  .tokens = p.slot_token + t.slot,
                                  .weights = weights_of(t.slot),
                                  .y = y,
                                  .ld = ld,
                                  .rows = t.rows,
                                  .count = ld,
                                  .rounded = s.rounded,
                                  .dtype = s.in_dtype});
      }
    }
  }
  if (c.identity != nullptr) sum.add_identity(acc, column, columns);
  sum.write_out(acc, column, columns);
}

}  // namespace moe::run
