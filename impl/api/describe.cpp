// moe_describe: one row per topic of describe.md.
#include <string_view>
#include <vector>

#include "api/entry.h"
#include "base/json.h"
#include "base/nearest.h"
#include "base/text.h"
#include "hf/hf.h"
#include "vllm/keys.h"
#include "vllm/topics.h"

namespace {

struct Topic {
  std::string_view name;
  Result<std::string> (*answer)(const moe::json::Value& query);
  std::size_t most_bytes = moe::json::Limits().max_bytes;  // of the query
};

// clang-format off
constexpr Topic kTopics[] = {
    {"oracle",           moe::oracle::describe_oracle},
    {"quant_config",     moe::vllm::describe_quant_config},
    {"ocp_mx_scheme",    moe::vllm::describe_ocp_mx_scheme},
    {"quant_key",        moe::vllm::describe_quant_key},
    {"parallel_config",  moe::vllm::describe_parallel_config},
    {"routing_method",   moe::vllm::describe_routing_method},
    {"expert_map",       moe::vllm::describe_expert_map},
    {"eplb_map",         moe::vllm::describe_eplb_map},
    {"align_block_size", moe::vllm::describe_align_block_size},
    {"permute",          moe::vllm::describe_permute},
    {"activation",       moe::vllm::describe_activation},
    {"checkpoint",       moe::hf::describe_checkpoint, 2 * moe::config::kMostForeignBytes},  // config.json and options
};
// clang-format on

Result<const Topic*> find_topic(std::string_view name) {
  for (const Topic& t : kTopics)
    if (t.name == name) return &t;
  std::vector<std::string_view> names;
  std::string known;
  for (const Topic& t : kTopics) {
    known += cat(known.empty() ? "" : ", ", t.name);
    names.push_back(t.name);
  }
  return fail(
      Code::invalid_argument, "topic",
      cat("topic: unknown topic ", moe::in_quotes(name), moe::did_you_mean(name, names), "; known are ", known));
}

}  // namespace

moe_status moe_describe(const char* topic, const char* query_json, size_t query_len, moe_buffer** out,
                        moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"topic", topic}, {"query_json", query_json}, {"out", out}}));
    MOE_TRY(const Topic* row, find_topic(topic));
    MOE_TRY(const moe::json::Value query,
            moe::json::parse(text_of(query_json, query_len), {.max_bytes = row->most_bytes}));
    MOE_TRY(std::string answer, row->answer(query));
    *out = make_text(std::move(answer));
    return ok();
  });
}
