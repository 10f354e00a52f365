// Cancellation, progress and the end of what a control was given.
#include <gtest/gtest.h>

#include <thread>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::control_test {
namespace {

struct Seen {
  int calls = 0, ended = 0;
  std::uint64_t done = 0, total = 0;
  moe_status answer = MOE_OK;
};
moe_status note(void* user, std::uint64_t done, std::uint64_t total) {
  auto& s = *static_cast<Seen*>(user);
  ++s.calls;
  s.done = done;
  s.total = total;
  return s.answer;
}
void end(void* user) { ++static_cast<Seen*>(user)->ended; }

ControlPtr make_control(Seen* seen) {
  return make<ControlPtr>([&](moe_control** o, moe_error** e) { return moe_control_create(note, seen, end, o, e); });
}

TEST(Control, ReportsReachTheCallback) {
  Seen seen;
  {
    const ControlPtr c = make_control(&seen);
    EXPECT_EQ(moe_control_report(c.get(), 3, 10), MOE_OK);
    EXPECT_EQ(seen.calls, 1);
    EXPECT_EQ(moe_control_report(c.get(), 0, 0), MOE_OK);  // only asks
    EXPECT_EQ(seen.calls, 1);
    std::uint64_t done = 0, total = 0;
    moe_control_progress(c.get(), &done, &total);
    EXPECT_EQ(done, 3U);
    EXPECT_EQ(total, 10U);
    moe_control_progress(c.get(), nullptr, nullptr);
    EXPECT_EQ(seen.ended, 0);
  }
  EXPECT_EQ(seen.ended, 1);
}

TEST(Control, CancelFromAnotherThread) {
  Seen seen;
  const ControlPtr c = make_control(&seen);
  std::thread([&] { moe_control_cancel(c.get()); }).join();
  EXPECT_EQ(moe_control_report(c.get(), 1, 2), MOE_ERR_CANCELLED);
  EXPECT_EQ(moe_control_report(c.get(), 0, 0), MOE_ERR_CANCELLED);
  EXPECT_EQ(seen.calls, 0);
}

TEST(Control, ACallbackStops) {
  Seen seen;
  seen.answer = MOE_ERR_CANCELLED;
  const ControlPtr c = make_control(&seen);
  EXPECT_EQ(moe_control_report(c.get(), 1, 2), MOE_ERR_CANCELLED);
  Seen broken;
  broken.answer = MOE_ERR_IO;
  const ControlPtr d = make_control(&broken);
  EXPECT_EQ(moe_control_report(d.get(), 1, 2), MOE_ERR_CALLBACK);
  EXPECT_EQ(moe_control_report(d.get(), 1, 2), MOE_ERR_CANCELLED);  // and stays stopped
}

TEST(Control, NullAndFailures) {
  EXPECT_EQ(moe_control_report(nullptr, 1, 2), MOE_OK);
  moe_control_cancel(nullptr);
  moe_control_destroy(nullptr);
  std::uint64_t done = 5, total = 5;
  moe_control_progress(nullptr, &done, &total);
  EXPECT_EQ(done + total, 0U);
  Seen seen;
  EXPECT_EQ(moe_control_create(note, &seen, end, nullptr, nullptr), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(seen.ended, 1);  // handed over, so ended
  const ControlPtr plain = make<ControlPtr>(
      [](moe_control** o, moe_error** e) { return moe_control_create(nullptr, nullptr, nullptr, o, e); });
  EXPECT_EQ(moe_control_report(plain.get(), 1, 2), MOE_OK);
}

}  // namespace
}  // namespace moe::test::control_test
