// Names of base models, of other heads and of text models' types, and the rows that they stand for. See
// impl/hf/class_names.cpp.
#include "hf/class_names.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "support/rooms.h"

namespace moe::test::hf_class_names_test {
namespace {

struct Named {
  const char *name, *row;
};
// All base models, text models and other heads of the packages of transformers 5.24.0 that have experts.
constexpr Named kRelatives[] = {
    {"AfmoeModel", "AfmoeForCausalLM"},
    {"AriaTextModel", "AriaTextForCausalLM"},
    {"AriaModel", "AriaForConditionalGeneration"},
    {"AXK1Model", "AXK1ForCausalLM"},
    {"AXK1ForSequenceClassification", "AXK1ForCausalLM"},
    {"AXK1ForTokenClassification", "AXK1ForCausalLM"},
    {"AXK2Model", "AXK2ForCausalLM"},
    {"AXK2ForSequenceClassification", "AXK2ForCausalLM"},
    {"AXK2ForTokenClassification", "AXK2ForCausalLM"},
    {"BailingHybridModel", "BailingHybridForCausalLM"},
    {"BeamModel", "BeamForCausalLM"},
    {"BeamForTokenClassification", "BeamForCausalLM"},
    {"Cohere2MoeModel", "Cohere2MoeForCausalLM"},
    {"DbrxModel", "DbrxForCausalLM"},
    {"DeepseekOcr2TextModel", "DeepseekOcr2ForConditionalGeneration"},
    {"DeepseekOcr2Model", "DeepseekOcr2ForConditionalGeneration"},
    {"DeepseekV2Model", "DeepseekV2ForCausalLM"},
    {"DeepseekV2ForSequenceClassification", "DeepseekV2ForCausalLM"},
    {"DeepseekV3Model", "DeepseekV3ForCausalLM"},
    {"DeepseekV3ForSequenceClassification", "DeepseekV3ForCausalLM"},
    {"DeepseekV3ForTokenClassification", "DeepseekV3ForCausalLM"},
    {"DeepseekV32Model", "DeepseekV32ForCausalLM"},
    {"DeepseekV4Model", "DeepseekV4ForCausalLM"},
    {"DiffusionGemmaModel", "DiffusionGemmaForBlockDiffusion"},
    {"DogeModel", "DogeForCausalLM"},
    {"DogeForSequenceClassification", "DogeForCausalLM"},
    {"Dots1Model", "Dots1ForCausalLM"},
    {"Dots3NoteTextModel", "Dots3NoteForCausalLM"},
    {"Dots3NoteModel", "Dots3NoteForConditionalGeneration"},
    {"Ernie4_5_MoeModel", "Ernie4_5_MoeForCausalLM"},
    {"Ernie4_5_VLMoeTextModel", "Ernie4_5_VLMoeForConditionalGeneration"},
    {"Ernie4_5_VLMoeModel", "Ernie4_5_VLMoeForConditionalGeneration"},
    {"Ernie4_5_VL_MoeModel", "Ernie4_5_VL_MoeForConditionalGeneration"},
    {"Ernie4_5_VL_MoeTextModel", "Ernie4_5_VL_MoeForConditionalGeneration"},
    {"ExaoneMoeModel", "ExaoneMoeForCausalLM"},
    {"FlexOlmoModel", "FlexOlmoForCausalLM"},
    {"FlintModel", "FlintForCausalLM"},
    {"Gemma4TextModel", "Gemma4ForCausalLM"},
    {"Gemma4Model", "Gemma4ForConditionalGeneration"},
    {"Glm4MoeModel", "Glm4MoeForCausalLM"},
    {"Glm4MoeLiteModel", "Glm4MoeLiteForCausalLM"},
    {"Glm4vMoeTextModel", "Glm4vMoeForConditionalGeneration"},
    {"Glm4vMoeModel", "Glm4vMoeForConditionalGeneration"},
    {"Glm5NextTextModel", "Glm5NextForConditionalGeneration"},
    {"Glm5NextModel", "Glm5NextForConditionalGeneration"},
    {"GlmMoeDsaModel", "GlmMoeDsaForCausalLM"},
    {"GptOssModel", "GptOssForCausalLM"},
    {"GptOssForSequenceClassification", "GptOssForCausalLM"},
    {"GptOssForTokenClassification", "GptOssForCausalLM"},
    {"GraniteMoeModel", "GraniteMoeForCausalLM"},
    {"GraniteMoeSWAModel", "GraniteMoeSWAForCausalLM"},
    {"GraniteMoeHybridModel", "GraniteMoeHybridForCausalLM"},
    {"GraniteMoeSharedModel", "GraniteMoeSharedForCausalLM"},
    {"HunYuanMoEV1Model", "HunYuanMoEV1ForCausalLM"},
    {"HunYuanMoEV1ForSequenceClassification", "HunYuanMoEV1ForCausalLM"},
    {"HYV3Model", "HYV3ForCausalLM"},
    {"HYV4Model", "HYV4ForCausalLM"},
    {"HYV4VLTextModel", "HYV4VLForConditionalGeneration"},
    {"HYV4VLModel", "HYV4VLForConditionalGeneration"},
    {"InklingTextModel", "InklingForCausalLM"},
    {"InklingModel", "InklingForConditionalGeneration"},
    {"Inkling2TextModel", "Inkling2ForCausalLM"},
    {"Inkling2Model", "Inkling2ForConditionalGeneration"},
    {"Inkling2LoopTextModel", "Inkling2LoopForCausalLM"},
    {"Inkling2LoopModel", "Inkling2LoopForConditionalGeneration"},
    {"JambaModel", "JambaForCausalLM"},
    {"JambaForSequenceClassification", "JambaForCausalLM"},
    {"JetMoeModel", "JetMoeForCausalLM"},
    {"JetMoeForSequenceClassification", "JetMoeForCausalLM"},
    {"KimiLinearModel", "KimiLinearForCausalLM"},
    {"Kolibri1Model", "Kolibri1ForCausalLM"},
    {"LagunaModel", "LagunaForCausalLM"},
    {"LaraMiniModel", "LaraMiniForCausalLM"},
    {"Lfm2MoeModel", "Lfm2MoeForCausalLM"},
    {"Llama4TextModel", "Llama4ForCausalLM"},
    {"LongcatFlashModel", "LongcatFlashForCausalLM"},
    {"MellumModel", "MellumForCausalLM"},
    {"MiMoV2FlashModel", "MiMoV2FlashForCausalLM"},
    {"MiniMaxModel", "MiniMaxForCausalLM"},
    {"MiniMaxForSequenceClassification", "MiniMaxForCausalLM"},
    {"MiniMaxForTokenClassification", "MiniMaxForCausalLM"},
    {"MiniMaxForQuestionAnswering", "MiniMaxForCausalLM"},
    {"MiniMaxM2Model", "MiniMaxM2ForCausalLM"},
    {"MiniMaxM3VLTextModel", "MiniMaxM3VLForCausalLM"},
    {"MiniMaxM3VLModel", "MiniMaxM3VLForCausalLM"},
    {"Mistral4Model", "Mistral4ForCausalLM"},
    {"Mistral4ForSequenceClassification", "Mistral4ForCausalLM"},
    {"Mistral4ForTokenClassification", "Mistral4ForCausalLM"},
    {"MistralLarge4TextModel", "MistralLarge4ForConditionalGeneration"},
    {"MistralLarge4Model", "MistralLarge4ForConditionalGeneration"},
    {"MixtralModel", "MixtralForCausalLM"},
    {"MixtralForSequenceClassification", "MixtralForCausalLM"},
    {"MixtralForTokenClassification", "MixtralForCausalLM"},
    {"MixtralForQuestionAnswering", "MixtralForCausalLM"},
    {"MuseSparkTextModel", "MuseSparkForConditionalGeneration"},
    {"MuseSparkModel", "MuseSparkForConditionalGeneration"},
    {"NemotronHModel", "NemotronHForCausalLM"},
    {"NllbMoeModel", "NllbMoeForConditionalGeneration"},
    {"OlmoeModel", "OlmoeForCausalLM"},
    {"OpenAIPrivacyFilterModel", "OpenAIPrivacyFilterForTokenClassification"},
    {"PhimoeModel", "PhimoeForCausalLM"},
    {"PhimoeForSequenceClassification", "PhimoeForCausalLM"},
    {"Qwen2MoeModel", "Qwen2MoeForCausalLM"},
    {"Qwen2MoeForSequenceClassification", "Qwen2MoeForCausalLM"},
    {"Qwen2MoeForTokenClassification", "Qwen2MoeForCausalLM"},
    {"Qwen2MoeForQuestionAnswering", "Qwen2MoeForCausalLM"},
    {"Qwen3_5MoeTextModel", "Qwen3_5MoeForCausalLM"},
    {"Qwen3_5MoeModel", "Qwen3_5MoeForConditionalGeneration"},
    {"Qwen3MoeModel", "Qwen3MoeForCausalLM"},
    {"Qwen3MoeForSequenceClassification", "Qwen3MoeForCausalLM"},
    {"Qwen3MoeForTokenClassification", "Qwen3MoeForCausalLM"},
    {"Qwen3MoeForQuestionAnswering", "Qwen3MoeForCausalLM"},
    {"Qwen3NextModel", "Qwen3NextForCausalLM"},
    {"Qwen3NextForSequenceClassification", "Qwen3NextForCausalLM"},
    {"Qwen3NextForTokenClassification", "Qwen3NextForCausalLM"},
    {"Qwen3NextForQuestionAnswering", "Qwen3NextForCausalLM"},
    {"Qwen3OmniMoeThinkerTextModel", "Qwen3OmniMoeThinkerForConditionalGeneration"},
    {"Qwen3OmniMoeThinkerModel", "Qwen3OmniMoeThinkerForConditionalGeneration"},
    {"Qwen3OmniMoeTalkerModel", "Qwen3OmniMoeTalkerForConditionalGeneration"},
    {"Qwen3VLMoeTextModel", "Qwen3VLMoeForConditionalGeneration"},
    {"Qwen3VLMoeModel", "Qwen3VLMoeForConditionalGeneration"},
    {"Qwen4ExpTextModel", "Qwen4ExpForCausalLM"},
    {"Qwen4ExpModel", "Qwen4ExpForConditionalGeneration"},
    {"SolarOpenModel", "SolarOpenForCausalLM"},
    {"Step3p7TextModel", "Step3p7ForConditionalGeneration"},
    {"Step3p7Model", "Step3p7ForConditionalGeneration"},
    {"SwitchTransformersModel", "SwitchTransformersForConditionalGeneration"},
    {"UnlimitedOcrTextModel", "UnlimitedOcrForConditionalGeneration"},
    {"UnlimitedOcrModel", "UnlimitedOcrForConditionalGeneration"},
    {"ZayaModel", "ZayaForCausalLM"},
};
// What else is called a model there.
constexpr const char* kOthers[] = {
    "DeepseekOcr2VisionModel",
    "DiffusionGemmaEncoderTextModel",
    "DiffusionGemmaEncoderModel",
    "DiffusionGemmaDecoderModel",
    "Dots3NoteAudioModel",
    "Dots3NoteVisionModel",
    "Ernie4_5_VLMoeVisionTransformerPretrainedModel",
    "Ernie4_5_VLMoeVariableResolutionResamplerModel",
    "Ernie4_5_VL_MoeVisionTransformerPretrainedModel",
    "Ernie4_5_VL_MoeVariableResolutionResamplerModel",
    "Gemma4AudioModel",
    "Gemma4VisionModel",
    "Glm4vMoeVisionModel",
    "Glm5NextVisionModel",
    "HYV4VLVisionModel",
    "InklingAudioModel",
    "InklingVisionModel",
    "Inkling2VisionModel",
    "Llama4VisionModel",
    "MiniMaxM3VLVisionModel",
    "MuseSparkVisionModel",
    "MuseSparkAudioModel",
    "Qwen3_5MoeVisionModel",
    "Qwen3OmniMoeTalkerCodePredictorModel",
    "Qwen3OmniMoeCode2WavTransformerModel",
    "Qwen3VLMoeVisionModel",
    "Qwen4ExpVisionModel",
    "Step3p7VisionModel",
    "SwitchTransformersEncoderModel",
    "UnlimitedOcrVisionModel",
};

std::string row_of(std::string_view name) {
  const NamedClass found = class_named(name);
  EXPECT_FALSE(found.row != nullptr && found.unread != nullptr) << name;
  return std::string(found.row != nullptr ? found.row->name : found.unread != nullptr ? found.unread->name : "");
}

TEST(HfClassNames, RowsAreThemselves) {
  for (const Architecture& a : architectures()) EXPECT_EQ(class_named(a.name).row, &a) << a.name;
  for (const Unread& u : unread_architectures()) EXPECT_EQ(class_named(u.name).unread, &u) << u.name;
}

TEST(HfClassNames, BaseModelsAndOtherHeads) {
  for (const auto& [name, row] : kRelatives) EXPECT_EQ(row_of(name), row) << name;
}

TEST(HfClassNames, NothingIsGuessed) {
  for (const char* name : kOthers) EXPECT_EQ(row_of(name), "") << name;
  for (const char* name :
       {"", "Model", "TextModel", "ForCausalLM", "ForSequenceClassification", "MixtralForMaskedLM", "mixtralModel",
        "MixtralModelModel", "MixtralTextModelForCausalLM", "MixtralEagleModel", "LlamaModel", "Qwen3Model",
        "Qwen3ForSequenceClassification", "Gemma4ForCausalLMModel", "MixtralForSequenceClassification2"})
    EXPECT_EQ(row_of(name), "") << name;
}

TEST(HfClassNames, ModelTypes) {
  const auto row = [](std::string_view type) {
    const Architecture* a = class_of_model_type(type);
    return a == nullptr ? std::string() : std::string(a->name);
  };
  for (const auto& [type, name] :
       {Named{"qwen3_moe", "Qwen3MoeForCausalLM"}, Named{"gpt_oss", "GptOssForCausalLM"},
        Named{"deepseek_v3", "DeepseekV3ForCausalLM"}, Named{"kimi_k2", "KimiK2ForCausalLM"},
        Named{"lfm2_moe", "Lfm2MoeForCausalLM"}, Named{"mixtral", "MixtralForCausalLM"},
        Named{"gemma4_text", "Gemma4ForCausalLM"}, Named{"cohere2_moe", "Cohere2MoeForCausalLM"},
        Named{"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration"}, Named{"sarvam_moe", "SarvamMoEForCausalLM"},
        Named{"step3p5", "Step3p7ForConditionalGeneration"}})
    EXPECT_EQ(row(type), name) << type;
  for (const char* type : {"", "llama", "qwen3", "gemma4", "gemma4_vision", "doge", "nllb-moe", "ernie4_5_vl_moe_text"})
    EXPECT_EQ(row(type), "") << type;
}

}  // namespace
}  // namespace moe::test::hf_class_names_test
