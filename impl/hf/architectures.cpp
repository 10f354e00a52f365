// The rows of architecture.h: the classes of transformers 5.24.0 with routed experts, and a few that it lacks.
#include "hf/architecture.h"
#include "hf/class_sizes.h"
#include "hf/families.h"
#include "hf/families_sigmoid.h"

namespace moe::hf {
namespace {

using namespace families;  // NOLINT(google-build-using-namespace): rows are made of them

constexpr auto kArchitectures = with_sizes(std::to_array<Architecture>({
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
    like(kQwen4, "LaraMiniForCausalLM"),
    kOlmoe,
    like(kOlmoe, "FlexOlmoForCausalLM", [](Architecture& a) { a.routing.vllm_renormalize = a.routing.renormalize; }),
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
    like(kDeepseekV2, "DeepseekOcr2ForConditionalGeneration",
         [](Architecture& a) {
           a.where = words({{}, 0});
         }),
    like(kDeepseekV2, "UnlimitedOcrForConditionalGeneration",
         [](Architecture& a) {
           a.where = words({{"first_k_dense_replace"}, 1});
           a.holder = "language_config";
         }),
    // As vLLM and SGLang have them.
    like(kDeepseekV2, "UnlimitedOCRForCausalLM",
         [](Architecture& a) {
           a.where = words({{"first_k_dense_replace"}, 1});
           a.holder = "language_config";
         }),
    like(kDeepseekV2, "DeepseekOCRForCausalLM", [](Architecture& a) { a.holder = "language_config"; }),
    like(kDeepseekV2, "DeepseekForCausalLM",
         [](Architecture& a) {
           a.routing.renormalize = {"norm_topk_prob", false};
           a.routing.vllm_renormalize = {};
           a.routing.groups = GroupKeys::none;
         }),
    kDeepseekV3,
    like(kDeepseekV3, "KimiK2ForCausalLM"),  // kimi_k2: DeepSeek-V3's config in transformers, vLLM and SGLang
    like(kDeepseekV3, "DeepseekV32ForCausalLM",
         [](Architecture& a) {
           a.where = predicting(words({{"first_k_dense_replace"}, 3}));
         }),
    like(kDeepseekV3, "AXK1ForCausalLM",
         [](Architecture& a) {
           a.where = stepped({{"first_k_dense_replace"}, 1});
           a.routing.factor = Factor::weights;
         }),
    like(kDeepseekV3, "AXK2ForCausalLM",
         [](Architecture& a) {
           a.where = stepped({{"first_k_dense_replace"}, 1});
           a.routing.n_group = Routing().n_group;
           a.routing.topk_group = Routing().topk_group;
           a.routing.masked_zero = true;
           a.routing.factor = Factor::weights;
         }),
    kDots1,
    kGlm4,
    like(kGlm4, "Glm4vMoeForConditionalGeneration", [](Architecture& a) { inside(a, kLanguage); }),
    kSarvam,
    like(kSarvam, "SarvamMLAForCausalLM"),
    kLite,
    like(kNewer, "GlmMoeDsaForCausalLM",
         [](Architecture& a) {
           a.where = predicting(words({{"first_k_dense_replace"}, 3}));
           a.routing.factor_key.otherwise = 2.5;
         }),
    kGlm5,
    like(kNewer, "Dots3NoteForCausalLM",
         [](Architecture& a) {
           a.where = predicting(stepped({{"first_k_dense_replace"}, 1}));
         }),
    like(kNewer, "Dots3NoteForConditionalGeneration",
         [](Architecture& a) {
           a.where = predicting(stepped({{"first_k_dense_replace"}, 1}));
         }),
    like(kNewer, "ExaoneMoeForCausalLM", [](Architecture& a) { a.routing.factor_key.otherwise = 2.5; }),
    like(kNewer, "ExaoneMoEForCausalLM", [](Architecture& a) { a.routing.factor_key.otherwise = 2.5; }),
    like(kNewer, "MiMoV2FlashForCausalLM",
         [](Architecture& a) {
           a.where = words({{}, 1});
           a.routing.factor_key.null = 1.0;  // as published
         }),
    like(kNewer, "SolarOpenForCausalLM", [](Architecture& a) { a.where = {}; }),
    kHyV4,
    like(kHyV4, "HYV4ForCausalLM", [](Architecture& a) { inside(a, "model.layers"); }),
    like(kDeepseekV3, "BeamForCausalLM",
         [](Architecture& a) {
           a.where = words({{}, 3});
           a.routing.bias = {"", true};
         }),
    kBailing,
    like(kBailing, "BailingMoeV3ForCausalLM",
         [](Architecture& a) {
           a.activation = {.key = "", .otherwise = "swiglustep", .limits = "expert_swiglu_limit_list"};
           a.routing.vllm_renormalize = BoolKey{"", true};
         }),
    // As vLLM and SGLang have them.
    like(kNewer, "BailingMoeForCausalLM", bailing_moe),
    like(kNewer, "BailingMoeV2ForCausalLM", bailing_moe),
    kKimi,
    kNemotron,
    kMistral4,
    like(kMistral4, "Mistral3ForConditionalGeneration",
         [](Architecture& a) {
           inside(a, "language_model.model.layers");
           a.any_text = true;
         }),
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
    like(kMiniMaxM3, "MiniMaxM3SparseForCausalLM",
         [](Architecture& a) {
           inside(a, "model.layers");
           a.routing.bias = {"use_routing_bias", true};
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
    like(kStep3, "Step3p5ForCausalLM",  // vLLM's and SGLang's; Step3p7's text model is this one
         [](Architecture& a) {
           a.routing.scoring_key = "moe_router_activation";
           a.routing.scoring_fixed = true;
           a.routing.renormalize = {"norm_expert_weight", true};
           a.routing.bias = {"use_moe_router_bias", true};
         }),
    kKolibri,
    kInkling2,
    like(kInkling2, "Inkling2ForConditionalGeneration"),
    like(kInkling2, "Inkling2LoopForCausalLM"),
    like(kInkling2, "Inkling2LoopForConditionalGeneration"),
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
    like(kLlama4, "Llama4ForConditionalGeneration", [](Architecture& a) { inside(a, "language_model.model.layers"); }),
    {.name = "ZayaForCausalLM",
     .stacks = true,
     .routing = {.renormalize = {"", false},
                 .bias = {"", true},
                 .bias_name = "gate.balancing_biases",
                 .zero_experts = {{}, 1},
                 .zero_experts_give_nothing = true}},
    kDeepseekV4,
    // Its layers that predict may have other numbers of experts.
    like(kDeepseekV4, "DeepseekV41ForCausalLM",
         [](Architecture& a) {
           a.where.predicting = false;
           a.activation.limit.otherwise = {};
           a.routing.renormalize = *a.routing.vllm_renormalize;
           a.routing.factor_key.otherwise = 1.0;
           a.routing.hash_layers = 0;
         }),
}));

constexpr auto kUnread = std::to_array<Unread>({
    {"DogeForCausalLM",
     "its experts are single neurons in an embedding, chosen by product keys that mix the tokens of a call"},
    {"Ernie4_5_VLMoeForConditionalGeneration",
     "a layer has two sets of experts of different widths, one for text and one for images"},
    {"Ernie4_5_VL_MoeForConditionalGeneration",
     "a layer has two sets of experts of different widths, one for text and one for images"},
    {"NllbMoeForConditionalGeneration",
     "an encoder and a decoder with experts of a capacity that depends on the batch"},
    {"SwitchTransformersForConditionalGeneration",
     "an encoder and a decoder with experts of a capacity that depends on the batch"},
    {"VitPoseForPoseEstimation", "nothing is routed: the data set of an image chooses half of a projection"},
    {"Grok1ForCausalLM", "known but unverified; option \"architecture\" describes it"},
    {"Grok1ModelForCausalLM", "known but unverified; option \"architecture\" describes it"},
    {"MiniMaxM3ForCausalLM",
     "no class of transformers, vLLM or SGLang has this name; option \"architecture\": \"MiniMaxM3SparseForCausalLM\" "
     "reads the file like that class"},
    {"Step3p7FlashForCausalLM",
     "no class of transformers, vLLM or SGLang has this name; option \"architecture\": "
     "\"Step3p7ForConditionalGeneration\" reads the file like that class"},
});

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }
std::span<const Unread> unread_architectures() { return kUnread; }

}  // namespace moe::hf
