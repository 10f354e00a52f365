// The only file that sees spdlog: a logger that belongs to one context, with two sinks of our own, the
// caller's callback and a bounded ring. No registry, no formatter, no file or console sink, and an
// error handler that does nothing (spdlog's own prints to stderr).
//
// The callback is called without a lock: two threads may be in it, and it may take its time. The ring's
// lock is held for a move of one message; it is tried, not waited for without end, so that a child
// forked at that moment loses a message instead of hanging.
#ifndef SPDLOG_HEADER_ONLY
#define SPDLOG_HEADER_ONLY
#endif
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
// Nothing is formatted here, so fmt needs neither std::locale (a sixth of the library when libstdc++ is linked
// statically) nor floating-point numbers.
#define FMT_STATIC_THOUSANDS_SEPARATOR ','
#define FMT_USE_LOCALE 0
#define FMT_USE_FLOAT 0
#define FMT_USE_DOUBLE 0
#define FMT_USE_LONG_DOUBLE 0
#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe {
namespace {

using SpdLevel = spdlog::level::level_enum;

// LogLevel -> spdlog, which has a level `critical` that we never use.
constexpr std::array<SpdLevel, 6> kLevels = {SpdLevel::trace, SpdLevel::debug, SpdLevel::info,
                                             SpdLevel::warn,  SpdLevel::err,   SpdLevel::off};
constexpr std::array<std::string_view, 6> kLevelNames = {"trace", "debug", "info", "warn", "error", "off"};

LogLevel from_spdlog(SpdLevel level) {
  for (std::size_t i = 0; i < kLevels.size(); ++i)
    if (kLevels[i] == level) return static_cast<LogLevel>(i);
  return LogLevel::error;
}

std::string_view view(spdlog::string_view_t s) { return {s.data(), s.size()}; }

// A sink that formats nothing.
class PlainSink : public spdlog::sinks::sink {
 public:
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

class CallbackSink final : public PlainSink {
 public:
  explicit CallbackSink(LogSink target) : target_(target) {}
  void log(const spdlog::details::log_msg& m) override {
    const std::string component(view(m.logger_name));  // the callback gets a NUL-terminated one
    target_.fn(target_.user, static_cast<std::int32_t>(from_spdlog(m.level)), component.c_str(), m.payload.data(),
               m.payload.size());
  }

 private:
  LogSink target_;
};

struct Entry {
  std::int64_t t_ns;
  LogLevel level;
  std::string component, message;
};

class RingSink final : public PlainSink {
 public:
  explicit RingSink(std::size_t capacity) : capacity_(capacity) {}

  void log(const spdlog::details::log_msg& m) override {
    if (capacity_ == 0) return;
    const auto since_epoch = std::chrono::duration_cast<std::chrono::nanoseconds>(m.time.time_since_epoch());
    Entry entry{since_epoch.count(), from_spdlog(m.level), std::string(view(m.logger_name)),
                std::string(view(m.payload))};
    const Lock lock(locked_);
    if (!lock.held) return;
    if (entries_.size() >= capacity_) entries_.pop_front();
    entries_.push_back(std::move(entry));
  }

  std::deque<Entry> take() {
    std::deque<Entry> taken;
    const Lock lock(locked_);
    if (lock.held) taken.swap(entries_);
    return taken;
  }

 private:
  struct Lock {
    explicit Lock(std::atomic<bool>& flag) : flag_(flag) {
      constexpr int kTries = 100000;  // many times what the holder needs
      for (int i = 0; i < kTries && !held; ++i) {
        held = !flag_.exchange(true, std::memory_order_acquire);
        if (!held) std::this_thread::yield();
      }
    }
    ~Lock() {
      if (held) flag_.store(false, std::memory_order_release);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    bool held = false;

   private:
    std::atomic<bool>& flag_;
  };

  const std::size_t capacity_;
  std::atomic<bool> locked_{false};
  std::deque<Entry> entries_;
};

// A logger whose messages carry a component each in the place of the logger's name.
class Logger final : public spdlog::logger {
 public:
  explicit Logger(std::vector<spdlog::sink_ptr> sinks) : spdlog::logger("", sinks.begin(), sinks.end()) {
    set_error_handler([](const std::string&) {});
  }
  void write(SpdLevel level, std::string_view component, std::string_view message) {
    if (!should_log(level)) return;
    sink_it_(spdlog::details::log_msg(spdlog::source_loc{}, {component.data(), component.size()}, level,
                                      {message.data(), message.size()}));
  }
};

}  // namespace

struct Log::State {
  std::shared_ptr<RingSink> ring;
  std::unique_ptr<Logger> logger;
};

Log::Log(LogSink sink, LogLevel level, std::size_t ring_capacity) : state_(std::make_unique<State>()) {
  state_->ring = std::make_shared<RingSink>(ring_capacity);
  std::vector<spdlog::sink_ptr> sinks = {state_->ring};
  if (sink.fn != nullptr) sinks.push_back(std::make_shared<CallbackSink>(sink));
  state_->logger = std::make_unique<Logger>(std::move(sinks));
  state_->logger->set_level(at(kLevels, level));
}

Log::~Log() = default;

void Log::write(LogLevel level, const char* component, std::string_view message) noexcept {
  if (level < LogLevel::trace || level >= LogLevel::off) return;
  try {
    state_->logger->write(at(kLevels, level), component, printable(message));
  } catch (...) {  // no memory for the message: it is dropped
  }
}

std::string Log::take() {
  std::string lines;
  for (const Entry& e : state_->ring->take()) {
    json::Writer w;
    w.begin_object().member("t_ns", e.t_ns).member("level", at(kLevelNames, e.level));
    w.member("component", e.component).member("message", e.message).end_object();
    lines += w.take() + '\n';
  }
  return lines;
}

}  // namespace moe
