// See class_names.h.
#include "hf/class_names.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace moe::hf {
namespace {

template <class Rows>
auto* find_named(const Rows& rows, std::string_view name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

NamedClass exactly(std::string_view name) {
  return {find_named(architectures(), name), find_named(unread_architectures(), name)};
}

// Endings of names, and those of the classes that are meant, the first that is there. A multimodal model's base has its
// whole config; its text model's name says so, and so does that of a class for it alone, if there is one.
struct Ending {
  std::string_view theirs;
  std::array<std::string_view, 4> ours;
};
constexpr std::array<std::string_view, 4> kHeads = {"ForCausalLM", "ForConditionalGeneration", "ForBlockDiffusion",
                                                    "ForTokenClassification"};
constexpr auto kEndings = std::to_array<Ending>({
    {"TextModel", {"TextForCausalLM", "ForCausalLM", "ForConditionalGeneration"}},
    {"Model", {"ForConditionalGeneration", "ForCausalLM", "ForBlockDiffusion", "ForTokenClassification"}},
    {"ForSequenceClassification", kHeads},
    {"ForTokenClassification", kHeads},
    {"ForQuestionAnswering", kHeads},
});

// The configs of text models alone, by the classes that transformers 5.24.0 makes of them (kimi_k2: what it, vLLM and
// SGLang make of it).
struct ModelType {
  std::string_view name, row;
};
constexpr auto kModelTypes = std::to_array<ModelType>({
    {"afmoe", "AfmoeForCausalLM"},
    {"aria_text", "AriaTextForCausalLM"},
    {"axk1", "AXK1ForCausalLM"},
    {"axk2", "AXK2ForCausalLM"},
    {"bailing_hybrid", "BailingHybridForCausalLM"},
    {"beam", "BeamForCausalLM"},
    {"cohere2_moe", "Cohere2MoeForCausalLM"},
    {"deepseek_v2", "DeepseekV2ForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
    {"deepseek_v32", "DeepseekV32ForCausalLM"},
    {"deepseek_v4", "DeepseekV4ForCausalLM"},
    {"dots1", "Dots1ForCausalLM"},
    {"dots3_note_text", "Dots3NoteForCausalLM"},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"},
    {"exaone_moe", "ExaoneMoeForCausalLM"},
    {"flex_olmo", "FlexOlmoForCausalLM"},
    {"flint", "FlintForCausalLM"},
    {"gemma4_text", "Gemma4ForCausalLM"},
    {"glm4_moe", "Glm4MoeForCausalLM"},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM"},
    {"glm4v_moe_text", "Glm4vMoeForConditionalGeneration"},
    {"glm5_next_text", "Glm5NextForConditionalGeneration"},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM"},
    {"gpt_oss", "GptOssForCausalLM"},
    {"granitemoe", "GraniteMoeForCausalLM"},
    {"granitemoe_swa", "GraniteMoeSWAForCausalLM"},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM"},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM"},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"},
    {"hy_v3", "HYV3ForCausalLM"},
    {"hy_v4", "HYV4ForCausalLM"},
    {"hy_v4_vl_text", "HYV4VLForConditionalGeneration"},
    {"inkling2_loop_text", "Inkling2LoopForCausalLM"},
    {"inkling2_text", "Inkling2ForCausalLM"},
    {"inkling_text", "InklingForCausalLM"},
    {"jamba", "JambaForCausalLM"},
    {"jetmoe", "JetMoeForCausalLM"},
    {"kimi_k2", "KimiK2ForCausalLM"},
    {"kimi_linear", "KimiLinearForCausalLM"},
    {"kolibri1", "Kolibri1ForCausalLM"},
    {"laguna", "LagunaForCausalLM"},
    {"lara_mini", "LaraMiniForCausalLM"},
    {"lfm2_moe", "Lfm2MoeForCausalLM"},
    {"llama4_text", "Llama4ForCausalLM"},
    {"longcat_flash", "LongcatFlashForCausalLM"},
    {"mellum", "MellumForCausalLM"},
    {"mimo_v2_flash", "MiMoV2FlashForCausalLM"},
    {"minimax", "MiniMaxForCausalLM"},
    {"minimax_m2", "MiniMaxM2ForCausalLM"},
    {"minimax_m3_vl_text", "MiniMaxM3VLForCausalLM"},
    {"mistral4", "Mistral4ForCausalLM"},
    {"mistral_large4_text", "MistralLarge4ForConditionalGeneration"},
    {"mixtral", "MixtralForCausalLM"},
    {"muse_spark_text", "MuseSparkForConditionalGeneration"},
    {"nemotron_h", "NemotronHForCausalLM"},
    {"olmoe", "OlmoeForCausalLM"},
    {"openai_privacy_filter", "OpenAIPrivacyFilterForTokenClassification"},
    {"phimoe", "PhimoeForCausalLM"},
    {"qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"},
    {"qwen3_moe", "Qwen3MoeForCausalLM"},
    {"qwen3_next", "Qwen3NextForCausalLM"},
    {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration"},
    {"qwen4_exp_text", "Qwen4ExpForCausalLM"},
    {"sarvam_mla", "SarvamMLAForCausalLM"},
    {"sarvam_moe", "SarvamMoEForCausalLM"},
    {"solar_open", "SolarOpenForCausalLM"},
    {"step3p5", "Step3p7ForConditionalGeneration"},
    {"zaya", "ZayaForCausalLM"},
});

// Model types that transformers 5.24.0 makes another's class of, with their own values of what a file leaves out.
struct SharedClass {
  std::string_view name, model_type;
};
constexpr auto kSharedClasses = std::to_array<SharedClass>({
    {"DeepseekV3ForCausalLM", "sarvam_mla"},
    {"Glm4MoeForCausalLM", "sarvam_moe"},
});

}  // namespace

NamedClass class_named(std::string_view name) {
  const auto known = [](const NamedClass& c) { return c.row != nullptr || c.unread != nullptr; };
  if (const NamedClass itself = exactly(name); known(itself)) return itself;
  const auto ending = std::find_if(kEndings.begin(), kEndings.end(), [&](const Ending& e) {
    return name.size() > e.theirs.size() && name.ends_with(e.theirs);
  });
  if (ending == kEndings.end()) return {};
  const std::string_view stem = name.substr(0, name.size() - ending->theirs.size());
  for (const std::string_view ours : ending->ours)
    if (const NamedClass meant = exactly(cat(stem, ours)); known(meant)) return meant;
  return {};
}

const Architecture* class_of_model_type(std::string_view model_type) {
  const ModelType* type = find_named(kModelTypes, model_type);
  return type == nullptr ? nullptr : exactly(type->row).row;
}

const Architecture& row_of_type(const Architecture& row, std::string_view model_type) {
  const bool shared = std::any_of(kSharedClasses.begin(), kSharedClasses.end(), [&](const SharedClass& c) {
    return c.name == row.name && c.model_type == model_type;
  });
  const Architecture* own = shared ? class_of_model_type(model_type) : nullptr;
  return own == nullptr ? row : *own;
}

}  // namespace moe::hf
