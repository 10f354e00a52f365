// The pool: every task once, whoever calls; few wakes; fork, signals, missing threads; many callers (TSan).
#include "run/context/pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/float_states.h"
#include "support/rooms.h"
#include "support/sanitizers.h"

namespace moe::test::pool_test {
namespace {

using Clock = std::chrono::steady_clock;

// Runs `body(i)` on the pool.
template <class F>
void run(Pool& pool, std::size_t count, F& body) {
  pool.run(
      count, [](void* p, std::size_t i) { (*static_cast<F*>(p))(i); }, &body);
}

// How often each index ran, as plain numbers: a data race or a missing happens-before shows under TSan.
std::vector<int> counts_of_a_run(Pool& pool, std::size_t count) {
  std::vector<int> counts(count, 0);
  auto body = [&counts](std::size_t i) { ++counts[i]; };
  run(pool, count, body);
  return counts;
}

bool each_once(const std::vector<int>& counts) {
  for (int c : counts)
    if (c != 1) return false;
  return true;
}

TEST(Pool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 4, 7, 16})
    for (int spin_us : {0, 50}) {
      Pool pool({.threads = threads, .spin_us = spin_us, .cpus = {}});
      for (std::size_t count : {0u, 1u, 2u, 3u, 5u, 16u, 17u, 100u, 1000u})
        EXPECT_TRUE(each_once(counts_of_a_run(pool, count))) << threads << " threads, " << count << " tasks";
    }
}

TEST(Pool, StartsAtTheFirstUseAndNeverMoreThanAsked) {
  Pool pool({.threads = 4, .spin_us = 0, .cpus = {}});
  EXPECT_EQ(pool.num_workers(), 0);
  (void)counts_of_a_run(pool, 1);  // one task needs no thread
  EXPECT_EQ(pool.num_workers(), 0);
  (void)counts_of_a_run(pool, 2);
  EXPECT_EQ(pool.num_workers(), 3);
  (void)counts_of_a_run(pool, 1000);
  EXPECT_EQ(pool.num_workers(), 3);
}

TEST(Pool, OneThreadNeverStartsAnother) {
  Pool pool({.threads = 1, .spin_us = 50, .cpus = {}});
  std::set<std::thread::id> ids;
  auto body = [&ids](std::size_t) { ids.insert(std::this_thread::get_id()); };
  run(pool, 100, body);
  EXPECT_EQ(ids, std::set<std::thread::id>{std::this_thread::get_id()});
  EXPECT_EQ(pool.num_workers(), 0);
}

// True when `everybody` threads were inside at once; gives up after 30 s.
bool meet(std::atomic<int>& inside, int everybody) {
  ++inside;
  const auto end = Clock::now() + std::chrono::seconds(30);
  while (inside.load() < everybody) {
    if (Clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(Pool, AllThreadsWorkAtOnceAlsoAfterTheySlept) {
  for (int spin_us : {0, 50}) {
    constexpr int kThreads = 4;
    Pool pool({.threads = kThreads, .spin_us = spin_us, .cpus = {}});
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> inside{0}, alone{0};
      auto body = [&](std::size_t) {
        if (!meet(inside, kThreads)) ++alone;
      };
      run(pool, kThreads, body);
      ASSERT_EQ(alone.load(), 0) << "round " << round;
      if (round % 5 == 4) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

TEST(Pool, TasksThatCallRunRunInline) {
  Pool pool({.threads = 3, .spin_us = 50, .cpus = {}});
  std::vector<int> counts(50 * 20, 0);
  auto outer = [&](std::size_t i) {
    const auto self = std::this_thread::get_id();
    auto inner = [&, i](std::size_t j) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++counts[i * 20 + j];
    };
    run(pool, 20, inner);
  };
  run(pool, 50, outer);
  EXPECT_TRUE(each_once(counts));
}

TEST(Pool, ManyCallersAtOnce) {
  Pool pool({.threads = 4, .spin_us = 20, .cpus = {}});
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 8; ++c)
    callers.emplace_back([&pool, &wrong, c] {
      for (int round = 0; round < 300; ++round)
        if (!each_once(counts_of_a_run(pool, static_cast<std::size_t>(1 + (round * 7 + c) % 40)))) ++wrong;
    });
  for (auto& c : callers) c.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_LE(pool.num_workers(), 3);
}

TEST(Pool, FirstUseFromManyThreads) {
  for (int round = 0; round < 20; ++round) {
    Pool pool({.threads = 3, .spin_us = 0, .cpus = {}});
    std::vector<std::thread> callers;
    std::atomic<int> ready{0}, wrong{0};
    for (int c = 0; c < 8; ++c)
      callers.emplace_back([&] {
        if (!meet(ready, 8) || !each_once(counts_of_a_run(pool, 30))) ++wrong;
      });
    for (auto& c : callers) c.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(pool.num_workers(), 2);
  }
}

// Workers that come late for one job must not touch the next one before it is open to them.
TEST(Pool, ShortJobsInARow) {
  for (int spin_us : {0, 5, 50}) {
    Pool pool({.threads = 4, .spin_us = spin_us, .cpus = {}});
    for (int round = 0; round < 3000; ++round)
      ASSERT_TRUE(each_once(counts_of_a_run(pool, static_cast<std::size_t>(2 + round % 5)))) << round;
  }
}

TEST(Pool, EndsWhileWorkersSleepOrSpin) {
  for (int round = 0; round < 40; ++round) {
    Pool pool({.threads = 4, .spin_us = round % 2 == 0 ? 0 : 1000, .cpus = {}});
    EXPECT_TRUE(each_once(counts_of_a_run(pool, 8)));
    if (round % 4 < 2) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
}

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

TEST(Pool, IdleThreadsSleep) {
  Pool pool({.threads = 4, .spin_us = 50, .cpus = {}});
  (void)counts_of_a_run(pool, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_seconds() - before, 0.05);
}

// The value after "<name>:" in /proc/self/task/<tid>/status, for all threads but this one.
std::vector<std::string> status_of_other_threads(const std::string& name) {
  std::vector<std::string> values;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (entry.path().filename() == std::to_string(gettid())) continue;
    std::ifstream file(entry.path() / "status");
    for (std::string line; std::getline(file, line);)
      if (line.rfind(name + ":", 0) == 0) values.push_back(line.substr(name.size() + 2));
  }
  return values;
}

TEST(Pool, SmallJobsWakeFewThreads) {
  Pool pool({.threads = 8, .spin_us = 0, .cpus = {}});
  (void)counts_of_a_run(pool, 100);
  const auto switches = [] {  // how often any worker went to sleep
    long sum = 0;
    for (const std::string& n : status_of_other_threads("voluntary_ctxt_switches")) sum += std::stol(n);
    return sum;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // all asleep
  const long before = switches();
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    (void)counts_of_a_run(pool, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // One wake a run, where a broadcast would be seven; twice that for sanitizers' own threads.
  EXPECT_LE(switches() - before, 2 * kRounds + 20);
}

TEST(Pool, WorkersBlockAllSignalsAndTheCallersMaskStays) {
  sigset_t some, before, after;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR2);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &some, &before), 0);
  const std::size_t others = status_of_other_threads("SigBlk").size();  // of sanitizers
  Pool pool({.threads = 3, .spin_us = 0, .cpus = {}});
  std::atomic<int> inside{0};
  auto body = [&inside](std::size_t) { EXPECT_TRUE(meet(inside, 3)); };
  run(pool, 3, body);  // each worker runs: a thread that is being created blocks signals in any case
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
  EXPECT_EQ(sigismember(&after, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));

  const auto masks = status_of_other_threads("SigBlk");
  ASSERT_EQ(masks.size(), others + 2);
  std::size_t blocking = 0;
  for (const std::string& mask : masks) {
    const unsigned long long bits = std::stoull(mask, nullptr, 16);
    // All but SIGKILL, SIGSTOP and what the C library keeps for itself: from 32 to the first that is free.
    unsigned long long never = 1ull << 8 | 1ull << 18;
    for (int signal = 32; signal < SIGRTMIN; ++signal) never |= 1ull << (signal - 1);
    if ((bits | never) == ~0ull) ++blocking;
  }
  EXPECT_GE(blocking, 2u);
}

std::atomic<int> signals_seen{0};

// Threads are born with the floating-point state of the one that starts them; a pool's have the default one.
TEST(Pool, WorkersHaveTheDefaultFloats) {
  constexpr int kThreads = 4;
  for (const HostFloats& floats : host_floats()) {
    Pool pool({.threads = kThreads, .spin_us = 0, .cpus = {}});
    const std::thread::id caller = std::this_thread::get_id();
    for (const bool born_there : {true, false}) {
      std::atomic<int> inside{0}, odd{0};
      auto body = [&](std::size_t) {
        if (std::this_thread::get_id() != caller && float_mode() != kNormalFloats) ++odd;
        ++inside;
        while (inside < kThreads) std::this_thread::yield();
      };
      if (born_there)
        within(floats, [&] { run(pool, kThreads, body); });
      else
        run(pool, kThreads, body);
      EXPECT_EQ(odd, 0) << floats.name;
    }
  }
}

TEST(Pool, SignalsDuringRunsChangeNothing) {
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) { ++signals_seen; };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  Pool pool({.threads = 3, .spin_us = 0, .cpus = {}});
  std::atomic<bool> done{false};
  std::thread sender([&done] {
    for (int i = 0; i < 1000; ++i) {
      kill(getpid(), SIGUSR1);
      if (i % 50 == 0) std::this_thread::yield();
    }
    done = true;
  });
  for (int rounds = 0; rounds < 50 || !done.load(); ++rounds) EXPECT_TRUE(each_once(counts_of_a_run(pool, 20)));
  sender.join();
  EXPECT_GT(signals_seen.load(), 0);
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

#if !MOE_TSAN  // TSan ends processes that start threads after a fork of threads
// Forks; the child does `body` under an alarm and ends with 0 if that gives true. 0 = it did.
template <class F>
int status_of_child(F body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return status;
}

TEST(Pool, WorksInParentChildAndGrandchildAfterFork) {
  Pool pool({.threads = 3, .spin_us = 50, .cpus = {}});
  ASSERT_TRUE(each_once(counts_of_a_run(pool, 100)));
  for (int round = 0; round < 20; ++round) {
    const int status = status_of_child([&pool] {
      if (pool.num_workers() != 0) return false;  // none of the parent's
      for (int i = 0; i < 5; ++i)
        if (!each_once(counts_of_a_run(pool, 100))) return false;
      if (pool.num_workers() != 2) return false;
      return status_of_child([&pool] { return each_once(counts_of_a_run(pool, 50)) && pool.num_workers() == 2; }) == 0;
    });
    ASSERT_EQ(status, 0) << "round " << round;
    ASSERT_TRUE(each_once(counts_of_a_run(pool, 100)));
    EXPECT_EQ(pool.num_workers(), 2);
  }
}

TEST(Pool, EndsInAChildThatDidNotUseItAndInOneThatDid) {
  for (bool use : {false, true}) {
    auto pool = std::make_unique<Pool>(PoolOptions{.threads = 3, .spin_us = 50, .cpus = {}});
    ASSERT_TRUE(each_once(counts_of_a_run(*pool, 100)));
    EXPECT_EQ(status_of_child([&pool, use] {
                const bool right = !use || each_once(counts_of_a_run(*pool, 10));
                pool.reset();
                return right;
              }),
              0);
    EXPECT_TRUE(each_once(counts_of_a_run(*pool, 100)));
  }
}

TEST(Pool, ForkWhileAnotherThreadRuns) {
  Pool pool({.threads = 3, .spin_us = 10, .cpus = {}});
  std::atomic<bool> done{false};
  std::thread busy([&] {  // allocates nothing: a sanitizer's allocator is not safe to fork while it is in use
    std::atomic<int> ran{0};
    auto body = [&ran](std::size_t) { ++ran; };
    while (!done.load()) run(pool, 50, body);
  });
  for (int round = 0; round < 10; ++round)
    EXPECT_EQ(status_of_child([&pool] { return each_once(counts_of_a_run(pool, 50)); }), 0) << round;
  done = true;
  busy.join();
}

#if !MOE_ASAN  // the shadow memory of a sanitizer is beyond any limit
// In a child of its own, because the limit holds for the whole process.
TEST(Pool, WorksWithFewerThreadsThanAsked) {
  const int status = status_of_child([] {
    unsigned long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t now = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    const rlimit stack = {8u << 20, RLIM_INFINITY}, memory = {now + (100u << 20), now + (100u << 20)};
    if (setrlimit(RLIMIT_STACK, &stack) != 0 || setrlimit(RLIMIT_AS, &memory) != 0) return false;
    Pool pool({.threads = 64, .spin_us = 0, .cpus = {}});
    std::atomic<int> ran{0};
    auto body = [&ran](std::size_t) { ++ran; };
    run(pool, 200, body);
    run(pool, 200, body);
    return ran.load() == 400 && pool.num_workers() < 63;
  });
  EXPECT_EQ(status, 0);
}
#endif
#endif

TEST(Pool, WorkersStayOnTheGivenCpus) {
  const CpuList allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  const CpuList last = {allowed.back()};
  Pool pool({.threads = 3, .spin_us = 0, .cpus = last});
  std::mutex mutex;
  std::set<CpuList> masks_of_workers;
  const auto caller = std::this_thread::get_id();
  std::atomic<int> inside{0};
  auto body = [&](std::size_t) {
    EXPECT_TRUE(meet(inside, 3));
    if (std::this_thread::get_id() == caller) return;
    const std::lock_guard lock(mutex);
    masks_of_workers.insert(allowed_cpus());
  };
  run(pool, 3, body);
  EXPECT_EQ(masks_of_workers, std::set<CpuList>{last});
  EXPECT_EQ(allowed_cpus(), allowed);  // the caller's stays
}

}  // namespace
}  // namespace moe::test::pool_test
