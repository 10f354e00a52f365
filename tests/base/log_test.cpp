// Levels, ring, callback, JSON lines; two threads in the callback; silence on stdout and stderr.
#include "base/log.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace moe::test::log_test {
namespace {

struct Message {
  int level;
  std::string component, text;
};

struct Collector {
  std::mutex mutex;
  std::vector<Message> messages;
  LogSink sink() {
    return {[](void* user, std::int32_t level, const char* component, const char* text, std::size_t n) {
              auto& c = *static_cast<Collector*>(user);
              const std::lock_guard lock(c.mutex);
              c.messages.push_back({level, component, std::string(text, n)});
            },
            this};
  }
};

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_NE(end, std::string::npos) << "a line without its end";
    lines.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

TEST(Log, RingLineHasTheMembersOfTheAbi) {
  Log log({}, LogLevel::info, 8);
  log.write(LogLevel::warn, "select", "two \"words\"\n\x01");
  const std::string text = log.take();
  const auto lines = lines_of(text);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["level"], "warn");
  EXPECT_EQ(lines[0]["component"], "select");
  EXPECT_EQ(lines[0]["message"], "two \"words\"\\u000a\\u0001");
  EXPECT_GT(lines[0]["t_ns"].get<std::int64_t>(), std::int64_t{1600000000} * 1000000000);
  EXPECT_EQ(lines[0].size(), 4u);
  EXPECT_EQ(log.take(), "");  // taken
}

TEST(Log, LevelHoldsForRingAndCallback) {
  for (int level = 0; level <= 5; ++level) {
    Collector c;
    Log log(c.sink(), static_cast<LogLevel>(level), 100);
    for (int l = 0; l < 5; ++l) log.write(static_cast<LogLevel>(l), "x", std::to_string(l));
    const auto lines = lines_of(log.take());
    ASSERT_EQ(c.messages.size(), static_cast<std::size_t>(5 - level));
    ASSERT_EQ(lines.size(), c.messages.size());
    const std::vector<std::string> names = {"trace", "debug", "info", "warn", "error"};
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const int l = level + static_cast<int>(i);
      EXPECT_EQ(c.messages[i].level, l);
      EXPECT_EQ(c.messages[i].text, std::to_string(l));
      EXPECT_EQ(lines[i]["level"], names[static_cast<std::size_t>(l)]);
    }
  }
}

TEST(Log, MessagesOfNoLevelAreDropped) {
  Log log({}, LogLevel::trace, 8);
  log.write(LogLevel::off, "x", "off");
  log.write(static_cast<LogLevel>(17), "x", "17");
  log.write(static_cast<LogLevel>(-1), "x", "-1");
  EXPECT_EQ(log.take(), "");
}

TEST(Log, RingDropsTheOldest) {
  Log log({}, LogLevel::info, 3);
  for (int i = 0; i < 10; ++i) log.write(LogLevel::info, "x", std::to_string(i));
  const auto lines = lines_of(log.take());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["message"], "7");
  EXPECT_EQ(lines[2]["message"], "9");
}

TEST(Log, RingOfNothingKeepsNothingButTheCallbackHears) {
  Collector c;
  Log log(c.sink(), LogLevel::info, 0);
  log.write(LogLevel::error, "x", "y");
  EXPECT_EQ(log.take(), "");
  EXPECT_EQ(c.messages.size(), 1u);
}

// Both sinks get one line of valid UTF-8, whatever a message carries (base/text.h).
TEST(Log, CallbackAndRingGetPrintableText) {
  struct Case {
    std::string raw, text;
  };
  for (const Case& c :
       {Case{std::string("a\0b\xff{}%s", 8), "a\\u0000b\\xff{}%s"},
        Case{"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        Case{"a\xc3", "a\\xc3"}, Case{"\xed\xa0\x80", "\\xed\\xa0\\x80"},
        Case{"\n{\"level\":\"error\"}", "\\u000a{\"level\":\"error\"}"}}) {
    Collector collector;
    Log log(collector.sink(), LogLevel::info, 4);
    log.write(LogLevel::info, "convert", c.raw);
    ASSERT_EQ(collector.messages.size(), 1u);
    EXPECT_EQ(collector.messages[0].text, c.text);
    EXPECT_EQ(collector.messages[0].component, "convert");
    const auto lines = lines_of(log.take());
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0]["message"].get<std::string>(), c.text);
  }
}

// Two threads are inside the callback at once, each waiting for the other: this hangs if a lock is held.
TEST(Log, CallbackIsCalledWithoutALock) {
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    int inside = 0;
  } meeting;
  const LogSink sink = {[](void* user, std::int32_t, const char*, const char*, std::size_t) {
                          auto& m = *static_cast<Meeting*>(user);
                          std::unique_lock lock(m.mutex);
                          ++m.inside;
                          m.changed.notify_all();
                          const bool met =
                              m.changed.wait_for(lock, std::chrono::seconds(20), [&m] { return m.inside == 2; });
                          EXPECT_TRUE(met);
                        },
                        &meeting};
  Log log(sink, LogLevel::info, 4);
  std::thread other([&log] { log.write(LogLevel::info, "a", "1"); });
  log.write(LogLevel::info, "b", "2");
  other.join();
  EXPECT_EQ(lines_of(log.take()).size(), 2u);
}

TEST(Log, ManyWritersAndATaker) {
  Collector c;
  Log log(c.sink(), LogLevel::info, 1 << 16);
  std::atomic<bool> done{false};
  std::size_t taken = 0;
  std::thread taker([&] {
    while (!done.load()) taken += lines_of(log.take()).size();
  });
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&log] {
      for (int i = 0; i < 500; ++i) log.write(LogLevel::info, "w", "message");
    });
  for (auto& w : writers) w.join();
  done = true;
  taker.join();
  taken += lines_of(log.take()).size();
  EXPECT_EQ(taken, 2000u);
  EXPECT_EQ(c.messages.size(), 2000u);
}

// spdlog's own error handler prints to stderr; ours does nothing.
TEST(Log, StaysSilentAlsoWhenASinkFails) {
  const LogSink failing = {
      [](void*, std::int32_t, const char*, const char*, std::size_t) { throw std::runtime_error("sink failed"); },
      nullptr};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    Log log(failing, LogLevel::trace, 4);
    for (int i = 0; i < 3; ++i) log.write(LogLevel::error, "x", "y");
    EXPECT_EQ(lines_of(log.take()).size(), 3u);
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Log, TwoLogsDoNotHearEachOther) {
  Log a({}, LogLevel::info, 4), b({}, LogLevel::off, 4);
  a.write(LogLevel::info, "x", "to a");
  b.write(LogLevel::error, "x", "to b");
  EXPECT_EQ(lines_of(a.take()).size(), 1u);
  EXPECT_EQ(b.take(), "");
}

}  // namespace
}  // namespace moe::test::log_test
