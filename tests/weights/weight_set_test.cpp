// Setting tensors by role: which are accepted, who owns them when, what is missing, what comes out.
#include "weights/weight_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "support/memory_source.h"
#include "support/rooms.h"
#include "weights/weight_fixture.h"

namespace moe::test::weight_set_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Stacked {
  Owned w13 = filled<std::int8_t>(DType::i8, {4, 64, 64}, 3), w2 = filled<std::int8_t>(DType::i8, {4, 64, 32}, -2);
  Owned s13 = filled<float>(DType::f32, {4, 64, 2}, 0.5f), s2 = filled<float>(DType::f32, {4, 64, 1}, 0.25f);

  template <class T>
  static Owned filled(DType dtype, std::initializer_list<std::int64_t> shape, T value) {
    const auto n = static_cast<std::size_t>(row_major(dtype, shape, nullptr).numel());
    return owned(dtype, shape, std::vector<T>(n, value).data());
  }
};

Error set_error(Role role, const TensorView& v, const LayerSpec& spec = {}) {
  Releases r;
  WeightSet set(config_of(spec));
  const Check c = set.set(role, v, r.owner());
  EXPECT_FALSE(c);
  EXPECT_EQ(r.count, 1);
  EXPECT_EQ(set.missing().size(), WeightSet(config_of(spec)).missing().size());
  return c ? Error{} : c.error();
}

TEST(WeightSet, StackedRoles) {
  const Stacked t;
  WeightSet set(config_of({}));
  EXPECT_EQ(set.missing().size(), 16u);
  EXPECT_THAT(set.missing(3), ElementsAre("w13_weight[0]", "w13_weight[1]", "w13_weight[2]"));
  ASSERT_TRUE(set.set(Role::w13_weight, t.w13.view, {}));
  ASSERT_TRUE(set.set(Role::w2_weight, t.w2.view, {}));
  ASSERT_TRUE(set.set(Role::w13_scale, t.s13.view, {}));
  EXPECT_THAT(set.missing(), ElementsAre("w2_scale[0]", "w2_scale[1]", "w2_scale[2]", "w2_scale[3]"));
  const Check incomplete = set.check_complete();
  ASSERT_FALSE(incomplete);
  EXPECT_EQ(incomplete.error().code, Code::missing_weight);
  EXPECT_EQ(incomplete.error().subject, "w2_scale[0]");
  EXPECT_THAT(incomplete.error().message, HasSubstr("w2_scale[0-3]"));
  EXPECT_THAT(incomplete.error().details, HasSubstr("\"w2_scale[2]\""));
  ASSERT_TRUE(set.set(Role::w2_scale, t.s2.view, {}));
  EXPECT_TRUE(set.check_complete());
  const auto all = set.tensor(Role::w2_weight, -1);
  ASSERT_TRUE(all);
  EXPECT_FALSE(all->owns());
  EXPECT_EQ(all->view.data, t.w2.view.data);
  const auto one = set.tensor(Role::w2_weight, 2);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->view.data, t.w2.view.data + 2 * 64 * 32);
  EXPECT_EQ(one->view.ndim, 2);
}

TEST(WeightSet, ReplacingReleasesTheOldOne) {
  const Stacked t;
  Releases first, second;
  {
    WeightSet set(config_of({}));
    ASSERT_TRUE(set.set(Role::w2_scale, t.s2.view, first.owner()));
    EXPECT_EQ(first.count, 0);
    ASSERT_TRUE(set.set(Role::w2_scale, t.s2.view, second.owner()));
    EXPECT_EQ(first.count, 1);
    EXPECT_EQ(second.count, 0);
  }
  EXPECT_EQ(second.count, 1);
}

TEST(WeightSet, RefusedTensors) {
  const Stacked t;
  TensorView v = t.w13.view;
  v.dtype = DType::u8;
  EXPECT_EQ(set_error(Role::w13_weight, v).code, Code::dtype);
  v = t.w13.view;
  v.dtype = DType::i32;
  const Error e = set_error(Role::w13_weight, v);
  EXPECT_EQ(e.subject, "w13_weight");
  EXPECT_THAT(e.message, testing::AllOf(HasSubstr("i8"), HasSubstr("i32")));
  v = t.s13.view;
  v.dtype = DType::f64;
  EXPECT_EQ(set_error(Role::w13_scale, v).code, Code::dtype);
  // H3: every extent of every tensor
  for (const auto& [role, view] : {std::pair{Role::w13_weight, t.w13.view}, std::pair{Role::w2_weight, t.w2.view},
                                   std::pair{Role::w13_scale, t.s13.view}, std::pair{Role::w2_scale, t.s2.view}})
    for (std::size_t d = 0; d < 3; ++d)
      for (const std::int64_t extent : {std::int64_t{0}, std::int64_t{-1}, view.shape[d] + 1, view.shape[d] - 1,
                                        std::int64_t{1} << 31, std::int64_t{1} << 32, INT64_MAX}) {
        v = view;
        v.shape[d] = extent;
        EXPECT_EQ(set_error(role, v).code, Code::shape);
      }
  for (int rank = 0; rank <= kMaxDims; ++rank) {
    v = t.w13.view;
    v.ndim = rank;
    if (rank == 3) continue;
    EXPECT_EQ(set_error(Role::w13_weight, v).code, Code::shape) << rank;
  }
  v = t.w13.view;
  v.nbytes -= 1;
  EXPECT_EQ(set_error(Role::w13_weight, v).code, Code::shape);
  for (const std::int64_t stride : {std::int64_t{-1}, INT64_MAX, INT64_MIN, std::int64_t{1} << 62}) {
    v = t.w13.view;
    v.strides[1] = stride;
    EXPECT_EQ(set_error(Role::w13_weight, v).code, Code::shape) << stride;
  }
  EXPECT_THAT(set_error(Role::w2_scale, t.s13.view).message,
              testing::AllOf(HasSubstr("[4, 64, 1]"), HasSubstr("[4, 64, 2]")));
}

TEST(WeightSet, SaysWhyARoleHasNoPlace) {
  const struct {
    const char* format;
    Role role;
    const char* why;
  } rows[] = {{"int-quantized", Role::w13_bias, "w13_bias: has_bias is false in this config"},
              {"pack-quantized", Role::w2_bias, "w2_bias: has_bias is false in this config"},
              {"int-quantized", Role::w13_scale_2, "the format 'int-quantized' of this config has no such tensor"},
              {"pack-quantized", Role::w13_zero_point, "symmetric, without zero points"},
              {"pack-quantized", Role::w2_g_idx, "no activation order"}};
  for (const auto& r : rows) {
    WeightSet set(config_of({.format = r.format}));
    const auto got = set.tensor(r.role, 0);
    ASSERT_FALSE(got) << r.why;
    EXPECT_EQ(got.error().code, Code::unexpected_weight) << r.why;
    EXPECT_THAT(got.error().message, HasSubstr(r.why));
  }
}

TEST(WeightSet, RolesWithoutAPlace) {
  const Stacked t;
  for (const Role r : {Role::w13_zero_point, Role::w2_zero_point, Role::w13_scale_2, Role::w13_g_idx,
                       Role::w2_input_scale, Role::w13_bias, Role::w2_bias}) {
    const Error e = set_error(r, t.s13.view);
    EXPECT_EQ(e.code, Code::unexpected_weight);
    EXPECT_EQ(e.subject, role_name(r));
  }
  WeightSet set(config_of({}));
  EXPECT_EQ(set.tensor(Role::w13_bias, 0).error().code, Code::unexpected_weight);
  EXPECT_EQ(set.tensor(Role::w13_weight, 0).error().code, Code::missing_weight);
  EXPECT_EQ(set.tensor(Role::w13_weight, 0).error().subject, "w13_weight[0]");
  EXPECT_EQ(set.tensor(Role::w13_weight, 4).error().code, Code::invalid_argument);
  EXPECT_EQ(set.tensor(Role::w13_weight, -2).error().code, Code::invalid_argument);
}

TEST(WeightSet, PerExpertAndHalves) {
  const Stacked t;
  Releases r;
  WeightSet set(config_of({}));
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 2, Half::w1, rows(slice0(t.w13.view, 2), 0, 32), r.owner()));
  EXPECT_THAT(set.missing(4), ElementsAre("w13_weight[0]", "w13_weight[1]", "w13_weight[2].w3", "w13_weight[3]"));
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 1, Half::w3, rows(slice0(t.w13.view, 1), 32, 32), {}));
  EXPECT_THAT(set.missing(2), ElementsAre("w13_weight[0]", "w13_weight[1].w1"));
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 2, Half::w1, rows(slice0(t.w13.view, 2), 0, 32), {}));
  EXPECT_EQ(r.count, 1);
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 0, Half::whole, slice0(t.w13.view, 0), {}));
  EXPECT_EQ(set.get({Role::w13_weight, 1, Half::whole}).error().code, Code::missing_weight);
  EXPECT_TRUE(set.get({Role::w13_weight, 1, Half::w3}));
}

TEST(WeightSet, PerExpertRefusals) {
  const Stacked t;
  WeightSet set(config_of({}));
  const TensorView one = slice0(t.w13.view, 0), gate = rows(one, 0, 32);
  const auto code = [&](Role role, std::int64_t expert, Half half, const TensorView& v) {
    Releases r;
    const Check c = set.set_expert(role, expert, half, v, r.owner());
    EXPECT_FALSE(c);
    EXPECT_EQ(r.count, 1);
    return c ? Code::ok : c.error().code;
  };
  for (const std::int64_t e : {std::int64_t{-1}, std::int64_t{4}, INT64_MIN, INT64_MAX})
    EXPECT_EQ(code(Role::w13_weight, e, Half::whole, one), Code::invalid_argument);
  EXPECT_EQ(code(Role::w13_weight, 0, Half::w1, one), Code::shape);
  EXPECT_EQ(code(Role::w13_weight, 0, Half::whole, gate), Code::shape);
  EXPECT_EQ(code(Role::w2_weight, 0, Half::w1, slice0(t.w2.view, 0)), Code::invalid_argument);
  // Forms do not mix, and nothing changed by trying.
  ASSERT_TRUE(set.set(Role::w13_weight, t.w13.view, {}));
  EXPECT_EQ(code(Role::w13_weight, 0, Half::whole, one), Code::state);
  ASSERT_TRUE(set.set_expert(Role::w2_weight, 3, Half::whole, slice0(t.w2.view, 3), {}));
  EXPECT_EQ(set.set(Role::w2_weight, t.w2.view, {}).error().code, Code::state);
  ASSERT_TRUE(set.set_expert(Role::w13_scale, 0, Half::w1, rows(slice0(t.s13.view, 0), 0, 32), {}));
  EXPECT_EQ(code(Role::w13_scale, 0, Half::whole, slice0(t.s13.view, 0)), Code::state);
  ASSERT_TRUE(set.set_expert(Role::w13_scale, 1, Half::whole, slice0(t.s13.view, 1), {}));
  EXPECT_EQ(code(Role::w13_scale, 1, Half::w3, rows(slice0(t.s13.view, 1), 0, 32)), Code::state);
}

TEST(WeightSet, ExpertsOfOtherRanksAreReleasedAtOnce) {
  const Stacked t;
  const auto config = config_of({.more = R"(,"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true})"});
  ASSERT_EQ(local_experts(*config), (std::vector<std::int64_t>{2, 3}));
  Releases r;
  WeightSet set(config);
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 1, Half::whole, slice0(t.w13.view, 1), r.owner()));
  EXPECT_EQ(r.count, 1);
  EXPECT_THAT(set.missing(1), ElementsAre("w13_weight[2]"));
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 3, Half::whole, slice0(t.w13.view, 3), r.owner()));
  EXPECT_EQ(r.count, 1);
  EXPECT_EQ(set.set(Role::w2_weight, t.w2.view, {}).error().code,
            Code::shape);  // [4, ...] instead of this rank's [2, ...]
  ASSERT_TRUE(set.set(Role::w2_weight, rows(t.w2.view, 2, 2), {}));
  EXPECT_EQ(set.tensor(Role::w2_weight, 3)->view.data, t.w2.view.data + 3 * 64 * 32);
  EXPECT_EQ(set.tensor(Role::w2_weight, 0).error().code, Code::invalid_argument);
  EXPECT_EQ(nlohmann::json::parse(set.to_json())["experts"], nlohmann::json({2, 3}));
}

// Four experts and four copies on two ranks, in turn: rank 1 holds 1, 3, and their copies 5 and 7.
TEST(WeightSet, SourcesOfRedundantExpertsAreLogical) {
  const Stacked t;
  const auto config = config_of({.more = R"(,"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true,
      "enable_eplb":true,"num_redundant_experts":4,"expert_placement_strategy":"round_robin"})"});
  ASSERT_EQ(local_experts(*config), (std::vector<std::int64_t>{1, 3, 5, 7}));
  Releases both, alone, foreign;
  WeightSet set(config);
  EXPECT_THAT(set.missing(2), ElementsAre("w13_weight[1]", "w13_weight[3]"));  // as a checkpoint names them
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 0, Half::whole, slice0(t.w13.view, 0), foreign.owner()));
  EXPECT_EQ(foreign.count, 1);
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 3, Half::whole, slice0(t.w13.view, 3), both.owner()));
  EXPECT_THAT(set.missing(1), ElementsAre("w13_weight[1]"));
  for (const std::int64_t place : {3, 7})
    EXPECT_EQ(set.tensor(Role::w13_weight, place)->view.data, t.w13.view.data + 3 * 64 * 64) << place;
  // a number beyond the logical ones is that copy alone
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 7, Half::whole, slice0(t.w13.view, 2), alone.owner()));
  EXPECT_EQ(set.tensor(Role::w13_weight, 3)->view.data, t.w13.view.data + 3 * 64 * 64);
  EXPECT_EQ(set.tensor(Role::w13_weight, 7)->view.data, t.w13.view.data + 2 * 64 * 64);
  EXPECT_EQ(both.count, 0);  // the first place still uses it
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 5, Half::whole, slice0(t.w13.view, 1), {}));
  EXPECT_THAT(set.missing(1), ElementsAre("w13_weight[1]"));  // the other place of expert 1 is empty
  ASSERT_TRUE(set.set_expert(Role::w13_weight, 3, Half::whole, slice0(t.w13.view, 0), {}));
  EXPECT_EQ(both.count, 1);
  EXPECT_EQ(alone.count, 1);
  EXPECT_EQ(set.set_expert(Role::w13_weight, 8, Half::whole, slice0(t.w13.view, 0), {}).error().subject, "expert");
}

TEST(WeightSet, ReleaseExpertByExpert) {
  const Stacked t;
  Releases stacked, single;
  WeightSet set(config_of({}));
  ASSERT_TRUE(set.set(Role::w13_weight, t.w13.view, stacked.owner()));
  for (std::int64_t e = 0; e < 4; ++e)
    ASSERT_TRUE(set.set_expert(Role::w2_weight, e, Half::whole, slice0(t.w2.view, e), single.owner()));
  for (std::int64_t e = 0; e < 4; ++e) {
    EXPECT_EQ(stacked.count, 0);
    EXPECT_EQ(single.count, e);
    set.release_expert(e);
  }
  EXPECT_EQ(stacked.count, 1);
  EXPECT_EQ(single.count, 4);
  EXPECT_EQ(set.missing().size(), 16u);
  set.clear();
  EXPECT_EQ(stacked.count + single.count, 5);
}

TEST(WeightSet, ClearEndsEverything) {
  const Stacked t;
  Releases r;
  WeightSet set(config_of({}));
  ASSERT_TRUE(set.set(Role::w13_weight, t.w13.view, r.owner()));
  ASSERT_TRUE(set.set_expert(Role::w2_weight, 0, Half::whole, slice0(t.w2.view, 0), r.owner()));
  set.clear();
  EXPECT_EQ(r.count, 2);
}

TEST(WeightSet, Json) {
  const Stacked t;
  WeightSet set(config_of({}));
  ASSERT_TRUE(set.set(Role::w13_scale, t.s13.view, {}));
  const auto j = nlohmann::json::parse(set.to_json());
  EXPECT_EQ(j["complete"], false);
  EXPECT_EQ(j["missing"].size(), 12u);
  EXPECT_EQ(j["unexpected"], nlohmann::json::array());
  EXPECT_EQ(j["experts"], nlohmann::json({0, 1, 2, 3}));
  ASSERT_EQ(j["tensors"].size(), 1u);
  EXPECT_EQ(
      j["tensors"][0],
      nlohmann::json::parse(
          R"({"role":"w13_scale","dtype":"f32","shape":[4,64,2],"part":{"row0":0,"rows":32,"col0":0,"cols":64}})"));
}

// A message is for people: its details have all names.
TEST(WeightSet, ManyMissingWeights) {
  const Check c = WeightSet(config_of({.experts = 40'000})).check_complete();
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().code, Code::missing_weight);
  EXPECT_EQ(c.error().message,
            "160000 weights were never set: w13_weight[0-39999], w2_weight[0-39999], w13_scale[0-39999], "
            "w2_scale[0-39999]");
  EXPECT_EQ(c.error().subject, "w13_weight[0]");
  EXPECT_EQ(nlohmann::json::parse("{" + c.error().details + "}")["missing"].size(), 160'000u);
}

TEST(WeightSet, ARankSaysNothingOfOtherRanksExperts) {
  LayerSpec spec;
  spec.experts = 8, spec.more = R"(,"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true})";
  EXPECT_EQ(WeightSet(config_of(spec)).check_complete().error().message,
            "16 weights were never set: w13_weight[4-7], w2_weight[4-7], w13_scale[4-7], w2_scale[4-7]; they are of "
            "experts 4 to 7 of 8");
}

TEST(WeightSet, WeightsOfFewerExperts) {
  const Stacked t;
  const auto message = [&](std::int64_t step) {
    WeightSet set(config_of({.experts = 1000}));
    for (std::int64_t e = 0; e < (step == 1 ? 4 : 1000); e += step) {
      const auto set_one = [&](Role role, const Owned& of) {
        EXPECT_TRUE(set.set_expert(role, e, Half::whole, slice0(of.view, e % 4), {}));
      };
      set_one(Role::w13_weight, t.w13), set_one(Role::w2_weight, t.w2);
      set_one(Role::w13_scale, t.s13), set_one(Role::w2_scale, t.s2);
    }
    return set.check_complete().error().message;
  };
  EXPECT_EQ(message(1),
            "3984 weights were never set: w13_weight[4-999], w2_weight[4-999], w13_scale[4-999], w2_scale[4-999]; they "
            "are of experts 4 to 999 of 1000; the weights are those of 4 experts, and num_experts is 1000");
  EXPECT_EQ(message(2).rfind("2000 weights were never set: w13_weight[1], w13_weight[3], ", 0), 0u);
  EXPECT_LE(message(2).size(), 1200u);
  std::smatch rest;
  const std::string all = message(2);
  ASSERT_TRUE(std::regex_search(all, rest, std::regex(", and (\\d+) more$")));
  EXPECT_EQ(std::count(all.begin(), all.end(), '[') + std::stoll(rest[1]), 2000);
}

TEST(WeightSet, FormatsThatAreNotRead) {
  auto config = *config_of({});
  config.quantization.format = Format::gptq;
  WeightSet set(std::make_shared<const Config>(config));
  const Stacked t;
  EXPECT_EQ(set.set(Role::w13_weight, t.w13.view, {}).error().code, Code::unsupported);
  EXPECT_EQ(set.set_named("model.layers.0.mlp.experts.0.gate_proj.weight", t.w13.view, {}).error().code,
            Code::unsupported);
  EXPECT_EQ(set.check_complete().error().code, Code::unsupported);
  EXPECT_EQ(set.get({Role::w13_weight, 0}).error().code, Code::unsupported);
}

TEST(WeightSet, JoinedTensors) {
  for (const char* order : {"gate_up", "up_gate", "interleaved"}) {
    LayerSpec spec;
    if (std::string(order) != "gate_up") spec.more = std::string(R"(,"w13_layout":")") + order + "\"";
    const PlainLayer layer(spec);
    WeightSet set(config_of(spec));
    for (std::int64_t e = 0; e < 4; ++e) {
      ASSERT_TRUE(set.set_expert(Role::w13_weight, e, Half::w1,
                                 row_major(DType::i8, {32, 64}, layer.gate.data() + e * 32 * 64), {}));
      ASSERT_TRUE(set.set_expert(Role::w13_weight, e, Half::w3,
                                 row_major(DType::i8, {32, 64}, layer.up.data() + e * 32 * 64), {}));
      ASSERT_TRUE(set.set_expert(Role::w2_weight, e, Half::whole,
                                 row_major(DType::i8, {64, 32}, layer.down.data() + e * 64 * 32), {}));
    }
    const auto all = set.tensor(Role::w13_weight, -1);
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_TRUE(all->owns());
    ASSERT_EQ(all->view.ndim, 3);
    const auto one = set.tensor(Role::w13_weight, 3);
    ASSERT_TRUE(one);
    EXPECT_EQ(std::memcmp(one->view.data, all->view.data + 3 * 64 * 64, 64 * 64), 0);
    for (std::int64_t r = 0; r < 64; ++r) {
      const bool inter = std::string(order) == "interleaved", up_first = std::string(order) == "up_gate";
      const bool up = inter ? r % 2 == 1 : (r >= 32) != up_first;
      const std::int64_t i = inter ? r / 2 : r % 32;
      EXPECT_EQ(std::memcmp(one->view.data + r * 64, (up ? layer.up : layer.gate).data() + (3 * 32 + i) * 64, 64), 0)
          << order << r;
    }
    EXPECT_EQ(std::memcmp(set.tensor(Role::w2_weight, -1)->view.data, layer.down.data(), layer.down.size()), 0);
    // What comes out can be set again, stacked.
    WeightSet again(config_of(spec));
    EXPECT_TRUE(again.set(Role::w13_weight, all->view, {}));
  }
}

TEST(WeightSet, PartsOfTwoTypesCannotBeJoined) {
  const Stacked t;
  std::vector<std::uint16_t> half(64);
  WeightSet set(config_of({}));
  ASSERT_TRUE(set.set_expert(Role::w13_scale, 0, Half::w1, rows(slice0(t.s13.view, 0), 0, 32), {}));
  ASSERT_TRUE(set.set_expert(Role::w13_scale, 0, Half::w3, row_major(DType::bf16, {32, 2}, half.data()), {}));
  EXPECT_EQ(set.tensor(Role::w13_scale, 0).error().code, Code::dtype);
  EXPECT_TRUE(set.get({Role::w13_scale, 0, Half::w3}));
}

// --- callback sources ------------------------------------------------------------------------------------

class LyingSource : public MemorySource {
 public:
  void (*change)(TensorView&) = nullptr;
  mutable int puts = 0;
  Result<TensorLease> get(const Place& p) const override {
    auto lease = MemorySource::get(p);
    if (!lease) return lease;
    TensorView v = lease->view;
    if (change != nullptr) change(v);
    return TensorLease(v, this, p);
  }
  void put(const Place&, const TensorView&) const override { ++puts; }
};

TEST(WeightSource, AnswersAreChecked) {
  const Stacked t;
  auto source = std::make_shared<LyingSource>();
  source->set_stacked(Role::w2_weight, t.w2.view);
  const WeightSet set(config_of({}), source);
  EXPECT_TRUE(set.check_complete());
  EXPECT_TRUE(nlohmann::json::parse(set.to_json())["complete"].get<bool>());
  {
    const auto good = set.get({Role::w2_weight, 1});
    ASSERT_TRUE(good);
    EXPECT_EQ(source->puts, 0);
  }
  EXPECT_EQ(source->puts, 1);
  EXPECT_EQ(set.get({Role::w13_weight, 1}).error().code, Code::missing_weight);
  struct Lie {
    void (*change)(TensorView&);
    Code want;
  };
  for (const Lie lie :
       {Lie{[](TensorView& v) { v.dtype = DType::u8; }, Code::dtype},
        Lie{[](TensorView& v) { v.dtype = static_cast<DType>(77); }, Code::dtype},
        Lie{[](TensorView& v) { v.shape[0] = 63; }, Code::shape}, Lie{[](TensorView& v) { v.ndim = 1; }, Code::shape},
        Lie{[](TensorView& v) { v.ndim = 6; }, Code::shape}, Lie{[](TensorView& v) { v.nbytes = 100; }, Code::shape},
        Lie{[](TensorView& v) { v.strides[0] = -1; }, Code::shape},
        Lie{[](TensorView& v) { v.data = nullptr; }, Code::invalid_argument}}) {
    source->change = lie.change;
    source->puts = 0;
    const auto r = set.get({Role::w2_weight, 1});
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().code, lie.want);
    EXPECT_EQ(r.error().subject, "w2_weight[1]");
    EXPECT_EQ(source->puts, 1);  // what was given is given back
  }
}

TEST(WeightSource, TakesNoTensorsItself) {
  const Stacked t;
  Releases r;
  WeightSet set(config_of({}), std::make_shared<LyingSource>());
  EXPECT_EQ(set.set(Role::w2_weight, t.w2.view, r.owner()).error().code, Code::state);
  EXPECT_EQ(r.count, 1);
  EXPECT_EQ(set.load_safetensors("x", nullptr).error().code, Code::state);
}

TEST(WeightSource, ConvertsLikeSetTensors) {
  const PlainLayer layer({});
  auto source = std::make_shared<LyingSource>();
  WeightSet set(config_of({}));
  const auto give = [&](Role role, const TensorView& stacked, Half half) {
    for (std::int64_t e = 0; e < 4; ++e) {
      source->set(role, e, slice0(stacked, e), half);
      ASSERT_TRUE(set.set_expert(role, e, half, slice0(stacked, e), {}));
    }
  };
  give(Role::w13_weight, row_major(DType::i8, {4, 32, 64}, layer.gate.data()), Half::w1);
  give(Role::w13_weight, row_major(DType::i8, {4, 32, 64}, layer.up.data()), Half::w3);
  give(Role::w13_scale, row_major(DType::f32, {4, 32, 2}, layer.gate_scale.data()), Half::w1);
  give(Role::w13_scale, row_major(DType::f32, {4, 32, 2}, layer.up_scale.data()), Half::w3);
  give(Role::w2_weight, row_major(DType::i8, {4, 64, 32}, layer.down.data()), Half::whole);
  give(Role::w2_scale, row_major(DType::f32, {4, 64, 1}, layer.down_scale.data()), Half::whole);
  EXPECT_EQ(convert_set(WeightSet(config_of({}), source)), convert_set(set));
  EXPECT_EQ(source->puts, 4 * 6);
}

}  // namespace
}  // namespace moe::test::weight_set_test
