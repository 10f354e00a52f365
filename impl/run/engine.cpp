// The three phases of a layer, and the order of their float operations: see engine.h.
#include "run/engine.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "run/scratch.h"

namespace moe {
namespace {

constexpr std::size_t kCallBytes = 512 * 1024;  // its panels, and those that are read ahead meanwhile, stay in L2
constexpr std::int64_t kMaxTileRows = 128;      // two panels always fit
static_assert(2 * kPanelRows * kMaxTileRows <= kCallResults);

std::int64_t panels_per_call(const ActiveExpert& e, std::size_t panel_bytes) {
  const std::int64_t rows = ceil_div(e.slots, e.tiles);  // of its largest tile
  const auto in_cache = static_cast<std::int64_t>(kCallBytes / panel_bytes);
  return std::clamp<std::int64_t>(std::min(kCallResults / (kPanelRows * rows), in_cache) / 2 * 2, 2, kCallPanels);
}

constexpr std::int64_t kRowItems = 64;     // items of phase 0 at most
constexpr std::int64_t kInlineSlots = 16;  // below this phase 0 is cheaper than a barrier

// Where the slots of a token share a row, a token is one item.
std::int64_t phase0_units(const EngineSetup& s, std::int64_t tokens) {
  return s.row_per_slot() ? tokens * s.top_k : tokens;
}
std::int64_t phase0_items(const EngineSetup& s, std::int64_t tokens) {
  return std::min(phase0_units(s, tokens), kRowItems);
}

// Everything the phases share.
struct Run {
  const EngineSetup& s;
  Workspace& w;
  const EngineCall& c;
  Bays& bays;  // of scratch
  TileShape in, mid;
  std::size_t in_row, mid_row;  // bytes of a tile row
  std::int64_t halves;          // panels of a block of w13
  // Several threads and few slots: phase 2 walks one expert's matrix after another, as phase 1 does, and keeps what
  // each slot gets; whoever finishes the last panels of some output columns sums them up. Else an item is some output
  // columns of all experts, whose sums stay in L2; it begins anew in every matrix, which costs the time of 20 KB.
  bool keeps_results;
  Stripes up, down;  // phase 1: blocks of w13; phase 2: panels of w2

  Run(const EngineSetup& setup, Workspace& work, const EngineCall& call, Bays& scratch)
      : s(setup),
        w(work),
        c(call),
        bays(scratch),
        in(setup.in_shape()),
        mid(setup.mid_shape()),
        in_row(in.row_bytes()),
        mid_row(mid.row_bytes()),
        halves(setup.layout().w13.halves),
        keeps_results(threads() > 1 && w.plan.num_active > 0 && w.plan.num_slots * w.out_ld <= kKeptFloats),
        up(expert_work(blocks(), 1)),
        down(keeps_results ? expert_work(s.layout().w2.panels(), 2) : column_work()) {}

  std::int64_t threads() const { return std::max(1, c.parallel.num_threads); }
  std::int64_t blocks() const { return s.layout().w13.panels() / halves; }
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
    return {.units = s.layout().w2.panels(),
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
  const std::byte* panels(Matrix which, const ActiveExpert& e, std::int64_t p) const {
    if (s.source != nullptr) return nullptr;
    const Layout& l = s.layout();
    if (!l.tensors.empty()) {
      const LayoutTensor& t = l.tensors[which == Matrix::w13 ? 0 : 1];
      return s.packed->payload.data() + t.offset + t.bytes * static_cast<std::size_t>(e.local);
    }
    return expert(e) + (which == Matrix::w13 ? 0 : l.w2_offset()) +
           static_cast<std::size_t>(p) * l.matrix(which).panel_bytes();
  }
  const std::byte* panels(const PanelBay& bay, Matrix which, const ActiveExpert& e, std::int64_t p,
                          std::int64_t count) const {
    return s.source == nullptr ? panels(which, e, p) : bay.make(which, e.local, p, count);
  }
  std::byte* in_tile(const Tile& t) const { return w.in_tiles + static_cast<std::size_t>(home(t.slot)) * in_row; }
  std::byte* mid_tile(const Tile& t) const { return w.mid_tiles + static_cast<std::size_t>(t.slot) * mid_row; }
  // The list of a matrix: the input's column of each of its own, -1: none; nullptr: as they are.
  const std::int32_t* columns(Matrix which, const ActiveExpert& e) const {
    const P16Matrix& m = s.layout().matrix(which);
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
  bool cancelled() const { return c.control != nullptr && c.control->cancelled(); }

  void quantise_rows(std::int64_t item, std::int64_t items) const;
  void scale_row(float* x, float weight) const;
  const float* reorder_row(float* x, const std::int32_t* columns) const;
  const std::byte* panels_at(Matrix which, int node, std::int64_t unit) const;
  template <class F>
  void each_piece(Matrix which, const Claim& claim, F piece) const;
  void multiply_up(const ActiveExpert& e, Range blocks, const std::byte* after, const Scratch& scratch) const;
  void finish_tile(const ActiveExpert& e, const Tile& t) const;
  void spread_row(float* row, const std::int32_t* columns) const;
  void multiply_down(const ActiveExpert& e, Range panels, const std::byte* after, const Scratch& scratch) const;
  void multiply_columns(const Claim& claim) const;
  void sum_up(std::int64_t chunk) const;
  void start_sums(float* acc, std::int64_t column, std::int64_t columns) const;
  void add_identity(float* acc, std::int64_t column, std::int64_t columns) const;
  void write_out(float* acc, std::int64_t column, std::int64_t columns) const;
};

static_assert(std::is_trivially_destructible_v<Run>);  // it lies in the workspace

TilePlace place_of_slot(const Run& r, std::int32_t slot) {
  const Tile& t = r.w.plan.tiles[r.w.plan.slot_tile[slot]];
  return {r.in_tile(t), t.rows, slot - t.slot};
}

void Run::quantise_rows(std::int64_t item, std::int64_t items) const {
  const std::size_t size = s.in_dtype == DType::f32 ? 4 : 2;
  const std::int64_t units = phase0_units(s, c.tokens), slots_per_unit = c.tokens * s.top_k / units;
  const std::int64_t begin = units * item / items * slots_per_unit, end = units * (item + 1) / items * slots_per_unit;
  float* x = w.rows + item * 2 * w.row_ld;
  for (std::int64_t t = begin / s.top_k; t * s.top_k < end; ++t) {
    const std::int32_t* const slots = w.plan.slot_of;
    const std::int32_t* const last = slots + std::min(end, (t + 1) * s.top_k);
    const std::int32_t* const first =
        std::find_if(slots + std::max(begin, t * s.top_k), last, [](std::int32_t v) { return v >= 0; });
    if (first == last) continue;
    const std::byte* src = c.hidden.data + static_cast<std::size_t>(t * c.hidden.strides[0]) * size;
    const TilePlace place = place_of_slot(*this, *first);
    for (const std::int32_t* slot = first; slot != last; ++slot) {
      if (*slot < 0 || home(*slot) != *slot) continue;
      const std::int32_t* next = slot + 1;
      if (next != last && *next >= 0) prefetch_tile_row(in, place_of_slot(*this, *next));
      if (slot != first && !s.row_per_slot()) {
        copy_tile_row(in, place, place_of_slot(*this, *slot));
        continue;
      }
      if (slot == first || s.weight_on_input) s.kernel->steps->widen(s.in_dtype, src, s.hidden, x);
      if (s.weight_on_input) scale_row(x, w.plan.slot_weight[*slot]);
      const float* row = s.layout().w13.has_order ? reorder_row(x, columns(Matrix::w13, expert_of(*slot))) : x;
      s.kernel->quantise({in, row, s.in_rule, place_of_slot(*this, *slot)});
    }
  }
}

// The columns in the order of the expert's w13, in the space behind the row.
const float* Run::reorder_row(float* x, const std::int32_t* columns) const {
  float* row = x + w.row_ld;
  for (std::int64_t k = 0; k < in.k; ++k) row[k] = columns[k] < 0 ? 0.0f : x[columns[k]];
  return row;
}

// The weight on the input, in values of the input dtype.
void Run::scale_row(float* x, float weight) const {
  for (std::int64_t k = 0; k < s.hidden; ++k) x[k] = x[k] * weight;
  auto* narrowed = reinterpret_cast<std::byte*>(x + w.row_ld);
  s.kernel->steps->narrow(s.in_dtype, x, s.hidden, narrowed);
  s.kernel->steps->widen(s.in_dtype, narrowed, s.hidden, x);
}

// The weights of a unit of a node's list of all experts' matrices; nullptr beyond the last.
const std::byte* Run::panels_at(Matrix which, int node, std::int64_t unit) const {
  const Range stripe = (which == Matrix::w13 ? up : down).stripe(node);
  const std::int64_t width = stripe.end - stripe.begin, order = unit / width;
  if (order >= w.plan.num_active) return nullptr;
  return panels(which, w.plan.active[w.plan.by_size[order]],
                (stripe.begin + unit % width) * (which == Matrix::w13 ? halves : 1));
}

// piece(expert, units of its matrix, where reading goes on) for every expert that an item has a piece of.
template <class F>
void Run::each_piece(Matrix which, const Claim& claim, F piece) const {
  if (claim.item < 0) return;
  const Stripes& stripes = which == Matrix::w13 ? up : down;
  const Range stripe = stripes.stripe(claim.node), all = stripes.item(claim.node, claim.item);
  const std::int64_t width = stripe.end - stripe.begin;
  // Items are claimed in order: a thread's next one is likely the one that follows as many others as there are threads
  // of its node.
  const std::int64_t likely =
      stripes.item(claim.node, claim.item + std::max<std::int64_t>(1, threads() / stripes.nodes())).begin;
  for (std::int64_t unit = all.begin, end; unit < all.end; unit = end) {
    end = std::min(all.end, (unit / width + 1) * width);
    const std::int64_t begin = stripe.begin + unit % width;
    piece(w.plan.active[w.plan.by_size[unit / width]], Range{begin, begin + end - unit},
          panels_at(which, claim.node, end < all.end ? end : likely));
  }
}

void Run::multiply_up(const ActiveExpert& e, Range blocks, const std::byte* after, const Scratch& scratch) const {
  const Plan& p = w.plan;
  const P16Matrix& m = s.layout().w13;
  const std::int64_t step = panels_per_call(e, m.panel_bytes()) / halves;
  const PanelBay bay(s.source);
  float* const y13 = scratch.results();
  for (std::int64_t block = blocks.begin; block < blocks.end; block += step) {
    const std::int64_t count = std::min(step, blocks.end - block), ld = count * halves * kPanelRows;
    const std::byte* w13 = panels(bay, Matrix::w13, e, block * halves, count * halves);
    const std::byte* next = block + count < blocks.end ? panels(Matrix::w13, e, (block + count) * halves) : after;
    for (std::int32_t i = 0; i < e.tiles; ++i) {
      if (cancelled()) return;
      const Tile& t = p.tiles[e.first_tile + i];
      s.kernel->gemm({&m, w13, count * halves, in_tile(t), t.rows, in, y13, ld, next, block * halves, i, e.tiles,
                      s.reading, scratch.of_gemm()});
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

void Run::finish_tile(const ActiveExpert& e, const Tile& t) const {
  const std::int32_t* list = mid.k == s.intermediate ? nullptr : columns(Matrix::w2, e);
  for (std::int32_t r = 0; r < t.rows; ++r) {
    float* row = w.act + (t.slot + r) * w.act_ld;
    if (list != nullptr) spread_row(row, list);
    s.kernel->quantise({mid, row, s.mid_rule, {mid_tile(t), t.rows, r}});
  }
}

// A complete middle row takes the places of its columns, from the last one on: none lies before where it was.
void Run::spread_row(float* row, const std::int32_t* columns) const {
  std::int64_t from = s.intermediate;
  for (std::int64_t k = mid.k; k-- > 0;) row[k] = columns[k] < 0 ? 0.0f : row[--from];
}

void Run::start_sums(float* acc, std::int64_t column, std::int64_t columns) const {
  if (!c.accumulate || s.output_scale != 1.0f) {
    std::fill_n(acc, c.tokens * columns, 0.0f);
    return;
  }
  const std::size_t size = s.out_dtype == DType::f32 ? 4 : 2;
  const std::int64_t valid = std::min(columns, s.hidden - column);
  for (std::int64_t t = 0; t < c.tokens; ++t)
    s.kernel->steps->widen(s.out_dtype, c.out.data + static_cast<std::size_t>(t * c.out.strides[0] + column) * size,
                           valid, acc + t * columns);
}

// The tokens themselves, as the output of one more expert after all others.
void Run::add_identity(float* acc, std::int64_t column, std::int64_t columns) const {
  const std::size_t size = s.in_dtype == DType::f32 ? 4 : 2;
  alignas(64) float x[kCallPanels * kPanelRows];
  for (std::int32_t t = 0; t < c.tokens; ++t) {
    if (c.identity[t] == 0.0f) continue;
    for (std::int64_t i = 0; i < columns; i += std::ssize(x)) {
      const std::int64_t count = std::min<std::int64_t>(std::ssize(x), columns - i);
      const std::int64_t valid = std::clamp<std::int64_t>(s.hidden - column - i, 0, count);
      std::fill(x + valid, x + count, 0.0f);
      const std::int64_t at = t * c.hidden.strides[0] + column + i;
      s.kernel->steps->widen(s.in_dtype, c.hidden.data + static_cast<std::size_t>(at) * size, valid, x);
      s.kernel->steps->combine({acc + i, columns, &t, c.identity + t, x, count, 1, count, s.rounded, s.in_dtype});
    }
  }
}

void Run::write_out(float* acc, std::int64_t column, std::int64_t columns) const {
  const std::size_t size = s.out_dtype == DType::f32 ? 4 : 2;
  const std::int64_t valid = std::min(columns, s.hidden - column);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    float* row = acc + t * columns;
    std::byte* dst = c.out.data + static_cast<std::size_t>(t * c.out.strides[0] + column) * size;
    if (s.output_scale != 1.0f) {
      for (std::int64_t i = 0; i < valid; ++i) {
        row[i] = row[i] * s.output_scale;
        if (c.accumulate) {
          float before;
          s.kernel->steps->widen(s.out_dtype, dst + static_cast<std::size_t>(i) * size, 1, &before);
          row[i] = before + row[i];
        }
      }
    }
    s.kernel->steps->narrow(s.out_dtype, row, valid, dst);
  }
}

// The sums that a tile will be added to: they lie apart, beyond L2 when there are many tokens. always_inline: GCC drops
// calls of a function that only prefetches.
[[gnu::always_inline]] inline void prefetch_sums(const float* acc, std::int64_t ld, const std::int32_t* tokens,
                                                 int rows, std::int64_t count) {
  for (int r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < count; i += 16) __builtin_prefetch(acc + tokens[r] * ld + i, 1);
}

// The results of an expert's slots in some panels.
void Run::multiply_down(const ActiveExpert& e, Range all, const std::byte* after, const Scratch& scratch) const {
  const P16Matrix& m = s.layout().w2;
  const std::int64_t most = panels_per_call(e, m.panel_bytes());
  const PanelBay bay(s.source);
  for (std::int64_t panel = all.begin, end; panel < all.end; panel = end) {
    const std::int64_t chunk = panel / kCallPanels;
    end = std::min({panel + most, (chunk + 1) * kCallPanels, all.end});
    const std::byte* w2 = panels(bay, Matrix::w2, e, panel, end - panel);
    const std::byte* next = end < all.end ? panels(Matrix::w2, e, end) : after;
    for (std::int32_t i = 0; i < e.tiles; ++i) {
      if (cancelled()) return;
      const Tile& t = w.plan.tiles[e.first_tile + i];
      float* results = w.results + t.slot * w.out_ld + panel * kPanelRows;
      s.kernel->gemm({&m, w2, end - panel, mid_tile(t), t.rows, mid, results, w.out_ld, next, panel, i, e.tiles,
                      s.reading, scratch.of_gemm()});
    }
    const auto done = static_cast<std::int32_t>(end - panel);
    if (w.unsummed[chunk].count.fetch_sub(done, std::memory_order_acq_rel) == done) sum_up(chunk);
  }
}

// The routed sums of a chunk of output columns, whose results are there.
void Run::sum_up(std::int64_t chunk) const {
  const Plan& p = w.plan;
  const std::int64_t column = chunk * kCallPanels * kPanelRows,
                     columns = std::min(kCallPanels * kPanelRows, w.out_ld - column);
  float* acc = w.acc + column * c.tokens;
  start_sums(acc, column, columns);
  for (std::int32_t i = 0; i < p.num_active; ++i) {
    const std::int32_t slot = p.active[i].first_slot;
    s.kernel->steps->combine({acc, columns, p.slot_token + slot, s.weight_on_input ? nullptr : p.slot_weight + slot,
                              w.results + slot * w.out_ld + column, w.out_ld, p.active[i].slots, columns, s.rounded,
                              s.in_dtype});
  }
  if (c.identity != nullptr) add_identity(acc, column, columns);
  write_out(acc, column, columns);
}

// All experts' results in some output columns, and their sums.
void Run::multiply_columns(const Claim& claim) const {
  if (claim.item < 0 || cancelled()) return;
  const Plan& p = w.plan;
  const P16Matrix& m = s.layout().w2;
  const Range stripe = down.stripe(claim.node), part = down.item(claim.node, claim.item);
  const std::int64_t begin = stripe.begin + part.begin, end = stripe.begin + part.end;
  const std::int64_t column = begin * kPanelRows, columns = (end - begin) * kPanelRows;
  float* acc = w.acc + column * c.tokens;
  start_sums(acc, column, columns);
  const Scratch scratch(bays, w.scratch, w.scratch_bay);
  const PanelBay bay(s.source);
  float* const y = scratch.results();
  for (std::int32_t i = 0; i < p.num_active; ++i) {
    if (cancelled()) return;
    const ActiveExpert& e = p.active[i];
    const std::byte* after = i + 1 < p.num_active ? panels(Matrix::w2, p.active[i + 1], begin) : nullptr;
    const std::int64_t step = panels_per_call(e, m.panel_bytes());
    for (std::int64_t panel = begin; panel < end; panel += step) {
      const std::int64_t count = std::min(step, end - panel), ld = count * kPanelRows;
      const std::byte* w2 = panels(bay, Matrix::w2, e, panel, count);
      const std::byte* next = panel + count < end ? panels(Matrix::w2, e, panel + count) : after;
      for (std::int32_t j = 0; j < e.tiles; ++j) {
        const Tile& t = p.tiles[e.first_tile + j];
        prefetch_sums(acc + (panel - begin) * kPanelRows, columns, p.slot_token + t.slot, t.rows, ld);
        s.kernel->gemm(
            {&m, w2, count, mid_tile(t), t.rows, mid, y, ld, next, panel, j, e.tiles, s.reading, scratch.of_gemm()});
        s.kernel->steps->combine({acc + (panel - begin) * kPanelRows, columns, p.slot_token + t.slot,
                                  s.weight_on_input ? nullptr : p.slot_weight + t.slot, y, ld, t.rows, ld, s.rounded,
                                  s.in_dtype});
      }
    }
  }
  if (c.identity != nullptr) add_identity(acc, column, columns);
  write_out(acc, column, columns);
}

}  // namespace

Workspace carve_workspace(const EngineSetup& s, std::int64_t tokens, std::byte* base) {
  Carver c(base);
  Workspace w;
  const PlanShape shape = s.plan_shape(tokens);
  const auto slots = static_cast<std::size_t>(shape.slots());
  const auto pad16 = [](std::int64_t n) { return round_up(n, kPanelRows); };
  w.act_ld = pad16(std::max(s.intermediate, s.mid_shape().k));
  w.row_ld = pad16(std::max(s.hidden, s.in_shape().k));
  w.out_ld = pad16(s.hidden);
  // First, so that calls of all sizes find their scratch where it is in the caches.
  const auto items = static_cast<std::size_t>(s.items_at_once);
  w.scratch_bay = round_up(kCallResults * sizeof(float) + s.kernel->scratch_bytes, std::size_t{64});
  w.holders = c.take<Bays::Holder>(items);
  w.scratch = c.take<std::byte>(items * w.scratch_bay);
  w.shared = c.take<std::byte>(sizeof(Run));
  w.ids = c.take<std::int32_t>(slots);
  w.weights = c.take<float>(slots);
  w.plan = carve_plan(c, shape);
  w.in_tiles = c.take<std::byte>(slots * s.in_shape().row_bytes());
  w.mid_tiles = c.take<std::byte>(slots * s.mid_shape().row_bytes());
  w.act = c.take<float>(slots * static_cast<std::size_t>(w.act_ld));
  w.acc = c.take<float>(static_cast<std::size_t>(tokens * w.out_ld));
  w.results = c.take<float>(static_cast<std::size_t>(std::min(shape.slots() * w.out_ld, kKeptFloats)));
  w.unsummed = c.take<Unsummed>(static_cast<std::size_t>(ceil_div(w.out_ld / kPanelRows, kCallPanels)));
  w.rows = c.take<float>(static_cast<std::size_t>(phase0_items(s, tokens) * 2 * w.row_ld));
  w.bytes = c.used();
  return w;
}

Check run_engine(const EngineSetup& s, Workspace& w, const EngineCall& c) {
  if (s.rounded) MOE_CHECK(round_weights(*s.kernel->steps, s.in_dtype, w.plan, c.parallel));
  Bays bays({w.holders, static_cast<std::size_t>(s.items_at_once)});
  const Run& run = *new (w.shared) Run(s, w, c, bays);
  const auto blocks = static_cast<std::int32_t>(run.blocks());
  for (std::int32_t i = 0; i < w.plan.num_tiles; ++i) w.plan.pending[i].store(blocks, std::memory_order_relaxed);
  for (std::int64_t chunk = 0, panels = w.out_ld / kPanelRows; chunk * kCallPanels < panels; ++chunk)
    w.unsummed[chunk].count.store(
        static_cast<std::int32_t>(w.plan.num_active * std::min(kCallPanels, panels - chunk * kCallPanels)),
        std::memory_order_relaxed);
  const auto phase = [&](std::int64_t items, auto body) -> Check {
    MOE_CHECK(report(c.control, 0, 0));
    MOE_CHECK(c.parallel.each(static_cast<std::size_t>(items), body));
    return report(c.control, 0, 0);
  };
  const std::int64_t items = phase0_items(s, c.tokens);
  if (w.plan.num_slots <= kInlineSlots && !s.row_per_slot()) {  // one task: a barrier would cost more
    auto all = [&](std::size_t) {
      for (std::int64_t i = 0; i < items; ++i) run.quantise_rows(i, items);
    };
    MOE_CHECK(c.parallel.each(1, all));
  } else {
    MOE_CHECK(phase(items, [&](std::size_t i) { run.quantise_rows(static_cast<std::int64_t>(i), items); }));
  }
  Claims up(run.up, c.nodes), down(run.down, c.nodes);
  MOE_CHECK(phase(up.total(), [&](std::size_t i) {
    const Scratch scratch(run.bays, w.scratch, w.scratch_bay);
    run.each_piece(Matrix::w13, up.take(i), [&](const ActiveExpert& e, Range units, const std::byte* after) {
      run.multiply_up(e, units, after, scratch);
    });
  }));
  if (!run.keeps_results) return phase(down.total(), [&](std::size_t i) { run.multiply_columns(down.take(i)); });
  return phase(down.total(), [&](std::size_t i) {
    const Scratch scratch(run.bays, w.scratch, w.scratch_bay);
    run.each_piece(Matrix::w2, down.take(i), [&](const ActiveExpert& e, Range units, const std::byte* after) {
      run.multiply_down(e, units, after, scratch);
    });
  });
}

}  // namespace moe
