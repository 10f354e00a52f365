// Redundant experts (EPLB): ranks place physical copies, sources, ids and logits are those of the checkpoint, and the
// results are those of a layer without copies. Which copy a row takes is computed here by itself (routing.md 8).
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "support/ranks.h"
#include "support/rooms.h"

namespace moe::test::parallel_eplb_test {
namespace {

struct Case {
  int ranks;
  std::int64_t experts, redundant;
  const char* strategy;
};
const Case kCases[] = {
    {2, 6, 2, "linear"},      {4, 6, 2, "linear"},
    {2, 8, 8, "round_robin"},  // a rank holds both copies of its experts
    {4, 5, 3, "linear"},      {2, 4, 10, "round_robin"},
    {2, 8, 0, "linear"},
};

Model model_of(const Case& c) {
  Model m;
  m.E = c.experts, m.K = 3, m.H = 64, m.I = 96, m.T = 40, m.bias = true;
  m = random_model(std::move(m), static_cast<std::uint32_t>(c.experts * 100 + c.redundant));
  std::mt19937 rng(3);
  for (std::size_t s = 0; s < m.ids.size(); s += 3) {
    std::vector<std::int32_t> all;
    for (std::int32_t e = 0; e < m.E; ++e) all.push_back(e);
    std::shuffle(all.begin(), all.end(), rng);
    std::copy_n(all.begin(), 3, m.ids.begin() + static_cast<std::ptrdiff_t>(s));
  }
  m.ids[7] = -1;
  return m;
}

nlohmann::json parallel_of(const Case& c) {
  return {{"enable_expert_parallel", true},
          {"enable_eplb", true},
          {"num_redundant_experts", c.redundant},
          {"expert_placement_strategy", c.strategy}};
}

std::string name_of(const Case& c) {
  return std::to_string(c.ranks) + " ranks, " + std::to_string(c.experts) + "+" + std::to_string(c.redundant);
}

// The copy that row t takes of expert e.
std::int64_t physical_of(const Case& c, std::int64_t t, std::int64_t e) {
  std::vector<std::int64_t> copies;
  for (std::int64_t p = 0; p < c.experts + c.redundant; ++p)
    if ((p < c.experts ? p : (p - c.experts) % c.experts) == e) copies.push_back(p);
  const std::uint64_t hash = static_cast<std::uint64_t>(t) * 2654435769u % (std::uint64_t{1} << 32);
  return copies[static_cast<std::size_t>(hash % copies.size())];
}

bool holds(const Rank& r, std::int64_t physical) {
  return std::find(r.experts.begin(), r.experts.end(), physical) != r.experts.end();
}

TEST(RedundantExperts, CopiesAreTheCheckpointsExperts) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const Rank whole = whole_layer(m);
    const auto bytes = [](const Rank& r, std::int64_t expert) {
      moe_tensor t{};
      t.struct_size = sizeof t;
      EXPECT_EQ(moe_packed_get(r.packed.get(), "w13_packed", expert, &t, nullptr), MOE_OK) << expert;
      return std::string(static_cast<const char*>(t.data), static_cast<std::size_t>(t.shape[0]));
    };
    for (const Source source : kSources) {
      std::set<std::int64_t> seen;
      for (const Rank& r : make_ranks(m, parallel_of(c), c.ranks, source))
        for (const std::int64_t p : r.experts) {
          EXPECT_TRUE(seen.insert(p).second);
          EXPECT_EQ(bytes(r, p), bytes(whole, p % c.experts)) << p;
        }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), c.experts + c.redundant);
    }
  }
}

TEST(RedundantExperts, EveryRowIsComputedOnceAndHasTheBitsOfTheLayerWithout) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const Rank whole = whole_layer(m);
    const auto want = slot_rows(whole.layer.get(), m);
    const auto ranks = make_ranks(m, parallel_of(c), c.ranks, Source::file);
    const auto h = static_cast<std::size_t>(m.H);
    std::vector<Floats> returned(want.size(), Floats(want[0].size()));
    for (const Rank& r : ranks) {
      const auto rows = slot_rows(r.layer.get(), m);
      Model own = m;
      for (std::size_t s = 0; s < m.ids.size(); ++s) {
        const std::size_t t = s / 3, j = s % 3;
        const bool here = m.ids[s] >= 0 && holds(r, physical_of(c, static_cast<std::int64_t>(t), m.ids[s]));
        if (!here) own.ids[s] = -1;
        for (std::size_t i = t * h; i < (t + 1) * h; ++i) {
          ASSERT_EQ(rows[j][i], here ? want[j][i] : 0.0f) << "slot " << t << "," << j << " expert " << m.ids[s];
          if (here) returned[j][i] = rows[j][i];
        }
      }
      // the rank's own sum: ascending experts of the checkpoint, whatever copies they are
      EXPECT_TRUE(same_bits(apply_topk(r.layer.get(), m), combine(own, rows)));
    }
    EXPECT_TRUE(same_bits(combine(m, returned), apply_topk(whole.layer.get(), m)));
  }
}

TEST(RedundantExperts, LogitsAndIdsOfTheCheckpoint) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    Model m = model_of(c);
    std::vector<float> weights;
    std::vector<std::int32_t> ids;
    apply_logits(whole_layer(m).layer.get(), m, &m.ids, &m.weights);
    std::uint64_t counted = 0;
    for (const Rank& r : make_ranks(m, parallel_of(c), c.ranks, Source::named)) {
      const Floats out = apply_logits(r.layer.get(), m, &ids, &weights);
      EXPECT_EQ(ids, m.ids);
      EXPECT_EQ(weights, m.weights);
      std::vector<std::uint64_t> counts(r.experts.size());
      ASSERT_EQ(moe_layer_expert_counts(r.layer.get(), counts.data(), counts.size(), 1, nullptr), MOE_OK);
      for (const std::uint64_t n : counts) counted += n;
      EXPECT_TRUE(same_bits(out, apply_topk(r.layer.get(), m)));
      // ids of copies are no ids of tokens
      std::vector<std::int32_t> beyond = m.ids;
      beyond[4] = static_cast<std::int32_t>(c.experts);
      const moe_tensor x = tensor(m.io_type(), {m.T, m.H}, m.x.data());
      Floats untouched(static_cast<std::size_t>(m.T * m.H), 5.0f);
      const moe_tensor y = tensor(MOE_DTYPE_F32, {m.T, m.H}, untouched.data()),
                       i = tensor(MOE_DTYPE_I32, {m.T, m.K}, beyond.data()),
                       w = tensor(MOE_DTYPE_F32, {m.T, m.K}, m.weights.data());
      moe_apply_args a{};
      a.struct_size = sizeof a;
      a.mode = MOE_APPLY_TOPK;
      a.hidden = &x, a.out = &y, a.topk_ids = &i, a.topk_weights = &w;
      const Failure f = failure([&](moe_error** e) { return moe_apply(r.layer.get(), &a, e); });
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(f.subject, "topk_ids[1,1]");
      EXPECT_EQ(untouched, Floats(untouched.size(), 5.0f));
    }
    EXPECT_EQ(counted, static_cast<std::uint64_t>(m.T * m.K));  // each slot on exactly one rank
  }
}

// Experts set by the checkpoint's numbers, and a callback source, which is asked for these alone.
TEST(RedundantExperts, SourcesAreLogical) {
  const Case c{2, 4, 4, "round_robin"};
  const Model m = model_of(c);
  auto parallel = parallel_of(c);
  parallel["tp_size"] = 2;
  parallel["tp_rank"] = 1;
  const Rank want = make_rank(m, config_of(m, parallel), Source::file);
  ASSERT_EQ(want.experts, (std::vector<std::int64_t>{1, 3, 5, 7}));
  const void* block = nullptr;
  std::uint64_t size = 0;
  ASSERT_EQ(moe_packed_data(want.packed.get(), &block, &size, nullptr), MOE_OK);
  const auto expect_same = [&](moe_weights* set) {
    const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, want.selection.get(), set, nullptr, o, e);
    });
    const void* data = nullptr;
    std::uint64_t bytes = 0;
    ASSERT_EQ(moe_packed_data(packed.get(), &data, &bytes, nullptr), MOE_OK);
    ASSERT_EQ(bytes, size);
    EXPECT_EQ(std::memcmp(data, block, size), 0);
  };

  struct Sources {
    Model m;
    std::vector<StackedTensor> tensors;
    std::set<std::int64_t> asked;
    moe_tensor expert(const char* role, std::int64_t e) const {
      for (const StackedTensor& s : tensors) {
        if (std::string(s.role) != role) continue;
        moe_tensor one = s.tensor;
        std::size_t bytes = static_cast<std::size_t>(dtype_bits(static_cast<DType>(one.dtype)) / 8);
        for (int d = 1; d < one.ndim; ++d) bytes *= static_cast<std::size_t>(one.shape[d - 1] = one.shape[d]);
        one.shape[--one.ndim] = 0;
        one.data = static_cast<char*>(one.data) + static_cast<std::size_t>(e) * bytes;
        return one;
      }
      return {};
    }
  } sources{m, stacked(m), {}};
  const WeightsPtr set =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(want.config.get(), o, e); });
  for (const StackedTensor& s : sources.tensors)
    for (std::int64_t e = 0; e < c.experts; ++e) {  // all of them: those of other ranks are let go
      const moe_tensor t = sources.expert(s.role, e);
      ASSERT_EQ(moe_weights_set_expert(set.get(), s.role, e, nullptr, &t, nullptr, nullptr, nullptr), MOE_OK);
    }
  expect_same(set.get());

  moe_weight_source_ops ops{};
  ops.struct_size = sizeof ops;
  ops.serial = 1;
  ops.user = &sources;
  ops.get = [](void* user, const char* role, int64_t expert, const char* shard, moe_tensor* out, moe_error**) {
    auto& s = *static_cast<Sources*>(user);
    if (shard != nullptr) return moe_status{MOE_ERR_MISSING_WEIGHT};
    s.asked.insert(expert);
    const std::uint32_t known = out->struct_size;
    *out = s.expert(role, expert);
    out->struct_size = known;
    return moe_status{MOE_OK};
  };
  const WeightsPtr asked = make<WeightsPtr>(
      [&](moe_weights** o, moe_error** e) { return moe_weights_create_from_source(want.config.get(), &ops, o, e); });
  expect_same(asked.get());
  EXPECT_EQ(sources.asked, (std::set<std::int64_t>{1, 3}));
}

}  // namespace
}  // namespace moe::test::parallel_eplb_test
