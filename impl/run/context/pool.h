// The context's own threads: run task(arg, i) for i in [0, count), the calling thread working along.
//
// Workers start at the first run() and wait by spinning for spin_us, then in a futex. Items are claimed
// one by one from a counter. Progress never depends on a worker: what no worker takes, the caller does.
// So these are always right, if slower: a thread that cannot be created, a run() while another thread
// holds the pool (inline), a run() inside a task (inline), a child after fork() (starts its own team).
#pragma once

#include <atomic>
#include <cstddef>

#include "base/os/process_mark.h"
#include "base/os/topology.h"
#include "base/parallel.h"

namespace moe::run {

struct PoolOptions {
  int threads = 1;   // with the calling one
  int spin_us = 50;  // how long an idle thread spins before it sleeps
  CpuList cpus;      // workers may run on these; empty = where the creating thread may
};

class Pool {
 public:
  explicit Pool(PoolOptions options);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();  // ends and joins the workers; no run() may be under way

  int num_threads() const { return options_.threads; }
  void run(std::size_t count, TaskFn task, void* arg) noexcept;
  // Workers that exist now in this process; 0 before the first run().
  int num_workers() const;

 private:
  struct Team;
  struct Worker;
  Team* team_of_this_process() noexcept;  // taken (busy) by the caller; nullptr: run inline

  const PoolOptions options_;
  const ProcessMark process_;
  std::atomic<Team*> team_{nullptr};
};

}  // namespace moe::run
