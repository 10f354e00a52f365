// Growing structs: sizes below, at and beyond what this library knows.
#include "api/struct_io.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <array>

namespace moe::test::struct_io_test {
namespace {

struct Grown {
  std::uint32_t struct_size;
  std::int32_t first;
  std::uint64_t second;
  std::uint64_t added;  // by a later release
};

}  // namespace
}  // namespace moe::test::struct_io_test

template <>
inline constexpr std::size_t moe::api::kV1Size<moe::test::struct_io_test::Grown> =
    offsetof(moe::test::struct_io_test::Grown, added);

namespace moe::test::struct_io_test {
namespace {

using api::peek_struct;
using api::read_struct;
using api::write_struct;

// A struct with `size` stated, followed by 4096 bytes of which the one at `set` is not zero.
struct Given {
  alignas(8) std::array<unsigned char, 8192> bytes{};
  Given(std::uint32_t size, std::size_t set = 0) {
    const Grown g{size, -5, 7, 9};
    std::memcpy(bytes.data(), &g, sizeof g);
    if (set != 0) bytes[set] = 1;
  }
  Grown* get() { return reinterpret_cast<Grown*>(bytes.data()); }
};

TEST(StructIo, OldCallersLackTheTail) {
  Given g(16);
  const auto r = read_struct(g.get(), "args");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->first, -5);
  EXPECT_EQ(r->second, 7U);
  EXPECT_EQ(r->added, 0U);  // there are bytes, but the caller does not know them
}

TEST(StructIo, SizesThatCannotBe) {
  for (const std::uint32_t size : {0U, 15U, 4097U, UINT32_MAX}) {
    Given g(size);
    const auto r = read_struct(g.get(), "args");
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().code, Code::invalid_argument);
    EXPECT_EQ(r.error().subject, "args");
    EXPECT_NE(r.error().message.find(std::to_string(size)), std::string::npos);
    EXPECT_FALSE(peek_struct(g.get()));
  }
  EXPECT_FALSE(peek_struct<Grown>(nullptr));
}

TEST(StructIo, NewerCallersMustLeaveTheTailZero) {
  for (const std::uint32_t size : {24U, 25U, 40U, 4096U}) {
    Given zero(size);
    EXPECT_TRUE(read_struct(zero.get(), "args")) << size;
    if (size == 24) continue;
    Given set(size, size - 1);
    const auto r = read_struct(set.get(), "args");
    ASSERT_FALSE(r) << size;
    EXPECT_EQ(r.error().code, Code::version);
    EXPECT_EQ(peek_struct(set.get())->added, 9U);  // known members can still be taken over
  }
  Given beyond(40, 40);  // the byte after the struct is not the struct's
  EXPECT_TRUE(read_struct(beyond.get(), "args"));
}

TEST(StructIo, OutputsKeepTheirSizeAndTheirTail) {
  for (const std::uint32_t size : {16U, 20U, 24U, 64U}) {
    Given g(size);
    write_struct(g.get(), Grown{1, 2, 3, 4});
    EXPECT_EQ(g.get()->struct_size, size);
    EXPECT_EQ(g.get()->first, 2);
    EXPECT_EQ(g.get()->second, 3U);
    EXPECT_EQ(g.get()->added, size >= 24 ? 4U : size == 16 ? 9U : g.get()->added);
    for (std::size_t i = sizeof(Grown); i < g.bytes.size(); ++i) ASSERT_EQ(g.bytes[i], 0);
  }
}

TEST(StructIo, MisalignedStructsAreRead) {
  std::array<unsigned char, 64> bytes{};
  const Grown g{24, 1, 2, 3};
  std::memcpy(bytes.data() + 1, &g, sizeof g);
  const auto r = read_struct(reinterpret_cast<const Grown*>(bytes.data() + 1), "args");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->added, 3U);
}

}  // namespace
}  // namespace moe::test::struct_io_test
