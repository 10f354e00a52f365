// Packed files: the input edits a valid block, or is the block. Loading ends with a status; with verification nothing
// but the unchanged payload is accepted, and what is accepted can be listed and run without a fault.
//
//   input: one byte of flags (1 = the rest is the block, 2 = verify), then edits {u16 offset, u16 cut, u8 value}: the
//   byte at offset becomes value; a cut that is not 0 shortens the block to that size.
#include <moe/moe.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fuzz/layer.h"
#include "fuzz/require.h"

namespace {

constexpr std::size_t kEdit = 5;

std::vector<std::uint8_t> edited(std::vector<std::uint8_t> block, const std::uint8_t* data, std::size_t size) {
  for (; size >= kEdit; data += kEdit, size -= kEdit) {
    std::uint16_t offset = 0, cut = 0;
    std::memcpy(&offset, data, 2);
    std::memcpy(&cut, data + 2, 2);
    if (offset < block.size()) block[offset] = data[4];
    if (cut != 0 && cut < block.size()) block.resize(cut);
  }
  return block;
}

void run(const moe::fuzz::Layer& layer, const moe_packed* packed) {
  moe_layer* runnable = nullptr;
  if (moe_layer_create(nullptr, layer.selection, packed, nullptr, &runnable, nullptr) != MOE_OK) {
    MOE_REQUIRE(runnable == nullptr);
    return;
  }
  std::vector<float> hidden(2 * moe::fuzz::kHidden, 0.5F), out(hidden.size());
  const std::int32_t ids[] = {0, 1, 1, -1};
  const float weights[] = {0.5F, 0.5F, 1.0F, 0.0F};
  MOE_REQUIRE(moe_apply_flat(runnable, 2, MOE_DTYPE_F32, hidden.data(), MOE_DTYPE_F32, nullptr, ids, weights,
                             MOE_DTYPE_F32, out.data(), nullptr) == MOE_OK);
  moe_layer_destroy(runnable);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moe::fuzz::Layer layer;
  static const std::vector<std::uint8_t> valid = moe::fuzz::packed_block(layer);
  if (size == 0) return 0;
  const std::uint8_t flags = *data++;
  --size;
  const std::vector<std::uint8_t> block =
      flags & 1 ? std::vector<std::uint8_t>(data, data + size) : edited(valid, data, size);
  moe_packed* packed = nullptr;
  moe_error* error = nullptr;
  const moe_status status = moe_packed_load_memory(nullptr, block.data(), block.size(), flags & 2 ? MOE_LOAD_VERIFY : 0,
                                                   nullptr, nullptr, &packed, &error);
  MOE_REQUIRE((status == MOE_OK) == (packed != nullptr) && (status == MOE_OK) == (error == nullptr));
  if (block == valid) MOE_REQUIRE(status == MOE_OK);
  if (status == MOE_OK) {
    moe_buffer* text = nullptr;
    MOE_REQUIRE(moe_packed_to_json(packed, &text, nullptr) == MOE_OK && moe_buffer_size(text) > 2);
    moe_buffer_destroy(text);
    run(layer, packed);
  } else {
    MOE_REQUIRE(*moe_error_message(error) != 0);
  }
  moe_error_destroy(error);
  moe_packed_destroy(packed);
  return 0;
}
