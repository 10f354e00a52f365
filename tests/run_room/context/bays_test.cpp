// Bays: one holder each, however many threads; who waits sleeps; a child of fork() finds those of its parent free.
#include "run/context/bays.h"
#include "support/rooms.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace moe::test::rooms_test {
namespace {

TEST(Bays, EachHasOneHolder) {
  constexpr int kThreads = 6, kTurns = 2000;
  Bays bays(2);
  std::vector<std::atomic<int>> inside(2);
  std::atomic<int> crowded{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::size_t bay = bays.take();
        if (++inside[bay] != 1) ++crowded;
        if (turn % 64 == 0) std::this_thread::yield();
        --inside[bay];
        bays.give(bay);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(crowded, 0);
  const std::set<std::size_t> all = {bays.take(), bays.take()};
  EXPECT_EQ(all, (std::set<std::size_t>{0, 1}));
}

TEST(Bays, WaitingCostsNoTime) {
  Bays bays(1);
  const std::size_t mine = bays.take();
  double cpu = 0;
  std::atomic<bool> begun{false}, got{false};
  std::thread other([&] {
    begun = true;
    const std::size_t bay = bays.take();
    got = true;
    bays.give(bay);
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    cpu = static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(got);
  bays.give(mine);
  other.join();
  EXPECT_TRUE(got);
  EXPECT_LT(cpu, 0.1);
}

TEST(Bays, AChildFindsThemFree) {
  Bays bays(2);
  const std::size_t held = bays.take();
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    const std::size_t a = bays.take(), b = bays.take();
    _exit(a != b ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_NE(bays.take(), held);
}

}  // namespace
}  // namespace moe::test::rooms_test
