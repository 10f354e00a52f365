#include "support/model_dir.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "support/safetensors_writer.h"

namespace moe::test {
namespace {

std::string list_of(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (const std::int64_t n : numbers) text += (text.size() > 1 ? "," : "") + std::to_string(n);
  return text + "]";
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(file_text(path), text) << path;
}

}  // namespace

std::string ModelDir::quantization_config() const {
  return R"({"quant_method":"compressed-tensors","format":"int-quantized","ignore":["lm_head"],"config_groups":{"g":{)"
         R"("targets":["Linear"],"weights":{"num_bits":4,"type":"int","symmetric":true,"dynamic":false,)"
         R"("strategy":"group","group_size":)" +
         std::to_string(group) +
         R"(},"input_activations":{"num_bits":8,"type":"int","symmetric":true,"dynamic":true,"strategy":"token"}}}})";
}

std::string ModelDir::config() const {
  const auto number = [](const char* key, std::int64_t n) {
    return std::string(",\"") + key + "\":" + std::to_string(n);
  };
  std::string text = R"({"architectures":[")" + class_name + R"("],"hidden_act":"silu","torch_dtype":"bfloat16")";
  text += number("hidden_size", H) + number("moe_intermediate_size", I) + number("num_experts_per_tok", K) +
          number("num_hidden_layers", layers) + number("intermediate_size", 4 * I);
  if (class_name == "Qwen3MoeForCausalLM")
    text += number("num_experts", E) + R"(,"norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":)" +
            list_of(dense);
  if (quantization == "config.json") text += ",\"quantization_config\":" + quantization_config();
  return text + more + "}";
}

std::string ModelDir::shard(std::int64_t layer) const {
  return "model-" + std::to_string(layer + 1) + "-of-" + std::to_string(layers) + ".safetensors";
}

void ModelDir::write(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  nlohmann::json map = nlohmann::json::object();
  for (std::int64_t l = 0; l < layers; ++l) {
    std::mt19937 rng(seed * 1000 + static_cast<std::uint32_t>(l));
    SafetensorsWriter file;
    const auto add = [&](const std::string& name, const char* type, const std::vector<std::int64_t>& shape,
                         const std::vector<std::byte>& bytes) {
      file.add(name, type, shape, bytes.data(), bytes.size());
      map[name] = shard(l);
    };
    const auto numbers = [&](std::int64_t n, float size) {
      std::vector<float> v(static_cast<std::size_t>(n));
      for (float& x : v) x = size * (0.5f + static_cast<float>(rng() >> 8) * 0x1p-24f);
      return in_dtype(v, MOE_DTYPE_BF16);
    };
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    add(layer + "input_layernorm.weight", "BF16", {H}, numbers(H, 1));
    if (std::find(dense.begin(), dense.end(), l) != dense.end()) {
      add(layer + "mlp.gate_proj.weight", "BF16", {4 * I, H}, numbers(4 * I * H, 0.02f));
    } else {
      add(layer + "mlp.gate.weight", "BF16", {E, H}, numbers(E * H, 0.1f));
      for (std::int64_t e = 0; e < E; ++e)
        for (const char* p : {"gate_proj", "up_proj", "down_proj"}) {
          const bool down = p[0] == 'd';
          const std::int64_t n = down ? H : I, k = down ? I : H;
          const std::string name = layer + "mlp.experts." + std::to_string(e) + "." + p + ".weight";
          if (plain) {
            add(name, "BF16", {n, k}, numbers(n * k, 0.02f));
            continue;
          }
          std::vector<std::byte> codes(static_cast<std::size_t>(n * k));
          for (std::byte& c : codes) c = static_cast<std::byte>(static_cast<int>(rng() % 16) - 8);
          add(name, "I8", {n, k}, codes);
          add(name + "_scale", "BF16", {n, k / group}, numbers(n * k / group, 0.02f));
        }
    }
    write_file(folder + "/" + shard(l), file.bytes());
  }
  write_file(folder + "/model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  write_file(folder + "/config.json", config());
  if (!quantization.empty() && quantization != "config.json")
    write_file(folder + "/" + quantization, quantization_config());
}

CheckpointPtr open_model(const std::string& folder, const std::string& options, moe_context* ctx) {
  return make<CheckpointPtr>([&](moe_checkpoint** o, moe_error** e) {
    return moe_checkpoint_open(ctx, folder.c_str(), options.data(), options.size(), nullptr, o, e);
  });
}

Failure open_failure(const std::string& folder, const std::string& options) {
  moe_checkpoint* out = nullptr;
  const Failure f = failure([&](moe_error** e) {
    return moe_checkpoint_open(nullptr, folder.c_str(), options.data(), options.size(), nullptr, &out, e);
  });
  EXPECT_EQ(out == nullptr, f.status != MOE_OK);
  moe_checkpoint_destroy(out);
  return f;
}

moe_layer_info info_of(const moe_checkpoint* checkpoint, std::int64_t layer) {
  moe_layer_info info{};
  info.struct_size = sizeof info;
  const Failure f = failure([&](moe_error** e) { return moe_checkpoint_layer_info(checkpoint, layer, &info, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return info;
}

nlohmann::json describe(const moe_checkpoint* checkpoint) {
  return json_of([&](moe_buffer** o, moe_error** e) { return moe_checkpoint_to_json(checkpoint, o, e); });
}

ConfigPtr config_of(const moe_checkpoint* checkpoint, std::int64_t layer, const std::string& patch) {
  return make<ConfigPtr>([&](moe_config** o, moe_error** e) {
    return moe_checkpoint_config(checkpoint, layer, patch.data(), patch.size(), o, e);
  });
}

Failure config_failure(const moe_checkpoint* checkpoint, std::int64_t layer, const std::string& patch) {
  moe_config* out = nullptr;
  const Failure f = failure(
      [&](moe_error** e) { return moe_checkpoint_config(checkpoint, layer, patch.data(), patch.size(), &out, e); });
  EXPECT_EQ(out, nullptr);
  return f;
}

std::string bytes_of_packed(const moe_packed* packed) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(packed, &data, &size, nullptr), MOE_OK);
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  std::string text(static_cast<std::size_t>(in.tellg()), '\0');
  in.seekg(0).read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

}  // namespace moe::test
