// Owned bytes: alignment, sizes, hostile requests.
#include <gtest/gtest.h>

#include <cstring>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/sanitizers.h"

namespace moe::test::buffer_test {
namespace {

TEST(Buffers, AlignedAndWritable) {
  for (const std::size_t alignment : {0U, 1U, 16U, 64U, 4096U, 1U << 21}) {
    for (const std::size_t size : {0U, 1U, 63U, 64U, 100000U}) {
      const BufferPtr b =
          make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_buffer_create(size, alignment, o, e); });
      ASSERT_NE(moe_buffer_data(b.get()), nullptr);
      EXPECT_EQ(moe_buffer_size(b.get()), size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(moe_buffer_data(b.get())) % (alignment < 64 ? 64 : alignment), 0U);
      std::memset(moe_buffer_data(b.get()), 0x5a, size);
    }
  }
}

TEST(Buffers, RefusesOddAlignments) {
  for (const std::size_t alignment : {3U, 48U, 65U}) {
    moe_buffer* out = nullptr;
    const Failure f = failure([&](moe_error** e) { return moe_buffer_create(1, alignment, &out, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "alignment");
  }
}

// The allocators of the sanitizers end the program instead.
#if !MOE_ASAN && !MOE_TSAN
TEST(Buffers, TooLargeIsAnError) {
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2, std::size_t{1} << 60}) {
    moe_buffer* out = reinterpret_cast<moe_buffer*>(8);
    EXPECT_EQ(failure([&](moe_error** e) { return moe_buffer_create(size, 0, &out, e); }).status,
              MOE_ERR_OUT_OF_MEMORY);
    EXPECT_EQ(out, nullptr);
  }
  moe_buffer* out = nullptr;
  EXPECT_EQ(failure([&](moe_error** e) { return moe_buffer_create(1, std::size_t{1} << 63, &out, e); }).status,
            MOE_ERR_OUT_OF_MEMORY);
}
#endif

TEST(Buffers, AccessorsTakeNull) {
  EXPECT_EQ(moe_buffer_data(nullptr), nullptr);
  EXPECT_EQ(moe_buffer_size(nullptr), 0U);
  moe_buffer_destroy(nullptr);
}

TEST(Buffers, TextEndsWithNul) {
  const ContextPtr c = make_context("{\"threads\":1,\"log_ring\":0}");
  const BufferPtr empty =
      make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_context_take_log(c.get(), o, e); });
  EXPECT_EQ(moe_buffer_size(empty.get()), 0U);
  EXPECT_STREQ(static_cast<const char*>(moe_buffer_data(empty.get())), "");
  const BufferPtr text =
      make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_context_to_json(c.get(), o, e); });
  EXPECT_EQ(std::strlen(static_cast<const char*>(moe_buffer_data(text.get()))), moe_buffer_size(text.get()));
}

}  // namespace
}  // namespace moe::test::buffer_test
