// moe_describe: expert_map, eplb_map, align_block_size and permute. Every golden case, and what is refused.
#include <gtest/gtest.h>

#include <initializer_list>

#include "support/describe.h"
#include "support/rooms.h"

namespace moe::test::describe_experts_test {
namespace {

using nlohmann::json;

// The named members are the query, the rest is the answer.
void golden(const char* topic, const char* file, std::size_t count, std::initializer_list<const char*> asked) {
  const json cases = load_json(file).at("cases");
  EXPECT_EQ(cases.size(), count);
  for (json c : cases) {
    json query;
    for (const char* name : asked) {
      query[name] = c.at(name);
      c.erase(name);
    }
    EXPECT_FALSE(c.empty());
    expect_answer(topic, query, c);
  }
}

TEST(DescribeExperts, ExpertMap) {
  golden("expert_map", "routing/expert_map_cases.json", 36, {"num_experts", "ep_size", "ep_rank", "strategy"});
  expect_answer("expert_map", {{"num_experts", 5}}, {{"num_local", 5}, {"map", nullptr}});
  EXPECT_FALSE(
      describe("expert_map", R"({"num_experts": 5, "strategy": "round_robin"})").answer.contains("local_to_global"));
  expect_refused("expert_map", {{"[]", ""},
                                {"{}", "/num_experts"},
                                {R"({"num_experts": 0})", "/num_experts"},
                                {R"({"num_experts": 65537})", "/num_experts"},
                                {R"({"num_experts": "8"})", "/num_experts"},
                                {R"({"num_experts": 8, "ep_size": 0})", "/ep_size"},
                                {R"({"num_experts": 8, "ep_size": 9})", "/ep_size"},
                                {R"({"num_experts": 8, "ep_size": 2, "ep_rank": 2})", "/ep_rank"},
                                {R"({"num_experts": 8, "ep_size": 2, "ep_rank": -1})", "/ep_rank"},
                                {R"({"num_experts": 8, "ep_rank": 1})", "/ep_rank"},
                                {R"({"num_experts": 8, "strategy": "random"})", "/strategy"},
                                {R"({"num_experts": 8, "strategy": null})", "/strategy"},
                                {R"({"num_experts": 8, "ranks": 1})", "/ranks"}});
}

TEST(DescribeExperts, EplbMap) {
  golden("eplb_map", "routing/eplb_cases.json", 3, {"num_logical", "num_redundant", "topk_ids"});
  expect_answer("eplb_map", {{"num_logical", 2}, {"num_redundant", 0}, {"topk_ids", {{0, 2, -7, 1}}}},
                {{"physical_ids", {{0, -1, -1, 1}}}});
  // More than one further copy of an expert.
  expect_answer("eplb_map", {{"num_logical", 2}, {"num_redundant", 3}, {"topk_ids", json::array()}},
                {{"physical_to_logical", {0, 1, 0, 1, 0}},
                 {"logical_to_physical", {{0, 2, 4, -1}, {1, 3, -1, -1}}},
                 {"replica_count", {3, 2}},
                 {"physical_ids", json::array()}});
  expect_refused("eplb_map", {{"[]", ""},
                              {R"({"num_redundant": 0, "topk_ids": []})", "/num_logical"},
                              {R"({"num_logical": 2, "topk_ids": []})", "/num_redundant"},
                              {R"({"num_logical": 2, "num_redundant": -1, "topk_ids": []})", "/num_redundant"},
                              {R"({"num_logical": 65536, "num_redundant": 65536, "topk_ids": []})", "/num_redundant"},
                              {R"({"num_logical": 2, "num_redundant": 0})", "/topk_ids"},
                              {R"({"num_logical": 2, "num_redundant": 0, "topk_ids": [[0], [1, 1]]})", "/topk_ids/1"},
                              {R"({"num_logical": 2, "num_redundant": 0, "topk_ids": [0]})", "/topk_ids/0"},
                              {R"({"num_logical": 2, "num_redundant": 0, "topk_ids": [[0, 1.5]]})", "/topk_ids/0/1"},
                              {R"({"num_logical": 2, "num_redundant": 0, "topk_ids": [], "top_k": 2})", "/top_k"}});
}

TEST(DescribeExperts, AlignBlockSize) {
  golden("align_block_size", "routing/align_cases.json", 14,
         {"topk_ids", "top_k", "block_size", "num_experts", "expert_map", "pad_sorted_ids"});
  expect_answer("align_block_size", {{"topk_ids", {{1}, {1}}}, {"block_size", 2}, {"num_experts", 2}},
                {{"sorted_ids", {0, 1, 2, 2}}, {"expert_ids", {1, -1}}, {"num_tokens_post_padded", 2}});
  expect_refused(
      "align_block_size",
      {{"[]", ""},
       {R"({"topk_ids": [[0]], "num_experts": 2})", "/block_size"},
       {R"({"topk_ids": [[0]], "block_size": 2})", "/num_experts"},
       {R"({"block_size": 2, "num_experts": 2})", "/topk_ids"},
       {R"({"topk_ids": [], "block_size": 2, "num_experts": 2})", "/top_k"},
       {R"({"topk_ids": [[0]], "top_k": 2, "block_size": 2, "num_experts": 2})", "/top_k"},
       {R"({"topk_ids": [[0, 2]], "block_size": 2, "num_experts": 2})", "/topk_ids/0/1"},
       {R"({"topk_ids": [[-1]], "block_size": 2, "num_experts": 2})", "/topk_ids/0/0"},
       {R"({"topk_ids": [[0]], "block_size": 0, "num_experts": 2})", "/block_size"},
       {R"({"topk_ids": [[0],[0],[0]], "block_size": 1048576, "num_experts": 2})", "/block_size"},
       {R"({"topk_ids": [[0]], "block_size": 2, "num_experts": 2, "expert_map": [0]})", "/expert_map"},
       {R"({"topk_ids": [[0]], "block_size": 2, "num_experts": 2, "expert_map": [0, 2]})", "/expert_map/1"},
       {R"({"topk_ids": [[0]], "block_size": 2, "num_experts": 2, "pad_sorted_ids": null})", "/pad_sorted_ids"},
       {R"({"topk_ids": [[0]], "block_size": 2, "num_experts": 2, "num_local": 1})", "/num_local"}});
}

TEST(DescribeExperts, Permute) {
  golden("permute", "routing/permute_cases.json", 8, {"topk_ids", "top_k", "num_experts", "expert_map", "num_local"});
  // Without a map the experts past num_local are foreign.
  expect_answer(
      "permute", {{"topk_ids", {{3, 0}, {1, 2}}}, {"num_experts", 4}, {"num_local", 2}},
      {{"src", {1, 2, 4, 4}}, {"dst", {3, 0, 1, 2}}, {"first_token_offset", {0, 1, 2}}, {"tokens_per_expert", {1, 1}}});
  expect_refused("permute",
                 {{"[]", ""},
                  {R"({"topk_ids": [[0]]})", "/num_experts"},
                  {R"({"num_experts": 2})", "/topk_ids"},
                  {R"({"topk_ids": [], "num_experts": 2})", "/top_k"},
                  {R"({"topk_ids": [[2]], "num_experts": 2})", "/topk_ids/0/0"},
                  {R"({"topk_ids": [[true]], "num_experts": 2})", "/topk_ids/0/0"},
                  {R"({"topk_ids": null, "num_experts": 2})", "/topk_ids"},
                  {R"({"topk_ids": [[0]], "num_experts": 2, "num_local": 3})", "/num_local"},
                  {R"({"topk_ids": [[0]], "num_experts": 2, "num_local": 1, "expert_map": [0, 1]})", "/expert_map/1"},
                  {R"({"topk_ids": [[0]], "num_experts": 2, "expert_map": [-2, 0]})", "/expert_map/0"},
                  {R"({"topk_ids": [[0]], "num_experts": 2, "block_size": 1})", "/block_size"}});
}

}  // namespace
}  // namespace moe::test::describe_experts_test
