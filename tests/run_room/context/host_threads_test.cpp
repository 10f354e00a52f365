// A host's parallel_for that errs: no item runs twice or late, none is left out unnoticed, and nothing is waited for
// that never began.
#include "run/context/host_threads.h"
#include "support/float_states.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace moe::test::host_threads_test {
namespace {

using ParallelFor = std::function<void(std::size_t count, TaskFn task, void* arg)>;

// Its threads, and how often each item of the last job ran.
struct Host {
  ParallelFor parallel_for;
  HostThreads threads{{4, this, [](void* self, std::size_t count, TaskFn task, void* arg) {
                         static_cast<Host*>(self)->parallel_for(count, task, arg);
                       }}};
  std::vector<std::atomic<int>> ran;

  explicit Host(ParallelFor f) : parallel_for(std::move(f)) {}
  Check run(std::size_t count) {
    ran = std::vector<std::atomic<int>>(count);
    return threads.run(
        count, [](void* self, std::size_t i) { ++static_cast<Host*>(self)->ran[i]; }, this);
  }
  std::vector<int> times() const { return {ran.begin(), ran.end()}; }
};

void in_order(std::size_t count, TaskFn task, void* arg) {
  for (std::size_t i = 0; i < count; ++i) task(arg, i);
}

TEST(HostThreads, EachItemOnce) {
  const ParallelFor hosts[] = {in_order,
                               [](std::size_t count, TaskFn task, void* arg) {
                                 for (std::size_t i = count; i-- > 0;) task(arg, i);
                               },
                               [](std::size_t count, TaskFn task, void* arg) {
                                 for (std::size_t i = 0; i < 3 * count; ++i) task(arg, i / 3);
                               },
                               [](std::size_t count, TaskFn task, void* arg) {
                                 std::vector<std::thread> threads;
                                 for (int i = 0; i < 3; ++i) threads.emplace_back(in_order, count, task, arg);
                                 for (std::thread& t : threads) t.join();
                               }};
  for (const ParallelFor& f : hosts) {
    Host host(f);
    for (const std::size_t count : {1u, 2u, 64u, 65u, 3u, 1000u, 64u, 0u}) {
      const Check done = host.run(count);
      ASSERT_TRUE(done) << done.error().message;
      ASSERT_EQ(host.times(), std::vector<int>(count, 1));
    }
  }
}

TEST(HostThreads, ItemsHaveTheDefaultFloatsAndTheHostsStay) {
  for (const HostFloats& floats : host_floats()) {
    bool kept = true;
    Host host([&](std::size_t count, TaskFn task, void* arg) {
      kept = within(floats, [&] { in_order(count, task, arg); }).control == floats.control && kept;
    });
    std::vector<decltype(float_control())> inside(3);
    auto body = [&](std::size_t i) { inside[i] = float_mode(); };
    using Body = decltype(body);
    ASSERT_TRUE(host.threads.run(
        inside.size(), [](void* p, std::size_t i) { (*static_cast<Body*>(p))(i); }, &body));
    EXPECT_EQ(inside, std::vector(3, kNormalFloats)) << floats.name;
    EXPECT_TRUE(kept) << floats.name;
  }
}

TEST(HostThreads, TellsWhatWasLeftOutAndWhatIsBeyond) {
  struct Case {
    ParallelFor parallel_for;
    const char* message;
  };
  const Case cases[] = {
      {[](std::size_t, TaskFn, void*) {}, "parallel_for: it returned before 5 of 5 tasks were done"},
      {[](std::size_t count, TaskFn task, void* arg) { in_order(count - 1, task, arg); },
       "parallel_for: it returned before 1 of 5 tasks were done"},
      {[](std::size_t count, TaskFn task, void* arg) {
         for (std::size_t i = 1; i < count; ++i) task(arg, i);
       },
       "parallel_for: it returned before 1 of 5 tasks were done"},
      {[](std::size_t count, TaskFn task, void* arg) { in_order(count + 1, task, arg); },
       "parallel_for: it ran task 5, which is not in [0, 5)"},
      {[](std::size_t count, TaskFn task, void* arg) {
         task(arg, SIZE_MAX);
         in_order(count, task, arg);
       },
       "parallel_for: it ran task 18446744073709551615, which is not in [0, 5)"},
  };
  for (const Case& c : cases) {
    Host host(c.parallel_for);
    for (int turn = 0; turn < 200; ++turn) {  // more than a job has turns
      const Check done = host.run(5);
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, Code::callback);
      EXPECT_EQ(done.error().subject, "parallel_for");
      EXPECT_EQ(done.error().message, c.message);
    }
    host.parallel_for = in_order;
    EXPECT_TRUE(host.run(5));
    EXPECT_EQ(host.times(), std::vector<int>(5, 1));
  }
}

// What the host still calls when its job is over does nothing: neither to that job nor to a later one on its place.
TEST(HostThreads, LateItemsAreNothing) {
  struct Handed {
    std::size_t count;
    TaskFn task;
    void* arg;
    void all() const {
      in_order(count + 2, task, arg);
      task(arg, SIZE_MAX);
    }
  };
  std::vector<Handed> late;
  Host host([&](std::size_t count, TaskFn task, void* arg) { late.push_back({count, task, arg}); });
  for (const std::size_t count : {5u, 7u, 70u}) {
    EXPECT_FALSE(host.run(count));
    late.back().all();
    EXPECT_EQ(host.times(), std::vector<int>(count, 0));
  }
  const std::vector<Handed> old = late;
  host.parallel_for = [&](std::size_t count, TaskFn task, void* arg) {
    for (const Handed& h : old) h.all();
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(host.ran[i], 0);
    in_order(count, task, arg);
    for (const Handed& h : old) h.all();
  };
  for (const std::size_t count : {3u, 5u, 70u}) {
    EXPECT_TRUE(host.run(count));
    EXPECT_EQ(host.times(), std::vector<int>(count, 1));
  }
}

// The function returns, or throws, while an item runs on another thread: the call ends after it.
TEST(HostThreads, WaitsForItemsThatRun) {
  int early = 0;
  for (const bool throws : {false, true})
    for (int round = 0; round < 20; ++round) {
      struct Work {
        std::atomic<int> begun{0}, ended{0};
        std::atomic<bool> over{false};
      } work;
      std::vector<std::thread> helpers;
      ParallelFor f = [&](std::size_t count, TaskFn task, void* arg) {
        for (std::size_t i = 0; i < count; ++i) helpers.emplace_back([=] { task(arg, i); });
        while (work.begun == 0) std::this_thread::yield();
        work.over = true;
        if (throws) throw std::runtime_error("host");
      };
      HostThreads threads({2, &f, [](void* self, std::size_t count, TaskFn task, void* arg) {
                             (*static_cast<ParallelFor*>(self))(count, task, arg);
                           }});
      const auto item = [](void* p, std::size_t) {
        auto& w = *static_cast<Work*>(p);
        ++w.begun;
        while (!w.over) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++w.ended;
      };
      const auto run = [&]() -> Check { return threads.run(3, item, &work); };
      if (throws) {
        EXPECT_THROW((void)run(), std::runtime_error);
      } else {
        const Check done = run();
        EXPECT_EQ(done ? Code::ok : done.error().code, work.ended == 3 && done ? Code::ok : Code::callback);
        early += done ? 0 : 1;
      }
      const int begun = work.begun, ended = work.ended;
      EXPECT_EQ(begun, ended);
      for (std::thread& t : helpers) t.join();
      EXPECT_EQ(work.begun, begun) << "an item began after the call";
    }
  EXPECT_GT(early, 0);
}

// Calls at the same time and inside of each other, each with a job of its own.
TEST(HostThreads, ManyAtOnceAndNested) {
  Host host(in_order);
  struct Sum {
    HostThreads* threads;
    std::atomic<int> items{0};
  };
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 200; ++turn) {
        Sum sum{&host.threads};
        EXPECT_TRUE(host.threads.run(
            5,
            [](void* p, std::size_t i) {
              auto& s = *static_cast<Sum*>(p);
              EXPECT_TRUE(s.threads->run(
                  i + 1, [](void* q, std::size_t) { ++static_cast<Sum*>(q)->items; }, p));
            },
            &sum));
        EXPECT_EQ(sum.items, 15);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST(HostThreads, MoreItemsThanAJobCanHave) {
  Host host(in_order);
  const Check done = host.threads.run((std::size_t{1} << 30) + 1, [](void*, std::size_t) {}, nullptr);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::out_of_memory);
}

}  // namespace
}  // namespace moe::test::host_threads_test
