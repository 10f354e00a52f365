// A model that is converted into a folder, for tests of either.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "support/model_dir.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test {

// Four layers, the second one dense.
class Converting : public testing::Test {
 protected:
  TempDir dir;
  std::string at = dir.file("model"), out = dir.file("converted");
  ModelDir model;
  CheckpointPtr source;
  moe_checkpoint_options options{};

  void SetUp() override {
    options.struct_size = sizeof options;
    model.dense = {1};
    model.layers = 4;
    model.write(at);
    source = open_model(at);
  }
  Failure convert(const std::string& to, const moe_checkpoint* from = nullptr, moe_context* ctx = nullptr) const {
    return failure([&](moe_error** e) {
      return moe_checkpoint_convert(ctx, from != nullptr ? from : source.get(), to.c_str(), &options, e);
    });
  }
  void set_patch(const char* text) {
    options.patch_json = text;
    options.patch_len = text == nullptr ? 0 : MOE_NUL_TERMINATED;
  }
  Failure load(const CheckpointPtr& c, std::int64_t layer) const {
    moe_layer* made = nullptr;
    const Failure f =
        failure([&](moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), layer, &options, &made, e); });
    moe_layer_destroy(made);
    return f;
  }
  // Everything in a folder but the lock.
  static std::map<std::string, std::string> content(const std::string& folder) {
    std::map<std::string, std::string> all;
    for (const auto& e : std::filesystem::directory_iterator(folder)) {
      const std::string name = e.path().filename().string();
      if (name != ".moe-convert.lock") all[name] = file_text(e.path().string());
    }
    return all;
  }
  // The first `from` in a file of the folder becomes `to`.
  void edit(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = file_text(out + "/" + name);
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    dir.write("converted/" + name, text.replace(place, from.size(), to));
  }
  void spoil(const std::string& name, std::size_t offset) const {
    std::string text = file_text(out + "/" + name);
    ASSERT_LT(offset, text.size());
    text[offset] = static_cast<char>(text[offset] ^ 1);
    dir.write("converted/" + name, text);
  }
};

}  // namespace moe::test
