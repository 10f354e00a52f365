// Which rows of a batch go to which expert: ids -> slots sorted by (global expert, token, slot), tiles.
//
// Ids are logical; of an expert with redundant copies each row of a call takes one, and copies come one after another
// in the order of their logical expert, so that the routed sum does not depend on where experts are placed. A slot is
// one (token, j) whose expert this rank holds. Slots of one expert are consecutive and cut into tiles of nearly equal
// size. Everything lives in the caller's workspace.
//
// From a few thousand slots on, parts of the batch are counted and sorted in parallel. Where parts begin depends on the
// batch alone, and slots are numbered across them: the plan is the same for every number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/checked.h"
#include "base/index.h"
#include "base/parallel.h"
#include "base/result.h"
#include "base/tensor.h"
#include "config/config.h"
#include "kernels/kernel.h"

namespace moe::run {

// Into how many parts loops over `slots` slots are cut; 1 below kSlotsPerPart * 2: a barrier would cost more.
constexpr std::int64_t kSlotsPerPart = 2048, kMaxSlotParts = 64;
constexpr std::int64_t slot_parts(std::int64_t slots) {
  return slots < 2 * kSlotsPerPart ? 1 : slots / kSlotsPerPart < kMaxSlotParts ? slots / kSlotsPerPart : kMaxSlotParts;
}

// Carves typed blocks out of one workspace; with base == nullptr it only adds up the bytes.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(std::integral auto count) {
    used_ = (used_ + 63) / 64 * 64;
    T* p = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += usize(count) * sizeof(T);
    return p;
  }
  std::size_t used() const { return (used_ + 63) / 64 * 64; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

struct RowTile {
  std::int32_t slot;  // first
  std::int32_t rows;
};

struct ActiveExpert {
  std::int32_t local;  // place among the experts held
  std::int32_t first_slot, slots;
  std::int32_t first_tile, tiles;
};

struct Plan {
  std::int32_t num_slots = 0, num_active = 0, num_tiles = 0;
  std::int32_t* counts = nullptr;  // [slot_parts][physical experts] scratch
  ActiveExpert* active = nullptr;  // ascending logical expert, then copy
  RowTile* tiles = nullptr;
  std::atomic<std::int32_t>* pending = nullptr;  // [tiles] blocks of phase 1 that are not done yet
  std::int32_t* slot_token = nullptr;            // [R]
  float* slot_weight = nullptr;                  // [R]
  std::int32_t* slot_tile = nullptr;             // [R]
  std::int32_t* slot_of = nullptr;               // [T*K] slot of (token, j), -1 = skipped; first the expert
  std::int32_t* by_size = nullptr;               // [active] indices of `active`, most tokens first
};

struct PlanShape {
  std::int64_t tokens, top_k;
  ExpertCopies experts;  // global
  int tile_rows;
  std::int64_t first_token = 0;  // of the call's, where the batch is a chunk of it
  int few = 0, few_rows = 1;     // an expert of at most `few` slots has tiles of at most `few_rows`
  std::int64_t slots() const { return tokens * top_k; }
  std::int64_t tiles_of(std::int64_t slots) const {
    return ceil_div<std::int64_t>(slots, slots <= few ? few_rows : tile_rows);
  }
  std::int64_t max_active() const { return experts.physical < slots() ? experts.physical : slots(); }
  std::int64_t max_tiles() const {
    return std::min(slots(), slots() / tile_rows + max_active() * tiles_of(std::max(few, 1)));
  }
};

Plan carve_plan(Carver& carver, const PlanShape& shape);

// Elements of an id tensor (i32 or i64, any strides) and of a float32 one.
std::int64_t id_at(const TensorView& ids, std::int64_t t, std::int64_t j);
float weight_at(const TensorView& weights, std::int64_t t, std::int64_t j);

// The ids that a call may hold: [lowest, end), -1 and `skip` mean that a slot is skipped.
struct KnownIds {
  std::int64_t lowest = -1, end = 0;
  std::optional<std::int64_t> skip{};
};
// The first (t, j), j < columns, whose id is none of them.
struct BadId {
  std::int64_t t, j, id;
};
Result<std::optional<BadId>> find_bad_id(const TensorView& ids, std::int64_t columns, const KnownIds& known,
                                         const Parallel& parallel);
// ids: [T, K] i32 or i64, any strides. Code::invalid_argument, "topk_ids[t,j]", for one that is not known.
Check check_ids(const TensorView& ids, const KnownIds& known, const Parallel& parallel);
// Sorts the checked ids. expert_map[physical] = local or -1. weights: [T, K] f32.
Check build_plan(Plan& plan, const PlanShape& shape, std::span<const std::int32_t> expert_map, const TensorView& ids,
                 const TensorView& weights, const Parallel& parallel);

// bit_compat vllm: the weights become values of the input dtype.
Check round_weights(const Elementwise& steps, DType dtype, const Plan& plan, const Parallel& parallel);

}  // namespace moe::run
