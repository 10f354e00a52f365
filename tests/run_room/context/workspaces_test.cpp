// Memory of calls: kept between them, shared by the layers of a context, one for each call that runs at once.
#include "run/context/workspaces.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "support/rooms.h"
#include "support/sanitizers.h"

namespace moe::test::workspaces_test {
namespace {

struct Counter {
  int made = 0, ended = 0;
  bool refuse = false;
  Allocator allocator() {
    return {this,
            [](void* user, std::size_t size, std::size_t alignment, std::int32_t) -> void* {
              auto* c = static_cast<Counter*>(user);
              if (c->refuse) return nullptr;
              ++c->made;
              return system_allocator().allocate(nullptr, size, alignment, -1);
            },
            [](void* user, void* p, std::size_t size, std::size_t alignment) {
              ++static_cast<Counter*>(user)->ended;
              system_allocator().deallocate(nullptr, p, size, alignment);
            }};
  }
};

TEST(Workspaces, OneServesCallsOneAfterTheOther) {
  Counter c;
  Workspaces w;
  for (std::size_t bytes : {1000u, 5000u, 200u, 5000u}) {
    Result<Buffer> b = w.take(bytes, c.allocator());
    ASSERT_TRUE(b);
    EXPECT_GE(b->size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b->data()) % kWorkspaceAlignment, 0u);
    w.give_back(std::move(*b));
  }
  EXPECT_EQ(c.made, 2);
  EXPECT_EQ(c.ended, 1) << "the smaller one goes when the larger one comes";
  EXPECT_EQ(w.usage().kept, 5000u);
  EXPECT_EQ(w.usage().high, 5000u);
}

TEST(Workspaces, EveryCallAtOnceHasItsOwnAndTheSmallestThatFits) {
  Counter c;
  Workspaces w;
  std::vector<Buffer> lent;
  for (std::size_t bytes : {100u, 900u, 500u}) lent.push_back(std::move(*w.take(bytes, c.allocator())));
  EXPECT_EQ(w.usage().kept, 0u);
  for (Buffer& b : lent) w.give_back(std::move(b));
  EXPECT_EQ(w.usage().kept, 1500u);
  Buffer middle = std::move(*w.take(400, c.allocator()));
  EXPECT_EQ(middle.size(), 500u);
  Buffer large = std::move(*w.take(400, c.allocator()));
  EXPECT_EQ(large.size(), 900u);
  EXPECT_EQ(c.made, 3);
}

TEST(Workspaces, RefusedMemoryIsAnErrorAndTheNextCallWorks) {
  Counter c;
  Workspaces w;
  w.give_back(std::move(*w.take(100, c.allocator())));
  c.refuse = true;
  EXPECT_EQ(w.take(200, c.allocator()).error().code, Code::out_of_memory);
  c.refuse = false;
  Result<Buffer> b = w.take(200, c.allocator());
  ASSERT_TRUE(b);
  w.give_back(std::move(*b));
  EXPECT_EQ(w.usage().kept, 200u);
}

TEST(Workspaces, AChildTakesOverWhatIsKept) {
  Counter c;
  Workspaces w;
  w.give_back(std::move(*w.take(300, c.allocator())));
  Buffer held = std::move(*w.take(100, c.allocator()));
  w.give_back(std::move(*w.take(500, c.allocator())));
  const pid_t child = fork();
  if (child == 0) {
    const int before = c.made;
    Result<Buffer> b = w.take(400, c.allocator());
    const bool kept = b && c.made == before;
    w.give_back(std::move(*b));
    const bool counted = w.usage().kept == 500u && w.usage().high == 500u;
    w.give_back(std::move(held));  // lent by the parent's shelf
    _exit(kept && counted ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

#if !MOE_TSAN  // TSan ends what forks beside threads
TEST(Workspaces, AChildDoesNotWaitForThreadsOfItsParent) {
  Workspaces w;
  std::atomic<bool> done{false};
  const auto work = [&] {
    while (!done.load()) w.give_back(std::move(*w.take(64, system_allocator())));
  };
  std::thread one(work), two(work);
  for (int round = 0; round < 200 && !::testing::Test::HasFailure(); ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);
      Result<Buffer> b = w.take(64, system_allocator());
      if (b) w.give_back(std::move(*b));
      _exit(b ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "round " << round << (WIFSIGNALED(status) ? ": it hung" : "");
  }
  done = true;
  one.join();
  two.join();
}
#endif

}  // namespace
}  // namespace moe::test::workspaces_test
