// The sorted slots of random batches against a plain sort, the same for every number of threads; wrong ids.
#include "run/route/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/checked.h"
#include "run/context/context.h"
#include "support/rooms.h"

namespace moe::test::plan_test {
namespace {

// Ids of a batch: experts held and not held, -1, zero experts, i32 or i64, with a stride.
struct Ids {
  PlanShape shape;
  std::vector<std::int32_t> expert_map;
  std::vector<std::int64_t> ids64;
  std::vector<std::int32_t> ids32;
  std::vector<float> weights;
  std::int64_t stride;
  bool wide;

  Ids(PlanShape s, std::uint32_t seed) : shape(s), stride(s.top_k + 3), wide(seed % 2 == 1) {
    std::mt19937 rng(seed);
    const auto pick = [&](std::int64_t lo, std::int64_t hi) {
      return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(hi - lo + 1)) + lo;
    };
    for (std::int64_t e = 0; e < s.experts.physical; ++e)
      expert_map.push_back(pick(0, 4) == 0 ? -1 : static_cast<std::int32_t>(e));
    for (std::int64_t i = 0; i < s.tokens * stride; ++i) {
      const bool hot = pick(0, 2) == 0;  // some experts have many tokens
      ids64.push_back(hot ? pick(0, s.experts.logical / 4) : pick(-1, s.experts.logical + 1));
      ids32.push_back(static_cast<std::int32_t>(ids64.back()));
      weights.push_back(static_cast<float>(pick(0, 1000)) / 1000.0f);
    }
  }
  TensorView ids() {
    TensorView v = wide ? row_major(DType::i64, {shape.tokens, shape.top_k}, ids64.data())
                        : row_major(DType::i32, {shape.tokens, shape.top_k}, ids32.data());
    v.strides[0] = stride;
    return v;
  }
  TensorView weight_view() {
    TensorView v = row_major(DType::f32, {shape.tokens, shape.top_k}, weights.data());
    v.strides[0] = stride;
    return v;
  }
};

// A plan and its memory, exactly as large as carve_plan says; what lies behind is watched.
struct Built {
  std::vector<std::byte> memory;
  Plan plan;
  bool kept_inside = false;

  Built(Ids& in, const Parallel& parallel) {
    Carver count(nullptr);
    (void)carve_plan(count, in.shape);
    memory.assign(count.used() + 128, std::byte{0xee});
    std::byte* base = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    Carver carver(base);
    plan = carve_plan(carver, in.shape);
    EXPECT_TRUE(build_plan(plan, in.shape, in.expert_map, in.ids(), in.weight_view(), parallel));
    kept_inside = carver.used() == count.used() && std::all_of(base + count.used(), memory.data() + memory.size(),
                                                               [](std::byte b) { return b == std::byte{0xee}; });
  }
};

// Everything that the phases read, as numbers.
struct Flat {
  std::vector<std::int64_t> v;
  void add(std::int64_t x) { v.push_back(x); }
};

std::vector<std::int64_t> flat(const Plan& p, const PlanShape& s) {
  Flat f;
  for (const std::int32_t n : {p.num_slots, p.num_active, p.num_tiles}) f.add(n);
  for (std::int32_t i = 0; i < p.num_active; ++i) {
    const ActiveExpert& e = p.active[i];
    for (const std::int32_t x : {e.local, e.first_slot, e.slots, e.first_tile, e.tiles, p.by_size[i]}) f.add(x);
  }
  for (std::int32_t i = 0; i < p.num_tiles; ++i) f.add(p.tiles[i].slot), f.add(p.tiles[i].rows);
  for (std::int32_t i = 0; i < p.num_slots; ++i)
    f.add(p.slot_token[i]), f.add(p.slot_tile[i]), f.add(static_cast<std::int64_t>(p.slot_weight[i] * 1000.0f + 0.5f));
  for (std::int64_t i = 0; i < s.slots(); ++i) f.add(p.slot_of[i]);
  return f.v;
}

// The same by sorting (logical expert, copy, token, slot).
std::vector<std::int64_t> plain(Ids& in) {
  struct Slot {
    std::int64_t logical, expert, t, j;
    bool operator<(const Slot& o) const {
      return std::tie(logical, expert, t, j) < std::tie(o.logical, o.expert, o.t, o.j);
    }
  };
  const PlanShape& s = in.shape;
  std::vector<Slot> slots;
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t j = 0; j < s.top_k; ++j) {
      const std::int64_t id = in.ids64[static_cast<std::size_t>(t * in.stride + j)];
      if (id < 0 || id >= s.experts.logical) continue;
      const std::int64_t expert = s.experts.copy_for_row(s.first_token + t, id);
      if (in.expert_map[static_cast<std::size_t>(expert)] >= 0) slots.push_back({id, expert, t, j});
    }
  std::sort(slots.begin(), slots.end());
  std::vector<std::int64_t> tiles, slot_lines, slot_of(static_cast<std::size_t>(s.slots()), -1);
  struct Expert {
    std::int64_t local, first, slots, first_tile, tiles;
  };
  std::vector<Expert> experts;
  for (std::size_t i = 0; i < slots.size();) {
    std::size_t end = i;
    while (end < slots.size() && slots[end].expert == slots[i].expert) ++end;
    const auto count = static_cast<std::int64_t>(end - i);
    const std::int64_t most = count <= s.few ? s.few_rows : s.tile_rows;
    Expert e{in.expert_map[static_cast<std::size_t>(slots[i].expert)], static_cast<std::int64_t>(i), count,
             static_cast<std::int64_t>(tiles.size()) / 2, (count + most - 1) / most};
    for (std::int64_t n = 0, at = e.first; n < e.tiles; ++n) {
      const std::int64_t rows = count / e.tiles + (n < count % e.tiles);
      for (std::int64_t r = 0; r < rows; ++r) {
        const Slot& x = slots[static_cast<std::size_t>(at + r)];
        const std::int64_t weight =
            static_cast<std::int64_t>(in.weights[static_cast<std::size_t>(x.t * in.stride + x.j)] * 1000.0f + 0.5f);
        slot_lines.insert(slot_lines.end(), {x.t, e.first_tile + n, weight});
        slot_of[static_cast<std::size_t>(x.t * s.top_k + x.j)] = at + r;
      }
      tiles.insert(tiles.end(), {at, rows});
      at += rows;
    }
    experts.push_back(e);
    i = end;
  }
  std::vector<std::size_t> order(experts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return experts[a].slots > experts[b].slots; });
  std::vector<std::int64_t> all = {static_cast<std::int64_t>(slots.size()), static_cast<std::int64_t>(experts.size()),
                                   static_cast<std::int64_t>(tiles.size()) / 2};
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const Expert& e = experts[i];
    all.insert(all.end(), {e.local, e.first, e.slots, e.first_tile, e.tiles, static_cast<std::int64_t>(order[i])});
  }
  for (const auto& part : {tiles, slot_lines, slot_of}) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::shared_ptr<Context> threads(int n) { return *Context::create("{\"threads\":" + std::to_string(n) + "}", {}); }

// Tasks one after another from the last to the first, as an injected parallel_for may.
Parallel backwards() {
  return {.num_threads = 5, .self = nullptr, .run = [](void*, std::size_t count, TaskFn task, void* arg) {
            for (std::size_t i = count; i-- > 0;) task(arg, i);
            return ok();
          }};
}

TEST(Plan, IsThePlainSortForEveryNumberOfThreads) {
  const auto two = threads(2), seven = threads(7);
  int cut = 0;  // batches that are sorted in parts
  std::uint32_t seed = 1;
  for (const std::int64_t tokens : {1, 2, 17, 500, 511, 512, 1000, 2049, 6000})
    for (const ExpertCopies experts :
         {ExpertCopies{1, 1}, ExpertCopies{8, 8}, ExpertCopies{60, 97}, ExpertCopies{128, 256}})
      for (const auto& [tile_rows, few, few_rows] : {std::array{12, 0, 1}, {16, 0, 1}, {128, 31, 8}, {64, 20, 3}}) {
        const std::int64_t first_token = tokens % 2 == 0 ? 0 : 4099;  // of a later chunk
        Ids in({tokens, tokens == 2049 ? 1 : 8, experts, tile_rows, first_token, few, few_rows}, seed++);
        SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(experts.physical) + " experts");
        const std::vector<std::int64_t> want = plain(in);
        for (const Parallel& parallel : {Parallel{}, two->parallel(), seven->parallel(), backwards()}) {
          const Built got(in, parallel);
          ASSERT_EQ(flat(got.plan, in.shape), want) << parallel.num_threads << " threads";
          ASSERT_TRUE(got.kept_inside);
          ASSERT_LE(got.plan.num_tiles, in.shape.max_tiles());
        }
        cut += slot_parts(in.shape.slots()) > 1;
      }
  EXPECT_GE(cut, 48);
}

// Every expert has the most slots that are cut small.
TEST(Plan, MemoryOfTheMostTiles) {
  Ids in({31 * 8, 1, {8, 8}, 128, 0, 31, 8}, 1);
  std::fill(in.expert_map.begin(), in.expert_map.end(), 0);
  for (std::int64_t t = 0; t < in.shape.tokens; ++t)
    in.ids64[static_cast<std::size_t>(t * in.stride)] = in.ids32[static_cast<std::size_t>(t * in.stride)] =
        static_cast<std::int32_t>(t % 8);
  const Built got(in, {});
  EXPECT_EQ(got.plan.num_tiles, 8 * 4);
  EXPECT_EQ(flat(got.plan, in.shape), plain(in));
  EXPECT_LE(got.plan.num_tiles, in.shape.max_tiles());
}

TEST(Plan, PartsDependOnTheBatchAlone) {
  EXPECT_EQ(slot_parts(0), 1);
  EXPECT_EQ(slot_parts(2 * kSlotsPerPart - 1), 1);
  EXPECT_EQ(slot_parts(2 * kSlotsPerPart), 2);
  EXPECT_EQ(slot_parts(1000 * kSlotsPerPart), kMaxSlotParts);
}

// The first wrong id in the order of the batch, however many parts have one.
TEST(CheckIds, NamesTheFirstWrongOne) {
  const auto seven = threads(7);
  std::mt19937 rng(3);
  for (const std::int64_t tokens : {3, 100, 5000})
    for (int round = 0; round < 10; ++round) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * 8));
      for (auto& id : ids) id = static_cast<std::int32_t>(rng() % 33) - 1;
      const TensorView view = row_major(DType::i32, {tokens, 8}, ids.data());
      for (const Parallel& parallel : {Parallel{}, seven->parallel(), backwards()})
        ASSERT_TRUE(check_ids(view, {.end = 32}, parallel));
      std::size_t first = ids.size();
      for (int n = 0; n <= round; ++n) {
        const std::size_t at = rng() % ids.size();
        ids[at] = n % 2 == 0 ? 32 : std::numeric_limits<std::int32_t>::min();
        first = std::min(first, at);
      }
      for (const Parallel& parallel : {Parallel{}, seven->parallel(), backwards()}) {
        const Check c = check_ids(view, {.end = 32}, parallel);
        ASSERT_FALSE(c);
        EXPECT_EQ(c.error().code, Code::invalid_argument);
        EXPECT_EQ(c.error().subject, "topk_ids[" + std::to_string(first / 8) + "," + std::to_string(first % 8) + "]");
        EXPECT_NE(c.error().message.find(std::to_string(ids[first])), std::string::npos);
      }
    }
}

}  // namespace
}  // namespace moe::test::plan_test
