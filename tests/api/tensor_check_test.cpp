// Every check of one tensor, the order of checks over several, overlap.
#include "api/tensor_check.h"

#include <gtest/gtest.h>

#include <set>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::tensor_check_test {
namespace {

using api::check_tensors;
using api::read_structs;
using api::read_tensor;
using api::TensorParam;

alignas(64) std::byte memory[4096];

struct Fault {
  const char* what;
  Code code;
  void (*spoil)(moe_tensor&);
};

// clang-format off
const Fault kFaults[] = {
    {"struct_size 0",         Code::invalid_argument, [](moe_tensor& t) { t.struct_size = 0; }},
    {"struct_size short",     Code::invalid_argument, [](moe_tensor& t) { t.struct_size = sizeof t - 1; }},
    {"flags",                 Code::invalid_argument, [](moe_tensor& t) { t.flags = 1; }},
    {"dtype unset",           Code::dtype,            [](moe_tensor& t) { t.dtype = 0; }},
    {"dtype unknown",         Code::invalid_argument, [](moe_tensor& t) { t.dtype = 40; }},
    {"dtype in a gap",        Code::invalid_argument, [](moe_tensor& t) { t.dtype = 5; }},
    {"dtype negative",        Code::invalid_argument, [](moe_tensor& t) { t.dtype = INT32_MIN; }},
    {"rank negative",         Code::shape,            [](moe_tensor& t) { t.ndim = -1; }},
    {"rank 7",                Code::shape,            [](moe_tensor& t) { t.ndim = 7; }},
    {"rank huge",             Code::shape,            [](moe_tensor& t) { t.ndim = INT32_MAX; }},
    {"extent negative",       Code::shape,            [](moe_tensor& t) { t.shape[1] = -1; }},
    {"extents overflow",      Code::shape,            [](moe_tensor& t) { t.shape[0] = t.shape[1] = INT64_MAX; }},
    {"product wraps to 0",    Code::shape,            [](moe_tensor& t) { t.shape[0] = t.shape[1] = std::int64_t{1} << 32; }},
    {"empty, strides wrap",   Code::shape,            [](moe_tensor& t) { t.ndim = 3; t.shape[0] = 0; t.shape[1] = t.shape[2] = std::int64_t{1} << 62; }},
    {"stride negative",       Code::shape,            [](moe_tensor& t) { t.strides[0] = -4; t.strides[1] = 1; }},
    {"strides overflow",      Code::shape,            [](moe_tensor& t) { t.strides[0] = INT64_MAX; t.strides[1] = 1; }},
    {"nbytes short",          Code::shape,            [](moe_tensor& t) { t.nbytes = 3 * 4 * 4 - 1; }},
    {"nbytes of strides",     Code::shape,            [](moe_tensor& t) { t.strides[0] = 8; t.strides[1] = 1; t.nbytes = 3 * 4 * 4; }},
    {"nbytes huge",           Code::shape,            [](moe_tensor& t) { t.nbytes = UINT64_MAX; }},
    {"data NULL",             Code::invalid_argument, [](moe_tensor& t) { t.data = nullptr; }},
    {"data misaligned",       Code::invalid_argument, [](moe_tensor& t) { t.data = memory + 2; }},
};
// clang-format on

TEST(TensorCheck, EachFaultByItsStatus) {
  const moe_tensor good = tensor(MOE_DTYPE_F32, {3, 4}, memory);
  EXPECT_TRUE(read_tensor(&good, "hidden"));
  for (const Fault& f : kFaults) {
    moe_tensor t = good;
    f.spoil(t);
    const auto r = read_tensor(&t, "hidden");
    ASSERT_FALSE(r) << f.what;
    EXPECT_EQ(r.error().code, f.code) << f.what << ": " << r.error().message;
    EXPECT_EQ(r.error().subject, "hidden");
    EXPECT_EQ(r.error().message.rfind("hidden: ", 0), 0U) << r.error().message;
  }
}

TEST(TensorCheck, RowMajorByDefault) {
  moe_tensor t = tensor(MOE_DTYPE_BF16, {2, 3, 5}, memory);
  const auto v = read_tensor(&t, "x");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->strides, (std::array<std::int64_t, 6>{15, 5, 1, 0, 0, 0}));
  EXPECT_EQ(v->nbytes, 60U);
  t.nbytes = 64;
  EXPECT_EQ(read_tensor(&t, "x")->nbytes, 64U);
  t.strides[0] = 20, t.strides[1] = 6, t.strides[2] = 2;
  t.nbytes = 0;
  EXPECT_EQ(read_tensor(&t, "x")->nbytes, 2U * (20 + 12 + 8 + 1));
}

TEST(TensorCheck, EmptyTensorsNeedNoMemory) {
  moe_tensor t = tensor(MOE_DTYPE_F32, {0, 64}, nullptr);
  const auto v = read_tensor(&t, "x");
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->nbytes, 0U);
  EXPECT_EQ(api::extent(*v), 0U);
  t.nbytes = 4;  // says that there are bytes
  EXPECT_FALSE(read_tensor(&t, "x"));
}

TEST(TensorCheck, SubByteRowsFillBytes) {
  moe_tensor t = tensor(MOE_DTYPE_I4, {3, 5}, memory + 1);  // any byte address
  const auto v = read_tensor(&t, "x");
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->nbytes, 9U);
  t.strides[0] = 8, t.strides[1] = 1;
  EXPECT_EQ(read_tensor(&t, "x").error().code, Code::shape);
}

TEST(TensorCheck, EveryTypeIsAlignedToItsElement) {
  for (int d = 1; d < 40; ++d) {
    const int bits = dtype_bits(static_cast<DType>(d));
    if (bits == 0) continue;
    const int element = bits >= 8 ? bits / 8 : 1;
    for (int offset = 0; offset < 8; ++offset) {
      moe_tensor t = tensor(d, {2, 8}, memory + offset);
      EXPECT_EQ(static_cast<bool>(read_tensor(&t, "x")), offset % element == 0)
          << dtype_name(static_cast<DType>(d)) << " " << offset;
    }
  }
}

std::array<TensorParam, 2> pair(const moe_tensor* a, const moe_tensor* b) {
  return {
      TensorParam{
          .name = "a", .given = a, .dtypes = api::kFloats, .ndim = 2, .shape = {api::kTokens, 8}, .letters = "[T, H]"},
      TensorParam{.name = "b",
                  .given = b,
                  .dtypes = api::kIds,
                  .ndim = 2,
                  .shape = {api::kTokens, 2},
                  .letters = "[T, K]",
                  .writable = true}};
}

Error error_of(const moe_tensor& a, const moe_tensor& b) {
  auto p = pair(&a, &b);
  const Check structs = read_structs(p);
  if (!structs) return structs.error();
  const auto r = check_tensors(p);
  return r ? fail(Code::ok, "", "") : r.error();
}

TEST(TensorCheck, TheEarlierCheckWinsWhoeverHasIt) {
  const moe_tensor a = tensor(MOE_DTYPE_F32, {3, 8}, memory), b = tensor(MOE_DTYPE_I32, {3, 2}, memory + 1024);
  EXPECT_EQ(error_of(a, b).code, Code::ok);
  // a has the later fault, b the earlier one of each pair
  moe_tensor x = a, y = b;
  x.strides[0] = -1;
  y.shape[1] = 3;
  EXPECT_EQ(error_of(x, y).subject, "b");
  x.shape[1] = 9;
  y.ndim = 3;
  EXPECT_EQ(error_of(x, y).message, "b: expected 2 dimensions ([T, K]), got 3");
  x.ndim = 1;
  y.dtype = MOE_DTYPE_F32;
  EXPECT_EQ(error_of(x, y).code, Code::dtype);
  EXPECT_EQ(error_of(x, y).message, "b: expected i32 or i64, got f32");
  x.dtype = MOE_DTYPE_I8;
  y.dtype = 99;
  EXPECT_EQ(error_of(x, y).subject, "b");
  x.dtype = 99;
  y.struct_size = 1;
  EXPECT_EQ(error_of(x, y).subject, "b");
}

TEST(TensorCheck, TokensComeFromTheFirst) {
  const moe_tensor a = tensor(MOE_DTYPE_F32, {3, 8}, memory), b = tensor(MOE_DTYPE_I32, {4, 2}, memory + 1024);
  const Error e = error_of(a, b);
  EXPECT_EQ(e.code, Code::shape);
  EXPECT_EQ(e.message, "b: expected shape [3, 2] ([T, K]), got [4, 2]");
  EXPECT_EQ(e.details, "\"expected\":[3, 2],\"actual\":[4, 2]");
}

TEST(TensorCheck, RowsOfCallsHaveStrideOne) {
  moe_tensor a = tensor(MOE_DTYPE_F32, {3, 8}, memory), b = tensor(MOE_DTYPE_I32, {3, 2}, memory + 1024);
  a.strides[0] = 16, a.strides[1] = 2;
  EXPECT_EQ(error_of(a, b).message, "a: the last stride must be 1, got 2");
  a.strides[1] = 1;
  EXPECT_EQ(error_of(a, b).code, Code::ok);
  a.strides[0] = 0;  // one row, read three times
  EXPECT_EQ(error_of(a, b).code, Code::ok);
  b.strides[0] = 1, b.strides[1] = 1;
  EXPECT_EQ(error_of(a, b).message, "b: rows overlap: stride 1 of rows of 2 elements");
}

bool shared(std::size_t a_at, std::int64_t a_rows, std::int64_t a_cols, std::int64_t a_stride, std::size_t b_at,
            std::int64_t b_rows, std::int64_t b_cols, std::int64_t b_stride) {
  TensorView a = row_major(DType::f32, {a_rows, a_cols}, memory + a_at),
             b = row_major(DType::f32, {b_rows, b_cols}, memory + b_at);
  a.strides[0] = a_stride;
  b.strides[0] = b_stride;
  EXPECT_EQ(api::overlaps(a, b), api::overlaps(b, a));
  return api::overlaps(a, b);
}

TEST(TensorCheck, Overlap) {
  EXPECT_TRUE(shared(0, 4, 8, 8, 0, 4, 8, 8));
  EXPECT_TRUE(shared(0, 4, 8, 8, 124, 4, 8, 8));    // the last element
  EXPECT_FALSE(shared(0, 4, 8, 8, 128, 4, 8, 8));   // right behind
  EXPECT_FALSE(shared(0, 0, 8, 8, 0, 4, 8, 8));     // no element
  EXPECT_FALSE(shared(0, 4, 8, 16, 32, 4, 8, 16));  // two halves of the columns of one matrix
  EXPECT_TRUE(shared(0, 4, 8, 16, 28, 4, 8, 16));
  EXPECT_TRUE(shared(0, 4, 9, 16, 32, 4, 8, 16));
  EXPECT_FALSE(shared(32, 4, 8, 16, 0, 4, 8, 16));
  EXPECT_FALSE(shared(32, 4, 8, 16, 64 + 0, 3, 8, 16));  // begins in a later row
  EXPECT_TRUE(shared(32, 4, 8, 16, 64 + 32, 3, 8, 16));
  const TensorView v = row_major(DType::f32, {4, 8}, memory + 64);
  EXPECT_TRUE(api::overlaps(v, memory, 65));
  EXPECT_FALSE(api::overlaps(v, memory, 64));
  EXPECT_FALSE(api::overlaps(v, memory + 64, 0));
}

TEST(TensorCheck, NoSharedElementIsMissed) {
  for (std::size_t b_at = 0; b_at < 160; b_at += 4)
    for (std::int64_t width = 1; width <= 6; ++width) {
      std::set<std::size_t> mine;
      for (std::size_t r = 0; r < 3; ++r)
        for (std::size_t c = 0; c < 3; ++c) mine.insert(48 + (r * 8 + c) * 4);
      bool want = false;
      for (std::size_t r = 0; r < 2; ++r)
        for (std::size_t c = 0; c < static_cast<std::size_t>(width); ++c)
          want |= mine.count(b_at + (r * 8 + c) * 4) != 0;
      const bool got = shared(48, 3, 3, 8, b_at, 2, width, 8);
      EXPECT_TRUE(got || !want) << b_at << " " << width;  // never a missed one
    }
}

TEST(TensorCheck, ViewsBecomeStructs) {
  moe_tensor t = tensor(MOE_DTYPE_F16, {2, 3}, memory);
  t.strides[0] = 4, t.strides[1] = 1;
  const auto v = read_tensor(&t, "x");
  ASSERT_TRUE(v);
  const moe_tensor back = api::tensor_of(*v);
  EXPECT_EQ(back.nbytes, 14U);
  EXPECT_EQ(back.strides[0], 4);
  EXPECT_EQ(back.struct_size, sizeof back);
  EXPECT_TRUE(api::same_tensor(*v, *read_tensor(&back, "x")));
}

}  // namespace
}  // namespace moe::test::tensor_check_test
