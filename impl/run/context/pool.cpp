// The pool's protocol. One job at a time; its fields are plain memory, guarded by `gate`:
//
//   gate = open bit | waiting bit | number of workers inside
//
//   owner   takes `busy` - writes count, task, arg, next = 0 - sets open - ++epoch, wakes sleepers -
//           claims items until none is left - clears open - waits until no thread is inside
//   worker  sees a new epoch - adds itself to gate; open was set: claims items until none is left;
//           open was not set: it came too late and touches nothing - takes itself away again
//
// Entering and looking at the open bit is one atomic operation, so the owner that has cleared it and
// sees no thread inside knows that none reads the job any more. `busy` makes every other caller, also a
// task that calls run(), work inline. After fork() the child finds a team with another process mark and makes
// a new one; the old team is kept for its readers until the pool ends, its threads do not exist here.
#include "run/context/pool.h"

#include <climits>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "base/float_state.h"
#include "base/os/thread.h"
#include "run/context/wait.h"

namespace moe::run {
namespace {

constexpr std::size_t kLine = 64;  // keeps what different threads write apart
constexpr std::uint32_t kOpen = 0x80000000u, kWaiting = 0x40000000u, kInside = 0x3fffffffu;

}  // namespace

struct Pool::Team {
  Team(std::uint64_t mark, const PoolOptions& options, Team* previous)
      : process(mark), spin_us(options.spin_us), older(previous), threads(options.threads - 1) {}

  const std::uint64_t process;
  const int spin_us;
  Team* const older;  // of the processes that this one was forked from
  Threads threads;
  std::atomic<int> started{0};
  std::atomic<bool> stop{false};

  alignas(kLine) FutexWord epoch{0};  // ++ per job: what idle workers look at, and sleep on
  std::size_t count = 0;              // the job
  TaskFn task = nullptr;
  void* arg = nullptr;
  alignas(kLine) FutexWord gate{0};
  alignas(kLine) std::atomic<std::size_t> next{0};
  alignas(kLine) FutexWord sleepers{0};
  alignas(kLine) std::atomic<bool> busy{true};  // born taken

  void claim_all() {
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(arg, i);
  }
  void wake(int most) {
    const std::uint32_t asleep = sleepers.load(std::memory_order_seq_cst);
    if (asleep != 0 && most > 0) futex_wake(epoch, most);
  }
  void run_job(std::size_t items, TaskFn fn, void* fn_arg);
  void await_workers();
  void enter();
  std::uint32_t await_epoch(std::uint32_t seen);
  void stop_and_join();
};

void Pool::Team::run_job(std::size_t items, TaskFn fn, void* fn_arg) {
  count = items;
  task = fn;
  arg = fn_arg;
  next.store(0, std::memory_order_relaxed);
  gate.fetch_or(kOpen, std::memory_order_acq_rel);
  epoch.fetch_add(1, std::memory_order_seq_cst);
  wake(items - 1 < threads.size() ? static_cast<int>(items - 1) : static_cast<int>(threads.size()));
  claim_all();
  gate.fetch_and(~kOpen, std::memory_order_acq_rel);
  await_workers();
}

void Pool::Team::await_workers() {
  const auto none_inside = [this] { return (gate.load(std::memory_order_acquire) & kInside) == 0; };
  if (spin_until(spin_us, none_inside)) return;
  std::uint32_t g = gate.fetch_or(kWaiting, std::memory_order_acq_rel) | kWaiting;
  while ((g & kInside) != 0) {
    futex_wait(gate, g);
    g = gate.load(std::memory_order_acquire);
  }
  gate.fetch_and(~kWaiting, std::memory_order_acq_rel);
}

// A worker's part in a job, if one is open.
void Pool::Team::enter() {
  if ((gate.fetch_add(1, std::memory_order_acq_rel) & kOpen) != 0) claim_all();
  const std::uint32_t before = gate.fetch_sub(1, std::memory_order_acq_rel);
  if (before == (kWaiting | 1u)) futex_wake(gate, 1);
}

// Waits until the epoch is not `seen` and returns it. Counting the sleeper, then looking again, against
// run_job's raising the epoch, then looking at the count: one of the two sees the other.
std::uint32_t Pool::Team::await_epoch(std::uint32_t seen) {
  const auto changed = [this, seen] { return epoch.load(std::memory_order_acquire) != seen; };
  if (!spin_until(spin_us, changed)) {
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (epoch.load(std::memory_order_seq_cst) == seen) futex_wait(epoch, seen);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  return epoch.load(std::memory_order_acquire);
}

void Pool::Team::stop_and_join() {
  stop.store(true, std::memory_order_release);
  epoch.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(epoch, INT_MAX);
  threads.join();
}

struct Pool::Worker {
  static void* main(void* p) {
    const DefaultFloats scope;  // a thread is born with the state of the one that starts it
    auto& team = *static_cast<Team*>(p);
    for (std::uint32_t seen = 0;;) {
      seen = team.await_epoch(seen);
      if (team.stop.load(std::memory_order_acquire)) return nullptr;
      team.enter();
    }
  }
};

Pool::Team* Pool::team_of_this_process() noexcept {
  const std::uint64_t process = process_.value();
  Team* team = team_.load(std::memory_order_acquire);
  if (team != nullptr && team->process == process)
    return team->busy.exchange(true, std::memory_order_acquire) ? nullptr : team;
  try {
    auto fresh = std::make_unique<Team>(process, options_, team);
    if (!team_.compare_exchange_strong(team, fresh.get(), std::memory_order_acq_rel)) return nullptr;
    team = fresh.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  team->threads.start(options_.cpus, Worker::main, team);
  team->started.store(static_cast<int>(team->threads.size()), std::memory_order_relaxed);
  return team;
}

Pool::Pool(PoolOptions options) : options_(std::move(options)) {}

Pool::~Pool() {
  const std::uint64_t process = process_.value();
  for (Team* team = team_.load(std::memory_order_acquire); team != nullptr;) {
    if (team->process == process) team->stop_and_join();
    Team* const older = team->older;
    delete team;
    team = older;
  }
}

int Pool::num_workers() const {
  const Team* team = team_.load(std::memory_order_acquire);
  return team != nullptr && team->process == process_.value() ? team->started.load(std::memory_order_relaxed) : 0;
}

void Pool::run(std::size_t count, TaskFn task, void* arg) noexcept {
  Team* team = options_.threads > 1 && count > 1 ? team_of_this_process() : nullptr;
  if (team == nullptr) {
    for (std::size_t i = 0; i < count; ++i) task(arg, i);
    return;
  }
  team->run_job(count, task, arg);
  team->busy.store(false, std::memory_order_release);
}

}  // namespace moe::run
