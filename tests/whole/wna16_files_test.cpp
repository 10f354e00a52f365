// The golden WNA16 conversions through the ABI: a config and a platform for each file, its tensors in, the named
// outputs of the backend's layout out, byte for byte; and what is said about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/temp_dir.h"
#include "support/topk_call.h"
#include "support/wna16_stack.h"

namespace moe::test::wna16_files_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string meta_or(const VecFile& f, const std::string& name, const std::string& other) {
  return f.meta.count(name) ? f.meta.at(name) : other;
}

std::string dtype_word(const std::string& tag) {
  return tag == "bf16" ? "bfloat16" : tag == "f32" ? "float32" : "float16";
}

// Config and platform of wna16.md 10.2.
json config_of(const VecFile& f) {
  const std::string backend = f.meta.at("backend"), format = f.meta.at("format");
  const std::int64_t group = std::stoll(f.meta.at("group_size"));
  const bool symmetric = !f.has("in.w13_qzeros") && format != "awq", act_order = meta_or(f, "act_order", "") == "True";
  json w = {{"num_bits", std::stoi(f.meta.at("bits"))}, {"type", "int"}, {"dynamic", false}};
  w["symmetric"] = backend == "CPU" ? f.meta.at("zero_points") != "True" : symmetric;
  w["strategy"] = group == -1 ? "channel" : "group";
  if (group != -1) w["group_size"] = group;
  if (act_order) w["actorder"] = "group";
  json q = {{"weights", w}, {"format", format == "gptq" || format == "awq" ? format : "pack-quantized"}};
  if (format == "compressed-tensors") q["is_transposed"] = true;
  const std::int64_t experts = std::stoll(f.meta.at("E"));
  json c = {{"num_experts", experts},
            {"top_k", std::min<std::int64_t>(experts, 2)},
            {"hidden_dim", std::stoll(f.meta.at("H"))},
            {"intermediate_size", std::stoll(f.meta.at("I"))},
            {"has_bias", f.has("in.w13_bias")},
            {"in_dtype", dtype_word(meta_or(f, "output_dtype", f.meta.at("scale_dtype")))},
            {"quantization", q}};
  if (backend == "MARLIN") {
    const std::string input = meta_or(f, "input_dtype", "none");
    c["platform"] = {{"type", "cuda"}, {"capability", input == "fp8" ? json{8, 9} : json{9, 0}}};
    c["platform"]["multiprocessor_count"] = 132;
    c["moe_backend"] = "marlin";
    c["marlin_input_dtype"] = input;
  } else if (backend == "FLASHINFER_TRTLLM") {
    c["platform"] = {{"type", "cuda"}, {"capability", {10, 0}}, {"libs", {{"flashinfer_trtllm_moe", true}}}};
    c["vllm_env"] = {{"VLLM_USE_FLASHINFER_MOE_INT4", "1"}};
    c["router_logits_dtype"] = "bfloat16";
  } else if (backend == "XPU") {
    c["platform"] = {{"type", "xpu"}};
  } else if (backend == "CPU") {
    c["platform"] = {{"type", "cpu"}};
    c["selection_policy"] = "vllm";
  } else {
    c["platform"] = {{"type", "rocm"}, {"gfx", "gfx942"}};
    c["moe_backend"] = "emulation";
    c["emulation_layout"] = backend == "EMULATION/OTF" ? "on_the_fly" : "dense";
  }
  return c;
}

// What no config asks for (wna16.md 10.2): 8-bit AWQ, and a layer of two group sizes.
bool is_for_writers_only(const std::string& name) {
  return name.find("awq_b8") != std::string::npos || name.find("mixed_group") != std::string::npos;
}

std::vector<std::string> conversions() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(vector_path("wna16"))) {
    const std::string name = entry.path().stem().string();
    const bool conversion = name != "primitives" && name.rfind("stack_", 0) != 0 && !is_for_writers_only(name);
    if (entry.path().extension() == ".safetensors" && conversion) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Converted {
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;

  enum Convert { kNow, kNotYet, kNoWeights };
  Converted(const VecFile& f, const json& document, Convert when = kNow) {
    const std::string text = document.dump();
    config = make<ConfigPtr>(
        [&](moe_config** o, moe_error** e) { return moe_config_create(text.data(), text.size(), o, e); });
    if (!config) return;
    selection = make<SelectionPtr>(
        [&](moe_selection** o, moe_error** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, o, e); });
    if (!selection || when == kNoWeights) return;
    weights = make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    for (const auto& [name, t] : f.tensors) {
      if (name.rfind("in.", 0) != 0) continue;
      const std::string role = name.substr(3);
      const moe_tensor view = tensor(static_cast<moe_dtype>(t.dtype), t.shape, t.data.data());
      const Failure set = failure(
          [&](moe_error** e) { return moe_weights_set(weights.get(), role.c_str(), &view, nullptr, nullptr, e); });
      EXPECT_EQ(set.status, MOE_OK) << set.message;
    }
    if (when == kNotYet) return;
    packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
    });
  }

  Failure conversion_fault() const {
    moe_packed* none = nullptr;
    return failure(
        [&](moe_error** e) { return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &none, e); });
  }
  moe_tensor get(const std::string& role, std::int64_t expert = -1) const {
    moe_tensor t{};
    t.struct_size = sizeof t;
    const Failure f = failure([&](moe_error** e) { return moe_packed_get(packed.get(), role.c_str(), expert, &t, e); });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
    return t;
  }
  Failure refused(const std::string& role, std::int64_t expert = -1) const {
    moe_tensor t{};
    t.struct_size = sizeof t;
    return failure([&](moe_error** e) { return moe_packed_get(packed.get(), role.c_str(), expert, &t, e); });
  }
};

std::string api_name(std::string name) {
  for (const auto& [from, to] : {std::pair{"qweight", "weight"}, {"scales", "scale"}, {"qzeros", "zero_point"}})
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, std::string(from).size(), to);
  return name;
}

void expect_tensor(const moe_tensor& got, const VecTensor& want, const std::string& name) {
  EXPECT_EQ(std::vector<std::int64_t>(got.shape, got.shape + got.ndim), want.shape) << name;
  EXPECT_EQ(difference(want, {static_cast<const std::byte*>(got.data), got.nbytes}), "") << name;
}

class Wna16Abi : public ::testing::TestWithParam<std::string> {
 protected:
  VecFile file = load_vectors("wna16/" + GetParam() + ".safetensors");
};

TEST_P(Wna16Abi, UpstreamBytes) {
  json document = config_of(file);
  document["bit_compat"] = "vllm";
  const Converted c(file, document);
  ASSERT_TRUE(c.packed);
  EXPECT_EQ(moe_selection_backend(c.selection.get()),
            file.meta.at("backend").substr(0, file.meta.at("backend").find('/')));
  const json about = json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(c.packed.get(), o, e); });
  std::vector<std::string> listed;
  for (const json& output : about["outputs"])
    if (output["name"] != "workspace") listed.push_back(output["name"]);
  std::vector<std::string> expected, none;
  for (const auto& [name, want] : file.tensors) {
    if (name.rfind("out.", 0) != 0) continue;
    const std::string vllm = name.substr(4), api = api_name(vllm);
    expected.push_back(api);
    expect_tensor(c.get(api), want, name);
    expect_tensor(c.get(vllm), want, name);  // both spellings
  }
  std::sort(listed.begin(), listed.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(listed, expected);
  std::stringstream list(file.meta.at("none"));
  for (std::string name; std::getline(list, name, ',');) {
    none.push_back(api_name(name));
    const Failure f = c.refused(name);
    EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT) << name << ": " << f.message;
  }
  EXPECT_EQ(about["absent"], json(none));
}

// The default: `alt.` where vLLM is wrong, else the same; but for the zero points that it gets wrong.
TEST_P(Wna16Abi, CorrectBytes) {
  const json document = config_of(file);
  const bool cpu = file.meta.at("backend") == "CPU", bias = file.has("in.w13_bias");
  if (cpu && bias) {  // the kernel ignores one: refused but for vLLM's bytes
    const std::string text = document.dump();
    const ConfigPtr config = make<ConfigPtr>(
        [&](moe_config** o, moe_error** e) { return moe_config_create(text.data(), text.size(), o, e); });
    moe_selection* none = nullptr;
    const Failure f =
        failure([&](moe_error** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, &none, e); });
    EXPECT_EQ(f.status, MOE_ERR_NO_BACKEND);
    EXPECT_THAT(f.message, HasSubstr("no bias"));
    return;
  }
  if (GetParam() == "otf_gptq_b4_g64_asym") return;  // Wna16Outputs.ZeroPointsThatDoNotFit
  const Converted c(file, document);
  ASSERT_TRUE(c.packed);
  const bool other_zeros = (file.meta.at("format") == "gptq" && file.has("in.w13_qzeros") && !cpu) ||
                           GetParam() == "cpu_awq_b4_g32_no_zeros_pitfall";
  for (const auto& [name, want] : file.tensors) {
    if (name.rfind("out.", 0) != 0) continue;
    const std::string part = name.substr(4);
    if (file.has("alt." + part))
      expect_tensor(c.get(part), file.expected("alt." + part), "alt." + part);
    else if (!other_zeros)
      expect_tensor(c.get(part), want, name);
  }
}

// Numbers out of both kinds of bytes, also after a file.
TEST_P(Wna16Abi, Dequantizes) {
  if (!file.has("dense.w13_int") || meta_or(file, "input_dtype", "none") == "int8") return;
  json document = config_of(file);
  document["bit_compat"] = "vllm";
  const Converted c(file, document);
  ASSERT_TRUE(c.packed);
  const TempDir dir;
  const std::string path = dir.path() + "/layer.moe";
  EXPECT_EQ(failure([&](moe_error** e) { return moe_packed_save(c.packed.get(), path.c_str(), 0, nullptr, e); }).status,
            MOE_OK);
  const PackedPtr loaded = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load(nullptr, path.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
  });
  ASSERT_TRUE(loaded);
  for (const std::string name : {"w13", "w2"}) {
    const VecTensor ints = dense_integers(file, name);
    const std::vector<float> scales = file.at("dense." + name + "_scale").floats();
    const auto group = file.at("dense." + name + "_group").as<std::int32_t>();
    const std::int64_t E = ints.shape[0], N = ints.shape[1], K = ints.shape[2];
    const std::int64_t G = file.at("dense." + name + "_scale").shape[2];
    std::vector<int> q;
    if (ints.dtype == DType::i8)
      for (const std::int8_t x : ints.as<std::int8_t>()) q.push_back(x);
    else
      for (const std::int16_t x : ints.as<std::int16_t>()) q.push_back(x);
    for (std::int64_t e = 0; e < E; ++e) {
      std::vector<float> got(static_cast<std::size_t>(N * K)), want;
      const moe_tensor out = tensor(MOE_DTYPE_F32, {N, K}, got.data());
      const Failure f = failure([&](moe_error** err) {
        return moe_packed_dequantize(loaded.get(), (name + "_weight").c_str(), e, &out, err);
      });
      ASSERT_EQ(f.status, MOE_OK) << f.message;
      for (std::int64_t n = 0; n < N; ++n)
        for (std::int64_t k = 0; k < K; ++k)
          want.push_back(
              static_cast<float>(q[static_cast<std::size_t>((e * N + n) * K + k)]) *
              scales[static_cast<std::size_t>((e * N + n) * G + group[static_cast<std::size_t>(e * K + k)])]);
      EXPECT_EQ(got, want) << name << " of expert " << e;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Wna16Abi, ::testing::ValuesIn(conversions()),
                         [](const auto& parameter) { return parameter.param; });

TEST(Wna16AbiFiles, AreAllThere) { EXPECT_EQ(conversions().size(), 51u); }

TEST(Wna16Outputs, SlicesAndNames) {
  const VecFile file = load_vectors("wna16/marlin_gptq_b4_g32_int8act_bf16.safetensors");
  const Converted c(file, config_of(file));
  ASSERT_TRUE(c.packed);
  const moe_tensor all = c.get("w13"), one = c.get("w13_weight", 1);
  EXPECT_EQ(one.ndim, all.ndim - 1);
  EXPECT_EQ(static_cast<const std::byte*>(one.data), static_cast<const std::byte*>(all.data) + one.nbytes);
  EXPECT_EQ(c.get("w13_g_idx").nbytes, 0u);
  EXPECT_EQ(c.get("w13_g_idx", 0).nbytes, 0u);
  const moe_tensor workspace = c.get("workspace");
  ASSERT_EQ(workspace.nbytes, 4u * 4 * 132);
  EXPECT_TRUE(std::all_of(static_cast<const char*>(workspace.data),
                          static_cast<const char*>(workspace.data) + workspace.nbytes, [](char b) { return b == 0; }));
  EXPECT_EQ(c.refused("workspace", 0).status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(c.refused("w13_input_global_scale", 1).status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(c.refused("w13_zero_point").status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_EQ(c.refused("w13_shape").status, MOE_ERR_INVALID_ARGUMENT);
}

// A stored 15 means 16 by GPTQ's convention: no nibble holds it. vLLM takes zero points as stored.
TEST(Wna16Outputs, ZeroPointsThatDoNotFit) {
  const VecFile file = load_vectors("wna16/otf_gptq_b4_g64_asym.safetensors");
  const Failure f = Converted(file, config_of(file), Converted::kNotYet).conversion_fault();
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "w13_zero_point");
  EXPECT_THAT(f.message, HasSubstr("zero point 16 does not fit the layout's 4 bits"));
}

// --- a CPU runs them all ---------------------------------------------------------------------------------------

// Any of the layouts, made for whatever backend, as a layer of backend EMULATION: against the file's own numbers.
TEST_P(Wna16Abi, RunsOnACpu) {
  if (!file.has("exec.y")) return;
  json document = config_of(file);
  if (file.meta.at("backend") == "CPU") document["bit_compat"] = "vllm";  // with its bias
  const Converted c(file, document);
  ASSERT_TRUE(c.packed);
  const std::vector<float> x = file.at("exec.x").floats(), want = file.at("exec.y").floats();
  const VecTensor &ids = file.at("exec.topk_ids"), &weights = file.at("exec.topk_weights");
  for (const char* member : {"platform", "selection_policy", "vllm_env", "marlin_input_dtype", "bit_compat"})
    document.erase(member);
  document["moe_backend"] = "emulation";
  // The layout of the selection itself, which is not used here; on_the_fly has no place for an order.
  if (meta_or(file, "act_order", "") == "True") document["emulation_layout"] = "dense";
  document["in_dtype"] = document["out_dtype"] = "float32";
  document["router_logits_dtype"] = "float32";
  document["top_k"] = ids.shape[1];
  const std::string text = document.dump();
  const ConfigPtr config =
      make<ConfigPtr>([&](moe_config** o, moe_error** e) { return moe_config_create(text.data(), text.size(), o, e); });
  const SelectionPtr selection = make<SelectionPtr>(
      [&](moe_selection** o, moe_error** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, o, e); });
  ASSERT_TRUE(selection);
  EXPECT_STREQ(moe_selection_backend(selection.get()), "EMULATION");
  const LayerPtr layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(nullptr, selection.get(), c.packed.get(), nullptr, o, e);
  });
  ASSERT_TRUE(layer);
  const std::int64_t T = ids.shape[0], H = std::ssize(x) / T;
  const auto experts = ids.as<std::int32_t>();
  const std::vector<float> gates = weights.floats();
  const std::vector<std::byte> in = bytes_of(x);
  const std::vector<float> y =
      floats_of(apply_topk(layer.get(), {MOE_DTYPE_F32, T, H, ids.shape[1], in.data(), experts.data(), gates.data()}),
                MOE_DTYPE_F32);
  ASSERT_EQ(y.size(), want.size());
  float most = 0, error = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    most = std::max(most, std::abs(want[i]));
    error = std::max(error, std::abs(want[i] - y[i]));
  }
  EXPECT_LE(error, (meta_or(file, "input_dtype", "none") == "int8" ? 1e-2f : 1e-4f) * most);
}

TEST(Wna16Outputs, HummingIsAnAnswerWithoutConversion) {
  const VecFile file = load_vectors("wna16/marlin_gptq_b4_g32_fp16_bias.safetensors");
  json document = config_of(file);
  document["selection_policy"] = "vllm";
  document["moe_backend"] = "humming";
  const Converted c(file, document, Converted::kNotYet);
  ASSERT_TRUE(c.selection);
  EXPECT_STREQ(moe_selection_backend(c.selection.get()), "HUMMING");
  EXPECT_EQ(c.conversion_fault().status, MOE_ERR_UNSUPPORTED);
}

// Scales are stored in the type of the activations: rounding is counted, what does not fit is refused.
TEST(Wna16Outputs, ScalesOfAnotherType) {
  VecFile file = load_vectors("wna16/marlin_gptq_b4_g32_fp16_bias.safetensors");
  json document = config_of(file);
  document["in_dtype"] = "bfloat16";
  const Converted rounded(file, document);
  ASSERT_TRUE(rounded.packed);
  EXPECT_EQ(rounded.get("w13_scale").dtype, MOE_DTYPE_BF16);
  const json about =
      json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(rounded.packed.get(), o, e); });
  EXPECT_GT(about["scales_rounded"], 0);

  VecTensor& scale = file.tensors.at("in.w2_scale");
  scale.dtype = DType::bf16;
  const std::uint16_t large = f32_to_bf16(70000.0f), one = f32_to_bf16(1.0f);
  for (std::size_t i = 0; i < scale.data.size(); i += 2) std::memcpy(scale.data.data() + i, i == 4 ? &large : &one, 2);
  document["in_dtype"] = "float16";
  const Failure f = Converted(file, document, Converted::kNotYet).conversion_fault();
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "w2_scale");
  EXPECT_THAT(f.message, HasSubstr("beyond the largest f16 number"));
}

TEST(Wna16Outputs, Int8ActivationsNeedAScale) {
  VecFile file = load_vectors("wna16/marlin_gptq_b4_g32_int8act_bf16.safetensors");
  VecTensor& scale = file.tensors.at("in.w2_scale");
  std::fill(scale.data.begin(), scale.data.end(), std::byte{0});
  const Failure f = Converted(file, config_of(file), Converted::kNotYet).conversion_fault();
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "w2_scale");
  EXPECT_THAT(f.message, HasSubstr("all scales are 0"));
}

TEST(Wna16Outputs, ACpuRunsWeightsOfItsOwnModelOnly) {
  const VecFile file = load_vectors("wna16/marlin_gptq_b4_g32_fp16_bias.safetensors");
  const Converted c(file, config_of(file));
  ASSERT_TRUE(c.packed);
  json document = config_of(file);
  document.erase("platform");
  document["moe_backend"] = "emulation";
  document["intermediate_size"] = 2 * document["intermediate_size"].get<int>();
  const Converted other(file, document, Converted::kNoWeights);
  moe_layer* none = nullptr;
  const Failure f = failure([&](moe_error** e) {
    return moe_layer_create(nullptr, other.selection.get(), c.packed.get(), nullptr, &none, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH);
  EXPECT_EQ(f.subject, "/intermediate_size_per_partition");
}

}  // namespace
}  // namespace moe::test::wna16_files_test
