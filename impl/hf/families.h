// Families of rows (architecture.h): what they are made with, and those that score by softmax. Included by
// architectures.cpp alone.
#pragma once

#include "hf/architecture.h"

namespace moe::hf {
namespace families {

inline constexpr ProjectionNames kNumbered = {"w1", "w3", "w2"};
inline constexpr SizeKey kDense = {{"intermediate_size"}};
inline constexpr SizeKey kLocal = {{"num_local_experts", "num_experts", "n_routed_experts"}};
inline constexpr SizeKey kRouted = {{"n_routed_experts", "num_local_experts", "num_experts"}};

// A row that is another with changes.
template <class Change>
constexpr Architecture like(const Architecture& other, std::string_view name, Change change) {
  Architecture a = other;
  a.name = name;
  change(a);
  return a;
}
constexpr Architecture like(const Architecture& other, std::string_view name) {
  return like(other, name, [](Architecture&) {});
}
constexpr void inside(Architecture& a, std::string_view layers_at) { a.layers_at = layers_at; }
inline constexpr std::string_view kLanguage = "model.language_model.layers";

inline constexpr Architecture kMixtral = {.name = "MixtralForCausalLM",
                                          .block = "block_sparse_moe.experts",
                                          .projections = kNumbered,
                                          .experts = kLocal,
                                          .width = kDense};
inline constexpr Architecture kPhi = like(kMixtral, "PhimoeForCausalLM", [](Architecture& a) {
  a.routing.renormalize = {"", false};
  a.routing.method = "sparsemixer";
});
inline constexpr Architecture kQwen2 = {
    .name = "Qwen2MoeForCausalLM",
    .where = {.rule = Layers::qwen, .step = "decoder_sparse_step"},
    .routing = {.renormalize = {"norm_topk_prob", false}},
};
inline constexpr Architecture kQwen3Next = like(kQwen2, "Qwen3NextForCausalLM", [](Architecture& a) {
  a.routing.renormalize = {"norm_topk_prob", true};
});
// The sum always, whatever norm_topk_prob says.
inline constexpr Architecture kQwen35 = {.name = "Qwen3_5MoeForCausalLM"};
inline constexpr Architecture kQwen4 = like(kQwen35, "Qwen4ExpForCausalLM", [](Architecture& a) {
  a.routing.renormalize = {"norm_topk_prob", true};
});
inline constexpr Architecture kQwen3Vl = like(kQwen2, "Qwen3VLMoeForConditionalGeneration", [](Architecture& a) {
  inside(a, kLanguage);
  a.routing.renormalize = {"", true};
  a.stacks = true;
  a.stacked = StackedWeights::by_shape;  // published with columns first; transformers 5 can write rows first
});
inline constexpr Architecture kOmniThinker = like(kQwen3Next, "Qwen3OmniMoeThinkerForConditionalGeneration");
inline constexpr Architecture kOlmoe = {
    .name = "OlmoeForCausalLM",
    .width = kDense,
    .routing = {.renormalize = {"norm_topk_prob", false}, .vllm_renormalize = BoolKey{"", false}},
};
inline constexpr Architecture kJamba = {
    .name = "JambaForCausalLM",
    .block = "feed_forward.experts",
    .width = kDense,
    .where = {.rule = Layers::jamba},
    .routing = {.renormalize = {"", false}},
};
inline constexpr Architecture kGranite = {
    .name = "GraniteMoeForCausalLM",
    .block = "block_sparse_moe",
    .stack = {"input_linear.weight", "output_linear.weight"},
    .stacks = true,
    .experts = kLocal,
    .width = kDense,
};
inline constexpr Architecture kGptOss = {
    .name = "GptOssForCausalLM",
    .stacked = StackedWeights::columns_first,
    .interleaved = true,
    .stacks = true,
    .has_bias = true,
    .experts = kLocal,
    .width = kDense,
    .activation = {.key = "", .otherwise = "swigluoai", .limit = {"swiglu_limit"}, .alpha = {"swiglu_alpha"}},
};
inline constexpr Architecture kGemma4 = {
    .name = "Gemma4ForCausalLM",
    .block = "experts",
    .stacks = true,
    .top_k = {{"top_k_experts"}},
    .where = {.enabled_by_enable_moe_block = true},
    .activation = {.key = "hidden_activation", .otherwise = "gelu_tanh"},
    .routing = {.expert_scale = "router.per_expert_scale"},
};
inline constexpr Architecture kErnie = {
    .name = "Ernie4_5_MoeForCausalLM",
    .experts = {{"moe_num_experts", "num_experts"}},
    .top_k = {{"moe_k", "num_experts_per_tok"}},
    .where = {.rule = Layers::ernie},
    .routing = {.renormalize_min = {"moe_norm_min", 1e-12}, .bias = {"", true}},
};
inline constexpr Architecture kHunYuan = {
    .name = "HunYuanMoEV1ForCausalLM",
    .top_k = {{"moe_topk", "num_experts_per_tok"}},
    .width = kDense,
};
inline constexpr Architecture kLongCat = {
    .name = "LongcatFlashForCausalLM",
    .top_k = {{"moe_topk", "num_experts_per_tok"}},
    .width = {{"expert_ffn_hidden_size", "moe_intermediate_size"}},
    .where = {.count = "num_layers"},
    .routing = {.renormalize = {"", false},
                .bias = {"", true},
                .factor = Factor::weights,
                .factor_key = {"routed_scaling_factor", 6.0},
                .zero_experts = {.keys = {"zero_expert_num"}, .otherwise = 256, .null = 0}},
};
inline constexpr Architecture kDbrx = {
    .name = "DbrxForCausalLM",
    .layers_at = "transformer.blocks",
    .block = "ffn.experts.mlp",
    .holder = "ffn_config",
    .stacked = StackedWeights::flat,
    .stack = {"w1", "v1", "w2"},
    .stacks = true,
    .experts = {{"moe_num_experts"}},
    .top_k = {{"moe_top_k"}},
    .width = {{"ffn_hidden_size"}},
    .hidden = {{"d_model", "hidden_size"}},
    .where = {.count = "n_layers", .count_alias = "num_hidden_layers"},
    .activation = {.key = "ffn_act_fn"},
    .routing = {.p_norm = "moe_normalize_expert_weights"},
};
inline constexpr Architecture kAria = {
    .name = "AriaTextForCausalLM",
    .stacked = StackedWeights::columns_first,
    .stack = {"fc1.weight", "fc2.weight"},
    .stacks = true,
    .experts = {{"moe_num_experts"}},
    .top_k = {{"moe_topk"}},
    .width = kDense,
    .activation = {.key = ""},
};
inline constexpr Architecture kCohere2 = {
    .name = "Cohere2MoeForCausalLM",
    .width = kDense,
    .where = {.rule = Layers::words, .first = {{"first_k_dense_replace"}, 0}},
    .routing = {.scoring_key = "expert_selection_fn", .renormalize = {"norm_topk_prob", true}},
};

}  // namespace families
}  // namespace moe::hf
