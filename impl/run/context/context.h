// What one embedding program lends to calls: threads, big memory, a log. No process-wide state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/allocator.h"
#include "base/log.h"
#include "base/os/topology.h"
#include "base/parallel.h"
#include "base/result.h"
#include "run/context/host_threads.h"
#include "run/context/workspaces.h"

namespace moe::run {

// The caller's functions, as checked and copied by the api room. Each destroy is called exactly once.
struct ContextHooks {
  LogSink log;  // fn null: ring only
  void (*log_destroy)(void* user) = nullptr;
  std::shared_ptr<HostThreads> threads;  // null: own pool. Whoever made it keeps it until the host's threads have ended
  void (*parallel_destroy)(void* user) = nullptr;
  Allocator allocator;  // allocate null: system
  void (*allocator_destroy)(void* user) = nullptr;
};

class Context {
 public:
  // Options of moe_context_create; "" = all defaults. `hooks` are taken over whether this succeeds or fails.
  static Result<std::shared_ptr<Context>> create(std::string_view options_json, ContextHooks hooks);
  ~Context();

  Parallel parallel();  // fork-aware; serial when another call holds the pool
  const Allocator& allocator() const;
  Log& log();
  Workspaces& workspaces();  // of the calls of its layers
  int num_threads() const;
  const NodeMap& nodes() const;      // that its threads run on; one with numa off
  std::string options_json() const;  // resolved options as JSON members
  std::string take_log();            // one JSON object per line

 private:
  Context();
  struct State;
  std::unique_ptr<State> state_;
};

// Threads of a pool when no number is asked for: one per core of `cpus`, and no more than the quota of the control
// group. `root`: as in base/os/topology.h, "" for this system.
int default_threads(const CpuList& cpus, const std::string& root);

// A nullptr context: one thread, plain memory, no log.
Parallel parallel_of(Context* ctx);
const Allocator& allocator_of(Context* ctx);
const NodeMap* nodes_of(const Context* ctx);  // nullptr: one

}  // namespace moe::run
