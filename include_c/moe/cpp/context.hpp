// SPDX-License-Identifier: Apache-2.0
//
// Control (progress and cancellation of long calls) and Context (threads, memory, log).
#pragma once

#include <moe/cpp/error.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace libmoe {
inline namespace LIBMOE_NAMESPACE {

/// A function of (std::uint64_t done, std::uint64_t total), called now and then on the thread of the long call; total
/// is 0 while unknown. Its result says whether the call goes on: bool (false stops it), moe_status (MOE_OK goes on), or
/// void.
class Progress {
 public:
  Progress() = default;
  Progress(std::nullptr_t) {}
  template <class F, class = std::enable_if_t<!std::is_same_v<F, Progress>>>
  Progress(F function) {
    constexpr bool takes = std::is_invocable_v<F&, std::uint64_t, std::uint64_t>;
    static_assert(takes, "a progress function takes (std::uint64_t done, std::uint64_t total)");
    if constexpr (takes) {
      using Answer = std::invoke_result_t<F&, std::uint64_t, std::uint64_t>;
      static_assert(std::is_void_v<Answer> || std::is_same_v<Answer, bool> || std::is_same_v<Answer, moe_status>,
                    "a progress function returns bool (false stops the call), moe_status (MOE_OK goes on) or nothing");
      if (!is_empty(function)) {
        function_ = [f = std::move(function)](std::uint64_t done, std::uint64_t total) mutable -> moe_status {
          if constexpr (std::is_same_v<Answer, moe_status>)
            return f(done, total);
          else if constexpr (std::is_same_v<Answer, bool>)
            return f(done, total) ? MOE_OK : MOE_ERR_CANCELLED;
          else
            return f(done, total), MOE_OK;
        };
      }
    }
  }

  explicit operator bool() const noexcept { return static_cast<bool>(function_); }
  moe_status operator()(std::uint64_t done, std::uint64_t total) const { return function_(done, total); }

 private:
  template <class F>
  static bool is_empty(const F&) noexcept {
    return false;
  }
  template <class R, class... A>
  static bool is_empty(const std::function<R(A...)>& f) noexcept {
    return !f;
  }

  std::function<moe_status(std::uint64_t, std::uint64_t)> function_;
};

/// What a long call is doing.
enum class Phase : moe_phase {
  none = MOE_PHASE_NONE,  ///< also what this header does not know
  open = MOE_PHASE_OPEN,
  convert = MOE_PHASE_CONVERT,
  save = MOE_PHASE_SAVE,
  load = MOE_PHASE_LOAD,
  hash = MOE_PHASE_HASH,
  apply = MOE_PHASE_APPLY
};
/// What `done` and `total` count.
enum class Unit : moe_unit {
  none = MOE_UNIT_NONE,  ///< also what this header does not know
  files = MOE_UNIT_FILES,
  experts = MOE_UNIT_EXPERTS,
  bytes = MOE_UNIT_BYTES
};

/// What the running or last call with a control does.
struct State {
  Phase phase;
  Unit unit;                               ///< of done and total
  std::uint64_t done, total;               ///< of the phase: what the progress function gets
  std::int64_t layer;                      ///< the model's number; -1: no layer
  std::int64_t layers_done, layers_total;  ///< of a call for several layers; else 0, 1
  std::uint64_t bytes_done, bytes_total;   ///< of the whole call: bytes_done never goes back
};

/// For open, convert, save, load and apply; several calls may share it.
class Control : public Handle<moe_control, moe_control_destroy> {
 public:
  using Handle::Handle;
  struct Units {
    std::uint64_t done, total;
  };

  static Result<Control> try_create(Progress progress = {}) noexcept {
    if (!progress) return detail::make<Control>(moe_control_create, nullptr, nullptr, nullptr);
    auto box = detail::boxed(std::move(progress));
    if (!box) return detail::no_memory();
    return detail::make<Control>(moe_control_create, report_to, static_cast<void*>(box.release()),
                                 detail::unbox<Progress>);
  }

  /// Stops the calls that use it, and later ones; from any thread.
  void cancel() const noexcept { moe_control_cancel(get()); }
  Units progress() const noexcept {
    Units units{};
    moe_control_progress(get(), &units.done, &units.total);
    return units;
  }
  /// All about the running or last call; from any thread, and in the progress function.
  Result<State> try_state() const noexcept {
    moe_progress raw{};
    raw.struct_size = sizeof raw;
    if (Result<void> done = detail::call(moe_control_state, get(), &raw); !done) return done.error();
    return State{detail::known(raw.phase, Phase::apply, Phase::none),
                 detail::known(raw.unit, Unit::bytes, Unit::none),
                 raw.done,
                 raw.total,
                 raw.layer,
                 raw.layers_done,
                 raw.layers_total,
                 raw.bytes_done,
                 raw.bytes_total};
  }
  /// For a callback's own part of a long call: tells the progress; MOE_OK, or why to stop.
  [[nodiscard]] moe_status report(std::uint64_t done, std::uint64_t total) const noexcept {
    return moe_control_report(get(), done, total);
  }

#if LIBMOE_EXCEPTIONS
  static Control create(Progress progress = {}) { return try_create(std::move(progress)).value(); }
  State state() const { return try_state().value(); }
#endif

 private:
  static moe_status MOE_CALL report_to(void* user, std::uint64_t done, std::uint64_t total) {
    return detail::guarded([&](auto) -> moe_status { return (*static_cast<Progress*>(user))(done, total); });
  }
};

/// One call's work, in parts: run each index below the count once, on any thread. It never throws.
class Task {
 public:
  Task(moe_task_fn function, void* argument) noexcept : function_(function), argument_(argument) {}
  void operator()(std::size_t index) const noexcept { function_(argument_, index); }

 private:
  moe_task_fn function_;
  void* argument_;
};

/// What a host lends to a context; moe_context_callbacks says the rules. All may be left out.
struct Callbacks {
  using Log = std::function<void(moe_log_level level, std::string_view component, std::string_view message)>;
  using ParallelFor = std::function<void(std::size_t count, Task task)>;
  struct Allocator {
    std::function<void*(std::size_t size, std::size_t alignment, std::int32_t numa_node)> allocate;
    std::function<void(void* memory, std::size_t size, std::size_t alignment)> deallocate;
  };

  Log log{};                     ///< from any thread; must not call the library
  ParallelFor parallel_for{};    ///< returns when all tasks are done
  std::int32_t num_threads = 1;  ///< how many tasks parallel_for runs at once
  Allocator allocator{};         ///< both functions or none
};

/// Threads, memory and log for the calls that get it.
class Context : public Handle<moe_context, moe_context_destroy> {
 public:
  using Handle::Handle;

  /// options: {"threads":0, ...}, see moe_context_create.
  static Result<Context> try_create(std::string_view options_json = {}, Callbacks lent = {}) noexcept {
    if (!lent.allocator.allocate != !lent.allocator.deallocate)
      return Error(MOE_ERR_INVALID_ARGUMENT,
                   "callbacks.allocator: expected allocate and deallocate, found one of them");
    moe_context_callbacks callbacks{};
    moe_parallel_ops parallel{};
    moe_allocator_ops allocator{};
    callbacks.struct_size = sizeof callbacks;
    auto log = detail::boxed(std::move(lent.log));
    auto parallel_for = detail::boxed(std::move(lent.parallel_for));
    auto memory = detail::boxed(std::move(lent.allocator));
    if (!log || !parallel_for || !memory) return detail::no_memory();
    if (*parallel_for) {
      parallel = {sizeof parallel, lent.num_threads, parallel_for.release(), run,
                  detail::unbox<Callbacks::ParallelFor>};
      callbacks.parallel = &parallel;
    }
    if (memory->allocate) {
      allocator = {sizeof allocator, 0, memory.release(), allocate, deallocate, detail::unbox<Callbacks::Allocator>};
      callbacks.allocator = &allocator;
    }
    if (*log) {
      callbacks.log = write;
      callbacks.log_user = log.release();
      callbacks.log_destroy = detail::unbox<Callbacks::Log>;
    }
    return detail::make<Context>(moe_context_create, options_json.data(), options_json.size(), &callbacks);
  }

  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_context_to_json, get()); }
  /// The messages kept since the last call, one JSON object a line.
  Result<Buffer> try_take_log() const noexcept { return detail::text(moe_context_take_log, get()); }

#if LIBMOE_EXCEPTIONS
  static Context create(std::string_view options_json = {}, Callbacks lent = {}) {
    return try_create(options_json, std::move(lent)).value();
  }
  Buffer to_json() const { return try_to_json().value(); }
  Buffer take_log() const { return try_take_log().value(); }
#endif

 private:
  static void MOE_CALL write(void* user, moe_log_level level, const char* component, const char* message,
                             std::size_t size) {
    detail::guarded([&](auto) -> moe_status {
      (*static_cast<Callbacks::Log*>(user))(level, component, {message, size});
      return MOE_OK;
    });
  }
  // What is thrown leaves tasks undone: that is what the library reports.
  static void MOE_CALL run(void* user, std::size_t count, moe_task_fn function, void* argument) {
    detail::guarded([&](auto) -> moe_status {
      (*static_cast<Callbacks::ParallelFor*>(user))(count, Task(function, argument));
      return MOE_OK;
    });
  }
  static void* MOE_CALL allocate(void* user, std::size_t size, std::size_t alignment, std::int32_t numa_node) {
    void* memory = nullptr;
    detail::guarded([&](auto) -> moe_status {
      memory = static_cast<Callbacks::Allocator*>(user)->allocate(size, alignment, numa_node);
      return MOE_OK;
    });
    return memory;
  }
  static void MOE_CALL deallocate(void* user, void* memory, std::size_t size, std::size_t alignment) {
    detail::guarded([&](auto) -> moe_status {
      static_cast<Callbacks::Allocator*>(user)->deallocate(memory, size, alignment);
      return MOE_OK;
    });
  }
};

}  // namespace LIBMOE_NAMESPACE
}  // namespace libmoe
