// Owned memory: alignment, moves, the caller's allocator, and what happens when there is none.
#include "base/buffer.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace moe::test::buffer_test {
namespace {

// An allocator that notes what it is asked for.
struct Recorder {
  struct Block {
    std::size_t size, alignment;
  };
  std::vector<Block> taken, given_back;
  std::size_t offset = 0;  // added to every pointer: a broken allocator
  bool empty = false;

  Allocator allocator() {
    return {this,
            [](void* user, std::size_t size, std::size_t alignment, std::int32_t node) -> void* {
              auto& r = *static_cast<Recorder*>(user);
              EXPECT_EQ(node, -1);
              if (r.empty) return nullptr;
              r.taken.push_back({size, alignment});
              void* p = std::aligned_alloc(alignment, (size + 2 * alignment) / alignment * alignment);
              return static_cast<std::byte*>(p) + r.offset;
            },
            [](void* user, void* p, std::size_t size, std::size_t alignment) {
              auto& r = *static_cast<Recorder*>(user);
              r.given_back.push_back({size, alignment});
              std::free(static_cast<std::byte*>(p) - r.offset);
            }};
  }
};

bool aligned(const void* p, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(p) % alignment == 0; }

TEST(Buffer, SystemMemoryIsAlignedAndWritable) {
  for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{65}, std::size_t{1} << 20, std::size_t{5} << 20})
    for (std::size_t alignment : {std::size_t{64}, std::size_t{4096}}) {
      auto b = Buffer::create(size, alignment);
      ASSERT_TRUE(b);
      ASSERT_TRUE(static_cast<bool>(*b));
      EXPECT_EQ(b->size(), size);
      EXPECT_TRUE(aligned(b->data(), alignment));
      if (size != 0) std::memset(b->data(), 0x5a, size);
    }
}

TEST(Buffer, BigBlocksLieOnHugePageBoundaries) {
  auto b = Buffer::create(std::size_t{4} << 20);
  ASSERT_TRUE(b);
  EXPECT_TRUE(aligned(b->data(), std::size_t{2} << 20));
}

TEST(Buffer, MoreThanThereCanBeIsOutOfMemory) {
  for (std::size_t size : {SIZE_MAX, SIZE_MAX - 4096, static_cast<std::size_t>(PTRDIFF_MAX), SIZE_MAX / 2 - 63}) {
    const auto b = Buffer::create(size);
    ASSERT_FALSE(b) << size;
    EXPECT_EQ(b.error().code, Code::out_of_memory);
    EXPECT_NE(b.error().message.find(std::to_string(size)), std::string::npos);
  }
}

TEST(Buffer, AllocatorGetsBackWhatItGave) {
  Recorder r;
  const Allocator allocator = r.allocator();
  {
    auto b = Buffer::create(100, 128, allocator);
    ASSERT_TRUE(b);
    Buffer moved = *std::move(b);
    Buffer assigned;
    EXPECT_FALSE(static_cast<bool>(assigned));
    assigned = std::move(moved);
    EXPECT_EQ(assigned.size(), 100u);
    EXPECT_TRUE(r.given_back.empty());
  }
  ASSERT_EQ(r.taken.size(), 1u);
  ASSERT_EQ(r.given_back.size(), 1u);
  EXPECT_EQ(r.given_back[0].size, 100u);
  EXPECT_EQ(r.given_back[0].alignment, 128u);
}

TEST(Buffer, AllocatorWithoutMemory) {
  Recorder r;
  r.empty = true;
  const Allocator allocator = r.allocator();
  const auto b = Buffer::create(64, 64, allocator);
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().code, Code::out_of_memory);
  EXPECT_TRUE(r.given_back.empty());
}

TEST(Buffer, MisalignedMemoryIsRefusedAndGivenBack) {
  Recorder r;
  r.offset = 16;
  const Allocator allocator = r.allocator();
  const auto b = Buffer::create(256, 64, allocator);
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().code, Code::callback);
  EXPECT_EQ(r.given_back.size(), 1u);
}

TEST(Buffer, KeepsItsLenderAlive) {
  auto lender = std::make_shared<Recorder>();
  const std::weak_ptr<Recorder> watch = lender;
  {
    const Allocator allocator = lender->allocator();
    auto b = Buffer::create(64, 64, allocator, lender);
    lender.reset();
    ASSERT_TRUE(b);
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace moe::test::buffer_test
