// Checkpoint files: the bytes are a safetensors file of a small W4A8 layer. Loading ends with a status; what loads can
// be listed, converted and run, or is refused with an error that tells.
#include <moe/moe.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "fuzz/layer.h"
#include "fuzz/require.h"

namespace {

// The bytes as a file, removed when the run ends.
class File {
 public:
  File(const std::uint8_t* data, std::size_t size) {
    char name[] = "/tmp/moe_fuzz_XXXXXX";
    fd_ = mkstemp(name);
    path_ = name;
    MOE_REQUIRE(fd_ >= 0 && write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  ~File() {
    close(fd_);
    unlink(path_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const char* path() const { return path_.c_str(); }

 private:
  int fd_;
  std::string path_;
};

void list(const moe_weights* weights) {
  moe_buffer* buffer = nullptr;
  MOE_REQUIRE(moe_weights_to_json(weights, &buffer, nullptr) == MOE_OK && moe_buffer_size(buffer) > 2);
  moe_buffer_destroy(buffer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moe::fuzz::Layer layer;
  moe_weights* weights = nullptr;
  moe_packed* packed = nullptr;
  moe_error* error = nullptr;
  MOE_REQUIRE(moe_weights_create(layer.config, &weights, nullptr) == MOE_OK);
  const File file(data, size);
  moe_status status = moe_weights_load_safetensors(weights, file.path(), nullptr, &error);
  MOE_REQUIRE((status == MOE_OK) == (error == nullptr));
  list(weights);
  if (status == MOE_OK) {
    status = moe_convert_weights(nullptr, layer.selection, weights, nullptr, &packed, &error);
    MOE_REQUIRE((status == MOE_OK) == (packed != nullptr));
    moe_packed_destroy(packed);
  }
  if (error != nullptr) MOE_REQUIRE(moe_error_status(error) == status && *moe_error_message(error) != 0);
  moe_error_destroy(error);
  moe_weights_destroy(weights);
  return 0;
}
