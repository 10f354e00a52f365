// Tensors that say the shape of their row in another form (scheme/tensor_check.h).
#include "scheme/tensor_check.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "scheme/checkpoint.h"
#include "support/tensor_sets.h"

namespace moe::test::tensor_check_test {
namespace {

using Dims = std::vector<std::int64_t>;

const CheckpointTensor& row_of_blocks() {
  for (const CheckpointTensor& row : set_of(Format::mxfp4_gpt_oss)->tensors)
    if (row.shape_kind == ShapeKind::blocks) return row;
  ADD_FAILURE() << "no row of blocks";
  return set_of(Format::mxfp4_gpt_oss)->tensors.front();
}

TensorView bytes_of(const Dims& shape, const Dims& strides) {
  TensorView t{.dtype = DType::u8, .ndim = static_cast<int>(shape.size())};
  for (std::size_t i = 0; i < shape.size(); ++i) t.shape[i] = shape[i], t.strides[i] = strides[i];
  return t;
}

Dims shape_of(const TensorView& t) { return {t.shape.begin(), t.shape.begin() + t.ndim}; }
Dims strides_of(const TensorView& t) { return {t.strides.begin(), t.strides.begin() + t.ndim}; }

// [N, K/32, 16] is [N, K/2] where the blocks of a row lie one behind the other; its rows may lie anywhere.
TEST(TensorCheck, BlocksThatLieTogether) {
  const CheckpointTensor& row = row_of_blocks();
  const Dims want = {5, 48};
  const TensorView joined = in_shape(bytes_of({5, 3, 16}, {64, 16, 1}), row, want);
  EXPECT_EQ(shape_of(joined), want);
  EXPECT_EQ(strides_of(joined), (Dims{64, 1}));
  const TensorView spread = in_shape(bytes_of({5, 3, 16}, {96, 32, 2}), row, want);
  EXPECT_EQ(strides_of(spread), (Dims{96, 2}));
}

TEST(TensorCheck, BlocksThatDoNot) {
  const CheckpointTensor& row = row_of_blocks();
  const Dims want = {5, 48};
  for (const Dims& strides : {Dims{96, 32, 1}, Dims{48, 16, 0}, Dims{96, 16, 2}, Dims{1, 80, 5}, Dims{0, 0, 1}}) {
    const TensorView given = bytes_of({5, 3, 16}, strides), t = in_shape(given, row, want);
    const bool joins = strides[1] == 16 * strides[2];
    EXPECT_EQ(shape_of(t), joins ? want : Dims({5, 3, 16})) << strides[1] << " " << strides[2];
  }
  // Blocks of another size are not this form.
  EXPECT_EQ(shape_of(in_shape(bytes_of({5, 6, 8}, {48, 8, 1}), row, want)), (Dims{5, 6, 8}));
}

}  // namespace
}  // namespace moe::test::tensor_check_test
