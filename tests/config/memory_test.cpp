// Every allocation of parsing, merging and reporting fails once: only std::bad_alloc comes out, and
// nothing is leaked. This program's operator new counts down to the failure.
#include <gtest/gtest.h>

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <new>

#include "config/documents.h"
#include "support/rooms.h"
#include "support/sanitizers.h"
#include "support/vectors.h"

namespace {

thread_local long g_until_failure = -1;  // -1: never
thread_local long g_live = 0;
thread_local std::size_t g_bytes = 0, g_peak = 0;  // of what this thread allocated and released

void* allocate(std::size_t size) noexcept {
  if (g_until_failure == 0) return nullptr;
  if (g_until_failure > 0) --g_until_failure;
  void* p = std::malloc(size != 0 ? size : 1);
  if (p == nullptr) return p;
  ++g_live;
  g_bytes += malloc_usable_size(p);
  g_peak = std::max(g_peak, g_bytes);
  return p;
}
void* allocate_or_throw(std::size_t size) {
  void* p = allocate(size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void release(void* p) noexcept {
  if (p == nullptr) return;
  --g_live;
  g_bytes -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size); }
void* operator new[](std::size_t size) { return allocate_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }

namespace moe::test::memory_test {
namespace {

// The number of allocations that `body` makes; each has failed once.
template <class Body>
long fail_each_allocation(const char* name, const Body& body) {
  for (long n = 0;; ++n) {
    const long before = g_live;
    bool threw = false;
    g_until_failure = n;
    try {
      body();
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    g_until_failure = -1;
    EXPECT_EQ(g_live, before) << name << ": leaked after the failure of allocation " << n;
    if (!threw || g_live != before) return n;
  }
}

TEST(Memory, EveryAllocationFailsOnce) {
  static_cast<void>(detect_platform());  // keeps its answer for good
  const char* files[] = {"valid/hf_object",       "valid/deepseek_v3",    "valid/platform_override",
                         "valid/inline_bias",     "valid/w4a8_int8_cpu",  "invalid/bias_length",
                         "invalid/duplicate_key", "invalid/feature_twice"};
  for (const char* file : files) {
    const std::string text = read_text(vector_path(std::string("config/") + file + ".json"));
    const long count = fail_each_allocation(file, [&] {
      const auto c = parse_config(text);
      if (!c) return;
      const auto m = merge_config(*c, R"({"num_experts_per_tok":1,"name":null,"parallel":{"sp_size":1}})");
      if (m) static_cast<void>(effective_platform(*m));
    });
    EXPECT_GT(count, 10) << file;
  }
  const std::string text =
      R"({"type":"cuda","capability":[9,0],"libs":{"flashinfer":true},"vendor":"a name that is not short"})";
  const long count = fail_each_allocation("platform", [&] {
    const auto p = platform_from_text(text);
    if (p) static_cast<void>(platform_to_json(*p));
  });
  EXPECT_GT(count, 10);
}

TEST(Memory, TreesAreCopiedWholeOrNotAtAll) {
  const auto tree = moe::json::parse(
      R"({"a":["a string that needs memory",{"b":[1,2.5,null,true]}],"c":"another string of that kind"})");
  ASSERT_TRUE(tree);
  const std::string text = moe::json::write(*tree);
  fail_each_allocation("copy", [&] { moe::json::Value copy(*tree); });
  // A failed assignment leaves what was there.
  moe::json::Value target(1);
  const long count = fail_each_allocation("assign", [&] {
    if (target.integer() == nullptr) target = moe::json::Value(1);
    target = *tree;
    target = moe::json::Value(1);
  });
  EXPECT_GT(count, 5);
  EXPECT_EQ(moe::json::write(target), "1");
  EXPECT_EQ(moe::json::write(*tree), text);
}

// Patterns whose sets of states differ for nearly every expert. What they cost is limited within the walk, so that one
// pattern cannot take all time and memory before anything is counted.
TEST(Memory, PatternsOfStrangers) {
  std::string numbers;  // tells numbers apart by their first five digits
  for (int digit = 0; digit < 5; ++digit)
    for (const char* some : {"13579", "2367", "4567", "89"})
      numbers += "|" + (digit == 0 ? "" : "\\d{" + std::to_string(digit) + "}") + "[" + some + "]\\d*\\.q";
  const auto answer = [](const std::vector<std::string>& patterns, std::int64_t experts) {
    nlohmann::json ignore = nlohmann::json::array();
    for (const std::string& p : patterns) ignore.push_back("re:" + p);
    const nlohmann::json object = {
        {"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"ignore", ignore},
        {"config_groups",
         {{"g",
           {{"targets", {"Linear"}},
            {"weights",
             {{"num_bits", 4}, {"type", "int"}, {"symmetric", true}, {"strategy", "group"}, {"group_size", 32}}}}}}}};
    const auto parsed = moe::json::parse(object.dump());
    g_peak = g_bytes;
    const std::size_t before = g_bytes;
    const std::clock_t start = std::clock();
    const auto got = resolve_hf_quantization(*parsed, "m", {"gate_proj", "up_proj", "down_proj"}, experts);
    if (!MOE_SANITIZED) {
      EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC) << patterns[0].substr(0, 40);  // 26 s without the limit
    }
    EXPECT_LT(g_peak - before, std::size_t{16} << 20) << patterns[0].substr(0, 40);
    return got ? std::string("read") : got.error().message;
  };
  for (const std::int64_t experts : {4096, 65536})
    for (const int live : {1, 200, 850}) {
      const std::string pattern = "m\\.(?:(?:.?){" + std::to_string(live) + "}z" + numbers + ")";
      const std::string got = answer({pattern}, experts);
      if (live == 850 || experts == 65536) {
        EXPECT_NE(got.find("too many patterns"), std::string::npos) << got << experts << " " << live;
      }
      if (experts == 65536 && live == 1) answer(std::vector<std::string>(100, pattern), experts);
    }
  // Each pattern has few states, but a set of them for every number.
  std::vector<std::string> many;
  for (int i = 0; i < 3000; ++i)
    many.push_back("m\\.(?:\\d*[13579]\\d{8}z|\\d*[2367]\\d{9}|\\d*[4567].{10}x)" + std::to_string(i));
  EXPECT_NE(answer(many, 65536).find("too many patterns"), std::string::npos);
  // What files have: many patterns, over many experts.
  std::vector<std::string> real;
  for (int i = 0; i < 20'000; ++i) real.push_back(".*layers\\." + std::to_string(i + 4) + "\\.mlp\\.experts\\..*");
  EXPECT_EQ(answer(real, 65536), "read");
}

}  // namespace
}  // namespace moe::test::memory_test
