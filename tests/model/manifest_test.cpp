// manifest.json as bytes: what is written can be read again.
#include "model/manifest.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moe::test::manifest_test
