// Error objects and the names of statuses; handles of the wrong kind.
#include <gtest/gtest.h>

#include "support/capi.h"

namespace moe::test::error_test {
namespace {

TEST(Error, ObjectOfACallback) {
  const char text[] = {'d', 'i', 's', 'k', '!'};  // no NUL
  const ErrorPtr e(moe_error_create(MOE_ERR_IO, text, 4));
  EXPECT_EQ(moe_error_status(e.get()), MOE_ERR_IO);
  EXPECT_STREQ(moe_error_message(e.get()), "disk");
  EXPECT_STREQ(moe_error_subject(e.get()), "");
  const auto d = nlohmann::json::parse(moe_error_details_json(e.get()));
  EXPECT_EQ(d["status"], "MOE_ERR_IO");
  EXPECT_EQ(d["message"], "disk");
}

TEST(Error, IsNeverOk) {
  const ErrorPtr e(moe_error_create(MOE_OK, "x", MOE_NUL_TERMINATED));
  EXPECT_EQ(moe_error_status(e.get()), MOE_ERR_INTERNAL);
  const ErrorPtr empty(moe_error_create(MOE_ERR_CANCELLED, nullptr, 0));
  EXPECT_EQ(moe_error_status(empty.get()), MOE_ERR_CANCELLED);
  const ErrorPtr foreign(moe_error_create(12345, "from a newer library", MOE_NUL_TERMINATED));
  EXPECT_EQ(moe_error_status(foreign.get()), 12345);
}

TEST(Error, AccessorsTakeNull) {
  EXPECT_EQ(moe_error_status(nullptr), MOE_OK);
  EXPECT_STREQ(moe_error_message(nullptr), "");
  EXPECT_STREQ(moe_error_subject(nullptr), "");
  EXPECT_STREQ(moe_error_details_json(nullptr), "{}");
  moe_error_destroy(nullptr);
}

TEST(Error, NamesOfStatuses) {
  EXPECT_STREQ(moe_status_name(MOE_OK), "MOE_OK");
  EXPECT_STREQ(moe_status_name(MOE_ERR_CONFIG_MISMATCH), "MOE_ERR_CONFIG_MISMATCH");
  for (moe_status s : {-1, 23, 98, 100, INT32_MIN, INT32_MAX}) EXPECT_STREQ(moe_status_name(s), "MOE_ERR_UNKNOWN");
}

TEST(Handles, OfAnotherKindAreRefused) {
  const ConfigPtr config = make_config(random_model().config_text());
  const PlatformPtr platform =
      make<PlatformPtr>([](moe_platform** o, moe_error** e) { return moe_platform_create(nullptr, 0, o, e); });
  moe_buffer* out = reinterpret_cast<moe_buffer*>(8);
  const Failure f = failure(
      [&](moe_error** e) { return moe_config_to_json(reinterpret_cast<const moe_config*>(platform.get()), &out, e); });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_HANDLE);
  EXPECT_EQ(f.subject, "config");
  EXPECT_EQ(out, nullptr);
  moe_config_destroy(reinterpret_cast<moe_config*>(platform.get()));  // not ended: it is no config
  EXPECT_NE(moe_platform_has(platform.get(), "scalar"), 0);
  EXPECT_EQ(moe_platform_has(reinterpret_cast<const moe_platform*>(config.get()), "scalar"), 0);
  EXPECT_EQ(moe_selection_candidate_count(reinterpret_cast<const moe_selection*>(config.get())), 0U);
}

TEST(Handles, MisalignedPointersAreNotRead) {
  const ConfigPtr config = make_config(random_model().config_text());
  auto* odd = reinterpret_cast<const moe_config*>(reinterpret_cast<const char*>(config.get()) + 1);
  moe_buffer* out = nullptr;
  EXPECT_EQ(failure([&](moe_error** e) { return moe_config_to_json(odd, &out, e); }).status, MOE_ERR_INVALID_HANDLE);
}

TEST(Handles, NullComesBeforeTheHandle) {
  int64_t value = 7;
  const ErrorPtr wrong(moe_error_create(MOE_ERR_IO, "x", 1));
  const Failure f = failure([&](moe_error** e) {
    return moe_config_get_int(reinterpret_cast<const moe_config*>(wrong.get()), nullptr, &value, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "pointer");
  EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace moe::test::error_test
