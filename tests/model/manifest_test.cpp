// manifest.json as bytes: what is written can be read again.
#include "model/manifest.h"

#include <gtest/gtest.h>

#include <utility>

#include "hf/layers.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::manifest_test {
namespace {

using model::Manifest;

TEST(Manifests, AreNeverLargerThanIsRead) {
  const TempDir dir;
  const auto folder = Folder::open(dir.path());
  ASSERT_TRUE(folder);
  Manifest m;
  m.source = "fast:x";
  m.platform = "cpu x86_64";
  ASSERT_TRUE(model::write_manifest(*folder, m));
  const auto found = model::read_manifest(*folder);
  ASSERT_TRUE(found);
  ASSERT_TRUE(found->manifest.has_value());
  EXPECT_EQ(found->manifest->platform, m.platform);
  m.options = json::Object{{"quantization_config", std::string(std::size_t{16} << 20, 'x')}};
  const Check written = model::write_manifest(*folder, m);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Code::unsupported);
  EXPECT_TRUE(model::read_manifest(*folder)->manifest.has_value());  // the old one
}

// Layers of multi-token prediction are counted behind those of the model, of which there may be 65536.
TEST(Manifests, NameEveryLayerThatAModelMayHave) {
  const TempDir dir;
  const auto folder = Folder::open(dir.path());
  ASSERT_TRUE(folder);
  constexpr std::int64_t kLast = 2 * hf::kMostLayers - 1;
  Manifest m;
  m.source = "fast:x";
  m.platform = "cpu x86_64";
  m.put({.layer = kLast, .file = model::layer_file_name(kLast), .layout = "p16/int4-g32,cw/1", .bytes = 1});
  ASSERT_TRUE(model::check_manifest_is_read("manifest.json", m));
  ASSERT_TRUE(model::write_manifest(*folder, m));
  const auto found = model::read_manifest(*folder);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NE(found->manifest->find(kLast), nullptr);
}

TEST(Manifests, ThatCouldNotBeReadAreKnownBefore) {
  Manifest m;
  m.source = "fast:x";
  m.platform = "cpu x86_64";
  EXPECT_TRUE(model::check_manifest_is_read("manifest.json", m));
  json::Value deep = json::Array{};
  for (int i = 0; i < 40; ++i) deep = json::Array{std::move(deep)};
  Manifest with_deep = m, with_long = m, with_much = m;
  with_deep.options = json::Object{{"quantization_config", std::move(deep)}};
  with_long.platform = std::string(513, 'x');
  with_much.options = json::Object{{"quantization_config", std::string(std::size_t{16} << 20, 'x')}};
  for (const Manifest* one : {&with_deep, &with_long, &with_much}) {
    const Check told = model::check_manifest_is_read("manifest.json", *one);
    ASSERT_FALSE(told);
    EXPECT_EQ(told.error().code, Code::unsupported) << told.error().message;
    EXPECT_EQ(told.error().subject, "manifest.json");
  }
}

}  // namespace
}  // namespace moe::test::manifest_test
