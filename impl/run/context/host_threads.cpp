// A job is a place for one parallel_for after another; none is ever freed before the object, so a thread that comes
// late still finds it. The host gets the address of the job's turn, and each use of a job has another turn:
//
//   caller  takes a job - writes task, arg, left = count - marks each item as due - makes the turn the current one -
//           calls the host - not all is done: takes back the items still due, waits for those that run - ends the turn
//   item    looks whether its turn is the current one - takes its mark; there was none: returns - runs the task -
//           counts itself off
//
// Looking at the turn and taking the mark are two steps. An item that comes between two uses may so find the mark of
// the next one and runs that item: whose thread it is does not matter, and the caller waits for it. No lock is held and
// jobs are not counted, so a child of fork() is free of its parent's: jobs in use there stay so here.
#include "run/context/host_threads.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "base/float_state.h"
#include "base/os/thread.h"
#include "base/text.h"
#include "run/context/wait.h"

namespace moe::run {
namespace {

constexpr std::size_t kLeastItems = 64, kMostItems = std::size_t{1} << 30;
constexpr std::size_t kTurns = 64;  // a late item would have to miss as many uses of its job to be taken for a new one
constexpr std::uint32_t kWaiting = 0x80000000u, kLeft = 0x7fffffffu;
constexpr int kSpinMicroseconds = 20;

}  // namespace

struct HostThreads::Job {
  // What the host hands back with each item.
  struct Turn {
    Job* job = nullptr;
    std::atomic<std::size_t> count{0};
    std::atomic<std::size_t> beyond{0};  // an index that is none of them; 0: all were (no job is empty)
  };

  Job(std::size_t most, std::unique_ptr<std::atomic<bool>[]> marks) : capacity(most), due(std::move(marks)) {
    for (Turn& t : turns) t.job = this;
  }
  static void run_item(void* turn, std::size_t index);
  Turn& begin(std::size_t count, TaskFn fn, void* fn_arg);
  std::uint32_t end(std::size_t count);

  const std::size_t capacity;  // items at most
  const std::unique_ptr<std::atomic<bool>[]> due;
  Job* older = nullptr;
  std::atomic<bool> taken{true};  // born so
  std::atomic<Turn*> current{nullptr};
  TaskFn task = nullptr;
  void* arg = nullptr;
  alignas(64) FutexWord left{0};  // waiting bit | items that are not done
  alignas(64) std::array<Turn, kTurns> turns;
  std::size_t next_turn = 0;
};

void HostThreads::Job::run_item(void* turn, std::size_t index) {
  Turn& mine = *static_cast<Turn*>(turn);
  Job& job = *mine.job;
  if (index >= mine.count.load(std::memory_order_relaxed)) {
    mine.beyond.store(index, std::memory_order_relaxed);
    return;
  }
  if (job.current.load(std::memory_order_relaxed) != &mine) return;
  if (!job.due[index].exchange(false, std::memory_order_acquire)) return;
  {
    const DefaultFloats scope;
    job.task(job.arg, index);
  }
  // The last step: after it the caller may go on, and end everything.
  if (job.left.fetch_sub(1, std::memory_order_release) == (kWaiting | 1u)) futex_wake(job.left, 1);
}

HostThreads::Job::Turn& HostThreads::Job::begin(std::size_t count, TaskFn fn, void* fn_arg) {
  task = fn;
  arg = fn_arg;
  left.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
  Turn& turn = turns[next_turn++ % kTurns];
  turn.count.store(count, std::memory_order_relaxed);
  turn.beyond.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) due[i].store(true, std::memory_order_release);
  current.store(&turn, std::memory_order_release);
  return turn;
}

// The items that were not done when the host returned. None runs any more.
std::uint32_t HostThreads::Job::end(std::size_t count) {
  const std::uint32_t unfinished = left.load(std::memory_order_acquire);
  if (unfinished != 0) {
    std::uint32_t taken_back = 0;
    for (std::size_t i = 0; i < count; ++i) taken_back += due[i].exchange(false, std::memory_order_relaxed) ? 1 : 0;
    left.fetch_sub(taken_back, std::memory_order_relaxed);
    const auto all_done = [this] { return (left.load(std::memory_order_acquire) & kLeft) == 0; };
    if (!spin_until(kSpinMicroseconds, all_done)) {
      std::uint32_t seen = left.fetch_or(kWaiting, std::memory_order_acquire) | kWaiting;
      for (; (seen & kLeft) != 0; seen = left.load(std::memory_order_acquire)) futex_wait(left, seen);
    }
  }
  current.store(nullptr, std::memory_order_relaxed);
  return unfinished;
}

HostThreads::~HostThreads() {
  for (Job* job = jobs_.load(std::memory_order_acquire); job != nullptr;) {
    Job* const older = job->older;
    delete job;
    job = older;
  }
}

// A free job of the size's class, else a new one.
HostThreads::Job* HostThreads::take(std::size_t count) noexcept {
  if (count > kMostItems) return nullptr;
  const std::size_t capacity = std::bit_ceil(std::max(count, kLeastItems));
  for (Job* job = jobs_.load(std::memory_order_acquire); job != nullptr; job = job->older)
    if (job->capacity == capacity && !job->taken.exchange(true, std::memory_order_acquire)) return job;
  try {
    auto fresh = std::make_unique<Job>(capacity, std::make_unique<std::atomic<bool>[]>(capacity));
    fresh->older = jobs_.load(std::memory_order_relaxed);
    while (!jobs_.compare_exchange_weak(fresh->older, fresh.get(), std::memory_order_acq_rel)) {
    }
    return fresh.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

Check HostThreads::run(std::size_t count, TaskFn task, void* arg) {
  // Ended also where the host's function leaves by an exception.
  struct Use {
    Job* job;
    std::size_t count;
    bool open = true;
    std::uint32_t end() {
      open = false;
      return job->end(count);
    }
    ~Use() {
      if (open) (void)end();
      job->taken.store(false, std::memory_order_release);
    }
  };
  if (count == 0) return ok();
  Job* const job = take(count);
  if (job == nullptr) return Error{Code::out_of_memory, "out of memory", {}, {}};
  Use use{job, count};
  Job::Turn& turn = job->begin(count, task, arg);
  host_.parallel_for(host_.user, count, Job::run_item, &turn);
  if (const std::uint32_t unfinished = use.end(); unfinished != 0)
    return fail(Code::callback, "parallel_for",
                cat("parallel_for: it returned before ", unfinished, " of ", count, " tasks were done"));
  if (const std::size_t beyond = turn.beyond.load(std::memory_order_relaxed); beyond != 0)
    return fail(Code::callback, "parallel_for",
                cat("parallel_for: it ran task ", beyond, ", which is not in [0, ", count, ")"));
  return ok();
}

}  // namespace moe::run
