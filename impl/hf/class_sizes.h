// Sizes that classes of transformers 5.24.0 compute with when config.json lacks them (the defaults of their
// configuration classes). A row of architectures.cpp whose class stands here has them; where there is none (0), the
// file must say.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hf/architecture.h"

namespace moe::hf {

struct ClassSizes {
  std::string_view name;
  std::int64_t experts, top_k, width, hidden, layers;
};
constexpr auto kClassSizes = std::to_array<ClassSizes>({
    // num_experts, top_k, intermediate_size, hidden_dim, layers
    {"MixtralForCausalLM", 8, 2, 14336, 4096, 32},
    {"MiniMaxForCausalLM", 8, 2, 14336, 4096, 32},
    {"PhimoeForCausalLM", 16, 2, 6400, 4096, 32},
    {"Qwen2MoeForCausalLM", 60, 4, 1408, 2048, 24},
    {"Qwen3MoeForCausalLM", 128, 8, 768, 2048, 24},
    {"Qwen3NextForCausalLM", 512, 10, 512, 2048, 48},
    {"Qwen3_5MoeForCausalLM", 256, 8, 512, 2048, 40},
    {"Qwen3_5MoeForConditionalGeneration", 256, 8, 512, 2048, 40},
    {"Qwen4ExpForCausalLM", 512, 10, 512, 2048, 40},
    {"Qwen4ExpForConditionalGeneration", 512, 10, 512, 2048, 40},
    {"Qwen3VLMoeForConditionalGeneration", 60, 4, 1408, 2048, 24},
    {"Qwen3OmniMoeThinkerForConditionalGeneration", 128, 8, 768, 2048, 28},
    {"Qwen3OmniMoeForConditionalGeneration", 128, 8, 768, 2048, 28},
    {"Qwen3OmniMoeTalkerForConditionalGeneration", 128, 8, 384, 1024, 20},
    {"MellumForCausalLM", 64, 8, 896, 2304, 28},
    {"LaraMiniForCausalLM", 128, 4, 512, 1024, 34},
    {"OlmoeForCausalLM", 64, 8, 2048, 2048, 16},
    {"FlexOlmoForCausalLM", 7, 5, 11008, 4096, 32},
    {"JambaForCausalLM", 16, 2, 14336, 4096, 32},
    {"GraniteMoeForCausalLM", 8, 2, 11008, 4096, 32},
    {"GraniteMoeSharedForCausalLM", 8, 2, 11008, 4096, 32},
    {"GraniteMoeHybridForCausalLM", 8, 2, 11008, 4096, 32},
    {"GraniteMoeSWAForCausalLM", 8, 2, 11008, 4096, 32},
    {"JetMoeForCausalLM", 8, 2, 5632, 2048, 12},
    {"GptOssForCausalLM", 128, 4, 2880, 2880, 36},
    {"OpenAIPrivacyFilterForTokenClassification", 128, 4, 640, 640, 8},
    {"Gemma4ForCausalLM", 0, 0, 0, 2304, 30},
    {"Gemma4ForConditionalGeneration", 0, 0, 0, 2304, 30},
    {"DiffusionGemmaForBlockDiffusion", 0, 0, 0, 2304, 30},
    {"Ernie4_5_MoeForCausalLM", 64, 6, 1536, 2560, 28},
    {"HunYuanMoEV1ForCausalLM", 1, 1, 11008, 4096, 32},
    {"LongcatFlashForCausalLM", 512, 12, 2048, 6144, 28},
    {"DbrxForCausalLM", 4, 1, 3584, 2048, 24},
    {"AriaTextForCausalLM", 8, 2, 4096, 4096, 32},
    {"AriaForConditionalGeneration", 8, 2, 4096, 4096, 32},
    {"Cohere2MoeForCausalLM", 8, 2, 22528, 8192, 40},
    {"DeepseekV2ForCausalLM", 64, 0, 1407, 4096, 32},
    {"DeepseekOcr2ForConditionalGeneration", 64, 0, 1407, 4096, 32},
    {"UnlimitedOcrForConditionalGeneration", 64, 6, 896, 1280, 12},
    {"DeepseekV3ForCausalLM", 256, 8, 2048, 7168, 61},
    {"DeepseekV32ForCausalLM", 256, 8, 2048, 7168, 61},
    {"AXK1ForCausalLM", 192, 8, 2048, 7168, 61},
    {"AXK2ForCausalLM", 128, 8, 512, 2048, 48},
    {"Dots1ForCausalLM", 0, 0, 1408, 4608, 62},
    {"Glm4MoeForCausalLM", 128, 8, 1408, 4096, 46},
    {"Glm4vMoeForConditionalGeneration", 128, 8, 1408, 4096, 46},
    {"SarvamMoEForCausalLM", 128, 6, 1024, 4096, 19},
    {"SarvamMLAForCausalLM", 128, 8, 2048, 4096, 32},
    {"Glm4MoeLiteForCausalLM", 64, 4, 1536, 2048, 47},
    {"GlmMoeDsaForCausalLM", 256, 8, 2048, 6144, 78},
    {"Glm5NextForConditionalGeneration", 288, 8, 2048, 4096, 45},
    {"Dots3NoteForCausalLM", 256, 8, 1536, 5120, 46},
    {"Dots3NoteForConditionalGeneration", 256, 8, 1536, 5120, 46},
    {"ExaoneMoeForCausalLM", 64, 8, 1024, 4096, 32},
    {"MiMoV2FlashForCausalLM", 256, 8, 2048, 4096, 48},
    {"SolarOpenForCausalLM", 128, 8, 1280, 4096, 48},
    {"HYV4VLForConditionalGeneration", 256, 8, 2048, 6144, 78},
    {"HYV4ForCausalLM", 256, 8, 768, 2816, 34},
    {"BeamForCausalLM", 256, 8, 2560, 5120, 52},
    {"BailingHybridForCausalLM", 512, 8, 768, 2560, 42},
    {"KimiLinearForCausalLM", 256, 8, 1024, 2304, 27},
    {"NemotronHForCausalLM", 8, 2, 7688, 4096, 4},
    {"Mistral4ForCausalLM", 128, 4, 2048, 4096, 36},
    {"MistralLarge4ForConditionalGeneration", 128, 4, 6144, 6144, 72},
    {"MiniMaxM2ForCausalLM", 256, 8, 1536, 3072, 62},
    {"MiniMaxM3SparseForConditionalGeneration", 128, 4, 3072, 6144, 60},
    {"MiniMaxM3VLForCausalLM", 128, 4, 3072, 6144, 60},
    {"AfmoeForCausalLM", 64, 6, 1408, 2048, 32},
    {"HYV3ForCausalLM", 192, 8, 1536, 4096, 80},
    {"FlintForCausalLM", 256, 6, 512, 2048, 49},
    {"Lfm2MoeForCausalLM", 32, 4, 1792, 2048, 32},
    {"LagunaForCausalLM", 256, 8, 512, 2048, 40},
    {"Step3p7ForConditionalGeneration", 288, 8, 1280, 4096, 45},
    {"Kolibri1ForCausalLM", 384, 6, 512, 2560, 50},
    {"Inkling2ForCausalLM", 384, 8, 2304, 4608, 48},
    {"Inkling2ForConditionalGeneration", 384, 8, 2304, 4608, 48},
    {"Inkling2LoopForCausalLM", 128, 8, 1152, 2304, 24},
    {"Inkling2LoopForConditionalGeneration", 128, 8, 1152, 2304, 24},
    {"InklingForConditionalGeneration", 256, 6, 3072, 6144, 66},
    {"InklingForCausalLM", 256, 6, 3072, 6144, 66},
    {"MuseSparkForConditionalGeneration", 256, 8, 4096, 4096, 62},
    {"Llama4ForCausalLM", 16, 1, 8192, 5120, 48},
    {"Llama4ForConditionalGeneration", 16, 1, 8192, 5120, 48},
    {"ZayaForCausalLM", 16, 1, 2048, 2048, 40},
    {"DeepseekV4ForCausalLM", 256, 6, 2048, 4096, 43},
});

template <std::size_t N>
constexpr std::array<Architecture, N> with_sizes(std::array<Architecture, N> rows) {
  const auto take = [](std::optional<std::int64_t>& otherwise, std::int64_t size) {
    if (size > 0) otherwise = size;
  };
  for (Architecture& a : rows)
    for (const ClassSizes& s : kClassSizes)
      if (s.name == a.name) {
        take(a.experts.otherwise, s.experts);
        take(a.top_k.otherwise, s.top_k);
        take(a.width.otherwise, s.width);
        take(a.hidden.otherwise, s.hidden);
        take(a.where.layers, s.layers);
      }
  return rows;
}

}  // namespace moe::hf
