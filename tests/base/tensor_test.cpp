// Views: byte counts at their limits, slices, row-major checks, role names, leases.
#include "base/tensor.h"
#include "base/nearest.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
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

TEST(Roles, NamesReadBackAndAliasesAreTaken) {
  std::set<std::string> names;
  for (int i = 0; i < kRoleCount; ++i) {
    const auto r = static_cast<Role>(i);
    names.insert(role_name(r));
    EXPECT_EQ(role_from_name(role_name(r)), r);
    EXPECT_EQ(is_w13(r), std::string(role_name(r)).starts_with("w13")) << role_name(r);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kRoleCount));
  EXPECT_EQ(role_from_name("w13"), Role::w13_weight);
  EXPECT_EQ(role_from_name("w2_weight_scale"), Role::w2_scale);
  EXPECT_EQ(role_from_name("w2_qzeros"), Role::w2_zero_point);
  EXPECT_EQ(role_from_name("w13_weight_global_scale"), Role::w13_global_scale);
  EXPECT_EQ(role_from_name("w2_input_global_scale"), Role::w2_input_global_scale);
  EXPECT_EQ(role_from_name(""), std::nullopt);
  EXPECT_STREQ(named_role("w2_qweight")->name, "w2_qweight");
  EXPECT_STREQ(NamedRole(Role::w2_weight).name, "w2_weight");
  EXPECT_EQ(did_you_mean("w2_wieght", role_names()), " (did you mean w2_weight?)");
  EXPECT_EQ(did_you_mean("w13_g_idx_sort_indixes", role_names()), " (did you mean w13_g_idx_sort_indices?)");
}

// What layers of vLLM 0.33 and SGLang 0.5 register; each name has one meaning, whatever its format.
TEST(Tensor, RolesByTheNamesOfOtherEngines) {
  const std::pair<const char*, Role> names[] = {{"weight_packed", Role::w13_weight},
                                                {"qweight", Role::w13_weight},
                                                {"weight", Role::w13_weight},
                                                {"scales", Role::w13_scale},
                                                {"weight_scale", Role::w13_scale},
                                                {"weight_scale_inv", Role::w13_scale},
                                                {"weight_scale_2", Role::w13_scale_2},
                                                {"weight_global_scale", Role::w13_global_scale},
                                                {"qzeros", Role::w13_zero_point},
                                                {"weight_zero_point", Role::w13_zero_point},
                                                {"g_idx", Role::w13_g_idx},
                                                {"weight_g_idx", Role::w13_g_idx},
                                                {"bias", Role::w13_bias},
                                                {"weight_bias", Role::w13_bias},
                                                {"input_scale", Role::w13_input_scale},
                                                {"input_scale_2", Role::w13_input_scale},
                                                {"weight_shape", Role::w13_weight_shape},
                                                {"input_global_scale", Role::w13_input_global_scale},
                                                {"g_idx_sort_indices", Role::w13_g_idx_sort_indices}};
  for (const auto& [name, role] : names) {
    EXPECT_EQ(role_from_name(std::string("w13_") + name), role) << name;
    EXPECT_EQ(role_from_name(std::string("w2_") + name), static_cast<Role>(static_cast<int>(role) + 1)) << name;
    EXPECT_EQ(role_from_name(name), std::nullopt) << name;
  }
  EXPECT_EQ(role_from_name("w1_weight"), std::nullopt);
}

class CountingSource : public TensorSource {
 public:
  Result<TensorLease> get(const Place& place) const override { return TensorLease(TensorView{}, this, place); }
  void put(const Place& place, const TensorView&) const override { given_back.push_back(place.expert); }
  mutable std::vector<std::int64_t> given_back;
};

TEST(Lease, IsGivenBackOnceAlsoAfterMoves) {
  const CountingSource source;
  {
    Result<TensorLease> lease = source.get({Role::w2_weight, 5});
    ASSERT_TRUE(lease);
    const TensorLease moved = *std::move(lease);
    EXPECT_TRUE(source.given_back.empty());
  }
  EXPECT_EQ(source.given_back, std::vector<std::int64_t>{5});
}

}  // namespace
}  // namespace moe::test::tensor_test
