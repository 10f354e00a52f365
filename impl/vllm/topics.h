// Topics of moe_describe that need no oracle (describe.md 3-9): each takes the query and gives the answer as JSON
// text. Faults are invalid_config with a pointer into the query.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "vllm/quant_config.h"

namespace moe::vllm {

// topic_quant.cpp
Result<std::string> describe_quant_config(const json::Value& query);
Result<std::string> describe_ocp_mx_scheme(const json::Value& query);
// "descs", "predicates", "config_name", ...: also part of a selection.
void write_members(json::Writer& w, const QuantConfig& q);

// topic_layer.cpp
Result<std::string> describe_parallel_config(const json::Value& query);
Result<std::string> describe_routing_method(const json::Value& query);
Result<std::string> describe_activation(const json::Value& query);

// topic_experts.cpp
Result<std::string> describe_expert_map(const json::Value& query);
Result<std::string> describe_eplb_map(const json::Value& query);
Result<std::string> describe_align_block_size(const json::Value& query);
Result<std::string> describe_permute(const json::Value& query);

}  // namespace moe::vllm
