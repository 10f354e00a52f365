// Phase 1: gate and up panels, activation. The thread that finishes a tile's last block quantizes its middle rows.
#include <algorithm>

#include "run/engine/engine_run.h"

namespace moe::run {

void EngineRun::multiply_up(const ActiveExpert& e, Range blocks, const std::byte* after,
                            const ItemScratch& scratch) const {
  const Plan& p = w.plan;
  const P16& m = s.w13;
  const std::int64_t step = panels_per_call(e, m.panel_bytes(), in_row) / halves;
  const PanelBay bay(s.source);
  float* const y13 = scratch.results();
  for (std::int64_t block = blocks.begin; block < blocks.end; block += step) {
    const std::int64_t count = std::min(step, blocks.end - block), ld = count * halves * kPanelRows;
    const std::byte* w13 = panels(bay, Which::w13, e, block * halves, count * halves);
    const std::byte* next = block + count < blocks.end ? panels(Which::w13, e, (block + count) * halves) : after;
    for (std::int32_t i = 0; i < e.tiles; ++i) {
      if (cancelled()) return;
      const RowTile& t = p.tiles[e.first_tile + i];
      s.kernel->gemm({.matrix = &m,
                      .panels = w13,
                      .panel_count = count * halves,
                      .tile = in_tile(t),
                      .n = t.rows,
                      .shape = in,
                      .out = y13,
                      .ld = ld,
                      .next = next,
                      .first = block * halves,
                      .part = i,
                      .parts = e.tiles,
                      .prefetch = s.prefetch,
                      .scratch = scratch.of_gemm()});
      ActivateArgs a = s.activate;
      a.y13 = y13;
      a.ld = ld;
      a.rows = t.rows;
      a.blocks = count;
      a.out = w.act + t.slot * w.act_ld + block * kPanelRows;
      a.out_ld = w.act_ld;
      s.kernel->steps->activate(a);
    }
  }
  const auto done = static_cast<std::int32_t>(blocks.end - blocks.begin);
  for (std::int32_t i = 0; i < e.tiles; ++i)
    if (p.pending[e.first_tile + i].fetch_sub(done, std::memory_order_acq_rel) == done)
      finish_tile(e, p.tiles[e.first_tile + i]);
}

void EngineRun::finish_tile(const ActiveExpert& e, const RowTile& t) const {
  const std::int32_t* list = mid.k == s.intermediate ? nullptr : columns(Which::w2, e);
  for (std::int32_t r = 0; r < t.rows; ++r) {
    float* row = w.act + (t.slot + r) * w.act_ld;
    multiply_row(row, s.input_factors[1]);
    if (list != nullptr) spread_row(row, list);
    s.kernel->quantize({mid, row, s.mid_rule, {mid_tile(t), t.rows, r}, s.input_scale(Which::w2, e.local)});
  }
}

// A complete middle row takes the places of its columns, from the last one on: none lies before where it was.
void EngineRun::spread_row(float* row, const std::int32_t* columns) const {
  std::int64_t from = s.intermediate;
  for (std::int64_t k = mid.k; k-- > 0;) row[k] = columns[k] < 0 ? 0.0f : row[--from];
}

}  // namespace moe::run
