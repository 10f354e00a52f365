// A directory with a small model of several layers, as Hugging Face has it: config.json, a shard a layer, an index.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test {

struct ModelDir {
  std::int64_t layers = 3, E = 4, H = 64, I = 32, K = 2, group = 32;
  bool plain = false;                    // bf16 weights; else int4 codes, a byte each
  std::vector<std::int64_t> dense = {};  // layers without experts
  std::uint32_t seed = 1;
  std::string quantization = "config.json";  // the file that says how; "": none does
  std::string class_name = "Qwen3MoeForCausalLM";
  std::string more = "";  // members of config.json, with a comma before each

  std::string config() const;
  std::string quantization_config() const;
  // Writes it into a folder, which is made.
  void write(const std::string& folder) const;
  std::string shard(std::int64_t layer) const;  // its name
};

using CheckpointPtr = std::unique_ptr<moe_checkpoint, Ended<moe_checkpoint_destroy>>;
CheckpointPtr open_model(const std::string& folder, const std::string& options = "", moe_context* ctx = nullptr);
Failure open_failure(const std::string& folder, const std::string& options = "");
moe_layer_info info_of(const moe_checkpoint* checkpoint, std::int64_t layer);
nlohmann::json describe(const moe_checkpoint* checkpoint);
ConfigPtr config_of(const moe_checkpoint* checkpoint, std::int64_t layer, const std::string& patch = "");
Failure config_failure(const moe_checkpoint* checkpoint, std::int64_t layer, const std::string& patch = "");
using Ask = std::function<moe_status(const moe_progress&)>;

// A control that asks `ask` with the whole state.
struct Asking {
  explicit Asking(Ask a) : ask(std::move(a)) {
    control = make<ControlPtr>([&](moe_control** o, moe_error** e) {
      return moe_control_create(
          [](void* user, std::uint64_t done, std::uint64_t total) {
            Asking& self = *static_cast<Asking*>(user);
            moe_progress p{};
            p.struct_size = sizeof p;
            EXPECT_EQ(moe_control_state(self.control.get(), &p, nullptr), MOE_OK);
            EXPECT_EQ(p.done, done);
            EXPECT_EQ(p.total, total);
            return self.ask(p);
          },
          this, nullptr, o, e);
    });
  }
  Ask ask;
  ControlPtr control;
};

// The whole block of packed weights.
std::string bytes_of_packed(const moe_packed* packed);
std::string file_text(const std::string& path);

}  // namespace moe::test
