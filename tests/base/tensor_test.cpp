// Views: byte counts at their limits, slices, row-major checks.
#include "base/tensor.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace moe::test::tensor_test {
namespace {

using Shape = std::vector<std::int64_t>;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(TensorNbytes, ProductOfTheShape) {
  EXPECT_EQ(tensor_nbytes(DType::f32, Shape{2, 3}), 24);
  EXPECT_EQ(tensor_nbytes(DType::bf16, Shape{}), 2);  // a scalar
  EXPECT_EQ(tensor_nbytes(DType::i8, Shape{0, 5}), 0);
  EXPECT_EQ(tensor_nbytes(DType::i8, Shape{5, 0}), 0);
  EXPECT_EQ(tensor_nbytes(DType::f64, Shape{1, 1, 1, 1, 1, 7}), 56);
}

TEST(TensorNbytes, RowsOfSubByteTypesFillWholeBytes) {
  EXPECT_EQ(tensor_nbytes(DType::i4, Shape{3, 5}), 9);         // 20 bits a row
  EXPECT_EQ(tensor_nbytes(DType::u2, Shape{3, 5}), 6);         // 10 bits
  EXPECT_EQ(tensor_nbytes(DType::f6_e2m3fn, Shape{2, 3}), 6);  // 18 bits
  EXPECT_EQ(tensor_nbytes(DType::i4, Shape{4, 4}), 8);
}

TEST(TensorNbytes, NothingThatOverflowsOrIsNoShape) {
  EXPECT_EQ(tensor_nbytes(DType::i8, Shape{-1}), std::nullopt);
  EXPECT_EQ(tensor_nbytes(DType::i8, Shape{0, -1}), std::nullopt);
  EXPECT_EQ(tensor_nbytes(DType::i8, Shape{-1, 0}), std::nullopt);
  EXPECT_EQ(tensor_nbytes(DType::f32, Shape{kMax}), std::nullopt);
  EXPECT_EQ(tensor_nbytes(DType::i8, Shape{std::int64_t{1} << 32, std::int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(tensor_nbytes(DType::invalid, Shape{1}), std::nullopt);
  EXPECT_EQ(tensor_nbytes(static_cast<DType>(7), Shape{1}), std::nullopt);
  EXPECT_EQ(tensor_nbytes(DType::i8, Shape(7, 1)), std::nullopt);  // more than kMaxDims
}

TEST(RowMajor, FillsStridesAndBytes) {
  const std::vector<float> data(24);
  const TensorView t = row_major(DType::f32, {2, 3, 4}, data.data());
  EXPECT_EQ(t.ndim, 3);
  EXPECT_EQ(t.strides[0], 12);
  EXPECT_EQ(t.strides[1], 4);
  EXPECT_EQ(t.strides[2], 1);
  EXPECT_EQ(t.nbytes, 96u);
  EXPECT_EQ(t.numel(), 24);
  EXPECT_TRUE(is_row_major(t));
}

TEST(RowMajor, OtherStridesAreSeenExceptWhereOnlyOneElementIs) {
  const std::vector<float> data(24);
  TensorView t = row_major(DType::f32, {2, 1, 4}, data.data());
  t.strides[1] = 1000;  // never used: the dimension has one element
  EXPECT_TRUE(is_row_major(t));
  t.strides[0] = 5;
  EXPECT_FALSE(is_row_major(t));
  t = row_major(DType::f32, {2, 4}, data.data());
  t.strides[1] = 2;
  EXPECT_FALSE(is_row_major(t));
}

TEST(Slice, PointsAtItsElements) {
  std::vector<std::int32_t> data(24);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::int32_t>(i);
  const TensorView t = row_major(DType::i32, {4, 2, 3}, data.data());
  const TensorView s = slice0(t, 2);
  EXPECT_EQ(s.ndim, 2);
  EXPECT_EQ(s.shape[0], 2);
  EXPECT_EQ(s.shape[1], 3);
  EXPECT_EQ(s.strides[0], 3);
  std::int32_t first = 0;
  std::memcpy(&first, s.data, sizeof first);
  EXPECT_EQ(first, 12);

  const TensorView r = rows(t, 1, 2);
  EXPECT_EQ(r.ndim, 3);
  EXPECT_EQ(r.shape[0], 2);
  std::memcpy(&first, r.data, sizeof first);
  EXPECT_EQ(first, 6);
  EXPECT_EQ(r.data + r.nbytes, t.data + t.nbytes);
}

TEST(Slice, FollowsStridesBetweenRows) {
  std::vector<std::uint16_t> data(20);
  data[10] = 77;
  TensorView t = row_major(DType::bf16, {4, 3}, data.data());
  t.strides[0] = 5;
  std::uint16_t first = 0;
  std::memcpy(&first, slice0(t, 2).data, sizeof first);
  EXPECT_EQ(first, 77);
}

TEST(ShapeText, AsInMessages) {
  EXPECT_EQ(shape_text(Shape{8, 2048, 6}), "[8, 2048, 6]");
  EXPECT_EQ(shape_text(Shape{}), "[]");
  EXPECT_EQ(shape_text(Shape{-1}), "[-1]");
}

}  // namespace
}  // namespace moe::test::tensor_test
