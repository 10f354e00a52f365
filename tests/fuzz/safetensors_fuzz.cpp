// Checkpoint files: the bytes are a safetensors file of a small W4A8 layer. Loading ends with a status; what loads can
// be listed, converted and run, or is refused with an error that tells.
#include <moe/moe.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/layer.h"
#include "fuzz/tiny.h"

namespace {

using namespace moe::fuzz;

constexpr const char* kModule = "model.layers.0.mlp.experts";  // of kConfig

// A file in memory that every input fills anew.
std::string file_of(const std::uint8_t* data, std::size_t size) {
  static const int fd = memfd_create("safetensors", MFD_CLOEXEC);
  MOE_REQUIRE(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == static_cast<ssize_t>(size));
  return "/proc/self/fd/" + std::to_string(fd);
}

void list(const moe_weights* weights) {
  moe_buffer* buffer = nullptr;
  MOE_REQUIRE(moe_weights_to_json(weights, &buffer, nullptr) == MOE_OK && moe_buffer_size(buffer) > 2);
  moe_buffer_destroy(buffer);
}

void run(const moe_selection* selection, const moe_packed* packed) {
  const RunLayer layer =
      made<RunLayer>([&](auto** o, auto** e) { return moe_layer_create(nullptr, selection, packed, nullptr, o, e); });
  MOE_REQUIRE(layer);
  const std::vector<float> hidden(kHidden, 0.5F), weights = {0.5F, 0.5F};
  std::vector<float> out(hidden.size());
  const std::vector<std::int32_t> ids = {1, 0};
  MOE_REQUIRE(moe_apply_flat(layer.get(), 1, MOE_DTYPE_F32, hidden.data(), MOE_DTYPE_F32, nullptr, ids.data(),
                             weights.data(), MOE_DTYPE_F32, out.data(), nullptr) == MOE_OK);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Layer layer;
  const std::string path = file_of(data, size);
  const Weights weights = made<Weights>([](auto** o, auto** e) { return moe_weights_create(layer.config, o, e); });
  moe_error* error = nullptr;
  const char* module = size % 4 == 0 ? nullptr : kModule;  // without a name places are searched, which takes long
  const moe_status status = moe_weights_load_safetensors(weights.get(), path.c_str(), module, &error);
  MOE_REQUIRE((status == MOE_OK) == (error == nullptr));
  if (error != nullptr) MOE_REQUIRE(moe_error_status(error) == status && *moe_error_message(error) != 0);
  moe_error_destroy(error);
  list(weights.get());
  if (status != MOE_OK) return 0;
  const Packed packed = made<Packed>(
      [&](auto** o, auto** e) { return moe_convert_weights(nullptr, layer.selection, weights.get(), nullptr, o, e); });
  if (packed) run(layer.selection, packed.get());
  return 0;
}
