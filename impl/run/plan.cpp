// Counting sort of (token, slot) pairs by expert, and tiles of nearly equal size. See plan.h.
#include "run/plan.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "base/checked.h"

namespace moe {
namespace {

// The experts with slots, in ascending global order, and their tiles.
void list_active(Plan& p, const PlanShape& s, std::span<const std::int32_t> expert_map) {
  std::int32_t slot = 0, tile = 0;
  for (std::int64_t g = 0; g < s.experts; ++g) {
    const std::int32_t count = p.counts[g];
    p.counts[g] = slot;  // from here on: the next free slot of g
    if (count == 0) continue;
    const std::int32_t tiles = ceil_div(count, static_cast<std::int32_t>(s.tile_rows));
    p.active[p.num_active++] = {expert_map[static_cast<std::size_t>(g)], slot, count, tile, tiles};
    for (std::int32_t i = 0, first = slot; i < tiles; ++i) {
      const std::int32_t rows = count / tiles + (i < count % tiles ? 1 : 0);
      p.tiles[tile] = {first, rows};
      for (std::int32_t r = 0; r < rows; ++r) p.slot_tile[first + r] = tile;
      first += rows;
      ++tile;
    }
    slot += count;
  }
  p.num_slots = slot;
  p.num_tiles = tile;
}

}  // namespace

std::int64_t id_at(const TensorView& ids, std::int64_t t, std::int64_t j) {
  const std::int64_t at = t * ids.strides[0] + j * ids.strides[1];
  if (ids.dtype == DType::i64) {
    std::int64_t v;
    std::memcpy(&v, ids.data + at * 8, 8);
    return v;
  }
  std::int32_t v;
  std::memcpy(&v, ids.data + at * 4, 4);
  return v;
}

float weight_at(const TensorView& w, std::int64_t t, std::int64_t j) {
  float v;
  std::memcpy(&v, w.data + (t * w.strides[0] + j * w.strides[1]) * 4, 4);
  return v;
}

Plan carve_plan(Carver& c, const PlanShape& s) {
  const auto slots = static_cast<std::size_t>(s.slots()), active = static_cast<std::size_t>(s.max_active());
  const auto tiles = static_cast<std::size_t>(s.max_tiles());
  Plan p;
  p.counts = c.take<std::int32_t>(static_cast<std::size_t>(s.experts));
  p.active = c.take<ActiveExpert>(active);
  p.tiles = c.take<Tile>(tiles);
  p.pending = c.take<std::atomic<std::int32_t>>(tiles);
  p.slot_token = c.take<std::int32_t>(slots);
  p.slot_weight = c.take<float>(slots);
  p.slot_tile = c.take<std::int32_t>(slots);
  p.slot_of = c.take<std::int32_t>(slots);
  p.by_size = c.take<std::int32_t>(active);
  return p;
}

Check check_ids(const TensorView& ids, std::int64_t experts) {
  for (std::int64_t t = 0; t < ids.shape[0]; ++t)
    for (std::int64_t j = 0; j < ids.shape[1]; ++j) {
      const std::int64_t id = id_at(ids, t, j);
      if (id >= -1 && id < experts) continue;
      const std::string place = "topk_ids[" + std::to_string(t) + "," + std::to_string(j) + "]";
      return fail(
          Code::invalid_argument, place,
          place + ": expert id " + std::to_string(id) + " is neither -1 nor in [0, " + std::to_string(experts) + ")");
    }
  return ok();
}

void build_plan(Plan& p, const PlanShape& s, std::span<const std::int32_t> expert_map, const TensorView& ids,
                const TensorView& weights) {
  std::fill_n(p.counts, s.experts, 0);
  const auto held = [&](std::int64_t id) { return id >= 0 && expert_map[static_cast<std::size_t>(id)] >= 0; };
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t j = 0; j < s.top_k; ++j)
      if (const std::int64_t id = id_at(ids, t, j); held(id)) ++p.counts[id];
  list_active(p, s, expert_map);
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t j = 0; j < s.top_k; ++j) {
      const std::int64_t id = id_at(ids, t, j);
      std::int32_t slot = -1;
      if (held(id)) {
        slot = p.counts[id]++;
        p.slot_token[slot] = static_cast<std::int32_t>(t);
        p.slot_weight[slot] = weight_at(weights, t, j);
      }
      p.slot_of[t * s.top_k + j] = slot;
    }
  for (std::int32_t i = 0; i < p.num_active; ++i) p.by_size[i] = i;
  std::sort(p.by_size, p.by_size + p.num_active, [&](std::int32_t a, std::int32_t b) {
    return p.active[a].slots != p.active[b].slots ? p.active[a].slots > p.active[b].slots : a < b;
  });
}

}  // namespace moe
