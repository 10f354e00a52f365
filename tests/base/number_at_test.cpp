// Numbers of each floating type at addresses that no type is aligned to.
#include "base/number_at.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "support/rooms.h"

namespace moe::test::number_at_test {
namespace {

struct Stored {
  DType dtype;
  std::size_t bytes;
};
constexpr std::array kStored = {Stored{DType::f32, 4}, Stored{DType::f16, 2}, Stored{DType::bf16, 2}};

float there_and_back(DType dtype, float x) {
  std::array<std::byte, 8> bytes = {};
  store_float(dtype, x, bytes.data() + 1);
  return load_float(dtype, bytes.data() + 1);
}

TEST(NumberAt, IsWrittenAndReadAtAnyAddress) {
  constexpr std::byte kOther{0xa5};
  for (const Stored& s : kStored)
    for (std::size_t at = 0; at < 4; ++at) {
      std::array<std::byte, 8> bytes;
      bytes.fill(kOther);
      store_float(s.dtype, -1.5f, bytes.data() + at);
      EXPECT_EQ(load_float(s.dtype, bytes.data() + at), -1.5f) << dtype_name(s.dtype) << " at " << at;
      for (std::size_t i = 0; i < bytes.size(); ++i)
        EXPECT_TRUE(bytes[i] == kOther || (i >= at && i < at + s.bytes)) << dtype_name(s.dtype) << " at " << at;
    }
}

TEST(NumberAt, IsRoundedToNearestEven) {
  EXPECT_EQ(there_and_back(DType::f32, 1.0f + 0x1p-23f), 1.0f + 0x1p-23f);
  EXPECT_EQ(there_and_back(DType::f16, 1.0f + 0x1p-11f), 1.0f);
  EXPECT_EQ(there_and_back(DType::f16, 1.0f + 0x3p-11f), 1.0f + 0x1p-9f);
  EXPECT_EQ(there_and_back(DType::f16, 65520.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(there_and_back(DType::bf16, 1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(there_and_back(DType::bf16, 1.0f + 0x3p-8f), 1.0f + 0x1p-6f);
  for (const Stored& s : kStored) {
    EXPECT_TRUE(std::isnan(there_and_back(s.dtype, std::numeric_limits<float>::quiet_NaN()))) << dtype_name(s.dtype);
    EXPECT_TRUE(std::signbit(there_and_back(s.dtype, -0.0f))) << dtype_name(s.dtype);
  }
}

TEST(NumberAt, HasTheBitsOfItsType) {
  const auto bits = [](DType dtype) {
    std::array<std::byte, 4> bytes = {};
    store_float(dtype, -2.0f, bytes.data());
    return std::bit_cast<std::uint32_t>(bytes);
  };
  EXPECT_EQ(bits(DType::f32), 0xc0000000u);
  EXPECT_EQ(bits(DType::f16), 0xc000u);
  EXPECT_EQ(bits(DType::bf16), 0xc000u);
  std::array<std::byte, 2> one = {std::byte{0x00}, std::byte{0x3c}};
  EXPECT_EQ(load_float(DType::f16, one.data()), 1.0f);
  EXPECT_EQ(load_float(DType::bf16, one.data()), 0x1p-7f);
}

}  // namespace
}  // namespace moe::test::number_at_test
