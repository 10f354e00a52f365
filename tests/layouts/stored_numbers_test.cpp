// Numbers that packed files hold. A value here never changes: a file of today is read by every later build.
#include <gtest/gtest.h>

#include "layouts/layout.h"
#include "layouts/wna16/wna16_layout.h"
#include "support/rooms.h"

namespace moe::test::stored_numbers_test {
namespace {

template <class E>
struct Stored {
  E value;
  int number;
};

template <class E, std::size_t N>
void expect_numbers(const Stored<E> (&rows)[N]) {
  for (const auto& [value, number] : rows) EXPECT_EQ(static_cast<int>(value), number);
}

TEST(StoredNumbers, Enumerations) {
  expect_numbers<Element>({{Element::int4, 0},
                           {Element::int8, 1},
                           {Element::bf16, 2},
                           {Element::f16, 3},
                           {Element::f32, 4},
                           {Element::e2m1, 5},
                           {Element::e2m3, 6},
                           {Element::e3m2, 7},
                           {Element::e4m3, 8},
                           {Element::e5m2, 9}});
  expect_numbers<Scales>({{Scales::none, 0},
                          {Scales::w4a8, 1},
                          {Scales::f32, 2},
                          {Scales::bf16, 3},
                          {Scales::f16, 4},
                          {Scales::e4m3, 5},
                          {Scales::e8m0, 6}});
  expect_numbers<MarlinInput>({{MarlinInput::none, 0}, {MarlinInput::int8, 1}, {MarlinInput::fp8, 2}});
  expect_numbers<LayoutKind>({{LayoutKind::none, 0},
                              {LayoutKind::p16_int4, 1},
                              {LayoutKind::foreign, 2},
                              {LayoutKind::p16_bf16, 3},
                              {LayoutKind::p16_f16, 4},
                              {LayoutKind::p16_f32, 5},
                              {LayoutKind::p16_w4, 6},
                              {LayoutKind::p16_w8, 7},
                              {LayoutKind::torch_float, 8},
                              {LayoutKind::kai, 9},
                              {LayoutKind::wna16_marlin, 10},
                              {LayoutKind::wna16_trtllm, 11},
                              {LayoutKind::wna16_xpu, 12},
                              {LayoutKind::wna16_vnni, 13},
                              {LayoutKind::wna16_on_the_fly, 14},
                              {LayoutKind::wna16_dense, 15},
                              {LayoutKind::p16_e4m3, 16},
                              {LayoutKind::p16_mxfp8, 17},
                              {LayoutKind::float_plain, 18},
                              {LayoutKind::float_flashinfer_cutlass, 19},
                              {LayoutKind::float_flashinfer_trtllm, 20},
                              {LayoutKind::float_marlin, 21},
                              {LayoutKind::float_deep_gemm, 22},
                              {LayoutKind::float_aiter, 23},
                              {LayoutKind::float_xpu, 24},
                              {LayoutKind::float_vnni, 25},
                              {LayoutKind::float_cutlass_w4a8, 26},
                              {LayoutKind::p16_mxfp4, 27},
                              {LayoutKind::p16_nvfp4, 28},
                              {LayoutKind::float_b12x, 29},
                              {LayoutKind::float_vllm_cutlass, 30},
                              {LayoutKind::float_cutedsl, 31},
                              {LayoutKind::float_cutedsl_batched, 32},
                              {LayoutKind::float_flashinfer_hopper, 33},
                              {LayoutKind::float_aiter_a16w4, 34},
                              {LayoutKind::float_plain_rocm, 35}});
}

// Packed files hold each member of a variant by itself (tests/io/packed_test.cpp).
TEST(StoredNumbers, TypesOfVariants) {
  EXPECT_EQ(static_cast<int>(MarlinInput::none), 0);
  EXPECT_EQ(static_cast<int>(MarlinInput::int8), 1);
  EXPECT_EQ(static_cast<int>(MarlinInput::fp8), 2);
  EXPECT_EQ(static_cast<int>(DType::f32), 1);
  EXPECT_EQ(static_cast<int>(DType::f16), 2);
  EXPECT_EQ(static_cast<int>(DType::bf16), 3);
}

}  // namespace
}  // namespace moe::test::stored_numbers_test
