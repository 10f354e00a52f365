// Families of rows (architecture.h): those that score by sigmoid, DeepSeek's and others. Included by architectures.cpp
// alone.
#pragma once

#include "hf/families.h"

namespace moe::hf {
namespace families {

inline constexpr LayerKeys kFrom = {
    .rule = Layers::from, .first = {{"first_k_dense_replace"}, 0}, .step = "moe_layer_freq", .predicting = true};
constexpr LayerKeys from(std::int64_t first) {
  LayerKeys keys = kFrom;
  keys.first.otherwise = first;
  return keys;
}
// mlp_layer_types, else from a layer on; with a step, that of moe_layer_freq.
constexpr LayerKeys words(SizeKey first) { return {.rule = Layers::words, .first = first}; }
constexpr LayerKeys predicting(LayerKeys keys) {
  keys.predicting = true;
  return keys;
}
constexpr LayerKeys stepped(SizeKey first) {
  LayerKeys keys = words(first);
  keys.step = "moe_layer_freq";
  return keys;
}

// What the code of most routers below adds to a sum: with all chosen scores tiny the weights go to 0.
inline constexpr double kTinySum = 1e-20;

inline constexpr Architecture kDeepseekV2 = {
    .name = "DeepseekV2ForCausalLM",
    .experts = kRouted,
    .where = kFrom,
    .routing = {.scoring_key = "scoring_func",
                .scoring_fixed = true,
                .renormalize = {"", false},
                .vllm_renormalize = BoolKey{"norm_topk_prob", false},
                .bias = {"topk_method", false},
                .groups = GroupKeys::unless_greedy,
                .factor = Factor::output},
};
inline constexpr Architecture kDeepseekV3 = {
    .name = "DeepseekV3ForCausalLM",
    .experts = kRouted,
    .where = from(3),
    .routing = {.scoring_key = "scoring_func",
                .scoring_fixed = true,
                .scoring = Scoring::sigmoid,
                .renormalize = {"norm_topk_prob", true},
                .renormalize_eps = kTinySum,
                .bias = {"topk_method", true},
                .groups = GroupKeys::keys,
                .n_group = {{"n_group"}, 8},
                .topk_group = {{"topk_group"}, 4},
                .factor = Factor::output,
                .factor_key = {"routed_scaling_factor", 2.5}},
};
inline constexpr Architecture kDots1 = like(kDeepseekV3, "Dots1ForCausalLM", [](Architecture& a) {
  a.where = kFrom;
  a.routing.renormalize = {"norm_topk_prob", false};
  a.routing.n_group = Routing().n_group;
  a.routing.topk_group = Routing().topk_group;
  a.routing.factor_key.otherwise = 1.0;
});
inline constexpr Architecture kGlm4 = like(kDots1, "Glm4MoeForCausalLM", [](Architecture& a) {
  a.where = from(1);
  a.routing.scoring_key = "";
  a.routing.scoring_fixed = false;
  a.routing.renormalize = {"norm_topk_prob", true};
  a.routing.bias = {"", true};
});
inline constexpr Architecture kSarvam = like(kGlm4, "SarvamMoEForCausalLM", [](Architecture& a) {
  a.routing.scoring_key = "score_function";
  a.routing.scoring_fixed = true;
  a.routing.bias = {"moe_router_enable_expert_bias", true};
  a.routing.factor_key.otherwise = 2.5;
});
// One group unless the file says so, the factor in the weights, the experts from a list of words.
inline constexpr Architecture kNewer = like(kGlm4, "", [](Architecture& a) {
  a.where = predicting(words({{"first_k_dense_replace"}, 1}));
  a.routing.factor = Factor::weights;
});
inline constexpr Architecture kLite = like(kNewer, "Glm4MoeLiteForCausalLM", [](Architecture& a) {
  a.where = predicting(words({{}, 1}));
  a.routing.factor_key.otherwise = 1.8;
});
inline constexpr Architecture kGlm5 = like(kNewer, "Glm5NextForConditionalGeneration", [](Architecture& a) {
  inside(a, kLanguage);
  a.where = predicting(words({{}, 3}));
  a.activation = {.key = "", .limit = {"swiglu_limit", 10.0}};
  a.routing.factor_key.otherwise = 2.5;
});
inline constexpr Architecture kHyV4 = like(kGlm5, "HYV4VLForConditionalGeneration", [](Architecture& a) {
  a.where = words({{}, 1});
  a.stacks = true;
  a.routing.factor_key.otherwise = 2.827;
});
inline constexpr Architecture kBailing = like(kNewer, "BailingHybridForCausalLM", [](Architecture& a) {
  a.top_k = {{"num_experts_per_token", "num_experts_per_tok"}};
  a.where = predicting(words({{"first_k_dense_replace"}, 2}));
  a.activation.limits = "expert_swiglu_limit_list";  // of the engines' classes
  a.routing.scoring_key = "score_function";
  a.routing.scoring_fixed = true;
  a.routing.renormalize = {"moe_renormalize", true, "norm_topk_prob"};
  a.routing.n_group = {.keys = {"num_expert_group", "n_group"}, .otherwise = 8, .null = 1};
  a.routing.topk_group.otherwise = 4;
  a.routing.factor_key.otherwise = 2.5;
});
// Ling and Ring before their third version: softmax, or sigmoid with a bias.
constexpr void bailing_moe(Architecture& a) {
  a.where = predicting(words({{"first_k_dense_replace"}, 0}));
  a.routing.scoring_key = "score_function";
  a.routing.scoring = Scoring::softmax;
  a.routing.renormalize_eps = 0.0;
  a.routing.bias = {"moe_router_enable_expert_bias", false};
}
inline constexpr Architecture kKimi = like(kBailing, "KimiLinearForCausalLM", [](Architecture& a) {
  a.block = "block_sparse_moe.experts";
  a.projections = kNumbered;
  a.hidden = {.keys = {"routed_expert_hidden_size", "hidden_size"}, .first_counts = true};  // the first of vLLM's class
  a.where = words({{"first_k_dense_replace"}, 1});
  a.activation.limits = {};
  a.routing.scoring_key = "moe_router_activation_func";
  a.routing.n_group.otherwise = a.routing.topk_group.otherwise = 1;
  a.routing.factor_key.otherwise = 2.446;
});
inline constexpr Architecture kNemotron = like(kNewer, "NemotronHForCausalLM", [](Architecture& a) {
  a.layers_at = "backbone.layers";
  a.block = "mixer.experts";
  a.hidden = {.keys = {"moe_latent_size", "hidden_size"}, .first_counts = true};
  a.where = {.rule = Layers::nemotron};
  a.activation = {.key = "mlp_hidden_act", .otherwise = "relu2", .ungated = true};
});
inline constexpr Architecture kMistral4 = {
    .name = "Mistral4ForCausalLM",
    .stacks = true,
    .experts = kRouted,
    .where = from(0),
    .routing = {.renormalize = {"norm_topk_prob", true},
                .renormalize_eps = kTinySum,
                .groups = GroupKeys::keys,
                .group_score = "two_largest",
                .factor = Factor::weights},
};

// With a bias and without groups.

inline constexpr Routing kSigmoidBias = {.scoring = Scoring::sigmoid, .bias = {"", true}};
constexpr Routing with_factor(Factor how, std::string_view key, double otherwise, double eps = 0.0) {
  Routing r = kSigmoidBias;
  r.renormalize_eps = eps;
  r.factor = how;
  r.factor_key = {key, otherwise};
  return r;
}
inline constexpr Architecture kMiniMaxM2 = like(kMixtral, "MiniMaxM2ForCausalLM", [](Architecture& a) {
  a.routing = kSigmoidBias;
  a.routing.scoring_key = "scoring_func";
  a.routing.scoring_fixed = true;
  a.routing.bias = {"use_routing_bias", true};
});
inline constexpr Architecture kMiniMaxM3 =
    like(kMixtral, "MiniMaxM3SparseForConditionalGeneration", [](Architecture& a) {
      inside(a, "language_model.model.layers");
      a.where = stepped({{}, 0});
      a.activation = {.key = "",
                      .otherwise = "swigluoai_uninterleave",
                      .limit = {"swiglu_limit", 7.0},
                      .alpha = {"swiglu_alpha", 1.702},
                      .beta = {"swiglu_beta"}};  // of vLLM's class
      a.routing = with_factor(Factor::output, "routed_scaling_factor", 2.0);
    });
inline constexpr Architecture kAfmoe = {
    .name = "AfmoeForCausalLM",
    .where = {.rule = Layers::from, .first = {{"num_dense_layers"}, 1}},
    .routing = with_factor(Factor::weights, "route_scale", 1.0, kTinySum),
};
inline constexpr Architecture kHyV3 = {
    .name = "HYV3ForCausalLM",
    .where = predicting(words({{}, 1})),
    .routing = with_factor(Factor::weights, "router_scaling_factor", 2.826, kTinySum),
};
inline constexpr Architecture kLfm2 = {
    .name = "Lfm2MoeForCausalLM",
    .block = "feed_forward.experts",
    .projections = kNumbered,
    .where = {.rule = Layers::from, .first = {{"num_dense_layers"}, 2}},
    .activation = {.key = ""},
    .routing = {.scoring = Scoring::sigmoid,
                .renormalize = {"norm_topk_prob", true},
                .renormalize_eps = 1e-6,
                .bias = {"use_expert_bias", true},
                .factor = Factor::weights},
};
inline constexpr Architecture kLaguna = like(kAfmoe, "LagunaForCausalLM", [](Architecture& a) {
  a.where = words({{}, 1});
  a.routing = with_factor(Factor::output, "moe_routed_scaling_factor", 1.0);
});
inline constexpr Architecture kStep3 = {
    .name = "Step3p7ForConditionalGeneration",
    .block = "moe",
    .stack = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
    .stacks = true,
    .experts = {{"n_routed_experts", "moe_num_experts", "num_local_experts"}},
    .top_k = {{"num_experts_per_tok", "moe_top_k"}},
    .where = {.rule = Layers::words, .first = {{}, 3}, .numbers = "moe_layers_enum"},
    .activation = {.key = "", .otherwise = "swiglustep", .limits = "swiglu_limits"},
    .routing = with_factor(Factor::output, "moe_router_scaling_factor", 1.0),
};
inline constexpr Architecture kKolibri = {
    .name = "Kolibri1ForCausalLM",
    .routing = {.scoring = Scoring::sigmoid,
                .renormalize = {"norm_topk_prob", false},
                .bias = {"", true},
                .bias_name = "router.expert_bias",
                .bias_on_logits = true},
};
inline constexpr Architecture kInkling2 = {
    .name = "Inkling2ForCausalLM",
    .layers_at = "model.llm.layers",
    .stack = {"w13_weight", "w2_weight"},
    .interleaved = true,
    .stacks = true,
    .activation = {.key = "",
                   .otherwise = "swiglu_softcap",
                   .gate_cap = {"mlp_gate_softcap", 4.0},
                   .up_cap = {"mlp_up_softcap", 25.0}},
    .routing = {.scoring_key = "scoring_func",
                .scoring = Scoring::sigmoid,
                .renormalize_eps = kTinySum,
                .bias = {"", true},
                .bias_name = "gate.bias",
                .factor = Factor::weights,
                .factor_key = {"route_scale", 8.0, "routed_scaling_factor"}},
};
inline constexpr Architecture kInkling = like(kInkling2, "InklingForConditionalGeneration", [](Architecture& a) {
  a.width_is_dense_beside = "dense_intermediate_size";
  a.where = words({{"dense_mlp_idx"}, 0});
  a.activation = {};
  a.routing.scoring_key = "";
  a.routing.renormalize_eps = 0.0;
  a.routing.expert_scale = "gate.global_scale";
  a.routing.shared_logits = {{"n_shared_experts"}, 2};
});
constexpr Routing muse_routing() {
  Routing r = with_factor(Factor::weights, "routed_scaling_factor", 1.0, 1e-15);
  r.vllm_renormalize_eps = r.renormalize_eps;
  return r;
}
inline constexpr Architecture kMuse = {
    .name = "MuseSparkForConditionalGeneration",
    .layers_at = kLanguage,
    .stacks = true,
    .hidden = {{"moe_hidden_size"}},
    .where = words({{}, 0}),
    .routing = muse_routing(),
    .expert_norm = "experts.post_expert_norm.weight",
    .expert_norm_eps = {"post_norm_eps", 1e-8},
};
inline constexpr Architecture kLlama4 = {
    .name = "Llama4ForCausalLM",
    .block = "feed_forward.experts",
    .stacked = StackedWeights::columns_first,
    .stacks = true,
    .experts = kLocal,
    .width = kDense,
    .where = {.rule = Layers::llama4},
    .routing = {.scoring = Scoring::sigmoid, .renormalize = {"", false}, .on_input = true},
};
inline constexpr Architecture kDeepseekV4 = {
    .name = "DeepseekV4ForCausalLM",
    .block = "ffn.experts",
    .projections = kNumbered,
    .experts = kRouted,
    .where = {.predicting = true, .predicting_at = "mtp"},
    .activation = {.limit = {"swiglu_limit", 10.0}},
    .routing = {.scoring_key = "scoring_func",
                .scoring = Scoring::sqrtsoftplus,
                .renormalize = {"", true},
                .vllm_renormalize = BoolKey{"norm_topk_prob", true},
                .renormalize_eps = kTinySum,
                .bias = {"", true},
                .factor = Factor::weights,
                .factor_key = {"routed_scaling_factor", 1.5},
                .hash_layers = 3},
    .expert_dtype = "expert_dtype",
};

}  // namespace families
}  // namespace moe::hf
