// Quantization objects of the tools that write checkpoints, in the config.json of a model. Whatever the bytes, reading
// ends, with a config or with an error that tells where; the same input gives the same config twice, and merging an
// empty patch changes nothing.
//
//   input: the text of quantization_config
#include <moe/moe.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "fuzz/require.h"

namespace {

constexpr std::string_view kModel =
    R"({"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","num_hidden_layers":2,"hidden_size":256,)"
    R"("moe_intermediate_size":128,"num_experts":2,"num_experts_per_tok":2,"norm_topk_prob":true,"hidden_act":"silu",)"
    R"("quantization_config":)";

std::string text_of(const moe_config* config) {
  moe_buffer* buffer = nullptr;
  MOE_REQUIRE(moe_config_to_json(config, &buffer, nullptr) == MOE_OK);
  std::string text(static_cast<const char*>(moe_buffer_data(buffer)), moe_buffer_size(buffer));
  moe_buffer_destroy(buffer);
  return text;
}

// The config's text, which an empty patch leaves as it is. Empty: refused.
std::string read(const std::string& model) {
  moe_config* config = nullptr;
  moe_error* error = nullptr;
  const moe_status status = moe_config_create_from_hf(model.data(), model.size(), nullptr, 0, &config, &error);
  MOE_REQUIRE((status == MOE_OK) == (config != nullptr));
  MOE_REQUIRE((status == MOE_OK) == (error == nullptr));
  if (status != MOE_OK) {
    MOE_REQUIRE(status == moe_error_status(error) && std::strlen(moe_error_message(error)) > 0);
    MOE_REQUIRE(status == MOE_ERR_INVALID_CONFIG || status == MOE_ERR_UNSUPPORTED);
    moe_error_destroy(error);
    return "";
  }
  std::string text = text_of(config);
  moe_config* merged = nullptr;
  MOE_REQUIRE(moe_config_merge(config, "{}", 2, &merged, nullptr) == MOE_OK);
  MOE_REQUIRE(text_of(merged) == text);
  moe_config_destroy(merged);
  moe_config_destroy(config);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string model = std::string(kModel).append(reinterpret_cast<const char*>(data), size) + "}";
  MOE_REQUIRE(read(model) == read(model));
  return 0;
}
