// Config documents: whatever the bytes, moe_config_create ends, with a config or with an error that tells; the same
// input gives the same canonical text twice, and merging an empty patch changes nothing.
#include <moe/moe.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz/require.h"

namespace {

std::string text_of(const moe_config* config) {
  moe_buffer* buffer = nullptr;
  MOE_REQUIRE(moe_config_to_json(config, &buffer, nullptr) == MOE_OK);
  std::string text(static_cast<const char*>(moe_buffer_data(buffer)), moe_buffer_size(buffer));
  moe_buffer_destroy(buffer);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const char* json = reinterpret_cast<const char*>(data);
  moe_config* config = nullptr;
  moe_config* again = nullptr;
  moe_config* merged = nullptr;
  moe_error* error = nullptr;
  const moe_status status = moe_config_create(size ? json : "", size, &config, &error);
  MOE_REQUIRE((status == MOE_OK) == (config != nullptr));
  MOE_REQUIRE((status == MOE_OK) == (error == nullptr));
  if (status != MOE_OK) {
    MOE_REQUIRE(status == moe_error_status(error) && *moe_error_message(error) != 0);
    MOE_REQUIRE(status == MOE_ERR_INVALID_CONFIG || status == MOE_ERR_UNSUPPORTED);
    moe_error_destroy(error);
    return 0;
  }
  const std::string text = text_of(config);
  MOE_REQUIRE(moe_config_create(json, size, &again, nullptr) == MOE_OK);
  MOE_REQUIRE(text_of(again) == text);
  MOE_REQUIRE(moe_config_merge(config, "{}", 2, &merged, nullptr) == MOE_OK);
  MOE_REQUIRE(text_of(merged) == text);
  moe_config_destroy(merged);
  moe_config_destroy(again);
  moe_config_destroy(config);
  return 0;
}
