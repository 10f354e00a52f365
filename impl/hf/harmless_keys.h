// Keys of experts, routers and activations that say nothing about the routed experts' numbers, each with the reason.
// Included by keys.cpp alone.
#pragma once

#include <array>

#include "hf/keys.h"

namespace moe::hf {

constexpr auto kHarmlessKeys = std::to_array<HarmlessKey>({
    // key, why
    {"shared_expert_intermediate_size", "the width of the shared expert, which is no routed one"},
    {"moe_shared_expert_intermediate_size", "the width of the shared expert, which is no routed one"},
    {"shared_experts_intermediate_size", "the width of the shared experts, which are no routed ones"},
    {"shared_experts_size", "how many times as wide the shared experts are, which are no routed ones"},
    {"share_expert_swiglu_limit_list", "the clamp of the shared expert, which is no routed one"},
    {"swiglu_limits_shared", "the clamp of the shared expert, which is no routed one"},
    {"rms_norm_eps_moe_gate", "of the norm of what enters the router's matrix: logits are what comes out"},
    {"moe_router_logit_softcapping", "of the logits before anything scores them: Laguna's come with it"},
    {"router_hidden_size", "a width inside the router: logits are what comes out"},
    {"latent_moe_use_norm", "a norm before or behind the routed experts, as the matrices of the latent width"},
    {"expert_capacity", "dropping tokens in training; no class of a row drops any"},
    {"moe_world_size", "how many ranks the experts lay on in training"},
    {"moe_capacity", "dropping tokens in training; no class of a row drops any"},
});

}  // namespace moe::hf
