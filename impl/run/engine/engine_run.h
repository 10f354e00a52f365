// One call of the engine: what its phases share, and where their work lies in the weights and the workspace. Each phase
// is a file (see the declarations).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/index.h"
#include "run/context/scratch.h"
#include "run/engine/engine.h"

namespace moe::run {

constexpr std::size_t kCallBytes = 512 * 1024;  // its panels, and those that are read ahead meanwhile, stay in L2
constexpr std::int64_t kMaxTileRows = 128;      // two panels always fit
constexpr std::int64_t kFewResults = 4096;      // of a call: they stay in L1
static_assert(2 * kPanelRows * kMaxTileRows <= kFewResults);
// An expert whose tiles exceed L2 gets larger calls: all of its tiles meet the panels of a call, so they are read from
// memory less often.
constexpr std::size_t kTilesBytes = 1536 * 1024;
constexpr std::int64_t kManyResults = 16384;

// Floats of a gemm call with an expert that has so many slots. row_bytes: of a tile.
inline std::int64_t results_per_call(std::int64_t slots, std::size_t row_bytes) {
  return usize(slots) * row_bytes > kTilesBytes ? kManyResults : kFewResults;
}
inline std::int64_t panels_per_call(const ActiveExpert& e, std::size_t panel_bytes, std::size_t row_bytes) {
  const std::int64_t results = results_per_call(e.slots, row_bytes);
  const std::int64_t rows = ceil_div(e.slots, e.tiles);  // of its largest tile
  const auto in_cache = static_cast<std::int64_t>(kCallBytes / panel_bytes);
  return std::clamp<std::int64_t>(std::min(results / (kPanelRows * rows), in_cache) / 2 * 2, 2, kCallPanels);
}

constexpr std::int64_t kRowItems = 64;     // items of phase 0 at most
constexpr std::int64_t kInlineSlots = 16;  // below this phase 0 is cheaper than a barrier

// Where the slots of a token share a row, a token is one item.
inline std::int64_t phase0_units(const EngineSetup& s, std::int64_t tokens) {
  return s.row_per_slot() ? tokens * s.top_k : tokens;
}
inline std::int64_t phase0_items(const EngineSetup& s, std::int64_t tokens) {
  return std::min(phase0_units(s, tokens), kRowItems);
}

// The routed sums of a chunk of output columns (sums.cpp).
struct Sums {
  const SumRules& s;
  const EngineCall& c;
  GivenRows rows;
  float* all;  // [tokens * row_floats()]

  void sum_up(std::int64_t chunk) const;
  void start(float* acc, std::int64_t column, std::int64_t columns) const;
  void add_identity(float* acc, std::int64_t column, std::int64_t columns) const;
  void write_out(float* acc, std::int64_t column, std::int64_t columns) const;
};

// Everything the phases share.
struct EngineRun {
  const EngineSetup& s;
  Workspace& w;
  const EngineCall& c;
  Bays& bays;  // of scratch
  TileShape in, mid;
  std::size_t in_row, mid_row;  // bytes of a tile row
  std::int64_t halves;          // panels of a block of w13
  // Several threads, few slots: phase 2 works expert by expert, as phase 1 does, and stores each slot's result; the
  // thread that finishes the last panels of a range of columns adds them up. Otherwise an item is a range of columns
  // over all experts, whose sums stay in L2; each jump to the next matrix costs as much as reading 20 KB.
  bool keeps_results;
  Stripes up, down;  // phase 1: blocks of w13; phase 2: panels of w2

  EngineRun(const EngineSetup& setup, Workspace& work, const EngineCall& call, Bays& scratch)
      : s(setup),
        w(work),
        c(call),
        bays(scratch),
        in(setup.in_shape()),
        mid(setup.mid_shape()),
        in_row(in.row_bytes()),
        mid_row(mid.row_bytes()),
        halves(setup.w13.halves),
        keeps_results(w.plan.num_active > 0 && (c.rows_only || !s.expert_norm.empty() ||
                                                (threads() > 1 && w.plan.num_slots * w.out_ld <= kKeptFloats))),
        up(expert_work(blocks(), 1)),
        down(keeps_results ? expert_work(s.w2.panels(), 2) : column_work()) {}

  std::int64_t threads() const { return std::max(1, c.parallel.num_threads); }
  std::int64_t blocks() const { return s.w13.panels() / halves; }
  // Items are pieces of the list of all experts' matrices.
  PhaseWork expert_work(std::int64_t units, std::int64_t grain) const {
    const Plan& p = w.plan;
    // A unit costs at least its reading, as much as 7 rows (AVX-512) to 50 (AMX): calculated for int4.
    constexpr std::int32_t kReading = 32;
    const auto cost = [&](std::int32_t i) -> std::int64_t { return std::max(p.active[i].slots, kReading); };
    std::int64_t total = 0;
    for (std::int32_t i = 0; i < p.num_active; ++i) total += cost(i);
    return {.units = units,
            .times = p.num_active,
            .grain = grain,
            .most = p.num_active == 0 ? 1 : fair_units(units, cost(p.by_size[0]), total, threads()),
            .threads = threads(),
            .nodes = list_count(c.nodes)};
  }
  // Items are output columns.
  PhaseWork column_work() const {
    return {.units = s.w2.panels(),
            .times = 1,
            .grain = 2,
            .most = max_out_panels(),
            .threads = threads(),
            .nodes = list_count(c.nodes)};
  }

  // An item walks the middle tiles of all experts. Wide items walk them less often, and an expert's tiles meet many
  // panels before they leave the caches; that weighs more than sums that stay in L2.
  std::int64_t max_out_panels() const {
    constexpr std::int64_t kAccFloats = 1024 * 1024;
    return std::max<std::int64_t>(2, kAccFloats / (std::max<std::int64_t>(1, c.tokens) * kPanelRows) / 2 * 2);
  }

  const std::byte* expert(const ActiveExpert& e) const { return s.packed->expert(e.local); }
  // What gemm reads from panel `p` on: of p16 that panel, of named layouts the matrix; nullptr where panels are made.
  const std::byte* panels(Which which, const ActiveExpert& e, std::int64_t p) const {
    if (s.source != nullptr) return nullptr;
    const Layout& l = s.layout();
    if (!l.tensors.empty()) {
      const LayoutTensor& t = l.tensors[which == Which::w13 ? 0 : 1];
      return s.packed->payload.data() + t.offset + t.bytes * usize(e.local);
    }
    return expert(e) + (which == Which::w13 ? 0 : s.w13.bytes()) + usize(p) * s.matrix(which).panel_bytes();
  }
  const std::byte* panels(const PanelBay& bay, Which which, const ActiveExpert& e, std::int64_t p,
                          std::int64_t count) const {
    return s.source == nullptr ? panels(which, e, p) : bay.make(which, e.local, p, count);
  }
  std::byte* in_tile(const RowTile& t) const { return w.in_tiles + usize(home(t.slot)) * in_row; }
  std::byte* mid_tile(const RowTile& t) const { return w.mid_tiles + usize(t.slot) * mid_row; }
  // The list of a matrix: the input's column of each of its own, -1: none; nullptr: as they are.
  const std::int32_t* columns(Which which, const ActiveExpert& e) const {
    const P16& m = s.matrix(which);
    if (!m.has_order) return nullptr;
    return reinterpret_cast<const std::int32_t*>(panels(which, e, 0) + m.order_offset());
  }
  const ActiveExpert& expert_of(std::int32_t slot) const {
    const Plan& p = w.plan;
    return *(std::upper_bound(p.active, p.active + p.num_active, slot,
                              [](std::int32_t v, const ActiveExpert& a) { return v < a.first_slot; }) -
             1);
  }
  // The slot whose place holds a slot's row. A token's slots that are alone in their tiles share the first one's: in
  // decode a row is written once, and every thread finds it in its caches from the second expert on.
  std::int32_t home(std::int32_t slot) const {
    const Plan& p = w.plan;
    const auto alone = [&](std::int32_t other) { return other >= 0 && p.tiles[p.slot_tile[other]].rows == 1; };
    if (s.row_per_slot() || !alone(slot)) return slot;
    const std::int32_t* const slots = p.slot_of + p.slot_token[slot] * s.top_k;
    return *std::find_if(slots, slots + s.top_k, alone);
  }
  // Router weights from this slot on; nullptr: they are in the input already.
  const float* weights_of(std::int32_t slot) const { return s.weight_on_input ? nullptr : w.plan.slot_weight + slot; }
  bool cancelled() const { return c.control != nullptr && c.control->cancelled(); }

  // piece(expert, units of its matrix, where reading goes on) for every expert that an item has a piece of.
  template <class F>
  void each_piece(Which which, const Claim& claim, F piece) const;
  const std::byte* panels_at(Which which, int node, std::int64_t unit) const;

  // phase_rows.cpp: phase 0
  void quantize_rows(std::int64_t item, std::int64_t items) const;
  TilePlace place_of_slot(std::int32_t slot) const;
  void scale_row(float* x, float weight) const;
  static void multiply_row(float* row, std::span<const float> factors);
  const float* reorder_row(float* x, const std::int32_t* columns) const;

  // phase_up.cpp: phase 1
  void multiply_up(const ActiveExpert& e, Range blocks, const std::byte* after, const ItemScratch& scratch) const;
  void finish_tile(const ActiveExpert& e, const RowTile& t) const;
  void spread_row(float* row, const std::int32_t* columns) const;

  // phase_down.cpp: phase 2, by experts or by output columns
  void multiply_down(const ActiveExpert& e, Range panels, const std::byte* after, const ItemScratch& scratch) const;
  void multiply_columns(const Claim& claim) const;

  // norm.cpp: between phase 2 and the sums
  void norm_slot(std::int32_t slot) const;

  Sums sums() const {
    const Plan& p = w.plan;
    return {s,
            c,
            {p.active, p.num_active, p.slot_token, s.weight_on_input ? nullptr : p.slot_weight, w.results, w.out_ld},
            w.acc};
  }
};

static_assert(std::is_trivially_destructible_v<EngineRun>);  // it lies in the workspace

template <class F>
void EngineRun::each_piece(Which which, const Claim& claim, F piece) const {
  if (claim.item < 0) return;
  const Stripes& stripes = which == Which::w13 ? up : down;
  const Range stripe = stripes.stripe(claim.node), all = stripes.item(claim.node, claim.item);
  const std::int64_t width = stripe.end - stripe.begin;
  // Items are claimed in order, so a thread's next item is probably this one plus the number of threads on its node.
  const std::int64_t likely =
      stripes.item(claim.node, claim.item + std::max<std::int64_t>(1, threads() / stripes.nodes())).begin;
  for (std::int64_t unit = all.begin, end; unit < all.end; unit = end) {
    end = std::min(all.end, (unit / width + 1) * width);
    const std::int64_t begin = stripe.begin + unit % width;
    piece(w.plan.active[w.plan.by_size[unit / width]], Range{begin, begin + end - unit},
          panels_at(which, claim.node, end < all.end ? end : likely));
  }
}

}  // namespace moe::run
