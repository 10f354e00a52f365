// Threads of our own: how many, where they run, which signals they take; sleep and waking.
#include "base/os/thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "support/rooms.h"

namespace moe::test::thread_test {
namespace {

// What the threads of a test say when they are let go.
struct Meeting {
  FutexWord open{0};
  std::atomic<int> everybody{0}, on_these_cpus{0}, take_signals{0};
  CpuList cpus;

  static void* attend(void* p) {
    auto& m = *static_cast<Meeting*>(p);
    while (m.open.load() == 0) futex_wait(m.open, 0);
    ++m.everybody;
    if (allowed_cpus() == m.cpus) ++m.on_these_cpus;
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGUSR1, SIGPROF})
      if (sigismember(&mine, signal) != 1) ++m.take_signals;
    return nullptr;
  }
  void let_go() {
    open.store(1);
    futex_wake(open, 1000);
  }
};

TEST(Threads, RunOnTheirCpusAndTakeNoSignals) {
  const CpuList all = allowed_cpus();
  ASSERT_FALSE(all.empty());
  for (const CpuList& cpus : {CpuList{}, all, CpuList{all.back()}}) {
    Meeting meeting;
    meeting.cpus = cpus.empty() ? all : cpus;
    Threads threads(3);
    EXPECT_EQ(threads.size(), 0u);
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, nullptr, &before);
    threads.start(cpus, Meeting::attend, &meeting);
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
    EXPECT_EQ(threads.size(), 3u);
    meeting.let_go();
    threads.join();
    EXPECT_EQ(threads.size(), 0u);
    EXPECT_EQ(meeting.everybody, 3);
    EXPECT_EQ(meeting.on_these_cpus, 3) << cpu_list_text(cpus);
    EXPECT_EQ(meeting.take_signals, 0);
  }
}

TEST(Threads, NoneIsANumberToo) {
  Meeting meeting;
  for (const int most : {0, -1}) {
    Threads threads(most);
    threads.start({}, Meeting::attend, &meeting);
    EXPECT_EQ(threads.size(), 0u);
    threads.join();
  }
}

TEST(Threads, HaveNumbers) {
  const std::size_t mine = thread_number();
  EXPECT_EQ(thread_number(), mine);
  std::size_t other = mine;
  std::thread([&other] { other = thread_number(); }).join();
  EXPECT_NE(other, mine);
}

TEST(Futex, SleepsOnlyWhileTheWordIsAsSeen) {
  FutexWord word{7};
  futex_wait(word, 6);  // returns
  std::atomic<bool> awake{false};
  std::thread sleeper([&] {
    while (word.load() == 7) futex_wait(word, 7);
    awake = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(awake);
  word.store(8);
  futex_wake(word, 1);
  sleeper.join();
  EXPECT_TRUE(awake);
}

}  // namespace
}  // namespace moe::test::thread_test
