// The boundary: whatever a body throws comes back as a status; err and outputs follow the rules.
#include "api/guard.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::guard_test {
namespace {

using api::guard;
using api::guard_value;

moe_error* const kStale = reinterpret_cast<moe_error*>(0x1234);

template <class F>
moe_status run(moe_error** err, F&& body) {
  return guard(err, [&]() -> Check {
    body();
    return ok();
  });
}

TEST(Guard, SuccessClearsErr) {
  moe_error* err = kStale;
  EXPECT_EQ(run(&err, [] {}), MOE_OK);
  EXPECT_EQ(err, nullptr);
  EXPECT_EQ(run(nullptr, [] {}), MOE_OK);
}

TEST(Guard, OutOfMemoryGivesTheStaticObject) {
  moe_error *first = kStale, *second = kStale;
  EXPECT_EQ(run(&first, [] { throw std::bad_alloc(); }), MOE_ERR_OUT_OF_MEMORY);
  EXPECT_EQ(run(&second, [] { throw std::bad_alloc(); }), MOE_ERR_OUT_OF_MEMORY);
  EXPECT_EQ(first, second);
  moe_error_destroy(first);  // does nothing
  EXPECT_EQ(moe_error_status(second), MOE_ERR_OUT_OF_MEMORY);
  EXPECT_STREQ(moe_error_message(second), "out of memory");
  EXPECT_EQ(nlohmann::json::parse(moe_error_details_json(second))["status"], "MOE_ERR_OUT_OF_MEMORY");
  EXPECT_EQ(run(nullptr, [] { throw std::bad_alloc(); }), MOE_ERR_OUT_OF_MEMORY);
}

TEST(Guard, AnythingElseIsInternal) {
  for (int kind = 0; kind < 2; ++kind) {
    const auto body = [&] {
      if (kind == 0) throw std::runtime_error("text that is not for callers");
      throw 42;
    };
    const Failure f = failure([&](moe_error** e) { return run(e, body); });
    EXPECT_EQ(f.status, MOE_ERR_INTERNAL);
    EXPECT_EQ(f.message, "internal error");
    EXPECT_EQ(run(nullptr, body), MOE_ERR_INTERNAL);
  }
}

TEST(Guard, ErrorsKeepTheirParts) {
  const Failure f = failure([](moe_error** e) {
    return guard(e, []() -> Check { return fail(Code::shape, "w2_scale", "w2_scale: \"odd\"", "\"needed\":42"); });
  });
  EXPECT_EQ(f.status, MOE_ERR_SHAPE);
  EXPECT_EQ(f.subject, "w2_scale");
  EXPECT_EQ(f.message, "\"odd\"");  // the subject is not repeated
  EXPECT_EQ(f.details["message"], "\"odd\"");
  EXPECT_EQ(f.details["needed"], 42);
  EXPECT_EQ(f.details["status_code"], 4);
}

TEST(Guard, ValuesHaveAFallback) {
  EXPECT_EQ(guard_value(-1, [] { return 7; }), 7);
  EXPECT_EQ(guard_value(-1, []() -> int { throw std::bad_alloc(); }), -1);
}

TEST(Guard, TextsAndLengths) {
  EXPECT_EQ(api::text_of("abc", 2), "ab");
  EXPECT_EQ(api::text_of("abc", MOE_NUL_TERMINATED), "abc");
  EXPECT_EQ(api::text_of(nullptr, 5), "");
  EXPECT_EQ(api::text_of(nullptr, MOE_NUL_TERMINATED), "");
}

}  // namespace
}  // namespace moe::test::guard_test
