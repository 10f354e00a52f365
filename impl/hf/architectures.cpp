// The rows of architecture.h: the classes of transformers 5.23.0 with routed experts, and a few that it lacks.
#include "hf/architecture.h"

namespace moe::hf {
namespace {

constexpr Names kNumbered = {"w1", "w3", "w2"};
constexpr SizeKey kDense = {{"intermediate_size"}};
constexpr NumberKey kNoNumber = {};

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
constexpr std::string_view kLanguage = "model.language_model.layers";

// --- softmax over all experts, the chosen ones divided by their sum or not --------------------------------------------

constexpr Architecture kMixtral = {.name = "MixtralForCausalLM",
                                   .block = "block_sparse_moe.experts",
                                   .projections = kNumbered,
                                   .width = kDense};
constexpr Architecture kPhi = like(kMixtral, "PhimoeForCausalLM", [](Architecture& a) {
  a.routing.renormalize = {"", false};
  a.routing.method = "sparsemixer";
});
constexpr Architecture kQwen2 = {
    .name = "Qwen2MoeForCausalLM",
    .where = {.rule = Layers::qwen, .step = "decoder_sparse_step"},
    .routing = {.renormalize = {"norm_topk_prob", false}},
};
constexpr Architecture kQwen3Next = like(kQwen2, "Qwen3NextForCausalLM", [](Architecture& a) {
  a.routing.renormalize = {"norm_topk_prob", true};
});
// The sum always, whatever norm_topk_prob says.
constexpr Architecture kQwen35 = {.name = "Qwen3_5MoeForCausalLM"};
constexpr Architecture kQwen4 = like(kQwen35, "Qwen4ExpForCausalLM", [](Architecture& a) {
  a.routing.renormalize = {"norm_topk_prob", true};
});
constexpr Architecture kQwen3Vl = like(kQwen2, "Qwen3VLMoeForConditionalGeneration", [](Architecture& a) {
  inside(a, kLanguage);
  a.routing.renormalize = {"", true};
  a.stacks = true;
});
constexpr Architecture kOmniThinker = like(kQwen3Next, "Qwen3OmniMoeThinkerForConditionalGeneration");
constexpr Architecture kOlmoe = {
    .name = "OlmoeForCausalLM",
    .width = kDense,
    .routing = {.renormalize = {"norm_topk_prob", false}, .vllm_renormalize = BoolKey{"", false}},
};
constexpr Architecture kJamba = {
    .name = "JambaForCausalLM",
    .block = "feed_forward.experts",
    .width = kDense,
    .where = {.rule = Layers::jamba},
    .routing = {.renormalize = {"", false}},
};
constexpr Architecture kGranite = {
    .name = "GraniteMoeForCausalLM",
    .block = "block_sparse_moe",
    .stack = {"input_linear.weight", "output_linear.weight"},
    .stacks = true,
    .width = kDense,
};
constexpr Architecture kGptOss = {
    .name = "GptOssForCausalLM",
    .stacked = StackedWeights::columns_first,
    .interleaved = true,
    .stacks = true,
    .has_bias = true,
    .width = kDense,
    .activation = {.key = "", .otherwise = "swigluoai", .alpha = {"swiglu_alpha"}},
};
constexpr Architecture kGemma4 = {
    .name = "Gemma4ForCausalLM",
    .block = "experts",
    .stacks = true,
    .top_k = {{"top_k_experts"}},
    .where = {.enabled_by_enable_moe_block = true},
    .activation = {.key = "hidden_activation", .otherwise = "gelu_tanh"},
    .routing = {.expert_scale = "router.per_expert_scale"},
};
constexpr Architecture kErnie = {
    .name = "Ernie4_5_MoeForCausalLM",
    .experts = {{"moe_num_experts", "num_experts"}},
    .top_k = {{"moe_k", "num_experts_per_tok"}},
    .where = {.rule = Layers::ernie},
    .routing = {.bias = {"", true}},
};
constexpr Architecture kHunYuan = {
    .name = "HunYuanMoEV1ForCausalLM",
    .top_k = {{"moe_topk", "num_experts_per_tok"}},
    .width = kDense,
};
constexpr Architecture kLongCat = {
    .name = "LongcatFlashForCausalLM",
    .top_k = {{"moe_topk", "num_experts_per_tok"}},
    .width = {{"expert_ffn_hidden_size", "moe_intermediate_size"}},
    .where = {.count = "num_layers"},
    .routing = {.renormalize = {"", false},
                .bias = {"", true},
                .factor = Factor::weights,
                .factor_key = {"routed_scaling_factor", 6.0},
                .zero_experts = {{"zero_expert_num"}, 256}},
};
constexpr Architecture kDbrx = {
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
    .where = {.count = "n_layers"},
    .activation = {.key = "ffn_act_fn"},
    .routing = {.p_norm = "moe_normalize_expert_weights"},
};
constexpr Architecture kAria = {
    .name = "AriaTextForCausalLM",
    .stacked = StackedWeights::columns_first,
    .stack = {"fc1.weight", "fc2.weight"},
    .stacks = true,
    .experts = {{"moe_num_experts"}},
    .top_k = {{"moe_topk"}},
    .width = kDense,
    .activation = {.key = ""},
};
constexpr Architecture kCohere2 = {
    .name = "Cohere2MoeForCausalLM",
    .width = kDense,
    .where = {.rule = Layers::words, .first = {{"first_k_dense_replace"}, 0}},
    .routing = {.scoring_key = "expert_selection_fn", .renormalize = {"norm_topk_prob", true}},
};

// --- DeepSeek: sigmoid, a correction bias, groups, a factor -----------------------------------------------------------

constexpr LayerKeys kFrom = {.rule = Layers::from,
                             .first = {{"first_k_dense_replace"}, 0},
                             .step = "moe_layer_freq"};
constexpr LayerKeys from(std::int64_t first) {
  LayerKeys keys = kFrom;
  keys.first.otherwise = first;
  return keys;
}
// mlp_layer_types, else from a layer on.
constexpr LayerKeys words(SizeKey first) { return {.rule = Layers::words, .first = first}; }

constexpr Architecture kDeepseekV2 = {
    .name = "DeepseekV2ForCausalLM",
    .where = kFrom,
    .routing = {.scoring_key = "scoring_func",
                .renormalize = {"", false},
                .vllm_renormalize = BoolKey{"norm_topk_prob", false},
                .bias = {"topk_method", false},
                .groups = Groups::unless_greedy,
                .factor = Factor::output},
};
constexpr Architecture kDeepseekV3 = {
    .name = "DeepseekV3ForCausalLM",
    .where = from(3),
    .routing = {.scoring_key = "scoring_func",
                .scoring = Scoring::sigmoid,
                .renormalize = {"norm_topk_prob", true},
                .bias = {"topk_method", true},
                .groups = Groups::keys,
                .n_group = {{"n_group"}, 8},
                .topk_group = {{"topk_group"}, 4},
                .factor = Factor::output,
                .factor_key = {"routed_scaling_factor", 2.5}},
};
constexpr Architecture kDots1 = like(kDeepseekV3, "Dots1ForCausalLM", [](Architecture& a) {
  a.where = kFrom;
  a.routing.renormalize = {"norm_topk_prob", false};
  a.routing.n_group.otherwise = a.routing.topk_group.otherwise = 1;
  a.routing.factor_key.otherwise = 1.0;
});
constexpr Architecture kGlm4 = like(kDots1, "Glm4MoeForCausalLM", [](Architecture& a) {
  a.where = from(1);
  a.routing.scoring_key = "";
  a.routing.renormalize = {"norm_topk_prob", true};
  a.routing.bias = {"", true};
});
// One group unless the file says so, the factor in the weights, the experts from a list of words.
constexpr Architecture kNewer = like(kGlm4, "", [](Architecture& a) {
  a.where = words({{"first_k_dense_replace"}, 1});
  a.routing.factor = Factor::weights;
});
constexpr Architecture kLite = like(kNewer, "Glm4MoeLiteForCausalLM", [](Architecture& a) {
  a.where = words({{}, 1});
  a.routing.factor_key.otherwise = 1.8;
});
constexpr Architecture kGlm5 = like(kNewer, "Glm5NextForConditionalGeneration", [](Architecture& a) {
  inside(a, kLanguage);
  a.where = words({{}, 3});
  a.activation = {.key = "", .limit = {"swiglu_limit", 10.0}};
  a.routing.factor_key.otherwise = 2.5;
});
constexpr Architecture kBailing = like(kNewer, "BailingHybridForCausalLM", [](Architecture& a) {
  a.top_k = {{"num_experts_per_token", "num_experts_per_tok"}};
  a.where = words({{"first_k_dense_replace"}, 2});
  a.routing.renormalize = {"moe_renormalize", true};
  a.routing.n_group = {{"num_expert_group", "n_group"}, 8};
  a.routing.topk_group.otherwise = 4;
  a.routing.factor_key.otherwise = 2.5;
});
constexpr Architecture kKimi = like(kBailing, "KimiLinearForCausalLM", [](Architecture& a) {
  a.block = "block_sparse_moe.experts";
  a.projections = kNumbered;
  a.where = words({{"first_k_dense_replace"}, 1});
  a.routing.n_group.otherwise = a.routing.topk_group.otherwise = 1;
  a.routing.factor_key.otherwise = 2.446;
});
constexpr Architecture kNemotron = like(kNewer, "NemotronHForCausalLM", [](Architecture& a) {
  a.layers_at = "backbone.layers";
  a.block = "mixer.experts";
  a.hidden = {{"moe_latent_size", "hidden_size"}};
  a.where = {.rule = Layers::nemotron};
  a.activation = {.key = "mlp_hidden_act", .otherwise = "relu2", .limit = kNoNumber, .ungated = true};
});
constexpr Architecture kMistral4 = {
    .name = "Mistral4ForCausalLM",
    .stacks = true,
    .where = from(0),
    .routing = {.renormalize = {"norm_topk_prob", true},
                .groups = Groups::keys,
                .group_score = "two_largest",
                .factor = Factor::weights},
};

// --- sigmoid with a bias, without groups ------------------------------------------------------------------------------

constexpr Routing kSigmoidBias = {.scoring = Scoring::sigmoid, .bias = {"", true}};
constexpr Routing with_factor(Factor how, std::string_view key, double otherwise) {
  Routing r = kSigmoidBias;
  r.factor = how;
  r.factor_key = {key, otherwise};
  return r;
}
constexpr Architecture kMiniMaxM2 = like(kMixtral, "MiniMaxM2ForCausalLM", [](Architecture& a) {
  a.routing = kSigmoidBias;
  a.routing.scoring_key = "scoring_func";
  a.routing.bias = {"use_routing_bias", true};
});
constexpr Architecture kMiniMaxM3 = like(kMixtral, "MiniMaxM3SparseForConditionalGeneration", [](Architecture& a) {
  inside(a, "language_model.model.layers");
  a.where = words({{}, 0});
  a.activation = {.key = "", .otherwise = "swigluoai_uninterleave", .limit = {"swiglu_limit", 7.0},
                  .alpha = {"swiglu_alpha", 1.702}};
  a.routing = with_factor(Factor::output, "routed_scaling_factor", 2.0);
});
constexpr Architecture kAfmoe = {
    .name = "AfmoeForCausalLM",
    .where = {.rule = Layers::from, .first = {{"num_dense_layers"}, 1}},
    .routing = with_factor(Factor::weights, "route_scale", 1.0),
};
constexpr Architecture kHyV3 = {
    .name = "HYV3ForCausalLM",
    .where = words({{}, 1}),
    .routing = with_factor(Factor::weights, "router_scaling_factor", 2.826),
};
constexpr Architecture kLfm2 = {
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
constexpr Architecture kLaguna = like(kAfmoe, "LagunaForCausalLM", [](Architecture& a) {
  a.where = words({{}, 1});
  a.routing = with_factor(Factor::output, "moe_routed_scaling_factor", 1.0);
  a.routing.softcap_key = "moe_router_logit_softcapping";
});
constexpr Architecture kStep3 = {
    .name = "Step3p7ForConditionalGeneration",
    .block = "moe",
    .stack = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
    .stacks = true,
    .experts = {{"n_routed_experts", "moe_num_experts"}},
    .top_k = {{"num_experts_per_tok", "moe_top_k"}},
    .where = words({{}, 3}),
    .activation = {.key = "", .otherwise = "swiglustep", .limit = kNoNumber, .limits = "swiglu_limits"},
    .routing = with_factor(Factor::output, "moe_router_scaling_factor", 1.0),
};
constexpr Architecture kKolibri = {
    .name = "Kolibri1ForCausalLM",
    .routing = {.scoring = Scoring::sigmoid,
                .renormalize = {"norm_topk_prob", false},
                .bias = {"", true},
                .bias_name = "router.expert_bias",
                .bias_on_logits = true},
};
constexpr Architecture kInkling2 = {
    .name = "Inkling2ForCausalLM",
    .layers_at = "model.llm.layers",
    .stack = {"w13_weight", "w2_weight"},
    .interleaved = true,
    .stacks = true,
    .activation = {.key = "",
                   .otherwise = "swiglu_softcap",
                   .limit = kNoNumber,
                   .gate_cap = {"mlp_gate_softcap", 4.0},
                   .up_cap = {"mlp_up_softcap", 25.0}},
    .routing = {.scoring_key = "scoring_func",
                .scoring = Scoring::sigmoid,
                .bias = {"", true},
                .bias_name = "gate.bias",
                .factor = Factor::weights,
                .factor_key = {"route_scale", 8.0}},
};
constexpr Architecture kInkling = like(kInkling2, "InklingForConditionalGeneration", [](Architecture& a) {
  a.width_is_dense_beside = "dense_intermediate_size";
  a.where = words({{"dense_mlp_idx"}, 0});
  a.activation = {};
  a.routing.scoring_key = "";
  a.routing.expert_scale = "gate.global_scale";
  a.routing.shared_logits = {{"n_shared_experts"}, 2};
});
constexpr Architecture kMuse = {
    .name = "MuseSparkForConditionalGeneration",
    .layers_at = kLanguage,
    .stacks = true,
    .hidden = {{"moe_hidden_size"}},
    .where = words({{}, 0}),
    .routing = with_factor(Factor::weights, "routed_scaling_factor", 1.0),
    .expert_norm = "experts.post_expert_norm.weight",
    .expert_norm_eps = {"post_norm_eps", 1e-8},
};
constexpr Architecture kLlama4 = {
    .name = "Llama4ForCausalLM",
    .block = "feed_forward.experts",
    .stacked = StackedWeights::columns_first,
    .stacks = true,
    .width = kDense,
    .where = {.rule = Layers::llama4},
    .routing = {.scoring = Scoring::sigmoid, .renormalize = {"", false}, .on_input = true},
};
constexpr Architecture kDeepseekV4 = {
    .name = "DeepseekV4ForCausalLM",
    .block = "ffn.experts",
    .projections = kNumbered,
    .where = kFrom,
    .activation = {.limit = {"swiglu_limit", 10.0}},
    .routing = {.scoring_key = "scoring_func",
                .scoring = Scoring::sqrtsoftplus,
                .renormalize = {"", true},
                .bias = {"", true},
                .factor = Factor::weights,
                .factor_key = {"routed_scaling_factor", 1.5},
                .hash_layers = true},
};

constexpr auto kArchitectures = std::to_array<Architecture>({
    kMixtral,
    like(kMixtral, "MiniMaxForCausalLM"),
    kPhi,
    like(kPhi, "PhiMoEForCausalLM"),
    kQwen2,
    like(kQwen2, "Qwen3MoeForCausalLM"),
    kQwen3Next,
    kQwen35,
    like(kQwen35, "Qwen3_5MoeForConditionalGeneration", [](Architecture& a) { inside(a, kLanguage); }),
    kQwen4,
    like(kQwen4, "Qwen4ExpForConditionalGeneration", [](Architecture& a) { inside(a, kLanguage); }),
    kQwen3Vl,
    kOmniThinker,
    like(kOmniThinker, "Qwen3OmniMoeForConditionalGeneration",
         [](Architecture& a) {
           inside(a, "thinker.model.layers");
           a.holder = "thinker_config/text_config";
         }),
    like(kQwen35, "Qwen3OmniMoeTalkerForConditionalGeneration",
         [](Architecture& a) {
           a.stacks = true;
           a.routing.renormalize = {"norm_topk_prob", false};
         }),
    like(kQwen35, "MellumForCausalLM",
         [](Architecture& a) {
           a.where = words({{}, 0});
           a.routing.renormalize = {"norm_topk_prob", true};
         }),
    kOlmoe,
    like(kOlmoe, "FlexOlmoForCausalLM", [](Architecture& a) { a.routing.vllm_renormalize.reset(); }),
    kJamba,
    kGranite,
    like(kGranite, "GraniteMoeSharedForCausalLM"),
    like(kGranite, "GraniteMoeHybridForCausalLM"),
    like(kGranite, "GraniteMoeSWAForCausalLM",
         [](Architecture& a) {
           a.block = "block_sparse_moe.experts";
           a.stack = {"gate_up_proj", "down_proj"};
         }),
    like(kGranite, "JetMoeForCausalLM",
         [](Architecture& a) {
           a.block = "mlp";
           a.activation.key = "activation_function";
         }),
    kGptOss,
    like(kGptOss, "OpenAIPrivacyFilterForTokenClassification",
         [](Architecture& a) {
           a.interleaved = false;
           a.activation.otherwise = "swigluoai_uninterleave";
         }),
    kGemma4,
    like(kGemma4, "Gemma4ForConditionalGeneration", [](Architecture& a) { inside(a, kLanguage); }),
    like(kGemma4, "DiffusionGemmaForBlockDiffusion",
         [](Architecture& a) {
           inside(a, "model.decoder.layers");
           a.where = {};
         }),
    kErnie,
    kHunYuan,
    kLongCat,
    kDbrx,
    kAria,
    like(kAria, "AriaForConditionalGeneration", [](Architecture& a) { inside(a, "language_model.model.layers"); }),
    kCohere2,
    kDeepseekV2,
    like(kDeepseekV2, "DeepseekOcr2ForConditionalGeneration", [](Architecture& a) { a.where = words({{}, 0}); }),
    like(kDeepseekV2, "UnlimitedOcrForConditionalGeneration",
         [](Architecture& a) {
           a.where = words({{"first_k_dense_replace"}, 1});
           a.holder = "language_config";
         }),
    kDeepseekV3,
    like(kDeepseekV3, "DeepseekV32ForCausalLM", [](Architecture& a) { a.where = words({{"first_k_dense_replace"}, 3}); }),
    like(kDeepseekV3, "AXK1ForCausalLM",
         [](Architecture& a) {
           a.where = words({{"first_k_dense_replace"}, 1});
           a.routing.factor = Factor::weights;
         }),
    like(kDeepseekV3, "AXK2ForCausalLM",
         [](Architecture& a) {
           a.where = words({{"first_k_dense_replace"}, 1});
           a.routing.n_group.otherwise = a.routing.topk_group.otherwise = 1;
           a.routing.masked_zero = true;
           a.routing.factor = Factor::weights;
         }),
    kDots1,
    kGlm4,
    like(kGlm4, "Glm4vMoeForConditionalGeneration", [](Architecture& a) { inside(a, kLanguage); }),
    kLite,
    like(kNewer, "GlmMoeDsaForCausalLM",
         [](Architecture& a) {
           a.where = words({{"first_k_dense_replace"}, 3});
           a.routing.factor_key.otherwise = 2.5;
         }),
    kGlm5,
    like(kNewer, "Dots3NoteForCausalLM"),
    like(kNewer, "Dots3NoteForConditionalGeneration"),
    like(kNewer, "ExaoneMoeForCausalLM", [](Architecture& a) { a.routing.factor_key.otherwise = 2.5; }),
    like(kNewer, "MiMoV2FlashForCausalLM", [](Architecture& a) { a.where = words({{}, 1}); }),
    like(kNewer, "SolarOpenForCausalLM", [](Architecture& a) { a.where = {}; }),
    like(kGlm5, "HYV4ForCausalLM",
         [](Architecture& a) {
           inside(a, "model.layers");
           a.where = words({{}, 1});
           a.stacks = true;
           a.routing.factor_key.otherwise = 2.827;
         }),
    like(kDeepseekV3, "BeamForCausalLM",
         [](Architecture& a) {
           a.where = words({{}, 3});
           a.routing.bias = {"", true};
         }),
    kBailing,
    kKimi,
    kNemotron,
    kMistral4,
    like(kMistral4, "Mistral3ForConditionalGeneration",
         [](Architecture& a) { inside(a, "language_model.model.layers"); }),
    like(kMistral4, "MistralLarge4ForConditionalGeneration",
         [](Architecture& a) {
           inside(a, "layers");
           a.block = "experts";
           a.projections = kNumbered;
           a.stacks = false;
           a.where = words({{"first_k_dense_replace"}, 1});
           a.routing.renormalize = {"", true};
         }),
    kMiniMaxM2,
    kMiniMaxM3,
    like(kMiniMaxM3, "MiniMaxM3VLForCausalLM",
         [](Architecture& a) {
           inside(a, "model.layers");
           a.block = "mlp.experts";
           a.stacks = true;
         }),
    kAfmoe,
    kHyV3,
    like(kQwen2, "FlintForCausalLM",
         [](Architecture& a) {
           a.where.first = {{}, 2};
           a.routing = {.scoring = Scoring::sigmoid, .renormalize = {"norm_topk_prob", true}};
         }),
    kLfm2,
    kLaguna,
    kStep3,
    kKolibri,
    kInkling2,
    like(kInkling2, "Inkling2ForConditionalGeneration"),
    kInkling,
    like(kInkling, "InklingForCausalLM",
         [](Architecture& a) {
           inside(a, "model.layers");
           a.stack = {"gate_up_proj", "down_proj"};
           a.interleaved = false;
           a.routing.bias_name = "";
         }),
    kMuse,
    kLlama4,
    like(kLlama4, "Llama4ForConditionalGeneration",
         [](Architecture& a) { inside(a, "language_model.model.layers"); }),
    {.name = "ZayaForCausalLM",
     .stacks = true,
     .routing = {.renormalize = {"", false},
                 .bias = {"", true},
                 .bias_name = "gate.balancing_biases",
                 .zero_experts = {{}, 1},
                 .zero_experts_give_nothing = true}},
    kDeepseekV4,
});

constexpr auto kUnread = std::to_array<Unread>({
    {"DogeForCausalLM", "its experts are single neurons in an embedding, chosen by product keys that mix the tokens of a call"},
    {"Ernie4_5_VLMoeForConditionalGeneration", "a layer has two sets of experts of different widths, one for text and one for images"},
    {"Ernie4_5_VL_MoeForConditionalGeneration", "a layer has two sets of experts of different widths, one for text and one for images"},
    {"NllbMoeForConditionalGeneration", "an encoder and a decoder with experts of a capacity that depends on the batch"},
    {"SwitchTransformersForConditionalGeneration", "an encoder and a decoder with experts of a capacity that depends on the batch"},
    {"VitPoseForPoseEstimation", "nothing is routed: the data set of an image chooses half of a projection"},
    {"Grok1ForCausalLM", "known but unverified: transformers 5.23.0 has no such class"},
    {"Grok1ModelForCausalLM", "known but unverified: transformers 5.23.0 has no such class"},
    {"BailingMoeForCausalLM", "known but unverified: transformers 5.23.0 has no such class"},
    {"BailingMoeV2ForCausalLM", "known but unverified: transformers 5.23.0 has no such class"},
    {"Step3p5ForCausalLM", "known but unverified: transformers 5.23.0 has no such class"},
});

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }
std::span<const Unread> unread_architectures() { return kUnread; }

}  // namespace moe::hf
