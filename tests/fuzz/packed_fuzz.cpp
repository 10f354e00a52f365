// Packed files: the input edits a valid block, or is the block. Loading ends with a status; with verification nothing
// but the unchanged block is accepted unless its hashes were made right again, and what is accepted can be listed,
// unpacked and run without a fault.
//
//   input: one byte of flags (1 = the rest is the block, 2 = verify, 4 = hashes are made right again, 8 * n = which of
//   the valid blocks), then edits {u16 offset, u16 cut, u8 value}: the byte at offset becomes value; a cut that is not
//   0 shortens the block to that size. Edits have no cut where hashes are made right again.
#include <moe/moe.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "fuzz/layer.h"
#include "fuzz/tiny.h"
#include "io/hash.h"
#include "io/packed_format.h"

namespace {

using namespace moe::fuzz;
using moe::test::PackedPtr;

struct Valid {
  Selection selection;
  std::vector<std::uint8_t> block;
  std::int64_t hidden, intermediate;
};

// The layer of layer.h, then one of every checkpoint format: two experts, float32, columns in an order of their own and
// a bias where the format has such.
Valid make_valid(std::size_t which) {
  if (which == 0) {
    const Layer layer;
    Selection selection = made<Selection>(
        [&](auto** o, auto** e) { return moe_select_backend(nullptr, layer.config, nullptr, 0, o, e); });
    return {std::move(selection), packed_block(layer), kHidden, kIntermediate};
  }
  const std::uint8_t choices[] = {static_cast<std::uint8_t>(which - 1), 1, 1, 1, 1, 0, 2 | 4 | 64, 0};
  Producer p(choices, sizeof choices);
  const TinyLayer layer(p);
  const Config config = make_config(layer.text);
  Selection selection =
      made<Selection>([&](auto** o, auto** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, o, e); });
  const Weights weights = layer.weights(config.get());
  const PackedPtr packed = made<PackedPtr>(
      [&](auto** o, auto** e) { return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e); });
  const void* data = nullptr;
  std::uint64_t size = 0;
  MOE_REQUIRE(moe_packed_data(packed.get(), &data, &size, nullptr) == MOE_OK);
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  return {std::move(selection), std::vector<std::uint8_t>(bytes, bytes + size), layer.H, layer.I};
}

const Valid& valid_block(std::size_t which) {
  static std::array<std::unique_ptr<const Valid>, kForms.size() + 1> all;
  auto& one = all[which % all.size()];
  if (one == nullptr) one = std::make_unique<const Valid>(make_valid(which % all.size()));
  return *one;
}

std::vector<std::uint8_t> edited(std::vector<std::uint8_t> block, bool cuts, const std::uint8_t* data,
                                 std::size_t size) {
  for (const std::size_t edit = cuts ? 5 : 3; size >= edit; data += edit, size -= edit) {
    std::uint16_t offset = 0, cut = 0;
    std::memcpy(&offset, data, 2);
    if (cuts) std::memcpy(&cut, data + 2, 2);
    if (offset < block.size()) block[offset] = data[edit - 1];
    if (cut != 0 && cut < block.size()) block.resize(cut);
  }
  return block;
}

// Both hashes fit again, as long as the head says where they are. (The payload has less than one hash covers.)
void reseal(std::vector<std::uint8_t>& block) {
  const auto bytes = std::as_bytes(std::span(block));
  moe::io::PackedHead head;
  if (bytes.size() < sizeof head) return;
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::uint64_t header = head.payload_offset, at = head.sections[moe::io::kChunkHashes].offset;
  if (header < sizeof head || header > bytes.size()) return;
  const std::uint64_t payload_hash = moe::io::xxh3(bytes.subspan(header));
  if (at < header && header - at >= sizeof payload_hash) std::memcpy(&block[at], &payload_hash, sizeof payload_hash);
  head.header_hash = moe::io::header_hash_of(bytes.first(header), head.side_floats);
  std::memcpy(block.data(), &head, sizeof head);
}

void unpack(const moe_packed* packed, const char* role, std::int64_t rows, std::int64_t columns) {
  std::vector<float> dense(static_cast<std::size_t>(rows * columns));
  const moe_tensor out = tensor(MOE_DTYPE_F32, {rows, columns}, dense.data());
  (void)!moe_packed_dequantize(packed, role, 1, &out, nullptr);
}

void run(const Valid& layer, const moe_packed* packed) {
  const RunLayer runnable = made<RunLayer>(
      [&](auto** o, auto** e) { return moe_layer_create(nullptr, layer.selection.get(), packed, nullptr, o, e); });
  if (!runnable) return;
  const std::vector<float> hidden(static_cast<std::size_t>(2 * layer.hidden), 0.5F);
  std::vector<float> out(hidden.size());
  const std::int32_t ids[] = {0, 1, 1, -1};
  const float weights[] = {0.5F, 0.5F, 1.0F, 0.0F};
  MOE_REQUIRE(moe_apply_flat(runnable.get(), 2, MOE_DTYPE_F32, hidden.data(), MOE_DTYPE_F32, nullptr, ids, weights,
                             MOE_DTYPE_F32, out.data(), nullptr) == MOE_OK);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t flags = *data++;
  --size;
  const bool given = (flags & 1) != 0, verify = (flags & 2) != 0, sealed = (flags & 4) != 0;
  const Valid& layer = valid_block(flags >> 3);
  std::vector<std::uint8_t> block =
      given ? std::vector<std::uint8_t>(data, data + size) : edited(layer.block, !sealed, data, size);
  if (sealed) reseal(block);
  moe_status status = MOE_OK;
  const PackedPtr packed = made<PackedPtr>(
      [&](auto** o, auto** e) {
        return moe_packed_load_memory(nullptr, block.data(), block.size(), verify ? MOE_LOAD_VERIFY : 0, nullptr,
                                      nullptr, o, e);
      },
      &status);
  if (block == layer.block) MOE_REQUIRE(packed);
  if (verify && !given && !sealed) MOE_REQUIRE(!packed || block == layer.block);
  if (!packed) {
    MOE_REQUIRE(status == MOE_ERR_FORMAT || status == MOE_ERR_VERSION || block.empty());
    return 0;
  }
  moe_buffer* text = nullptr;
  MOE_REQUIRE(moe_packed_to_json(packed.get(), &text, nullptr) == MOE_OK && moe_buffer_size(text) > 2);
  moe_buffer_destroy(text);
  unpack(packed.get(), "w13_weight", 2 * layer.intermediate, layer.hidden);
  unpack(packed.get(), "w2_weight", layer.hidden, layer.intermediate);
  run(layer, packed.get());
  return 0;
}
