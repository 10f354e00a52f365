// The member "parallel": golden flattened sizes, ranks, experts, and the rules of config.md 13.
#include <gtest/gtest.h>

#include "config/documents.h"
#include "config/sections.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::parallel_test {
namespace {

using nlohmann::json;

TEST(Parallel, GoldenCases) {
  const json golden = load_json("config/parallel_cases.json");
  ASSERT_GE(golden["cases"].size(), 10U);
  for (const json& c : golden["cases"]) {
    const json& in = c["input"];
    ParallelConfig s;
    s.tp_size = in.value("tp_size", 1);
    s.pcp_size = in.value("pcp_size", 1);
    s.dp_size = in.value("dp_size", 1);
    s.sp_size = in.value("sp_size", 1);
    s.tp_rank = in.value("tp_rank", 0);
    s.pcp_rank = in.value("pcp_rank", 0);
    s.dp_rank = in.value("dp_rank", 0);
    s.enable_expert_parallel = in.value("enable_expert_parallel", false);
    const ParallelConfig p = make_parallel(s);
    const json& e = c["expected"];
    const std::pair<const char*, std::int64_t> fields[] = {
        {"tp_size", p.tp_size},   {"pcp_size", p.pcp_size}, {"dp_size", p.dp_size},
        {"ep_size", p.ep_size},   {"sp_size", p.sp_size},   {"tp_rank", p.tp_rank},
        {"pcp_rank", p.pcp_rank}, {"dp_rank", p.dp_rank},   {"ep_rank", p.ep_rank}};
    for (const auto& [name, value] : fields) EXPECT_EQ(e[name], value) << name << " of " << in;
    EXPECT_EQ(e["use_ep"], p.use_ep) << in;
  }
}

std::string fault(const json& parallel, const json& more = json::object()) {
  json d = layer_document(more);
  d["parallel"] = parallel;
  const std::string at = fault_of(d);
  const std::string base = "/parallel";
  return at.rfind(base, 0) == 0 ? at.substr(base.size()) : at;
}

TEST(Parallel, Rules) {
  EXPECT_EQ(fault({{"tp_size", 2}, {"tp_rank", 2}}), "/tp_rank");
  EXPECT_EQ(fault({{"pcp_rank", 1}}), "/pcp_rank");
  EXPECT_EQ(fault({{"dp_size", 4}, {"dp_rank", 3}}), "accepted");
  EXPECT_EQ(fault({{"tp_size", 4}, {"sp_size", 2}}), "/sp_size");
  EXPECT_EQ(fault({{"tp_size", 4}, {"sp_size", 4}}), "accepted");
  EXPECT_EQ(fault({{"num_redundant_experts", 1}}), "/num_redundant_experts");
  EXPECT_EQ(fault({{"enable_eplb", true}}), "/enable_eplb");
  EXPECT_EQ(fault({{"enable_eplb", true}, {"tp_size", 2}}), "/enable_eplb");
  const json ep3 = {{"tp_size", 3}, {"enable_expert_parallel", true}};
  EXPECT_EQ(fault(ep3), "accepted");
  json eplb = ep3;
  eplb["enable_eplb"] = true;
  EXPECT_EQ(fault(eplb), "/num_redundant_experts");
  eplb["num_redundant_experts"] = 1;
  EXPECT_EQ(fault(eplb), "accepted");
  EXPECT_EQ(fault({{"dp_size", 9}, {"enable_expert_parallel", true}}), "/enable_expert_parallel");
  EXPECT_EQ(fault({{"tp_size", 3}}), "/intermediate_size");
  EXPECT_EQ(fault({{"all2all_backend", "nccl"}}), "/all2all_backend");
  EXPECT_EQ(fault({{"expert_placement_strategy", "random"}}), "/expert_placement_strategy");
  EXPECT_EQ(fault(json::array()), "");
}

TEST(Parallel, AListOfLocalExperts) {
  const json ep = {{"tp_size", 3}, {"tp_rank", 1}, {"enable_expert_parallel", true}};
  const auto with = [&](const json& list, const json& more = json::object()) {
    json p = ep;
    p["local_experts"] = list;
    p.merge_patch(more);
    return p;
  };
  EXPECT_EQ(fault(with({0, 2})), "accepted");
  EXPECT_EQ(fault(with({2, 0})), "/local_experts/1");
  EXPECT_EQ(fault(with({2, 2})), "/local_experts/1");
  EXPECT_EQ(fault(with({-1})), "/local_experts/0");
  EXPECT_EQ(fault(with({0, 60000})), "/local_experts");
  EXPECT_EQ(fault(with(json::array())), "/local_experts");
  EXPECT_EQ(fault(with(3)), "/local_experts");
  EXPECT_EQ(fault(with({0, 2}, {{"enable_expert_parallel", false}, {"tp_size", 1}, {"tp_rank", 0}})), "/local_experts");
  const auto c = parse_config(layer_document({{"parallel", with({0, 2, 3})}}).dump());
  ASSERT_TRUE(c);
  EXPECT_EQ(c->num_local_experts, 3);
  EXPECT_EQ(local_experts(*c), (std::vector<std::int64_t>{0, 2, 3}));
}

TEST(Parallel, ExpertsOfTheRank) {
  for (int rank = 0; rank < 3; ++rank) {
    const auto c = parse_config(layer_document({{"parallel",
                                                 {{"tp_size", 3},
                                                  {"tp_rank", rank},
                                                  {"enable_expert_parallel", true},
                                                  {"expert_placement_strategy", "round_robin"}}}})
                                    .dump());
    ASSERT_TRUE(c);
    EXPECT_EQ(c->num_local_experts, rank < 2 ? 3 : 2);
    EXPECT_EQ(c->intermediate_size_per_partition, 512);
    const std::vector<std::int64_t> experts = local_experts(*c);
    ASSERT_EQ(static_cast<std::int64_t>(experts.size()), c->num_local_experts);
    for (std::size_t i = 0; i < experts.size(); ++i) EXPECT_EQ(experts[i], rank + 3 * static_cast<std::int64_t>(i));
  }
  const auto c = parse_config(layer_document({{"parallel",
                                               {{"tp_size", 2},
                                                {"tp_rank", 1},
                                                {"enable_expert_parallel", true},
                                                {"enable_eplb", true},
                                                {"num_redundant_experts", 4}}}})
                                  .dump());
  ASSERT_TRUE(c);
  EXPECT_EQ(c->num_physical_experts, 12);
  EXPECT_EQ(local_experts(*c), (std::vector<std::int64_t>{6, 7, 8, 9, 10, 11}));
}

}  // namespace
}  // namespace moe::test::parallel_test
