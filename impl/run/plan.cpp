// Counting sort of (token, slot) pairs by expert, and tiles of nearly equal size. See plan.h.
#include "run/plan.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "base/checked.h"

namespace moe {
namespace {

// One expert's slots, cut into tiles.
void list_expert(Plan& p, const PlanShape& s, std::int64_t expert, std::int32_t local) {
  const std::int32_t count = p.counts[expert];
  p.counts[expert] = p.num_slots;  // from here on: the next free slot of this expert
  if (count == 0) return;
  const std::int32_t tiles = ceil_div(count, static_cast<std::int32_t>(s.tile_rows));
  p.active[p.num_active++] = {local, p.num_slots, count, p.num_tiles, tiles};
  for (std::int32_t i = 0; i < tiles; ++i) {
    const std::int32_t rows = count / tiles + (i < count % tiles ? 1 : 0);
    p.tiles[p.num_tiles] = {p.num_slots, rows};
    for (std::int32_t r = 0; r < rows; ++r) p.slot_tile[p.num_slots + r] = p.num_tiles;
    p.num_slots += rows;
    ++p.num_tiles;
  }
}

// The experts with slots, in ascending logical order, and their tiles.
void list_active(Plan& p, const PlanShape& s, std::span<const std::int32_t> expert_map) {
  p.num_slots = p.num_active = p.num_tiles = 0;
  for (std::int64_t id = 0; id < s.experts.logical; ++id)
    for (std::int64_t copy = id; copy < s.experts.physical; copy += s.experts.logical)
      list_expert(p, s, copy, expert_map[static_cast<std::size_t>(copy)]);
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
  p.counts = c.take<std::int32_t>(static_cast<std::size_t>(s.experts.physical));
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
  std::fill_n(p.counts, s.experts.physical, 0);
  const auto held_expert = [&](std::int64_t t, std::int64_t j) -> std::int64_t {  // -1: skipped
    const std::int64_t id = id_at(ids, t, j);
    if (id < 0 || id >= s.experts.logical) return -1;  // zero experts have no rows
    const std::int64_t expert = s.experts.copy_for_row(t, id);
    return expert_map[static_cast<std::size_t>(expert)] < 0 ? -1 : expert;
  };
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t j = 0; j < s.top_k; ++j)
      if (const std::int64_t expert = held_expert(t, j); expert >= 0) ++p.counts[expert];
  list_active(p, s, expert_map);
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t j = 0; j < s.top_k; ++j) {
      std::int32_t slot = -1;
      if (const std::int64_t expert = held_expert(t, j); expert >= 0) {
        slot = p.counts[expert]++;
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
