// WNA16 through the ABI on the CPU row: golden files, checkpoint directories of known models, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/rooms.h"
#include "support/wna16_model.h"
#include "support/wna16_stack.h"

namespace moe::test::wna16_checkpoints_test {
namespace {

// --- golden files -----------------------------------------------------------------------------------------------

nlohmann::json golden_config(const VecFile& f) {
  const std::string& format = f.meta.at("format");
  const bool gptq = format == "gptq", packed = !gptq && format != "awq";
  const std::int64_t group = std::stoll(f.meta.at("group_size"));
  nlohmann::json w = {{"num_bits", std::stoi(f.meta.at("bits"))}, {"type", "int"}, {"dynamic", false}};
  w["symmetric"] = !f.has("in.w13_qzeros");
  w["strategy"] = group == -1 ? "channel" : "group";
  if (group != -1) w["group_size"] = group;
  if (f.meta.count("act_order") && f.meta.at("act_order") == "True") w["actorder"] = "group";
  nlohmann::json q = {{"weights", w}, {"format", packed ? "pack-quantized" : format}};
  const bool plus_one = gptq && f.meta.at("backend") == "CPU";
  q["zero_point_convention"] = plus_one ? "plus_one" : "as_stored";
  if (packed) q["is_transposed"] = f.meta.at("backend") != "FLASHINFER_TRTLLM";
  return {{"num_experts", std::stoll(f.meta.at("E"))},
          {"top_k", f.has("exec.topk_ids") ? f.at("exec.topk_ids").shape[1] : 1},
          {"hidden_dim", std::stoll(f.meta.at("H"))},
          {"intermediate_size", std::stoll(f.meta.at("I"))},
          {"in_dtype", "float32"},
          {"has_bias", f.has("in.w13_bias")},
          {"quantization", q}};
}

// The numbers of `dense.` come back, and the layer gives `exec.y`.
TEST(Wna16Checkpoints, GoldenFiles) {
  int converted = 0, compared = 0, executed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(vector_path("wna16"))) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".safetensors") continue;
    const VecFile f = load_vectors("wna16/" + name);
    const bool configurable = name.find("awq_b8") == std::string::npos && name.find("mixed") == std::string::npos;
    if (!f.has("in.w13") || !configurable) continue;  // the two are kernels' own
    SCOPED_TRACE(name);
    Wna16Model m;
    m.E = std::stoll(f.meta.at("E")), m.H = std::stoll(f.meta.at("H")), m.I = std::stoll(f.meta.at("I"));
    Wna16Layer layer;
    layer.config = make_config(golden_config(f).dump());
    layer.selection = make_selection(layer.config.get());
    ASSERT_TRUE(layer.selection);
    layer.weights =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(layer.config.get(), o, e); });
    for (const auto& [tensor_name, t] : f.tensors) {
      if (!tensor_name.starts_with("in.")) continue;
      if (golden_config(f)["quantization"]["format"] == "awq" && tensor_name.find("g_idx") != std::string::npos)
        continue;
      const moe_tensor view = tensor(static_cast<moe_dtype>(t.dtype), t.shape, t.data.data());
      const std::string role = tensor_name.substr(3);
      const Failure set = failure([&](moe_error** e) {
        return moe_weights_set(layer.weights.get(), role.c_str(), &view, nullptr, nullptr, e);
      });
      ASSERT_EQ(set.status, MOE_OK) << set.message;
    }
    layer.convert();
    ASSERT_TRUE(layer.layer);
    ++converted;
    for (const char* matrix : {"w13", "w2"}) {
      const std::string prefix = std::string("dense.") + matrix;
      if (!f.has(prefix + "_int")) continue;
      ++compared;
      const VecTensor ints = dense_integers(f, matrix);
      const auto codes = ints.as<std::int8_t>();
      const auto scales = f.at(prefix + "_scale").floats();
      const auto groups = f.at(prefix + "_group").as<std::int32_t>();
      const std::int64_t n = ints.shape[1], k = ints.shape[2], g = f.at(prefix + "_scale").shape[2];
      std::vector<float> dense(static_cast<std::size_t>(n * k));
      for (std::int64_t e = 0; e < m.E && ints.dtype == DType::i8; ++e) {
        moe_tensor out = tensor(MOE_DTYPE_F32, {n, k}, dense.data());
        const std::string role = std::string(matrix) + "_weight";
        ASSERT_EQ(moe_packed_dequantize(layer.packed.get(), role.c_str(), e, &out, nullptr), MOE_OK);
        for (std::int64_t i = 0; i < n * k; ++i) {
          const std::int32_t column_group = groups[static_cast<std::size_t>(e * k + i % k)];
          const float scale = scales[static_cast<std::size_t>((e * n + i / k) * g + column_group)];
          ASSERT_EQ(dense[static_cast<std::size_t>(i)],
                    static_cast<float>(codes[static_cast<std::size_t>(e * n * k + i)]) * scale);
        }
      }
    }
    if (!f.has("exec.y")) continue;
    ++executed;
    m.T = f.at("exec.x").shape[0], m.K = f.at("exec.topk_ids").shape[1];
    m.x = f.at("exec.x").floats();
    m.ids = f.at("exec.topk_ids").as<std::int32_t>();
    m.weights = f.at("exec.topk_weights").floats();
    const std::vector<float> y = f.at("exec.y").floats(), got = floats_of(layer.run(m, 0, m.T), m.dtype);
    EXPECT_LE(relative_rms(got, std::vector<double>(y.begin(), y.end())), 1e-4);
  }
  EXPECT_EQ(converted, 51);
  EXPECT_GE(compared, 90);
  EXPECT_EQ(executed, 9);
}

// --- checkpoint directories of known models -----------------------------------------------------------------------

struct Family {
  const char* name;
  const char* config;  // members of config.json
  const char* module;
  std::array<const char*, 3> projections;
};
const Family kFamilies[] = {
    {"Qwen3-MoE",
     R"({"architectures":["Qwen3MoeForCausalLM"],"num_experts":3,"moe_intermediate_size":64,
      "norm_topk_prob":true})",
     "model.layers.0.mlp.experts",
     {"gate_proj", "up_proj", "down_proj"}},
    {"Mixtral",
     R"({"architectures":["MixtralForCausalLM"],"num_local_experts":3,"intermediate_size":64})",
     "model.layers.0.block_sparse_moe.experts",
     {"w1", "w3", "w2"}},
    {"DeepSeek-V3 and Kimi-K2",
     R"({"architectures":["DeepseekV3ForCausalLM"],"n_routed_experts":3,
      "moe_intermediate_size":64,"first_k_dense_replace":1,"moe_layer_freq":1,"scoring_func":"sigmoid",
      "topk_method":"noaux_tc","n_group":1,"topk_group":1,"routed_scaling_factor":1.0,"norm_topk_prob":true})",
     "model.layers.1.mlp.experts",
     {"gate_proj", "up_proj", "down_proj"}},
};

struct HfCase {
  const char* format;
  int bits;
  bool zeros, order, plus_one;
  std::int64_t group;
  const char* quantization;
};
const HfCase kHfCases[] = {
    {"gptq", 4, false, false, true, 32,
     R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":false,"sym":true})"},
    {"gptq", 8, false, true, true, 32,
     R"({"quant_method":"gptq","bits":8,"group_size":32,"desc_act":true,"sym":true})"},
    {"gptq", 4, true, true, true, 32,
     R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true,"sym":false})"},
    {"gptq", 4, true, false, false, 64,
     R"({"quant_method":"gptq","bits":4,"group_size":64,"desc_act":false,"sym":false,"checkpoint_format":"gptq_v2"})"},
    {"gptq", 8, false, false, true, -1, R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":false,"sym":true,
      "dynamic":{"-:.*self_attn.*":{},"+:.*experts.*":{"bits":8,"group_size":-1}}})"},
    {"awq", 4, true, false, false, 32, R"({"quant_method":"awq","bits":4,"group_size":32,"zero_point":true,
      "version":"gemm","modules_to_not_convert":["gate"]})"},
    {"pack-quantized", 4, false, false, false, 32, R"({"quant_method":"compressed-tensors","format":"pack-quantized",
      "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group",
      "group_size":32,"symmetric":true}}},"ignore":["lm_head"]})"},
    {"pack-quantized", 8, false, false, false, -1, R"({"quant_method":"compressed-tensors","format":"pack-quantized",
      "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"type":"int","strategy":"channel",
      "symmetric":true}}}})"},
    // As the files of a Kimi-K2 have it: nulls, observers, patterns of what is not quantized beside the experts.
    {"pack-quantized", 4, false, false, false, 32, R"({"quant_method":"compressed-tensors","format":"pack-quantized",
      "config_groups":{"group_0":{"input_activations":null,"output_activations":null,"targets":["Linear"],
      "weights":{"actorder":null,"block_structure":null,"dynamic":false,"group_size":32,"num_bits":4,
      "observer":"minmax","observer_kwargs":{},"strategy":"group","symmetric":true,"type":"int"}}},
      "ignore":["lm_head","re:.*self_attn.*","re:.*shared_experts.*","re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
      "global_compression_ratio":null,"kv_cache_scheme":null,"quantization_status":"compressed"})"},
    // What tools write beside the members that count.
    {"gptq", 4, false, false, true, 32, R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":false,"sym":true,
      "damp_percent":0.01,"static_groups":false,"true_sequential":true,"lm_head":false,"model_name_or_path":null,
      "model_file_base_name":"model","is_marlin_format":false,"checkpoint_format":"gptq",
      "meta":{"quantizer":["gptqmodel:1.4.0"]}})"},
    {"gptq", 4, false, true, true, 64, R"({"quant_method":"gptq","bits":8,"group_size":32,"desc_act":false,"sym":true,
      "dynamic":{"+:.*lm_head":{"bits":8},"+:.*\\.experts":{"bits":4,"group_size":64,"desc_act":true},
      "-:.*experts.*":{}}})"},
    {"pack-quantized", 4, true, true, false, 32, R"({"quant_method":"compressed-tensors","format":"pack-quantized",
      "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group",
      "group_size":32,"symmetric":false,"actorder":"group"}}}})"},
};

TEST(Wna16Checkpoints, CheckpointsOfKnownModels) {
  std::uint32_t seed = 50;
  for (const Family& family : kFamilies)
    for (const HfCase& c : kHfCases) {
      SCOPED_TRACE(std::string(family.name) + " " + c.quantization);
      Wna16Model m;
      m.format = c.format, m.bits = c.bits, m.zeros = c.zeros, m.order = c.order, m.plus_one = c.plus_one;
      m.group = c.group;
      m.dtype = MOE_DTYPE_BF16;
      m = random_wna16(m, seed++);
      nlohmann::json hf = nlohmann::json::parse(family.config);
      hf.update({{"num_experts_per_tok", m.K},
                 {"hidden_size", m.H},
                 {"num_hidden_layers", 2},
                 {"hidden_act", "silu"},
                 {"torch_dtype", "bfloat16"}});
      hf["quantization_config"] = nlohmann::json::parse(c.quantization);
      const std::string text = hf.dump();
      // GPTQ files always have a g_idx and qzeros.
      Wna16Model files = m;
      if (m.format == std::string("gptq")) {
        files.order = files.zeros = true;
        for (auto* matrices : {&files.w13, &files.w2})
          for (Matrix13or2& w : *matrices)
            if (!m.zeros) std::fill(w.zeros.begin(), w.zeros.end(), static_cast<std::uint8_t>((1 << (m.bits - 1)) - 1));
      }
      const TempDir dir;
      dir.write("model.safetensors", checkpoint_file(files, family.projections, family.module));
      Wna16Layer layer;
      layer.config = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
        return moe_config_create_from_hf(text.data(), text.size(), nullptr, 0, o, e);
      });
      ASSERT_TRUE(layer.config);
      layer.selection = make_selection(layer.config.get());
      ASSERT_TRUE(layer.selection);
      layer.load(dir.path());
      ASSERT_TRUE(layer.layer);
      EXPECT_LE(relative_rms(floats_of(layer.run(m, 0, m.T), m.dtype), plain_layer(m)), 8e-3);
    }
}

std::vector<std::byte> dense_bytes(const moe_tensor& t) {
  std::vector<std::byte> out;
  const std::int64_t n0 = t.shape[0], n1 = t.shape[1], n2 = t.ndim > 2 ? t.shape[2] : 1;
  std::int64_t strides[3] = {n1 * n2, n2, 1};
  for (int d = 0; d < t.ndim && t.strides[0] != 0; ++d) strides[d] = t.strides[d];
  for (std::int64_t a = 0; a < n0; ++a)
    for (std::int64_t b = 0; b < n1; ++b)
      for (std::int64_t c = 0; c < n2; ++c) {
        const auto* at = static_cast<const std::byte*>(t.data) + (a * strides[0] + b * strides[1] + c * strides[2]) * 4;
        out.insert(out.end(), at, at + 4);
      }
  return out;
}

// The tensors of a file, asked for as stacks, are the stacks.
TEST(Wna16Checkpoints, TensorsOfFilesComeBackStacked) {
  for (const char* format : {"gptq", "awq", "pack-quantized"})
    for (const bool transposed : {false, true}) {
      Wna16Model m;
      m.format = format;
      m.zeros = true;
      m.order = !m.awq();
      m.transposed = transposed;
      m = random_wna16(m, 31);
      SCOPED_TRACE(m.config_text());
      const ConfigPtr config = make_config(m.config_text());
      const WeightsPtr stacked = stacked_weights(m, config.get());
      const WeightsPtr loaded =
          make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
      const TempDir dir;
      dir.write("model.safetensors", checkpoint_file(m));
      ASSERT_EQ(moe_weights_load_safetensors(loaded.get(), dir.path().c_str(), nullptr, nullptr), MOE_OK);
      for (const std::string matrix : {"w13_", "w2_"})
        for (const std::string suffix : {"weight", "scale", "zero_point", "g_idx"}) {
          if (m.awq() && suffix == "g_idx") continue;
          const std::string role = matrix + suffix;
          moe_tensor a{}, b{};
          a.struct_size = b.struct_size = sizeof a;
          moe_buffer *hold_a = nullptr, *hold_b = nullptr;
          ASSERT_EQ(moe_weights_get(stacked.get(), role.c_str(), -1, &a, &hold_a, nullptr), MOE_OK);
          const Failure got =
              failure([&](moe_error** e) { return moe_weights_get(loaded.get(), role.c_str(), -1, &b, &hold_b, e); });
          ASSERT_EQ(got.status, MOE_OK) << got.message;
          const BufferPtr end_a(hold_a), end_b(hold_b);
          EXPECT_EQ(std::vector(a.shape, a.shape + a.ndim), std::vector(b.shape, b.shape + b.ndim)) << role;
          EXPECT_EQ(dense_bytes(a), dense_bytes(b)) << role;
        }
    }
}

// --- refusals ----------------------------------------------------------------------------------------------------

Failure set_failure(const Wna16Model& m, const char* role, std::vector<std::int64_t> shape) {
  const ConfigPtr config = make_config(m.config_text());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const std::vector<std::byte> data(1 << 16);
  const moe_tensor t = tensor(MOE_DTYPE_I32, shape, data.data());
  return failure([&](moe_error** e) { return moe_weights_set(w.get(), role, &t, nullptr, nullptr, e); });
}

TEST(Wna16Checkpoints, TensorsWithoutAPlaceOrWithAnotherShape) {
  Wna16Model m;
  EXPECT_EQ(set_failure(m, "w13_weight", {3, 16, 128}).status, MOE_OK);
  EXPECT_EQ(set_failure(m, "w13_g_idx", {3, 128}).status, MOE_OK);
  for (const auto& shape :
       {std::vector<std::int64_t>{3, 128, 16}, {3, 32, 128}, {3, 16, 64}, {2, 16, 128}, {16, 128}}) {
    const Failure f = set_failure(m, "w13_weight", shape);
    EXPECT_EQ(f.status, MOE_ERR_SHAPE);
    EXPECT_EQ(f.subject, "w13_weight");
  }
  EXPECT_EQ(set_failure(m, "w13_g_idx", {3, 127}).status, MOE_ERR_SHAPE);
  m.format = "awq";
  EXPECT_EQ(set_failure(m, "w13_weight", {3, 128, 16}).status, MOE_OK);
  EXPECT_EQ(set_failure(m, "w13_g_idx", {3, 128}).status, MOE_ERR_UNEXPECTED_WEIGHT);
  for (const bool zeros : {false, true}) {  // symmetric weights come with constant ones
    m.zeros = zeros;
    EXPECT_EQ(set_failure(m, "w13_qzeros", {3, 4, 16}).status, MOE_OK);
  }
  m.format = "pack-quantized";
  EXPECT_EQ(set_failure(m, "w13_weight", {3, 128, 16}).status, MOE_OK);
  EXPECT_EQ(set_failure(m, "w13_qzeros", {3, 16, 4}).status, MOE_OK);
  m.transposed = true;
  EXPECT_EQ(set_failure(m, "w13_weight", {3, 128, 16}).status, MOE_ERR_SHAPE);
  EXPECT_EQ(set_failure(m, "w13_weight", {3, 16, 128}).status, MOE_OK);
  EXPECT_EQ(set_failure(m, "w13_qzeros", {3, 4, 16}).status, MOE_OK);
}

// AutoGPTQ writes a bias for each projection, of zeros where the model has none; of other formats none is left out.
TEST(Wna16Checkpoints, BiasesOfZerosMayBeLeftOut) {
  const std::string name = "model.layers.0.mlp.experts.1.up_proj.bias";
  for (const char* format : {"gptq", "pack-quantized"})
    for (const float value : {0.0f, 0.5f}) {
      Wna16Model m;
      m.format = format;
      m.zeros = m.plain_g_idx = m.format == "gptq";
      m = random_wna16(std::move(m), 11);
      const ConfigPtr config = make_config(m.config_text());
      std::vector<float> bias(static_cast<std::size_t>(m.I), 0.0f);
      bias.back() = value;
      SafetensorsWriter file;
      file.add(name, "F32", {m.I}, bias.data(), bias.size() * sizeof(float));
      const TempDir dir;
      dir.write("a.safetensors", checkpoint_file(m));
      dir.write("b.safetensors", file.bytes());
      const bool left_out = m.format == "gptq" && value == 0.0f;
      for (const bool named : {false, true}) {
        const WeightsPtr weights =
            make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
        std::int32_t taken = 0;
        const moe_tensor t = tensor(MOE_DTYPE_F32, {m.I}, bias.data());
        const Failure f = failure([&](moe_error** e) {
          return named ? moe_weights_set_named(weights.get(), name.c_str(), &t, nullptr, nullptr, &taken, e)
                       : moe_weights_load_safetensors(weights.get(), dir.path().c_str(), nullptr, e);
        });
        EXPECT_EQ(f.status, left_out ? MOE_OK : MOE_ERR_UNEXPECTED_WEIGHT) << format << value << named << f.message;
        EXPECT_EQ(f.message.find("has_bias") != std::string::npos, !left_out) << f.message;
      }
    }
}

// A packed file whose list of columns is no list of columns.
TEST(Wna16Checkpoints, DamagedListsAreNotFollowed) {
  Wna16Model m;
  m.order = true;
  m = random_wna16(m, 77);
  Wna16Layer layer(m);
  moe_tensor w13{};
  w13.struct_size = sizeof w13;
  ASSERT_EQ(moe_packed_get(layer.packed.get(), "w13_packed", 1, &w13, nullptr), MOE_OK);
  auto* last = static_cast<std::byte*>(w13.data) + w13.shape[0] - 4;  // 128 columns: no padding behind the list
  for (const std::int32_t bad : {-1, 128, 1 << 30}) {
    std::memcpy(last, &bad, 4);
    const Failure f = failure([&](moe_error** e) {
      moe_layer* out = nullptr;
      return moe_layer_create(nullptr, layer.selection.get(), layer.packed.get(), nullptr, &out, e);
    });
    EXPECT_EQ(f.status, MOE_ERR_FORMAT);
    EXPECT_THAT(f.message, testing::HasSubstr("w13 of expert 1"));
    std::vector<float> dense(static_cast<std::size_t>(2 * m.I * m.H));
    moe_tensor out = tensor(MOE_DTYPE_F32, {2 * m.I, m.H}, dense.data());
    EXPECT_EQ(moe_packed_dequantize(layer.packed.get(), "w13_weight", 1, &out, nullptr), MOE_ERR_FORMAT);
  }
}

}  // namespace
}  // namespace moe::test::wna16_checkpoints_test
