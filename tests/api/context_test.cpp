// Contexts: the caller's functions are used, checked, and ended exactly once whatever happens.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::context_test {
namespace {

struct Host {
  std::atomic<int> logged{0}, ran{0}, allocated{0}, freed{0};
  int log_ended = 0, parallel_ended = 0, allocator_ended = 0;
  moe_parallel_ops parallel{};
  moe_allocator_ops allocator{};
  moe_context_callbacks callbacks{};

  Host() {
    parallel = {sizeof parallel, 3, this, run, [](void* u) { ++static_cast<Host*>(u)->parallel_ended; }};
    allocator = {sizeof allocator, 0,       this,
                 allocate,         release, [](void* u) { ++static_cast<Host*>(u)->allocator_ended; }};
    callbacks = {sizeof callbacks, 0,         log, this, [](void* u) { ++static_cast<Host*>(u)->log_ended; },
                 &parallel,        &allocator};
  }
  static void log(void* u, moe_log_level, const char*, const char*, std::size_t) { ++static_cast<Host*>(u)->logged; }
  static void run(void* u, std::size_t count, moe_task_fn task, void* arg) {
    ++static_cast<Host*>(u)->ran;
    for (std::size_t i = count; i-- > 0;) task(arg, i);
  }
  static void* allocate(void* u, std::size_t size, std::size_t alignment, std::int32_t) {
    ++static_cast<Host*>(u)->allocated;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  }
  static void release(void* u, void* p, std::size_t, std::size_t) {
    ++static_cast<Host*>(u)->freed;
    std::free(p);
  }
  Failure create(const char* options = nullptr) {
    moe_context* out = reinterpret_cast<moe_context*>(8);
    const Failure f = failure([&](moe_error** e) {
      return moe_context_create(options, options == nullptr ? 0 : MOE_NUL_TERMINATED, &callbacks, &out, e);
    });
    if (f.status != MOE_OK) {
      EXPECT_EQ(out, nullptr);
    }
    moe_context_destroy(f.status == MOE_OK ? out : nullptr);
    return f;
  }
  void expect_ended(int log_times, int parallel_times, int allocator_times) const {
    EXPECT_EQ(log_ended, log_times);
    EXPECT_EQ(parallel_ended, parallel_times);
    EXPECT_EQ(allocator_ended, allocator_times);
  }
};

TEST(Context, EndsWhatItWasGiven) {
  Host h;
  EXPECT_EQ(h.create().status, MOE_OK);
  h.expect_ended(1, 1, 1);
}

struct Fault {
  const char* what;
  moe_status status;
  const char* subject;
  int ends[3];
  void (*spoil)(Host&);
};

// clang-format off
const Fault kFaults[] = {
    {"callbacks size 0",   MOE_ERR_INVALID_ARGUMENT, "callbacks",    {0, 0, 0}, [](Host& h) { h.callbacks.struct_size = 0; }},
    {"callbacks reserved", MOE_ERR_INVALID_ARGUMENT, "callbacks",    {1, 1, 1}, [](Host& h) { h.callbacks.reserved0 = 1; }},
    {"parallel size 0",    MOE_ERR_INVALID_ARGUMENT, "parallel",     {1, 0, 1}, [](Host& h) { h.parallel.struct_size = 0; }},
    {"allocator size huge", MOE_ERR_INVALID_ARGUMENT, "allocator",   {1, 1, 0}, [](Host& h) { h.allocator.struct_size = UINT32_MAX; }},
    {"no parallel_for",    MOE_ERR_INVALID_ARGUMENT, "parallel_for", {1, 1, 1}, [](Host& h) { h.parallel.parallel_for = nullptr; }},
    {"no threads",         MOE_ERR_INVALID_ARGUMENT, "num_threads",  {1, 1, 1}, [](Host& h) { h.parallel.num_threads = 0; }},
    {"no allocate",        MOE_ERR_INVALID_ARGUMENT, "allocate",     {1, 1, 1}, [](Host& h) { h.allocator.allocate = nullptr; }},
    {"no deallocate",      MOE_ERR_INVALID_ARGUMENT, "deallocate",   {1, 1, 1}, [](Host& h) { h.allocator.deallocate = nullptr; }},
    {"allocator reserved", MOE_ERR_INVALID_ARGUMENT, "allocator",    {1, 1, 1}, [](Host& h) { h.allocator.reserved0 = 9; }},
};
// clang-format on

TEST(Context, RefusesAndStillEnds) {
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.what);
    Host h;
    fault.spoil(h);
    const Failure f = h.create();
    EXPECT_EQ(f.status, fault.status) << f.message;
    EXPECT_EQ(f.subject, fault.subject);
    h.expect_ended(fault.ends[0], fault.ends[1], fault.ends[2]);
  }
}

TEST(Context, BadOptionsEndToo) {
  struct Row {
    const char *text, *pointer;
    moe_status status;
  };
  for (const Row& r :
       {Row{"{", "", MOE_ERR_INVALID_CONFIG}, Row{"{\"threads\":-1}", "/threads", MOE_ERR_INVALID_CONFIG},
        Row{"{\"treads\":1}", "/treads", MOE_ERR_INVALID_CONFIG},
        Row{"{\"log_level\":\"loud\"}", "/log_level", MOE_ERR_INVALID_CONFIG},
        Row{"{\"numa\":\"mirror\"}", "/numa", MOE_ERR_UNSUPPORTED}}) {
    Host h;
    const Failure f = h.create(r.text);
    EXPECT_EQ(f.status, r.status) << r.text;
    EXPECT_EQ(f.subject, r.pointer);
    h.expect_ended(1, 1, 1);
  }
}

TEST(Context, LivesAsLongAsItsLayer) {
  const Model m = random_model();
  Host h;
  {
    Steps s;
    s.context = make<ContextPtr>(
        [&](moe_context** o, moe_error** e) { return moe_context_create(nullptr, 0, &h.callbacks, o, e); });
    s.config = make_config(m.config_text());
    s.selection = make_selection(s.config.get(), s.context.get());
    finish(s, m);
    s.context.reset();
    h.expect_ended(0, 0, 0);
    Call call(m);
    EXPECT_EQ(moe_apply(s.layer.get(), &call.args, nullptr), MOE_OK);
    EXPECT_FALSE(call.untouched());
    s.layer.reset();
    h.expect_ended(0, 0, 0);  // the packed weights lie in the caller's memory
  }
  h.expect_ended(1, 1, 1);
  EXPECT_GT(h.ran, 0);
  EXPECT_GT(h.logged, 0);
  EXPECT_GE(h.allocated, 2);
  EXPECT_EQ(h.allocated, h.freed);
}

TEST(Context, AnAllocatorThatFails) {
  const Model m = random_model();
  Host h;
  h.allocator.allocate = [](void*, std::size_t, std::size_t, std::int32_t) -> void* { return nullptr; };
  const ContextPtr c = make<ContextPtr>(
      [&](moe_context** o, moe_error** e) { return moe_context_create(nullptr, 0, &h.callbacks, o, e); });
  const ConfigPtr config = make_config(m.config_text());
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr weights = make_weights(config.get(), m);
  moe_packed* out = nullptr;
  EXPECT_EQ(failure([&](moe_error** e) {
              return moe_convert_weights(c.get(), selection.get(), weights.get(), nullptr, &out, e);
            }).status,
            MOE_ERR_OUT_OF_MEMORY);
}

TEST(Context, TwoDoNotSeeEachOther) {
  Host a, b;
  const auto create = [](Host& h) {
    return make<ContextPtr>(
        [&](moe_context** o, moe_error** e) { return moe_context_create(nullptr, 0, &h.callbacks, o, e); });
  };
  const ContextPtr ca = create(a), cb = create(b);
  const ConfigPtr config = make_config(random_model().config_text());
  const SelectionPtr selection = make_selection(config.get(), ca.get());
  EXPECT_GT(a.logged, 0);
  EXPECT_EQ(b.logged, 0);
  const BufferPtr lines =
      make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_context_take_log(cb.get(), o, e); });
  EXPECT_EQ(moe_buffer_size(lines.get()), 0U);
}

TEST(Context, TheRingCanBePolled) {
  const ContextPtr c = make_context("{\"threads\":1}");
  const ConfigPtr config = make_config(random_model().config_text());
  const SelectionPtr selection = make_selection(config.get(), c.get());
  const auto line = json_of([&](moe_buffer** o, moe_error** e) { return moe_context_take_log(c.get(), o, e); });
  EXPECT_EQ(line["component"], "select");
  EXPECT_EQ(line["level"], "info");
  EXPECT_NE(line["message"].get<std::string>().find("CPU_INT4"), std::string::npos);
}

TEST(Context, ReportsThreadsAndBackends) {
  const ContextPtr c = make_context("{\"threads\":2}");
  const auto j = json_of([&](moe_buffer** o, moe_error** e) { return moe_context_to_json(c.get(), o, e); });
  EXPECT_EQ(j["threads"], 2);
  std::set<std::string> oracles, kernels, formats;
  for (const auto& b : j["backends"]) {
    oracles.insert(b["oracle"]);
    for (const auto& f : b["formats"]) formats.insert(f);
    for (const auto& k : b["kernels"]) {
      kernels.insert(k["kernel"]);
      const std::string layout = k["layout"];
      EXPECT_TRUE(layout.starts_with("p16/") || layout == "kai") << layout;
      EXPECT_FALSE(k["needs"].empty());
    }
  }
  EXPECT_EQ(j["backends"][0]["backend"], "CPU_INT4");
  EXPECT_EQ(oracles, (std::set<std::string>{"w4a8_int8", "int8", "int_wna16", "unquantized", "fp8", "mxfp8", "w4a8_fp8",
                                            "mxfp4", "mxfp4_deepseek_v4", "nvfp4"}));
  EXPECT_TRUE(formats.contains("gptq") && formats.contains("awq") && formats.contains("int-quantized"));
  for (const char* name : {"w4a8_tok8_p16_scalar", "w8a8_tok8_p16_scalar", "bf16_f32_p16_scalar"})
    EXPECT_TRUE(kernels.contains(name)) << name;
}

}  // namespace
}  // namespace moe::test::context_test
