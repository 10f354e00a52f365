// Counting sort of (token, slot) pairs by expert, and tiles of nearly equal size. See plan.h.
//
//   count    per part of the batch: its slots of each expert. Ids are read here alone: another thread of the caller may
//            write them meanwhile, and slots that were not counted have no place. slot_of holds the experts until then
//   list     one thread: experts in order, their tiles, where each part's slots of an expert begin
//   scatter  per part: its slots to their places; beside that, its share of the tiles writes slot_tile
#include "run/route/plan.h"

#include <algorithm>
#include <limits>
#include <new>
#include <string>

#include "base/checked.h"
#include "base/index.h"
#include "base/load.h"
#include "base/text.h"

namespace moe::run {
namespace {

// What the steps read.
struct Sorting {
  const PlanShape& shape;
  std::span<const std::int32_t> expert_map;
  const TensorView& ids;
  std::int64_t parts = slot_parts(shape.slots());

  std::int64_t held_expert(std::int64_t t, std::int64_t j) const {  // -1: skipped
    const std::int64_t id = id_at(ids, t, j);
    if (id < 0 || id >= shape.experts.logical) return -1;  // zero experts have no rows
    const std::int64_t expert = shape.experts.copy_for_row(shape.first_token + t, id);
    return at(expert_map, expert) < 0 ? -1 : expert;
  }
  std::int32_t* counts(const Plan& p, std::int64_t part) const { return p.counts + part * shape.experts.physical; }
};

void count_part(const Plan& p, const Sorting& s, std::int64_t part, std::int64_t begin, std::int64_t end) {
  std::int32_t* counts = s.counts(p, part);
  std::fill_n(counts, s.shape.experts.physical, 0);
  for (std::int64_t t = begin; t < end; ++t)
    for (std::int64_t j = 0; j < s.shape.top_k; ++j) {
      const std::int64_t expert = s.held_expert(t, j);
      p.slot_of[t * s.shape.top_k + j] = static_cast<std::int32_t>(expert);
      if (expert >= 0) ++counts[expert];
    }
}

// Turns the counts of one expert into the first slot of each part; their sum.
std::int32_t number_slots(const Plan& p, const Sorting& s, std::int64_t expert) {
  std::int32_t next = p.num_slots;
  for (std::int64_t part = 0; part < s.parts; ++part) {
    std::int32_t& place = s.counts(p, part)[expert];
    const std::int32_t count = place;
    place = next;
    next += count;
  }
  return next - p.num_slots;
}

// One expert's slots, cut into tiles.
void list_expert(Plan& p, const Sorting& s, std::int64_t expert) {
  const std::int32_t count = number_slots(p, s, expert);
  if (count == 0) return;
  const auto tiles = static_cast<std::int32_t>(s.shape.tiles_of(count));
  p.active[p.num_active++] = {at(s.expert_map, expert), p.num_slots, count, p.num_tiles, tiles};
  for (std::int32_t i = 0; i < tiles; ++i) {
    const std::int32_t rows = count / tiles + (i < count % tiles ? 1 : 0);
    p.tiles[p.num_tiles++] = {p.num_slots, rows};
    p.num_slots += rows;
  }
}

// The experts with slots, in ascending logical order, and their tiles.
void list_active(Plan& p, const Sorting& s) {
  const ExpertCopies& experts = s.shape.experts;
  p.num_slots = p.num_active = p.num_tiles = 0;
  for (std::int64_t id = 0; id < experts.logical; ++id)
    for (std::int64_t copy = id; copy < experts.physical; copy += experts.logical) list_expert(p, s, copy);
  for (std::int32_t i = 0; i < p.num_active; ++i) p.by_size[i] = i;
  std::sort(p.by_size, p.by_size + p.num_active, [&](std::int32_t a, std::int32_t b) {
    return p.active[a].slots != p.active[b].slots ? p.active[a].slots > p.active[b].slots : a < b;
  });
}

void scatter_part(const Plan& p, const Sorting& s, const TensorView& weights, std::int64_t part, std::int64_t begin,
                  std::int64_t end) {
  std::int32_t* next = s.counts(p, part);
  for (std::int64_t t = begin; t < end; ++t)
    for (std::int64_t j = 0; j < s.shape.top_k; ++j) {
      std::int32_t& place = p.slot_of[t * s.shape.top_k + j];
      if (place < 0) continue;
      place = next[place]++;
      p.slot_token[place] = static_cast<std::int32_t>(t);
      p.slot_weight[place] = weight_at(weights, t, j);
    }
  for (std::int64_t i = p.num_tiles * part / s.parts; i < p.num_tiles * (part + 1) / s.parts; ++i)
    std::fill_n(p.slot_tile + p.tiles[i].slot, p.tiles[i].rows, static_cast<std::int32_t>(i));
}

}  // namespace

std::int64_t id_at(const TensorView& ids, std::int64_t t, std::int64_t j) {
  const std::int64_t at = t * ids.strides[0] + j * ids.strides[1];
  return ids.dtype == DType::i64 ? load_once<std::int64_t>(ids.data + at * 8)
                                 : load_once<std::int32_t>(ids.data + at * 4);
}

float weight_at(const TensorView& w, std::int64_t t, std::int64_t j) {
  return load<float>(w.data + (t * w.strides[0] + j * w.strides[1]) * 4);
}

Plan carve_plan(Carver& c, const PlanShape& s) {
  const std::int64_t slots = s.slots(), active = s.max_active(), tiles = s.max_tiles();
  Plan p;
  p.counts = c.take<std::int32_t>(slot_parts(slots) * s.experts.physical);
  p.active = c.take<ActiveExpert>(active);
  p.tiles = c.take<RowTile>(tiles);
  p.pending = c.take<std::atomic<std::int32_t>>(tiles);
  p.slot_token = c.take<std::int32_t>(slots);
  p.slot_weight = c.take<float>(slots);
  p.slot_tile = c.take<std::int32_t>(slots);
  p.slot_of = c.take<std::int32_t>(slots);
  p.by_size = c.take<std::int32_t>(active);
  return p;
}

Result<std::optional<BadId>> find_bad_id(const TensorView& ids, std::int64_t columns, const KnownIds& known,
                                         const Parallel& parallel) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> first{kNone};
  const auto bad = [&](std::int64_t id) { return (id < known.lowest || id >= known.end) && id != known.skip; };
  const std::int64_t tokens = ids.shape[0];
  MOE_CHECK(
      parallel.parts(tokens, slot_parts(tokens * columns), [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t)
          for (std::int64_t j = 0; j < columns; ++j) {
            if (!bad(id_at(ids, t, j))) continue;
            const std::int64_t here = t * columns + j;
            for (std::int64_t v = first.load(); here < v && !first.compare_exchange_weak(v, here);) {
            }
            return;
          }
      }));
  const std::int64_t at = first.load();
  if (at == kNone) return std::optional<BadId>();
  return std::optional(BadId{at / columns, at % columns, id_at(ids, at / columns, at % columns)});
}

Check check_ids(const TensorView& ids, const KnownIds& known, const Parallel& parallel) {
  MOE_TRY(const std::optional<BadId> bad, find_bad_id(ids, ids.shape[1], known, parallel));
  if (!bad) return ok();
  const std::string place = cat("topk_ids[", bad->t, ",", bad->j, "]");
  return fail(Code::invalid_argument, place,
              cat(place, ": expert id ", bad->id, " is neither -1 nor in [0, ", known.end, ")",
                  known.skip ? cat(" nor skip_id, ", *known.skip) : ""));
}

Check build_plan(Plan& p, const PlanShape& shape, std::span<const std::int32_t> expert_map, const TensorView& ids,
                 const TensorView& weights, const Parallel& parallel) {
  const Sorting s{shape, expert_map, ids};
  MOE_CHECK(parallel.parts(shape.tokens, s.parts, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
    count_part(p, s, part, begin, end);
  }));
  list_active(p, s);
  return parallel.parts(shape.tokens, s.parts, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
    scatter_part(p, s, weights, part, begin, end);
  });
}

Check round_weights(const Elementwise& steps, DType dtype, const Plan& p, const Parallel& parallel) {
  return parallel.parts(p.num_slots, slot_parts(p.num_slots), [&](std::int64_t, std::int64_t begin, std::int64_t end) {
    std::byte narrowed[64 * sizeof(float)];
    for (std::int64_t i = begin; i < end; i += 64) {
      const std::int64_t count = std::min<std::int64_t>(64, end - i);
      steps.narrow(dtype, p.slot_weight + i, count, narrowed);
      steps.widen(dtype, narrowed, count, p.slot_weight + i);
    }
  });
}

}  // namespace moe::run
