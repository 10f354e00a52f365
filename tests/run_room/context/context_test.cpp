// Contexts: options and their faults, hooks given back once in every outcome, log, threads, denormals.
#include "run/context/context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/os/topology.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::context_test {
namespace {

using nlohmann::json;

std::shared_ptr<Context> make(const std::string& options, ContextHooks hooks = {}) {
  auto c = Context::create(options, hooks);
  EXPECT_TRUE(c) << (c ? "" : c.error().message);
  return c ? *c : nullptr;
}
json options_of(const Context& c) {
  std::string text = "{";
  text += c.options_json();
  text += "}";
  return json::parse(text);
}

TEST(Context, DefaultsOfTheHeader) {
  for (const char* text : {"", "{}", R"({"threads":0,"cpus":null,"log_level":null})"}) {
    const auto c = make(text);
    ASSERT_TRUE(c);
    const json o = options_of(*c);
    EXPECT_EQ(o["spin_us"], 50);
    EXPECT_EQ(o["numa"], "auto");
    EXPECT_EQ(o["numa_nodes"], node_map(allowed_cpus(), "").count);
    EXPECT_EQ(nodes_of(c.get())->count, o["numa_nodes"]);
    EXPECT_EQ(o["huge_pages"], "try");
    EXPECT_EQ(o["log_level"], "info");
    EXPECT_EQ(o["log_ring"], 256);
    EXPECT_EQ(o["flush_denormals"], false);
    EXPECT_EQ(o["own_threads"], true);
    EXPECT_EQ(o["cpus"], cpu_list_text(allowed_cpus()));
    EXPECT_EQ(o["threads"], c->num_threads());
    EXPECT_GE(c->num_threads(), 1);
    EXPECT_LE(static_cast<std::size_t>(c->num_threads()), allowed_cpus().size());
  }
}

TEST(Context, ThreadsAreCoresWithinTheQuota) {
  const struct {
    const char* cpu_max;  // of the control group
    int threads;          // of 8 CPUs that know no cores
  } rows[] = {{"max 100000\n", 8},    {"300000 100000\n", 3}, {"250000 100000\n", 2},
              {"900000 100000\n", 8}, {"50000 100000\n", 1},  {"99999999900000 100000\n", 8}};
  for (const auto& r : rows) {
    const TempDir dir;
    dir.write("proc/self/cgroup", "0::/job\n");
    dir.write("sys/fs/cgroup/job/cpu.max", r.cpu_max);
    EXPECT_EQ(default_threads({0, 1, 2, 3, 4, 5, 6, 7}, dir.path()), r.threads) << r.cpu_max;
  }
  EXPECT_EQ(default_threads({}, TempDir().path()), 1);
}

TEST(Context, OptionsAsGiven) {
  const std::string cpu = std::to_string(allowed_cpus().front());
  const auto c = make(R"({"threads":3,"cpus":")" + cpu +
                      R"(","spin_us":0,"numa":"off","huge_pages":"off","log_level":"debug","log_ring":7,)"
                      R"("flush_denormals":true})");
  ASSERT_TRUE(c);
  EXPECT_EQ(c->num_threads(), 3);
  EXPECT_EQ(c->parallel().num_threads, 3);
  EXPECT_EQ(options_of(*c), (json{{"threads", 3},
                                  {"own_threads", true},
                                  {"cpus", cpu},
                                  {"spin_us", 0},
                                  {"numa", "off"},
                                  {"numa_nodes", 1},
                                  {"huge_pages", "off"},
                                  {"log_level", "debug"},
                                  {"log_ring", 7},
                                  {"flush_denormals", true}}));
}

TEST(Context, ThreadsDefaultToTheGivenCpus) {
  const std::string cpu = std::to_string(allowed_cpus().back());
  const auto c = make(R"({"cpus":")" + cpu + R"("})");
  ASSERT_TRUE(c);
  EXPECT_EQ(c->num_threads(), 1);
}

TEST(Context, FaultsNameTheMember) {
  int absent = 0;
  for (int cpu : allowed_cpus()) absent = cpu + 1;  // beyond the last
  struct Case {
    std::string text, subject;
    Code code = Code::invalid_config;
  };
  for (const Case& k : {Case{"[]", ""},
                        Case{"{", ""},
                        Case{R"({"threads":1,"threads":2})", ""},
                        Case{R"({"thread":1})", "/thread"},
                        Case{R"({"thread":null})", "/thread"},
                        Case{R"({"threads":-1})", "/threads"},
                        Case{R"({"threads":4097})", "/threads"},
                        Case{R"({"threads":1.5})", "/threads"},
                        Case{R"({"threads":"2"})", "/threads"},
                        Case{R"({"threads":true})", "/threads"},
                        Case{R"({"cpus":[0]})", "/cpus"},
                        Case{R"({"cpus":""})", "/cpus"},
                        Case{R"({"cpus":"0-"})", "/cpus"},
                        Case{R"({"cpus":")" + std::to_string(absent) + R"("})", "/cpus"},
                        Case{R"({"spin_us":-1})", "/spin_us"},
                        Case{R"({"spin_us":1000001})", "/spin_us"},
                        Case{R"({"numa":"all"})", "/numa"},
                        Case{R"({"numa":"shard"})", "/numa", Code::unsupported},
                        Case{R"({"numa":"interleave"})", "/numa", Code::unsupported},
                        Case{R"({"numa":"mirror"})", "/numa", Code::unsupported},
                        Case{R"({"huge_pages":"always"})", "/huge_pages"},
                        Case{R"({"log_level":"loud"})", "/log_level"},
                        Case{R"({"log_level":2})", "/log_level"},
                        Case{R"({"log_ring":-1})", "/log_ring"},
                        Case{R"({"log_ring":1000001})", "/log_ring"},
                        Case{R"({"flush_denormals":1})", "/flush_denormals"}}) {
    const auto c = Context::create(k.text, {});
    ASSERT_FALSE(c) << k.text;
    EXPECT_EQ(c.error().code, k.code) << k.text;
    EXPECT_EQ(c.error().subject, k.subject) << k.text;
    EXPECT_FALSE(c.error().message.empty());
  }
}

TEST(Context, AListOfCpusIsAText) {
  EXPECT_EQ(Context::create(R"({"cpus":[0,1]})", {}).error().message,
            R"(/cpus: found an array of 2 elements, expected a list of CPUs like "0-7,16")");
}

// A caller's hooks that count how often each was given back.
struct Hooks {
  int log_destroyed = 0, parallel_destroyed = 0, allocator_destroyed = 0, runs = 0;
  std::atomic<int> messages{0};

  ContextHooks table() {
    ContextHooks h;
    h.log = {
        [](void* user, std::int32_t, const char*, const char*, std::size_t) { ++static_cast<Hooks*>(user)->messages; },
        this};
    h.log_destroy = [](void* user) { ++static_cast<Hooks*>(user)->log_destroyed; };
    h.threads =
        std::make_shared<HostThreads>(HostParallel{5, this, [](void* self, std::size_t count, TaskFn task, void* arg) {
                                                     ++static_cast<Hooks*>(self)->runs;
                                                     for (std::size_t i = count; i-- > 0;) task(arg, i);
                                                   }});
    h.parallel_destroy = [](void* user) { ++static_cast<Hooks*>(user)->parallel_destroyed; };
    h.allocator = {this, [](void*, std::size_t, std::size_t, std::int32_t) -> void* { return nullptr; },
                   [](void*, void*, std::size_t, std::size_t) {}};
    h.allocator_destroy = [](void* user) { ++static_cast<Hooks*>(user)->allocator_destroyed; };
    return h;
  }
  std::vector<int> destroyed() const { return {log_destroyed, parallel_destroyed, allocator_destroyed}; }
};

TEST(Context, HooksAreGivenBackOnceAtTheEnd) {
  Hooks hooks;
  {
    const auto c = make("", hooks.table());
    ASSERT_TRUE(c);
    const auto again = c;
    EXPECT_EQ(hooks.destroyed(), (std::vector<int>{0, 0, 0}));
  }
  EXPECT_EQ(hooks.destroyed(), (std::vector<int>{1, 1, 1}));
}

TEST(Context, HooksAreGivenBackOnceOnFailure) {
  for (const char* text : {"{", R"({"threads":-1})", R"({"numa":"mirror"})", R"({"what":1})"}) {
    Hooks hooks;
    EXPECT_FALSE(Context::create(text, hooks.table()));
    EXPECT_EQ(hooks.destroyed(), (std::vector<int>{1, 1, 1})) << text;
  }
}

TEST(Context, CallersThreadsAndMemoryAreUsed) {
  Hooks hooks;
  const auto c = make(R"({"threads":2})", hooks.table());
  ASSERT_TRUE(c);
  EXPECT_EQ(c->num_threads(), 5);
  EXPECT_EQ(options_of(*c)["own_threads"], false);
  const Parallel p = c->parallel();
  EXPECT_EQ(p.num_threads, 5);
  int ran = 0;
  auto body = [&ran](std::size_t) { ++ran; };
  EXPECT_TRUE(p.each(9, body));
  EXPECT_EQ(ran, 9);
  EXPECT_EQ(hooks.runs, 1);
  EXPECT_EQ(c->allocator().user, &hooks);
}

TEST(Context, OwnThreadsRunEveryTask) {
  for (const char* text : {R"({"threads":1})", R"({"threads":3})", R"({"threads":3,"flush_denormals":true})"}) {
    const auto c = make(text);
    ASSERT_TRUE(c);
    std::vector<int> counts(200, 0);
    auto body = [&counts](std::size_t i) { ++counts[i]; };
    EXPECT_TRUE(c->parallel().each(counts.size(), body));
    EXPECT_EQ(counts, std::vector<int>(200, 1)) << text;
  }
}

TEST(Context, MemoryWithAndWithoutHugePages) {
  for (const char* text : {R"({"huge_pages":"try"})", R"({"huge_pages":"off"})"}) {
    const auto c = make(text);
    ASSERT_TRUE(c);
    for (std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{5} << 20}) {
      auto b = Buffer::create(size, 128, c->allocator(), c);
      ASSERT_TRUE(b) << text;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b->data()) % 128, 0u);
    }
    EXPECT_FALSE(Buffer::create(SIZE_MAX - 10, 64, c->allocator(), c)) << text;
  }
}

TEST(Context, WithoutContext) {
  const Parallel p = parallel_of(nullptr);
  EXPECT_EQ(p.num_threads, 1);
  int ran = 0;
  auto body = [&ran](std::size_t) { ++ran; };
  EXPECT_TRUE(p.each(3, body));
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(allocator_of(nullptr).allocate, system_allocator().allocate);
  const auto c = make("");
  EXPECT_EQ(&allocator_of(c.get()), &c->allocator());
}

// --- log ------------------------------------------------------------------------------------------

class ContextLog : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* v = std::getenv("MOE_LOG")) before_ = v;
    unsetenv("MOE_LOG");
  }
  void TearDown() override {
    if (before_) {
      setenv("MOE_LOG", before_->c_str(), 1);
    } else {
      unsetenv("MOE_LOG");
    }
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(ContextLog, GoesToTheRingAndTheCallback) {
  Hooks hooks;
  const auto c = make(R"({"log_level":"warn","log_ring":2})", hooks.table());
  ASSERT_TRUE(c);
  c->log().write(LogLevel::info, "x", "not heard");
  for (const char* m : {"1", "2", "3"}) c->log().write(LogLevel::warn, "x", m);
  EXPECT_EQ(hooks.messages.load(), 3);
  const std::string text = c->take_log();
  EXPECT_EQ(text.find("\"1\""), std::string::npos);
  EXPECT_NE(text.find("\"message\":\"2\""), std::string::npos);
  EXPECT_NE(text.find("\"message\":\"3\""), std::string::npos);
  EXPECT_EQ(c->take_log(), "");
}

TEST_F(ContextLog, EnvironmentIsTheDefaultLevel) {
  setenv("MOE_LOG", "error", 1);
  EXPECT_EQ(options_of(*make(""))["log_level"], "error");
  EXPECT_EQ(options_of(*make(R"({"log_level":"trace"})"))["log_level"], "trace");
  setenv("MOE_LOG", "", 1);
  EXPECT_EQ(options_of(*make(""))["log_level"], "info");
}

TEST_F(ContextLog, UnknownLevelInTheEnvironmentIsAWarning) {
  setenv("MOE_LOG", "loud", 1);
  const auto c = make("");
  ASSERT_TRUE(c);
  EXPECT_EQ(options_of(*c)["log_level"], "info");
  EXPECT_NE(c->take_log().find("loud"), std::string::npos);
}

// --- denormals ------------------------------------------------------------------------------------

#if defined(__x86_64__) || defined(__aarch64__)
// One division of which operand and result are below 2^-126, as the thread computes it now.
float denormal_quotient() {
  volatile float x = std::numeric_limits<float>::min() / 4;
  volatile float y = 2.0f;
  return x / y;
}

TEST(Context, FlushDenormalsHoldsInTasksOnly) {
  ASSERT_GT(denormal_quotient(), 0.0f);
  Hooks hooks;
  for (const bool own : {true, false})
    for (const char* text : {R"({"threads":1,"flush_denormals":true})", R"({"threads":3,"flush_denormals":true})"}) {
      const auto c = make(text, own ? ContextHooks{} : hooks.table());
      ASSERT_TRUE(c);
      for (std::size_t count : {1u, 2u, 64u}) {
        std::vector<float> quotients(count, 1.0f);
        auto body = [&quotients](std::size_t i) { quotients[i] = denormal_quotient(); };
        EXPECT_TRUE(c->parallel().each(count, body));
        EXPECT_EQ(quotients, std::vector<float>(count, 0.0f)) << text << (own ? " own" : " lent");
        EXPECT_GT(denormal_quotient(), 0.0f);  // restored
      }
    }
}

TEST(Context, DenormalsStayByDefault) {
  const auto c = make(R"({"threads":2})");
  ASSERT_TRUE(c);
  std::vector<float> quotients(64, 0.0f);
  auto body = [&quotients](std::size_t i) { quotients[i] = denormal_quotient(); };
  EXPECT_TRUE(c->parallel().each(64, body));
  for (float q : quotients) EXPECT_GT(q, 0.0f);
}
#endif

}  // namespace
}  // namespace moe::test::context_test
