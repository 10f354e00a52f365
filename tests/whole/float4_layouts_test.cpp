// The golden conversions of NVFP4 and MXFP4 through the ABI, byte for byte, and the numbers out of them; scales of gate
// and up that differ; what no kernel's layout is known of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support/rooms.h"
#include "whole/converted_vectors.h"

namespace moe::test::float4_layouts_test {
namespace {

using namespace converted_vectors;
using ::testing::HasSubstr;

const Sources kNvfp4 = {{"w13_weight", "w13_weight_packed"},
                        {"w13_scale", "w13_weight_scale"},
                        {"w13_global_scale", "w13_weight_global_scale"},
                        {"w13_input_global_scale", "w13_input_global_scale"},
                        {"w2_weight", "w2_weight_packed"},
                        {"w2_scale", "w2_weight_scale"},
                        {"w2_global_scale", "w2_weight_global_scale"},
                        {"w2_input_global_scale", "w2_input_global_scale"}};
const Sources kUngated = {
    {"w13_weight", "w13"}, {"w13_scale", "w13_scale"}, {"w13_scale_2", "w13_scale_2"}, {"w13_input_scale", "a13_scale"},
    {"w2_weight", "w2"},   {"w2_scale", "w2_scale"},   {"w2_scale_2", "w2_scale_2"},   {"w2_input_scale", "a2_scale"}};
const Sources kGptOss = {{"w13_weight", "gate_up_proj_blocks"}, {"w13_scale", "gate_up_proj_scales"},
                         {"w2_weight", "down_proj_blocks"},     {"w2_scale", "down_proj_scales"},
                         {"w13_bias", "gate_up_proj_bias"},     {"w2_bias", "down_proj_bias"}};
const Sources kGptOssPlain = {kGptOss.begin(), kGptOss.begin() + 4};

struct Golden {
  const char* name;
  const char* file;
  json members;
  Sources sources;
  const char* prefix;  // of the file's tensors: all of them
  const char *backend, *layout;
  std::size_t outputs;
};

json layer4(const VecFile& f, const char* file, const json& members) {
  const bool mx = std::string(file) == "mxfp4_gptoss";
  const std::vector<std::int64_t>& down = f.at(mx                          ? "down_proj_blocks"
                                               : f.has("w2_weight_packed") ? "w2_weight_packed"
                                                                           : "w2")
                                              .shape;
  json c = {{"num_experts", down[0]},
            {"top_k", f.at("topk_ids").shape[1]},
            {"hidden_dim", down[1]},
            {"intermediate_size", mx ? down[2] * 32 : down[2] * 2},
            {"in_dtype", "bfloat16"}};
  if (mx) {
    c["quantization"] = {{"scheme", "MXFP4A16"}, {"format", "mxfp4-gpt-oss"}};
    c["activation"] = "swigluoai";
    c["has_bias"] = true;
  } else {
    c["quantization"] = {{"scheme", "NVFP4"}};
    if (!f.has("w2_weight_packed")) c["activation"] = "relu2_no_mul";
  }
  return also(c, members);
}

std::vector<Golden> goldens() {
  json b12x = cuda(12);
  b12x["platform"]["libs"]["b12x"] = true;
  const json by_switch = {{"vllm_env", {{"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "1"}}}};
  const json cpu = {{"platform", {{"type", "cpu"}, {"arch", "x86_64"}, {"features", {"avx512_bf16", "avx512_vnni"}}}},
                    {"selection_policy", "vllm"}};
  const json plain = {{"activation", "silu"}, {"has_bias", false}};
  return {
      {"FlashInferCutlass", "nvfp4", backend(cuda(10), "flashinfer_cutlass"), kNvfp4, "FLASHINFER_CUTLASS.",
       "FLASHINFER_CUTLASS", "flashinfer_cutlass/nvfp4/1", 8},
      {"VllmCutlass", "nvfp4", backend(cuda(10), "cutlass"), kNvfp4, "VLLM_CUTLASS.", "VLLM_CUTLASS",
       "vllm_cutlass/nvfp4/1", 8},
      {"B12x", "nvfp4", backend(b12x, "b12x"), kNvfp4, "B12X.", "B12X", "b12x/nvfp4/1", 8},
      {"CuteDsl", "nvfp4", backend(cuda(10), "flashinfer_cutedsl"), kNvfp4, "FLASHINFER_CUTEDSL.", "FLASHINFER_CUTEDSL",
       "flashinfer_cutedsl/nvfp4/1", 8},
      {"Trtllm", "nvfp4", backend(cuda(10), "flashinfer_trtllm"), kNvfp4, "FLASHINFER_TRTLLM.", "FLASHINFER_TRTLLM",
       "flashinfer_trtllm/nvfp4/1", 8},
      {"Marlin", "nvfp4", backend(cuda(9), "marlin"), kNvfp4, "MARLIN.", "MARLIN", "marlin/nvfp4/1", 6},
      {"Emulation", "nvfp4", backend(cuda(9), "emulation"), kNvfp4, "EMULATION.", "EMULATION", "plain/nvfp4/1", 8},
      {"FlashInferCutlassUngated", "nvfp4_nongated", backend(cuda(10), "flashinfer_cutlass"), kUngated,
       "FLASHINFER_CUTLASS.", "FLASHINFER_CUTLASS", "flashinfer_cutlass/nvfp4/1", 4},
      {"TrtllmUngated", "nvfp4_nongated", backend(cuda(10), "flashinfer_trtllm"), kUngated, "FLASHINFER_TRTLLM.",
       "FLASHINFER_TRTLLM", "flashinfer_trtllm/nvfp4/1", 6},
      {"GptOssCutlassMxfp8", "mxfp4_gptoss", also(cuda(10), by_switch), kGptOss, "ficutlass_mxfp8.",
       "FLASHINFER_CUTLASS_MXFP4_MXFP8", "flashinfer_cutlass/mxfp4-mxfp8-bias/1", 6},
      {"GptOssCutlassBf16", "mxfp4_gptoss", backend(cuda(9), "flashinfer_cutlass"), kGptOss, "ficutlass_bf16.",
       "FLASHINFER_CUTLASS_MXFP4_BF16", "flashinfer_cutlass/mxfp4-bf16-bias/1", 6},
      {"GptOssMarlin", "mxfp4_gptoss", backend(cuda(8), "marlin"), kGptOss, "marlin.", "MARLIN", "marlin/mxfp4-bias/1",
       6},
      {"GptOssCpu", "mxfp4_gptoss", cpu, kGptOss, "cpu.", "CPU", "vnni/mxfp4-bias/1", 4},
      {"GptOssDeepGemm", "mxfp4_gptoss", also(backend(cuda(10), "deep_gemm"), plain), kGptOssPlain, "deepgemm.",
       "DEEPGEMM_MXFP4", "deepgemm/mxfp4/1", 1},
  };
}

// The checkpoint's numbers of an expert, gate rows first, in the products' order: code * (scale * second scale).
std::vector<float> numbers(const VecFile& f, const Golden& g, bool w13, std::int64_t expert) {
  const auto source = [&](const std::string& role) -> const VecTensor* {
    for (const auto& [name, tensor] : g.sources)
      if (name == role) return &f.at(tensor);
    return nullptr;
  };
  const std::string m = w13 ? "w13_" : "w2_";
  const VecTensor &codes = *source(m + "weight"), &scales = *source(m + "scale");
  const std::int64_t rows = codes.shape[1], groups = scales.shape[2];
  const bool mx = scales.dtype != DType::f8_e4m3fn;
  const std::int64_t size = mx ? 32 : 16, k = groups * size;
  std::vector<float> second(static_cast<std::size_t>(codes.shape[0] * 2), 1.0f);  // [E, 2]
  const bool divides = source(m + "global_scale") != nullptr;
  if (const VecTensor* t = divides ? source(m + "global_scale") : source(m + "scale_2")) {
    const std::vector<float> each = t->as<float>();
    for (std::size_t i = 0; i < second.size(); ++i) {
      const float x = each.size() == second.size() ? each[i] : each[i / 2];
      second[i] = divides ? 1.0f / x : x;
    }
  }
  const bool pairs = w13 && mx && !g.members.contains("activation");
  std::vector<float> out;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = expert * rows + (pairs ? r % (rows / 2) * 2 + r / (rows / 2) : r);
    for (std::int64_t c = 0; c < k; ++c) {
      const auto byte = static_cast<unsigned>(codes.data[static_cast<std::size_t>((row * k + c) / 2)]);
      const auto scale = static_cast<unsigned>(scales.data[static_cast<std::size_t>(row * groups + c / size)]);
      const float s = mx ? e8m0_to_f32(scale) : small_to_f32(kE4m3, scale);
      out.push_back(small_to_f32(kE2m1, c % 2 == 0 ? byte & 15u : byte >> 4) *
                    (s * second[static_cast<std::size_t>(2 * expert)]));
    }
  }
  return out;
}

class Float4Layouts : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Golden golden = goldens()[GetParam()];
  const VecFile file = load_vectors(std::string("float/") + golden.file + ".safetensors");
};

TEST_P(Float4Layouts, GoldenBytes) {
  const Converted c(file, layer4(file, golden.file, golden.members), golden.sources);
  ASSERT_TRUE(c.packed) << c.fault.message;
  EXPECT_EQ(moe_selection_backend(c.selection.get()), std::string(golden.backend));
  const json about = c.about();
  EXPECT_EQ(about["layout"], golden.layout);
  EXPECT_EQ(about["scales_rounded"], 0);
  std::size_t compared = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.rfind(golden.prefix, 0) != 0) continue;
    ++compared;
    const std::string output = name.substr(std::string(golden.prefix).size());
    if (output == "hidden") {
      EXPECT_EQ(about["padded_hidden_size"], tensor.as<std::int32_t>()[0]);
    } else if (output == "intermediate") {
      EXPECT_EQ(about["padded_intermediate_size"], tensor.as<std::int32_t>()[0]);
    } else {
      expect_tensor(c.get(output), tensor, name);
    }
  }
  EXPECT_EQ(compared, golden.outputs);
}

// Through a file and back.
TEST_P(Float4Layouts, NumbersComeBack) {
  const json document = layer4(file, golden.file, golden.members);
  const Converted c(file, document, golden.sources);
  ASSERT_TRUE(c.packed) << c.fault.message;
  const std::int64_t hidden = document["hidden_dim"], intermediate = document["intermediate_size"];
  const std::int64_t halves = document.value("activation", "") == "relu2_no_mul" ? 1 : 2;
  EXPECT_EQ(c.dense("w13_weight", 1, halves * intermediate, hidden), numbers(file, golden, true, 1));
  EXPECT_EQ(c.dense("w2_weight", 0, hidden, intermediate), numbers(file, golden, false, 0));
}

INSTANTIATE_TEST_SUITE_P(Golden, Float4Layouts, ::testing::Range<std::size_t>(0, goldens().size()),
                         [](const auto& parameter) { return std::string(goldens()[parameter.param].name); });

// One second scale for gate and up: the larger, and upstream gate's.
TEST(Float4LayoutsMore, UnequalSecondScales) {
  VecFile f = load_vectors("float/nvfp4.safetensors");
  const std::vector<std::byte> scales = f.at("w13_weight_scale").data;
  std::vector<float> divisors = f.at("w13_weight_global_scale").as<float>();
  const float given = divisors[1];
  divisors[1] = given * 4.0f;  // up of expert 0 is worth a quarter
  f.tensors.at("w13_weight_global_scale").data = bytes_of(divisors);
  for (const char* word : {"emulation", "marlin"})
    for (const bool vllm : {false, true}) {
      SCOPED_TRACE(std::string(word) + (vllm ? " vllm" : ""));
      json document = layer4(f, "nvfp4", backend(cuda(9), word));
      if (vllm) document["bit_compat"] = "vllm";
      const Converted c(f, document, kNvfp4);
      ASSERT_TRUE(c.packed) << c.fault.message;
      const json about = c.about();
      EXPECT_EQ(about["layout"],
                std::string(*word == 'm' ? "marlin" : "plain") + "/nvfp4" + (vllm ? "-vllm" : "") + "/1");
      if (*word == 'm') continue;
      EXPECT_EQ(static_cast<const float*>(c.get("g13").data)[0], 1.0f / divisors[0]);
      const moe_tensor s13 = c.get("s13", 0);
      const auto* bytes = static_cast<const std::uint8_t*>(s13.data);
      std::uint64_t inexact = 0;
      for (std::size_t i = 0; i < s13.nbytes; ++i) {
        const auto own = static_cast<unsigned>(scales[i]);
        if (vllm || i < s13.nbytes / 2) {
          ASSERT_EQ(bytes[i], own) << i;
          continue;
        }
        const float want = small_to_f32(kE4m3, own) * 0.25f;
        ASSERT_EQ(bytes[i], f32_to_small(kE4m3, want)) << i;
        inexact += small_to_f32(kE4m3, bytes[i]) != want ? 1 : 0;
      }
      EXPECT_EQ(about["scales_rounded"], inexact);
    }
}

TEST(Float4LayoutsMore, InputScalesAreNeeded) {
  const VecFile f = load_vectors("float/nvfp4.safetensors");
  Sources none;
  for (const auto& source : kNvfp4)
    if (std::string(source.first).find("input") == std::string::npos) none.push_back(source);
  const Converted cutlass(f, layer4(f, "nvfp4", backend(cuda(10), "cutlass")), none);
  EXPECT_EQ(cutlass.fault.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_THAT(cutlass.fault.message, HasSubstr("quantise activations"));
  const Converted marlin(f, layer4(f, "nvfp4", backend(cuda(9), "marlin")), none);
  EXPECT_TRUE(marlin.packed) << marlin.fault.message;
}

}  // namespace
}  // namespace moe::test::float4_layouts_test
