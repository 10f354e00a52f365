// moe_checkpoint_fingerprint: equal for copies, another one for anything that differs where it looks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "support/model_dir.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::fingerprint_test {
namespace {

std::string fingerprint_of(const std::string& folder, int full, moe_context* ctx = nullptr) {
  const CheckpointPtr c = open_model(folder);
  const BufferPtr text = make<BufferPtr>(
      [&](moe_buffer** o, moe_error** e) { return moe_checkpoint_fingerprint(ctx, c.get(), full, nullptr, o, e); });
  return static_cast<const char*>(moe_buffer_data(text.get()));
}

TEST(Fingerprint, IsOfTheContent) {
  TempDir dir;
  ModelDir model;
  model.H = 128, model.I = 256;  // files of more than 16 pieces
  for (const char* name : {"a", "b"}) model.write(dir.file(name));
  const ContextPtr two = make_context("{\"threads\":2}");
  for (const int full : {0, 1}) {
    const std::string a = fingerprint_of(dir.file("a"), full);
    EXPECT_TRUE(a.starts_with(full == 1 ? "full:xxh3:" : "fast:xxh3:")) << a;
    EXPECT_EQ(a.size(), 26u);
    EXPECT_EQ(a, fingerprint_of(dir.file("b"), full));
    EXPECT_EQ(a, fingerprint_of(dir.file("a"), full, two.get()));
  }
  model.seed = 2;  // a fine-tune
  model.write(dir.file("c"));
  for (const int full : {0, 1}) EXPECT_NE(fingerprint_of(dir.file("a"), full), fingerprint_of(dir.file("c"), full));
  model.seed = 1;
  model.more = R"(,"x":1)";
  model.write(dir.file("c"));
  EXPECT_NE(fingerprint_of(dir.file("a"), 0), fingerprint_of(dir.file("c"), 0));
  const CheckpointPtr c = open_model(dir.file("a"));
  moe_buffer* none = nullptr;
  EXPECT_EQ(moe_checkpoint_fingerprint(nullptr, c.get(), 2, nullptr, &none, nullptr), MOE_ERR_INVALID_ARGUMENT);
}

// Two files have the same tensors, and the index says of which each is taken.
TEST(Fingerprint, IsOfTheIndex) {
  TempDir dir;
  const ModelDir model;
  model.write(dir.file("a"));
  const std::string index = dir.file("a") + "/model.safetensors.index.json";
  const auto told = nlohmann::json::parse(file_text(index));
  std::string other = file_text(dir.file("a") + "/" + model.shard(0));
  other.back() = static_cast<char>(other.back() ^ 1);
  dir.write("a/other.safetensors", other);
  std::vector<std::string> names;
  for (const auto& [name, file] : told["weight_map"].items())
    if (file == model.shard(0)) names.push_back(name);
  ASSERT_GE(names.size(), 2u);
  for (const int full : {0, 1}) {
    std::set<std::string> seen;
    for (const std::size_t moved : {std::size_t{0}, std::size_t{1}, names.size() - 1}) {
      auto map = told;
      map["weight_map"][names[moved]] = "other.safetensors";
      dir.write("a/model.safetensors.index.json", map.dump());
      seen.insert(fingerprint_of(dir.file("a"), full));
    }
    EXPECT_EQ(seen.size(), 3u);
  }
}

// Whether they decide, agree, or the caller decides.
TEST(Fingerprint, IsOfTheFilesOfTools) {
  TempDir dir;
  ModelDir model;
  model.write(dir.file("a"));
  for (const int full : {0, 1}) {
    const std::string without = fingerprint_of(dir.file("a"), full);
    dir.write("a/hf_quant_config.json", model.quantization_config());
    const std::string with = fingerprint_of(dir.file("a"), full);
    EXPECT_NE(with, without);
    dir.write("a/hf_quant_config.json", model.quantization_config() + " ");
    EXPECT_NE(fingerprint_of(dir.file("a"), full), with);
    const CheckpointPtr told = open_model(dir.file("a"), R"({"overrides":{"quantization":null}})");
    const BufferPtr text = make<BufferPtr>([&](moe_buffer** o, moe_error** e) {
      return moe_checkpoint_fingerprint(nullptr, told.get(), full, nullptr, o, e);
    });
    EXPECT_EQ(static_cast<const char*>(moe_buffer_data(text.get())), fingerprint_of(dir.file("a"), full));
    std::filesystem::remove(dir.file("a") + "/hf_quant_config.json");
  }
}

// The fast one looks at the first and the last byte of a file's data; the full one at every byte.
TEST(Fingerprint, SeesSingleBytes) {
  TempDir dir;
  ModelDir model;
  model.H = 128, model.I = 256;
  model.write(dir.file("a"));
  const std::string fast = fingerprint_of(dir.file("a"), 0), full = fingerprint_of(dir.file("a"), 1);
  const std::string path = dir.file("a") + "/" + model.shard(1), text = file_text(path);
  std::uint64_t header = 0;
  std::memcpy(&header, text.data(), 8);
  const std::size_t begin = 8 + static_cast<std::size_t>(header), size = text.size() - begin;
  ASSERT_GT(size, 17u * 4096u);
  const auto with_byte = [&](std::size_t at, int whole) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    std::ofstream(path, std::ios::binary) << changed;
    return fingerprint_of(dir.file("a"), whole);
  };
  EXPECT_NE(with_byte(begin, 0), fast);
  EXPECT_NE(with_byte(text.size() - 1, 0), fast);
  const std::size_t between = begin + 4096 + 10;  // behind the first piece, before the second
  EXPECT_EQ(with_byte(between, 0), fast);
  EXPECT_NE(with_byte(between, 1), full);
  EXPECT_NE(with_byte(begin + size / 2 + 77, 1), full);
}

}  // namespace
}  // namespace moe::test::fingerprint_test
