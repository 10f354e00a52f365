// Every allocation of parsing, merging and reporting fails once: only std::bad_alloc comes out, and
// nothing is leaked. This program's operator new counts down to the failure.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "config/documents.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace {

thread_local long g_until_failure = -1;  // -1: never
thread_local long g_live = 0;

void* allocate(std::size_t size) noexcept {
  if (g_until_failure == 0) return nullptr;
  if (g_until_failure > 0) --g_until_failure;
  void* p = std::malloc(size != 0 ? size : 1);
  if (p != nullptr) ++g_live;
  return p;
}
void* allocate_or_throw(std::size_t size) {
  void* p = allocate(size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void release(void* p) noexcept {
  if (p != nullptr) --g_live;
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

}  // namespace
}  // namespace moe::test::memory_test
