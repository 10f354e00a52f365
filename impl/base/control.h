// Cancellation and progress of one or more long calls. cancel() and the counters are lock-free
// atomics: safe in signal handlers and from any thread.
//
// A call begins (begin_call), then each of its phases (begin_phase), which says how many bytes of the whole call it
// stands for. `done` and `total` count the units of the phase; bytes count over the whole call and never go back.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"

namespace moe {

enum class Phase : std::int32_t { none, open, convert, save, load, hash, apply };
enum class Unit : std::int32_t { none, files, experts, bytes };

// What the running or last call does.
struct Progress {
  Phase phase = Phase::none;
  Unit unit = Unit::none;
  std::uint64_t done = 0, total = 0;
  std::int64_t layer = -1;
  std::int64_t layers_done = 0, layers_total = 0;
  std::uint64_t bytes_done = 0, bytes_total = 0;
};

class Control {
 public:
  using ProgressFn = std::int32_t (*)(void* user, std::uint64_t done, std::uint64_t total);
  using ReleaseFn = void (*)(void* user);

  Control(ProgressFn progress, void* user, ReleaseFn destroy) : progress_(progress), user_(user), destroy_(destroy) {}
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control() {
    if (destroy_ != nullptr) destroy_(user_);
  }

  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  std::uint64_t total() const { return total_.load(std::memory_order_relaxed); }

  Progress state() const;

  // The three below: on the thread that made the call. bytes: of all phases, as far as they are known.
  void begin_call(std::uint64_t bytes = 0, std::int64_t layers = 1);
  // bytes: what the phase adds to bytes_done.
  void begin_phase(Phase phase, Unit unit, std::uint64_t bytes);
  // The model's number of the layer that the next phases are of; -1: none.
  void begin_layer(std::int64_t layer) { layer_.store(layer, std::memory_order_relaxed); }
  void end_layer() { layers_done_.fetch_add(1, std::memory_order_relaxed); }

  // Notes the counters only: for worker threads.
  void note(std::uint64_t done, std::uint64_t total);
  // Notes the counters and asks the callback; only on the thread that made the call. total 0: only asks.
  Check report(std::uint64_t done, std::uint64_t total);
  // The same of the caller's own part of a call, whose units are not the phase's.
  Check report_callers(std::uint64_t done, std::uint64_t total);

 private:
  void count(std::uint64_t done, std::uint64_t total);
  Check ask(std::uint64_t done, std::uint64_t total);
  static Error callback_failed(std::int32_t status);

  std::atomic<bool> cancelled_{false};
  std::atomic<std::uint64_t> done_{0}, total_{0};
  std::atomic<Phase> phase_{Phase::none};
  std::atomic<Unit> unit_{Unit::none};
  std::atomic<std::int64_t> layer_{-1}, layers_done_{0}, layers_total_{0};
  // bytes_before_: of the phases that are over.
  std::atomic<std::uint64_t> bytes_done_{0}, bytes_total_{0}, bytes_before_{0}, phase_bytes_{0};
  ProgressFn progress_;
  void* user_;
  ReleaseFn destroy_;
};

// nullptr is a control that is never cancelled.
inline void begin_call(Control* control, std::uint64_t bytes = 0, std::int64_t layers = 1) {
  if (control != nullptr) control->begin_call(bytes, layers);
}
inline void begin_phase(Control* control, Phase phase, Unit unit, std::uint64_t bytes) {
  if (control != nullptr) control->begin_phase(phase, unit, bytes);
}
inline Check report(Control* control, std::uint64_t done, std::uint64_t total) {
  return control == nullptr ? ok() : control->report(done, total);
}

}  // namespace moe
