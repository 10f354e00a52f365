// The golden conversions of float weights through the ABI: a config and a machine for each, a checkpoint's tensors in,
// the named outputs of the backend's layout out, byte for byte. And what is said about them, numbers out of them,
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/rooms.h"
#include "whole/converted_vectors.h"

namespace moe::test::float_layouts_test {
namespace {

using namespace converted_vectors;
using nlohmann::json;
using ::testing::HasSubstr;

const json kVllm = {{"bit_compat", "vllm"}};

const Sources kBlock = {
    {"w13_weight", "w13"}, {"w2_weight", "w2"}, {"w13_scale", "w13_scale_inv"}, {"w2_scale", "w2_scale_inv"}};
const Sources kScaled = {
    {"w13_weight", "w13"}, {"w2_weight", "w2"}, {"w13_scale", "w13_scale"}, {"w2_scale", "w2_scale"}};
const Sources kStatic = {{"w13_weight", "w13"},
                         {"w2_weight", "w2"},
                         {"w13_scale", "w13_scale"},
                         {"w2_scale", "w2_scale"},
                         {"w13_input_scale", "w13_input_scale"},
                         {"w2_input_scale", "w2_input_scale"}};
const Sources kChannel = {
    {"w13_weight", "ch_w13"}, {"w2_weight", "ch_w2"}, {"w13_scale", "ch_w13_scale"}, {"w2_scale", "ch_w2_scale"}};
const Sources kValues = {{"w13_weight", "w13"}, {"w2_weight", "w2"}};
const Sources kInt4 = {{"w13_weight", "w13_weight_packed"},
                       {"w2_weight", "w2_weight_packed"},
                       {"w13_scale", "w13_weight_scale"},
                       {"w2_scale", "w2_weight_scale"}};

struct Golden {
  const char* name;
  const char* file;
  const char* scheme;
  json members;
  Sources sources;
  const char *backend, *layout;
  std::vector<std::pair<const char*, const char*>> outputs;  // name, tensor of the file
  bool first_expert = false;                                 // the tensors hold expert 0
};

std::vector<Golden> goldens() {
  const json cpu = {{"platform", {{"type", "cpu"}}}, {"selection_policy", "vllm"}};
  const json half = {{"in_dtype", "float16"}};
  const json sgl = also(cpu, {{"vllm_env", {{"VLLM_CPU_SGL_KERNEL", "1"}}}});
  return {
      {"BlockTriton",
       "fp8_block",
       "FP8_BLOCK",
       backend(cuda(9), "triton"),
       kBlock,
       "TRITON",
       "plain/fp8-block/1",
       {{"w13_weight", "w13"}, {"w2", "w2"}, {"w13_scale", "w13_scale_inv"}, {"s2", "w2_scale_inv"}}},
      {"BlockFlashInferCutlass",
       "fp8_block",
       "FP8_BLOCK",
       backend(cuda(9), "flashinfer_cutlass"),
       kBlock,
       "FLASHINFER_CUTLASS",
       "flashinfer_cutlass/fp8-block/1",
       {{"w13_weight", "w31"}, {"w13_scale", "w31_scale"}},
       true},
      {"BlockFlashInferTrtllm",
       "fp8_block",
       "FP8_BLOCK",
       backend(cuda(10), "flashinfer_trtllm"),
       kBlock,
       "FLASHINFER_TRTLLM",
       "flashinfer_trtllm/fp8-block/1",
       {{"w13_weight", "trtllm_w13"}, {"w2_weight", "trtllm_w2"}, {"w13_scale", "w31_scale"}},
       true},
      {"BlockMarlin",
       "fp8_block",
       "FP8_BLOCK",
       backend(cuda(8), "marlin"),
       kBlock,
       "MARLIN",
       "marlin/fp8-block/1",
       {{"w13_weight", "marlin_w13"}, {"w13_scale", "marlin_s13_bf16"}},
       true},
      {"BlockMarlinFloat16",
       "fp8_block",
       "FP8_BLOCK",
       also(backend(cuda(8), "marlin"), half),
       kBlock,
       "MARLIN",
       "marlin/fp8-block/1",
       {{"w13_weight", "marlin_w13"}, {"w2_scale", "marlin_s2_fp16"}},
       true},
      {"BlockCpu",
       "fp8_block",
       "FP8_BLOCK",
       {{"platform", {{"type", "cpu"}, {"arch", "x86_64"}, {"features", {"avx512_bf16", "avx512_vnni"}}}},
        {"selection_policy", "vllm"}},
       kBlock,
       "CPU",
       "vnni/fp8/1",
       {{"w13_weight", "cpu_w13"}, {"w2_weight", "cpu_w2"}},
       true},
      {"BlockAiter",
       "fp8_block",
       "FP8_BLOCK",
       rocm("gfx950"),
       kBlock,
       "AITER",
       "aiter/fp8-block/1",
       {{"w2_weight", "aiter_w2"}},
       true},
      {"BlockDeepGemm",
       "fp8_block",
       "FP8_BLOCK",
       backend(cuda(10), "deep_gemm"),
       kBlock,
       "DEEPGEMM",
       "deepgemm/fp8-ue8m0/1",
       {{"w13_weight", "ue8m0_w13"}},
       true},
      {"TensorTriton",
       "fp8_tensor",
       "FP8",
       backend(cuda(8, 9), "triton"),
       kStatic,
       "TRITON",
       "plain/fp8-tensor/1",
       {{"w13_weight", "requant_w13"},
        {"w13_scale", "requant_scale"},
        {"w2_weight", "w2"},
        {"s2", "w2_scale"},
        {"w13_input_scale", "a1_scale"},
        {"a2", "a2_scale"}}},
      {"TensorTritonVllm",
       "fp8_tensor",
       "FP8",
       also(backend(cuda(8, 9), "triton"), kVllm),
       kStatic,
       "TRITON",
       "plain/fp8-tensor-vllm/1",
       {{"w13_weight", "requant_w13"},
        {"w13_scale", "requant_scale"},
        {"w13_input_scale", "a1_scale"},
        {"w2_input_scale", "a2_scale"}}},
      {"TensorFlashInferCutlass",
       "fp8_tensor",
       "FP8",
       backend(cuda(9), "flashinfer_cutlass"),
       kStatic,
       "FLASHINFER_CUTLASS",
       "flashinfer_cutlass/fp8-tensor/1",
       {{"w13_weight", "fi_w31"},
        {"w13_scale", "requant_scale"},
        {"w13_alpha", "g1_alphas"},
        {"g2_alphas", "g2_alphas"},
        {"a13", "a1_scale"}}},
      {"TensorFlashInferTrtllm",
       "fp8_tensor",
       "FP8",
       backend(cuda(10), "flashinfer_trtllm"),
       kStatic,
       "FLASHINFER_TRTLLM",
       "flashinfer_trtllm/fp8-tensor/1",
       {{"w13_weight", "trtllm_w13"}, {"w2_weight", "trtllm_w2"}}},
      {"TensorFlashInferTrtllmVllm",
       "fp8_tensor",
       "FP8",
       also(backend(cuda(10), "flashinfer_trtllm"), kVllm),
       kStatic,
       "FLASHINFER_TRTLLM",
       "flashinfer_trtllm/fp8-tensor-vllm/1",
       {{"w13_weight", "trtllm_w13"}, {"w2_weight", "trtllm_w2"}}},
      {"TensorMarlinVllm",
       "fp8_tensor",
       "FP8",
       also(backend(cuda(8), "marlin"), kVllm),
       kScaled,
       "MARLIN",
       "marlin/fp8-tensor-vllm/1",
       {{"w13_scale", "marlin_s13_bf16"}, {"w2_weight", "marlin_w2"}}},
      {"ChannelTriton",
       "fp8_tensor",
       "FP8_DYNAMIC",
       backend(cuda(9), "triton"),
       kChannel,
       "TRITON",
       "plain/fp8-channel/1",
       {{"w13_weight", "ch_w13"}, {"s13", "ch_w13_scale"}, {"w2", "ch_w2"}}},
      {"ChannelMarlin",
       "fp8_tensor",
       "FP8_DYNAMIC",
       also(backend(cuda(8), "marlin"), half),
       kChannel,
       "MARLIN",
       "marlin/fp8-channel/1",
       {{"w13_scale", "marlin_ch_s13_fp16"}}},
      {"MxTrtllm",
       "mxfp8",
       "MXFP8",
       backend(cuda(10), "flashinfer_trtllm"),
       kScaled,
       "FLASHINFER_TRTLLM",
       "flashinfer_trtllm/mxfp8/1",
       {{"w13", "trtllm.w13"}, {"w2", "trtllm.w2"}, {"s13", "trtllm.s13"}, {"s2", "trtllm.s2"}}},
      {"MxMarlin",
       "mxfp8",
       "MXFP8",
       backend(cuda(8), "marlin"),
       kScaled,
       "MARLIN",
       "marlin/mxfp8/1",
       {{"w13", "marlin.w13"}, {"s13", "marlin.s13"}, {"s2", "marlin.s2"}}},
      {"ValuesCutlass",
       "unquantized",
       "none",
       backend(cuda(9), "flashinfer_cutlass"),
       kValues,
       "FLASHINFER_CUTLASS",
       "flashinfer_cutlass/unquantized-bf16/1",
       {{"w13_weight", "w31"}, {"w2_weight", "w2"}}},
      {"ValuesTrtllm",
       "unquantized",
       "none",
       backend(cuda(10), "flashinfer_trtllm"),
       kValues,
       "FLASHINFER_TRTLLM",
       "flashinfer_trtllm/unquantized-bf16/1",
       {{"w13_weight", "trtllm.w13"}, {"w2_weight", "trtllm.w2"}}},
      {"ValuesTriton",
       "unquantized",
       "none",
       backend(cuda(9), "triton"),
       kValues,
       "TRITON",
       "plain/unquantized-bf16/1",
       {{"w13_weight", "w13"}, {"w2_weight", "w2"}}},
      {"ValuesAiter",
       "unquantized",
       "none",
       rocm("gfx950"),
       kValues,
       "AITER",
       "aiter/unquantized-bf16/1",
       {{"w13_weight", "aiter.w13"}}},
      {"ValuesCpu",
       "unquantized",
       "none",
       sgl,
       kValues,
       "CPU",
       "vnni/unquantized-bf16/1",
       {{"w13_weight", "cpu.w13"}, {"w2_weight", "cpu.w2"}}},
      {"Int4Cutlass",
       "w4a8_fp8",
       "W4AFP8",
       cuda(9),
       kInt4,
       "CUTLASS",
       "cutlass/w4a8_fp8-encoded/1",
       {{"w13_weight", "w13_encoded"},
        {"w13_scale", "w13_fp8_scale"},
        {"w13_scale_2", "w13_chan_scale"},
        {"w2_scale", "w2_fp8_scale"},
        {"g2", "w2_chan_scale"}}},
  };
}

VecFile file_of(const Golden& g) { return load_vectors(std::string("float/") + g.file + ".safetensors"); }
json document_of(const Golden& g, const VecFile& f) { return layer(f, g.scheme, g.members); }

class FloatLayouts : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Golden golden = goldens()[GetParam()];
  const VecFile file = file_of(golden);
};

TEST_P(FloatLayouts, GoldenBytes) {
  const Converted c(file, document_of(golden, file), golden.sources);
  ASSERT_TRUE(c.packed) << c.fault.message;
  EXPECT_EQ(moe_selection_backend(c.selection.get()), std::string(golden.backend));
  EXPECT_EQ(c.about()["layout"], golden.layout);
  for (const auto& [name, tensor] : golden.outputs) {
    VecTensor want = file.expected(tensor);
    if (golden.first_expert) want.shape.erase(want.shape.begin());
    expect_tensor(c.get(name, golden.first_expert ? 0 : -1), want, std::string(name) + " " + tensor);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, FloatLayouts, ::testing::Range<std::size_t>(0, goldens().size()),
                         [](const auto& parameter) { return std::string(goldens()[parameter.param].name); });

// XPU takes no blocks: the bytes of w2 alone, with one scale.
TEST(FloatLayoutsMore, XpuTransposes) {
  const VecFile f = load_vectors("float/fp8_block.safetensors");
  json document = layer(f, "FP8", {{"platform", {{"type", "xpu"}}}});
  document["quantization"] = {{"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}},
                              {"format", "naive-quantized"}};
  Converted c(f, document, kValues);
  const VecTensor ones13{DType::f32, {2, 2}, bytes_of(std::vector<float>(4, 1.0f))};
  const VecTensor ones{DType::f32, {2}, bytes_of(std::vector<float>(2, 1.0f))};
  c.set("w13_scale", ones13);
  c.set("w2_scale", ones);
  c.convert();
  ASSERT_TRUE(c.packed) << c.fault.message;
  VecTensor want = f.expected("xpu_w2");
  want.shape.erase(want.shape.begin());
  expect_tensor(c.get("w2_weight", 0), want, "xpu_w2");
  EXPECT_EQ(c.about()["layout"], "xpu/fp8-tensor/1");
}

// An intermediate size that is padded: upstream puts the rows of padding behind both halves.
TEST(FloatLayoutsMore, PaddedIntermediateSize) {
  const VecFile f = load_vectors("float/fp8_tensor.safetensors");
  const VecTensor &in13 = f.at("pad_in_w13"), &in2 = f.at("pad_in_w2"), &pad13 = f.at("pad_w13"),
                  &pad2 = f.at("pad_w2");
  const std::int64_t E = in2.shape[0], H = in2.shape[1], I = in2.shape[2], padded = pad2.shape[2];
  const VecTensor ones13{DType::f32, {E, 2}, bytes_of(std::vector<float>(static_cast<std::size_t>(2 * E), 1.0f))};
  const VecTensor ones{DType::f32, {E}, bytes_of(std::vector<float>(static_cast<std::size_t>(E), 1.0f))};
  for (const bool vllm : {false, true}) {
    json document = layer(f, "FP8", backend(cuda(9), "flashinfer_cutlass"));
    document["intermediate_size"] = I;
    if (vllm) document["bit_compat"] = "vllm";
    Converted c(f, document, {{"w13_weight", "pad_in_w13"}, {"w2_weight", "pad_in_w2"}});
    c.set("w13_scale", ones13);
    c.set("w13_input_scale", ones13);
    c.set("w2_scale", ones);
    c.set("w2_input_scale", ones);
    c.convert();
    ASSERT_TRUE(c.packed) << c.fault.message;
    expect_tensor(c.get("w2_weight"), pad2, "pad_w2");
    const moe_tensor got = c.get("w13_weight");
    ASSERT_EQ(got.nbytes, pad13.data.size());
    const auto* bytes = static_cast<const std::byte*>(got.data);
    const auto half = static_cast<std::size_t>(padded * H), own = static_cast<std::size_t>(I * H);
    for (std::size_t e = 0; e < static_cast<std::size_t>(E); ++e) {
      std::vector<std::byte> want(2 * half);
      if (vllm) {
        const std::byte* all = pad13.data.data() + e * 2 * half;
        std::copy_n(all + half, half, want.begin());
        std::copy_n(all, half, want.begin() + static_cast<std::ptrdiff_t>(half));
      } else {
        const std::byte* all = in13.data.data() + e * 2 * own;
        std::copy_n(all + own, own, want.begin());
        std::copy_n(all, own, want.begin() + static_cast<std::ptrdiff_t>(half));
      }
      EXPECT_EQ(std::memcmp(bytes + e * 2 * half, want.data(), want.size()), 0) << vllm << " " << e;
    }
    const json about = c.about();
    EXPECT_EQ(about["padded_intermediate_size"], padded);
    EXPECT_EQ(about["padded_hidden_size"], H);
    EXPECT_EQ(about["w13_layout"], "up_gate");
    EXPECT_EQ(about["requantized_experts"], 0);
    const std::vector<float> dense = c.dense("w13_weight", 0, 2 * I, H);
    for (std::size_t i = 0; i < own * 2; ++i)
      ASSERT_EQ(dense[i], small_to_f32(kE4m3, static_cast<unsigned>(in13.data[i]))) << i;
  }
}

}  // namespace
}  // namespace moe::test::float_layouts_test
