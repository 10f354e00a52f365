// Expert parallelism: two and four simulated ranks, each converted from the same whole checkpoint, against one rank.
// Rows of slots and their sum by the rule are the same bits; what a rank does not hold it neither reads nor computes.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "support/ranks.h"
#include "support/rooms.h"

namespace moe::test::parallel_ep_test {
namespace {

struct Case {
  int ranks;
  std::int64_t experts;
  const char* strategy;
  const char* dtype;
  std::int64_t group;
};
// experts % ranks != 0 in half of them
const Case kCases[] = {
    {2, 8, "linear", "float32", 32},      {2, 7, "linear", "bfloat16", -1},      {4, 8, "linear", "float16", 64},
    {4, 7, "linear", "float32", 32},      {2, 8, "round_robin", "bfloat16", 32}, {2, 7, "round_robin", "float32", -1},
    {4, 6, "round_robin", "float32", 32}, {4, 8, "round_robin", "bfloat16", 64},
};

Model model_of(const Case& c, std::int64_t top_k = 3) {
  Model m;
  m.E = c.experts, m.K = top_k, m.H = 64, m.I = 128, m.T = 9, m.group = c.group;
  m.dtype = c.dtype;
  m.bias = c.experts == 7;
  m = random_model(std::move(m), static_cast<std::uint32_t>(c.experts + c.ranks));
  std::mt19937 rng(11);
  for (std::int64_t t = 0; t < m.T; ++t) {  // distinct experts in any order, some slots empty
    std::vector<std::int32_t> all(static_cast<std::size_t>(m.E));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), rng);
    for (std::int64_t j = 0; j < m.K; ++j)
      m.ids[static_cast<std::size_t>(t * m.K + j)] = t == 4 && j == 1 ? -1 : all[static_cast<std::size_t>(j)];
  }
  return m;
}

nlohmann::json parallel_of(const Case& c) {
  return {{"enable_expert_parallel", true}, {"expert_placement_strategy", c.strategy}};
}

std::string name_of(const Case& c) {
  return std::to_string(c.ranks) + " ranks, " + std::to_string(c.experts) + " experts, " + c.strategy;
}

bool holds(const Rank& r, std::int64_t expert) {
  return std::find(r.experts.begin(), r.experts.end(), expert) != r.experts.end();
}

std::vector<std::byte> packed_bytes(const moe_packed* packed, const char* role, std::int64_t expert) {
  moe_tensor t{};
  t.struct_size = sizeof t;
  EXPECT_EQ(moe_packed_get(packed, role, expert, &t, nullptr), MOE_OK) << role << expert;
  const auto* data = static_cast<const std::byte*>(t.data);
  return {data, data + t.shape[0]};
}

TEST(ExpertParallel, EveryRankConvertsItsExpertsAndNoOthers) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const Rank whole = whole_layer(m);
    for (const Source source : kSources) {
      const auto ranks = make_ranks(m, parallel_of(c), c.ranks, source);
      std::vector<int> seen(static_cast<std::size_t>(c.experts));
      for (const Rank& r : ranks) {
        EXPECT_EQ(r.placement["strategy"], c.strategy);
        const auto told =
            json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(r.packed.get(), o, e); });
        EXPECT_EQ(told["experts"], r.placement["experts"]);
        for (const std::int64_t e : r.experts) {
          ++seen[static_cast<std::size_t>(e)];
          for (const char* role : {"w13_packed", "w2_packed"})
            EXPECT_EQ(packed_bytes(r.packed.get(), role, e), packed_bytes(whole.packed.get(), role, e)) << role << e;
        }
        moe_tensor none{};
        none.struct_size = sizeof none;
        const std::int64_t foreign = (r.experts[0] + 1) % c.experts;
        if (!holds(r, foreign)) {
          EXPECT_EQ(moe_packed_get(r.packed.get(), "w2_packed", foreign, &none, nullptr), MOE_ERR_INVALID_ARGUMENT);
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    }
  }
}

TEST(ExpertParallel, RowsAndTheirSumAreTheBitsOfOneRank) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const Rank whole = whole_layer(m);
    const auto ranks = make_ranks(m, parallel_of(c), c.ranks, Source::file);
    const auto want = slot_rows(whole.layer.get(), m);
    std::vector<std::vector<Floats>> of_rank;
    for (const Rank& r : ranks) of_rank.push_back(slot_rows(r.layer.get(), m));
    const auto h = static_cast<std::size_t>(m.H);
    std::vector<Floats> returned(want.size(), Floats(want[0].size()));
    for (std::size_t j = 0; j < want.size(); ++j)
      for (std::size_t t = 0; t < static_cast<std::size_t>(m.T); ++t) {
        const std::int32_t id = m.ids[t * want.size() + j];
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          const Floats row(of_rank[r][j].begin() + static_cast<std::ptrdiff_t>(t * h),
                           of_rank[r][j].begin() + static_cast<std::ptrdiff_t>((t + 1) * h));
          const Floats expected = holds(ranks[r], id)
                                      ? Floats(want[j].begin() + static_cast<std::ptrdiff_t>(t * h),
                                               want[j].begin() + static_cast<std::ptrdiff_t>((t + 1) * h))
                                      : Floats(h);
          ASSERT_TRUE(same_bits(row, expected)) << "rank " << r << " slot " << t << "," << j << " expert " << id;
          if (holds(ranks[r], id))
            std::copy(row.begin(), row.end(), returned[j].begin() + static_cast<std::ptrdiff_t>(t * h));
        }
      }
    const Floats single = apply_topk(whole.layer.get(), m);
    EXPECT_TRUE(same_bits(combine(m, returned), single));
    // each rank's own sum is the rule over its slots
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Model own = m;
      for (std::int32_t& id : own.ids) id = holds(ranks[r], id) ? id : -1;
      EXPECT_TRUE(same_bits(apply_topk(ranks[r].layer.get(), m), combine(own, returned))) << r;
    }
  }
}

// The plain sum of the outputs has other roundings: at most those of its additions.
TEST(ExpertParallel, ThePlainSumIsWithinItsRoundings) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const Rank whole = whole_layer(m);
    const auto rows = slot_rows(whole.layer.get(), m);
    const Floats single = apply_topk(whole.layer.get(), m);
    Floats sum(single.size());
    for (const Rank& r : make_ranks(m, parallel_of(c), c.ranks, Source::named)) {
      const Floats out = apply_topk(r.layer.get(), m);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += out[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      double size = 0;
      const std::size_t t = i / static_cast<std::size_t>(m.H);
      for (std::size_t j = 0; j < rows.size(); ++j)
        size += std::fabs(static_cast<double>(m.weights[t * rows.size() + j]) * static_cast<double>(rows[j][i]));
      ASSERT_LE(std::fabs(static_cast<double>(sum[i]) - static_cast<double>(single[i])),
                static_cast<double>(m.K + c.ranks) * 0x1p-23 * size)
          << i;
    }
  }
}

TEST(ExpertParallel, LinearRanksInOrderAccumulateToTheBitsOfOneRank) {
  for (const Case& c : kCases) {
    if (std::string(c.strategy) != "linear") continue;  // the ids of a rank must follow those of the rank before
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    Floats out(static_cast<std::size_t>(m.T * m.H));
    for (const Rank& r : make_ranks(m, parallel_of(c), c.ranks, Source::experts))
      out = apply_topk(r.layer.get(), m, m.ids, m.weights, std::move(out));
    EXPECT_TRUE(same_bits(out, apply_topk(whole_layer(m).layer.get(), m)));
  }
}

TEST(ExpertParallel, RoutingInsideEveryRankIsTheSame) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    Model m = model_of(c);
    const Rank whole = whole_layer(m);
    std::vector<std::int32_t> ids, ids_here;
    std::vector<float> weights, weights_here;
    const Floats single = apply_logits(whole.layer.get(), m, &ids, &weights);
    m.ids = ids;
    m.weights = weights;
    for (const Rank& r : make_ranks(m, parallel_of(c), c.ranks, Source::file)) {
      const Floats out = apply_logits(r.layer.get(), m, &ids_here, &weights_here);
      EXPECT_EQ(ids_here, ids);  // the model's numbers, also of experts that other ranks hold
      EXPECT_EQ(weights_here, weights);
      EXPECT_TRUE(same_bits(out, apply_topk(r.layer.get(), m)));
    }
    EXPECT_TRUE(same_bits(single, apply_topk(whole.layer.get(), m)));
  }
}

TEST(ExpertParallel, WeightOnTheInput) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    Model m = model_of(c, 1);
    m.on_input = true;
    const Floats single = apply_topk(whole_layer(m).layer.get(), m);
    Floats sum(single.size());
    for (const Rank& r : make_ranks(m, parallel_of(c), c.ranks, Source::file)) {
      const Floats out = apply_topk(r.layer.get(), m);
      for (std::size_t i = 0; i < out.size(); ++i) sum[i] += out[i];  // one rank's row and zeros: exact
    }
    EXPECT_TRUE(same_bits(sum, single));
  }
}

// NaN scales and codes out of range in the experts of other ranks: not read, not computed.
TEST(ExpertParallel, PoisonedForeignExpertsDoNothing) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const auto ranks = make_ranks(m, parallel_of(c), c.ranks, Source::file);
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Rank& clean = ranks[static_cast<std::size_t>(rank)];
      Model poisoned = m;
      for (std::int64_t e = 0; e < m.E; ++e) {
        if (holds(clean, e)) continue;
        const float nan = std::numeric_limits<float>::quiet_NaN();
        const auto width = static_cast<std::size_t>(2 * m.I * m.H), down = static_cast<std::size_t>(m.H * m.I);
        std::fill_n(poisoned.w13.begin() + e * 2 * m.I * m.H, width, std::int8_t{99});
        std::fill_n(poisoned.w2.begin() + e * m.H * m.I, down, std::int8_t{-128});
        std::memcpy(poisoned.s13.data() + static_cast<std::size_t>(e * 2 * m.I * m.groups(m.H)) * 4, &nan, 4);
        std::memcpy(poisoned.s2.data() + static_cast<std::size_t>(e * m.H * m.groups(m.I)) * 4, &nan, 4);
      }
      auto parallel = parallel_of(c);
      parallel["tp_size"] = c.ranks;
      parallel["tp_rank"] = rank;
      for (const Source source : {Source::file, Source::named}) {
        const Rank again = make_rank(poisoned, config_of(poisoned, parallel), source);
        EXPECT_TRUE(same_bits(apply_topk(again.layer.get(), m), apply_topk(clean.layer.get(), m)));
      }
      // one rank alone must refuse the same weights
      Rank all;
      all.config = make_config(config_of(m, nlohmann::json::object()));
      all.selection = make_selection(all.config.get());
      all.weights = make_weights(all.config.get(), poisoned);
      moe_packed* packed = nullptr;
      EXPECT_EQ(moe_convert_weights(nullptr, all.selection.get(), all.weights.get(), nullptr, &packed, nullptr),
                MOE_ERR_INVALID_ARGUMENT);
    }
  }
}

// A layer over all experts with a caller's map is the rank that the map describes.
TEST(ExpertParallel, ACallersMapIsARank) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const Rank whole = whole_layer(m);
    for (const Rank& r : make_ranks(m, parallel_of(c), c.ranks, Source::stacked)) {
      std::vector<std::int32_t> map(static_cast<std::size_t>(m.E), -1);
      for (const std::int64_t e : r.experts) map[static_cast<std::size_t>(e)] = static_cast<std::int32_t>(e);
      const moe_tensor t = tensor(MOE_DTYPE_I32, {m.E}, map.data());
      moe_layer_options options{};
      options.struct_size = sizeof options;
      options.expert_map = &t;
      const LayerPtr mapped = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
        return moe_layer_create(nullptr, whole.selection.get(), whole.packed.get(), &options, o, e);
      });
      EXPECT_TRUE(same_bits(apply_topk(mapped.get(), m), apply_topk(r.layer.get(), m)));
      // what a rank counts are its own slots
      std::vector<std::uint64_t> counts(r.experts.size());
      ASSERT_EQ(moe_layer_expert_counts(r.layer.get(), counts.data(), counts.size(), 1, nullptr), MOE_OK);
      for (std::size_t i = 0; i < counts.size(); ++i)
        EXPECT_EQ(static_cast<std::ptrdiff_t>(counts[i]), std::count(m.ids.begin(), m.ids.end(), r.experts[i]));
    }
  }
}

// A batch of which nothing belongs to this rank.
TEST(ExpertParallel, NoSlotHere) {
  Model m = model_of(kCases[0]);
  for (std::int32_t& id : m.ids) id = id < 0 ? id : id % 4;  // rank 0's
  const auto ranks = make_ranks(m, parallel_of(kCases[0]), 2, Source::file);
  EXPECT_TRUE(same_bits(apply_topk(ranks[1].layer.get(), m), Floats(static_cast<std::size_t>(m.T * m.H))));
  const Floats before(static_cast<std::size_t>(m.T * m.H), 3.25f);
  EXPECT_TRUE(same_bits(apply_topk(ranks[1].layer.get(), m, m.ids, m.weights, before), before));
}

// vLLM takes round_robin back to linear where it has no expert groups; its policy does the same, the default does not.
TEST(ExpertParallel, RoundRobinFallsBackUnderPolicyVllmOnly) {
  const Model m = model_of(kCases[4]);
  nlohmann::json parallel = parallel_of(kCases[4]);
  parallel["tp_size"] = 2;
  for (const auto& [policy, strategy] : {std::pair{"libmoe", "round_robin"}, std::pair{"vllm", "linear"}}) {
    const ConfigPtr config = make_config(config_of(m, parallel, {{"selection_policy", policy}}));
    const SelectionPtr selection = make<SelectionPtr>([&](moe_selection** o, moe_error** e) {
      return moe_select_backend(nullptr, config.get(), nullptr, MOE_SELECT_EXPLAIN_ONLY, o, e);
    });
    const auto told =
        json_of([&](moe_buffer** o, moe_error** e) { return moe_selection_to_json(selection.get(), o, e); });
    EXPECT_EQ(told["expert_placement"]["strategy"], strategy) << policy;
    WeightsPtr set =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    const auto weights = json_of([&](moe_buffer** o, moe_error** e) { return moe_weights_to_json(set.get(), o, e); });
    EXPECT_EQ(weights["experts"], told["expert_placement"]["experts"]) << policy;
  }
}

}  // namespace
}  // namespace moe::test::parallel_ep_test
