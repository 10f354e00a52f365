// Numbers that packed files hold. A value here never changes: a file of today is read by every later build.
#include <gtest/gtest.h>

#include "scheme/layout.h"
#include "scheme/wna16_layout.h"

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
  expect_numbers<Element>(
      {{Element::int4, 0}, {Element::int8, 1}, {Element::bf16, 2}, {Element::f16, 3}, {Element::f32, 4}});
  expect_numbers<Scales>({{Scales::none, 0}, {Scales::w4a8, 1}, {Scales::f32, 2}, {Scales::bf16, 3}, {Scales::f16, 4}});
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
                              {LayoutKind::wna16_dense, 15}});
}

// The digits of a variant, each alone: lowest first, with 3, 2, 2, 2, 3, 3, 3 and 4097 values.
TEST(StoredNumbers, VariantOfWna16) {
  Wna16Layout none{};
  none.group_size = 32, none.bias = none.number = DType::f16, none.zero_shift = -1;
  ASSERT_EQ(variant_of(none), 0);
  const auto with = [&](auto set) {
    Wna16Layout l = none;
    set(l);
    return variant_of(l);
  };
  EXPECT_EQ(with([](Wna16Layout& l) { l.input = MarlinInput::fp8; }), 2);
  EXPECT_EQ(with([](Wna16Layout& l) { l.awq = true; }), 3);
  EXPECT_EQ(with([](Wna16Layout& l) { l.upstream = true; }), 6);
  EXPECT_EQ(with([](Wna16Layout& l) { l.group_size = -1; }), 12);
  EXPECT_EQ(with([](Wna16Layout& l) { l.bias = DType::bf16; }), 24);
  EXPECT_EQ(with([](Wna16Layout& l) { l.bias = DType::f32; }), 48);
  EXPECT_EQ(with([](Wna16Layout& l) { l.number = DType::bf16; }), 72);
  EXPECT_EQ(with([](Wna16Layout& l) { l.zero_shift = 1; }), 432);
  EXPECT_EQ(with([](Wna16Layout& l) { l.multiprocessors = 1; }), 648);
}

}  // namespace
}  // namespace moe::test::stored_numbers_test
