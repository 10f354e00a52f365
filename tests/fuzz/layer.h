// The small W4A8 layer that fuzz targets start from: config, selection and packed weights through the C API.
#pragma once

#include <moe/moe.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz/require.h"
#include "support/rooms.h"

namespace moe::fuzz {

constexpr std::int64_t kExperts = 2, kHidden = 64, kIntermediate = 32, kGroup = 32;
// The layer of tests/vectors/w4a8_int8/ckpt_g32_int_quantized.safetensors.
constexpr std::string_view kConfig =
    R"({"name":"model.layers.0.mlp.experts","num_experts":2,"top_k":2,"hidden_size":64,"intermediate_size":32,)"
    R"("in_dtype":"float32","quantization":{"scheme":"W4A8","group_size":32,"format":"int-quantized"}})";

struct Layer {
  moe_config* config = nullptr;
  moe_selection* selection = nullptr;

  Layer() {
    MOE_REQUIRE(moe_config_create(kConfig.data(), kConfig.size(), &config, nullptr) == MOE_OK);
    MOE_REQUIRE(moe_select_backend(nullptr, config, nullptr, 0, &selection, nullptr) == MOE_OK);
  }
  ~Layer() {
    moe_selection_destroy(selection);
    moe_config_destroy(config);
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
};

// The bytes of a packed layer with codes -8..7 in a fixed pattern and scales of 1/8.
inline std::vector<std::uint8_t> packed_block(const Layer& layer) {
  moe_weights* weights = nullptr;
  MOE_REQUIRE(moe_weights_create(layer.config, &weights, nullptr) == MOE_OK);
  const auto set = [&](const char* role, moe_dtype dtype, std::int64_t rows, std::int64_t columns, const void* data,
                       std::size_t bytes) {
    moe_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = dtype;
    t.ndim = 3;
    t.data = const_cast<void*>(data);
    t.nbytes = bytes;
    const std::int64_t shape[] = {kExperts, rows, columns}, strides[] = {rows * columns, columns, 1};
    for (int i = 0; i < 3; ++i) {
      t.shape[i] = shape[i];
      t.strides[i] = strides[i];
    }
    MOE_REQUIRE(moe_weights_set(weights, role, &t, nullptr, nullptr, nullptr) == MOE_OK);
  };
  std::vector<std::int8_t> codes(static_cast<std::size_t>(kExperts * 2 * kIntermediate * kHidden));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::int8_t>(static_cast<int>(i * 7 % 16) - 8);
  const std::vector<float> scales(static_cast<std::size_t>(kExperts * 2 * kIntermediate * (kHidden / kGroup)), 0.125F);
  set("w13_weight", MOE_DTYPE_I8, 2 * kIntermediate, kHidden, codes.data(), codes.size());
  set("w13_scale", MOE_DTYPE_F32, 2 * kIntermediate, kHidden / kGroup, scales.data(), scales.size() * 4);
  const std::size_t w2 = static_cast<std::size_t>(kExperts * kHidden);
  set("w2_weight", MOE_DTYPE_I8, kHidden, kIntermediate, codes.data(), w2 * kIntermediate);
  set("w2_scale", MOE_DTYPE_F32, kHidden, kIntermediate / kGroup, scales.data(), w2 * (kIntermediate / kGroup) * 4);
  moe_packed* packed = nullptr;
  MOE_REQUIRE(moe_convert_weights(nullptr, layer.selection, weights, nullptr, &packed, nullptr) == MOE_OK);
  const void* data = nullptr;
  std::uint64_t size = 0;
  MOE_REQUIRE(moe_packed_data(packed, &data, &size, nullptr) == MOE_OK);
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  std::vector<std::uint8_t> block(bytes, bytes + size);
  moe_packed_destroy(packed);
  moe_weights_destroy(weights);
  return block;
}

}  // namespace moe::fuzz
