// The workspace of a call and the order of its phases: see engine.h.
#include "run/engine/engine.h"

#include <algorithm>
#include <new>

#include "base/index.h"
#include "run/engine/engine_run.h"

namespace moe::run {

// The weights of a unit of a node's list of all experts' matrices; nullptr beyond the last.
const std::byte* EngineRun::panels_at(Which which, int node, std::int64_t unit) const {
  const Range stripe = (which == Which::w13 ? up : down).stripe(node);
  const std::int64_t width = stripe.end - stripe.begin, order = unit / width;
  if (order >= w.plan.num_active) return nullptr;
  return panels(which, w.plan.active[w.plan.by_size[order]],
                (stripe.begin + unit % width) * (which == Which::w13 ? halves : 1));
}

Workspace carve_workspace(const EngineSetup& s, std::int64_t tokens, std::byte* base, bool rows_only) {
  Carver c(base);
  Workspace w;
  const PlanShape shape = s.plan_shape(tokens);
  const std::size_t slots = usize(shape.slots());
  const auto pad16 = [](std::int64_t n) { return round_up(n, kPanelRows); };
  w.act_ld = pad16(std::max(s.intermediate, s.mid_shape().k));
  w.row_ld = pad16(std::max(s.hidden, s.in_shape().k));
  w.out_ld = pad16(s.hidden);
  // First, so that calls of all sizes find their scratch where it is in the caches.
  const std::size_t items = usize(s.items_at_once);
  const std::size_t row_bytes = std::max(s.in_shape().row_bytes(), s.mid_shape().row_bytes());
  w.scratch.results = results_per_call(shape.slots(), row_bytes);
  w.scratch.bytes = round_up(usize(w.scratch.results) * sizeof(float) + s.kernel->scratch_bytes, std::size_t{64});
  w.holders = c.take<Bays::Holder>(items);
  w.scratch.base = c.take<std::byte>(items * w.scratch.bytes);
  w.shared = c.take<std::byte>(sizeof(EngineRun));
  w.plan = carve_plan(c, shape);
  w.in_tiles = c.take<std::byte>(slots * s.in_shape().row_bytes());
  w.mid_tiles = c.take<std::byte>(slots * s.mid_shape().row_bytes());
  w.act = c.take<float>(shape.slots() * w.act_ld);
  w.acc = c.take<float>(rows_only ? 0 : tokens * w.out_ld);
  const std::int64_t results = shape.slots() * w.out_ld;
  w.results = c.take<float>(s.expert_norm.empty() && !rows_only ? std::min(results, kKeptFloats) : results);
  w.unsummed = c.take<Unsummed>(ceil_div(w.out_ld / kPanelRows, kCallPanels));
  w.rows = c.take<float>(phase0_items(s, tokens) * 2 * w.row_ld);
  w.bytes = c.used();
  return w;
}

Check run_engine(const EngineSetup& s, Workspace& w, const EngineCall& c) {
  if (s.rounded) MOE_CHECK(round_weights(*s.kernel->steps, s.in_dtype, w.plan, c.parallel));
  Bays bays({w.holders, usize(s.items_at_once)});
  const EngineRun& run = *new (w.shared) EngineRun(s, w, c, bays);
  const auto blocks = static_cast<std::int32_t>(run.blocks());
  for (std::int32_t i = 0; i < w.plan.num_tiles; ++i) w.plan.pending[i].store(blocks, std::memory_order_relaxed);
  for (std::int64_t chunk = 0, panels = w.out_ld / kPanelRows; chunk * kCallPanels < panels; ++chunk)
    w.unsummed[chunk].count.store(
        static_cast<std::int32_t>(w.plan.num_active * std::min(kCallPanels, panels - chunk * kCallPanels)),
        std::memory_order_relaxed);
  const auto phase = [&](std::int64_t items, auto body) -> Check {
    MOE_CHECK(report(c.control, 0, 0));
    MOE_CHECK(c.parallel.each(items, body));
    return report(c.control, 0, 0);
  };
  const std::int64_t items = phase0_items(s, c.tokens);
  if (w.plan.num_slots <= kInlineSlots && !s.row_per_slot()) {  // one task: a barrier would cost more
    auto all = [&](std::size_t) {
      for (std::int64_t i = 0; i < items; ++i) run.quantize_rows(i, items);
    };
    MOE_CHECK(c.parallel.each(1, all));
  } else {
    MOE_CHECK(phase(items, [&](std::size_t i) { run.quantize_rows(static_cast<std::int64_t>(i), items); }));
  }
  Claims up(run.up, c.nodes), down(run.down, c.nodes);
  MOE_CHECK(phase(up.total(), [&](std::size_t i) {
    const ItemScratch scratch(run.bays, w.scratch);
    run.each_piece(Which::w13, up.take(i), [&](const ActiveExpert& e, Range units, const std::byte* after) {
      run.multiply_up(e, units, after, scratch);
    });
  }));
  if (c.rows_only && w.plan.num_active == 0) return ok();
  if (!run.keeps_results) return phase(down.total(), [&](std::size_t i) { run.multiply_columns(down.take(i)); });
  MOE_CHECK(phase(down.total(), [&](std::size_t i) {
    const ItemScratch scratch(run.bays, w.scratch);
    run.each_piece(Which::w2, down.take(i), [&](const ActiveExpert& e, Range units, const std::byte* after) {
      run.multiply_down(e, units, after, scratch);
    });
  }));
  if (s.expert_norm.empty()) return ok();
  MOE_CHECK(phase(w.plan.num_slots, [&](std::size_t i) { run.norm_slot(static_cast<std::int32_t>(i)); }));
  if (c.rows_only) return ok();
  return phase(ceil_div(w.out_ld / kPanelRows, kCallPanels), [&](std::size_t i) {
    if (!run.cancelled()) run.sums().sum_up(static_cast<std::int64_t>(i));
  });
}

}  // namespace moe::run
