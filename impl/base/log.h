// Log messages of one context: to the caller's callback and into a ring that can be polled, printable (base/text.h).
// The implementation is the only file that sees spdlog. Nothing ever goes to stdout or stderr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace moe {

enum class LogLevel : std::int32_t { trace = 0, debug = 1, info = 2, warn = 3, error = 4, off = 5 };

struct LogSink {
  void (*fn)(void* user, std::int32_t level, const char* component, const char* message,
             std::size_t message_len) = nullptr;
  void* user = nullptr;
};

class Log {
 public:
  Log(LogSink sink, LogLevel level, std::size_t ring_capacity);
  ~Log();
  // Never throws: a message that finds no memory is dropped.
  void write(LogLevel level, const char* component, std::string_view message) noexcept;
  std::string take();  // {"t_ns":..,"level":"warn","component":"select","message":"..."} per line; empties the ring

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moe
