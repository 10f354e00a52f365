// Machines, detected and described.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::platform_test {
namespace {

PlatformPtr make_platform(const char* text) {
  return make<PlatformPtr>(
      [&](moe_platform** o, moe_error** e) { return moe_platform_create(text, MOE_NUL_TERMINATED, o, e); });
}
nlohmann::json text_of(const moe_platform* p) {
  return json_of([&](moe_buffer** o, moe_error** e) { return moe_platform_to_json(p, o, e); });
}

TEST(Platform, ThisMachine) {
  const PlatformPtr p = make_platform(nullptr);
  const auto j = text_of(p.get());
  EXPECT_EQ(j["type"], "cpu");
#if defined(__x86_64__)
  EXPECT_EQ(j["arch"], "x86_64");
#endif
  for (const auto& f : j["features"]) EXPECT_EQ(moe_platform_has(p.get(), f.get<std::string>().c_str()), 1);
  EXPECT_EQ(moe_platform_has(p.get(), "no_such_feature"), 0);
  EXPECT_EQ(moe_platform_has(p.get(), nullptr), 0);
  EXPECT_EQ(moe_platform_has(nullptr, "avx2"), 0);
  const PlatformPtr again = make_platform(j.dump().c_str());  // its own text is a description
  EXPECT_EQ(text_of(again.get())["features"], j["features"]);
}

TEST(Platform, Described) {
  const PlatformPtr p = make_platform(R"({"type":"cpu","arch":"aarch64","features":["neon","dotprod","i8mm"]})");
  EXPECT_EQ(moe_platform_has(p.get(), "i8mm"), 1);
  EXPECT_EQ(moe_platform_has(p.get(), "avx2"), 0);
  EXPECT_EQ(text_of(p.get())["arch"], "aarch64");
}

TEST(Platform, FaultsNameTheMember) {
  for (const auto& [text, pointer] : {std::pair{"{\"type\":\"abacus\"}", "/type"},
                                      std::pair{"{\"type\":\"cpu\",\"features\":[\"mmx\"]}", "/features/0"},
                                      std::pair{"[]", ""}, std::pair{"", ""}}) {
    moe_platform* out = reinterpret_cast<moe_platform*>(8);
    const Failure f =
        failure([&, t = text](moe_error** e) { return moe_platform_create(t, MOE_NUL_TERMINATED, &out, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG) << text;
    EXPECT_EQ(f.subject, pointer) << text;
    EXPECT_EQ(out, nullptr);
  }
}

TEST(Platform, TheCapOfTheEnvironment) {
  ASSERT_EQ(setenv("MOE_MAX_ISA", "scalar", 1), 0);
  const PlatformPtr capped = make_platform(nullptr);
  EXPECT_EQ(moe_platform_has(capped.get(), "avx2"), 0);
  EXPECT_EQ(moe_platform_has(capped.get(), "neon"), 0);
  ASSERT_EQ(setenv("MOE_MAX_ISA", "sse9", 1), 0);
  moe_platform* out = nullptr;
  const Failure f = failure([&](moe_error** e) { return moe_platform_create(nullptr, 0, &out, e); });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "MOE_MAX_ISA");
  unsetenv("MOE_MAX_ISA");
}

}  // namespace
}  // namespace moe::test::platform_test
