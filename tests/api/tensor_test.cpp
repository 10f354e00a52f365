// moe_tensor_nbytes and DLPack import. The DLPack structs here are the test's own.
#include <gtest/gtest.h>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::tensor_test {
namespace {

TEST(TensorBytes, Sizes) {
  const std::int64_t eight[] = {8}, shape[] = {3, 5}, wrong[] = {3, -1}, huge[] = {INT64_MAX, 2};
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_F32, 1, eight), 32);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_I4, 1, eight), 4);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_F6_E2M3FN, 1, eight), 6);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_I4, 2, shape), 9);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_BF16, 0, nullptr), 2);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_F32, 2, wrong), -1);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_F32, 2, huge), -1);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_F32, 2, nullptr), -1);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_F32, 7, eight), -1);
  EXPECT_EQ(moe_tensor_nbytes(MOE_DTYPE_F32, -1, eight), -1);
  for (const moe_dtype d : {0, 5, 40, -1, INT32_MIN}) EXPECT_EQ(moe_tensor_nbytes(d, 1, eight), -1);
}

struct DlTensor {
  void* data;
  std::int32_t device_type, device_id, ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DlManaged {
  std::uint32_t major = 1, minor = 1;
  void* manager = nullptr;
  void (*deleter)(DlManaged*) = [](DlManaged*) { FAIL() << "the import does not consume"; };
  std::uint64_t flags = 0;
  DlTensor t{};
};

class DlPack : public testing::Test {
 protected:
  DlPack() {
    m.t = {data, 1, 0, 2, 2, 32, 1, shape, nullptr, 0};
    out.struct_size = sizeof out;
  }
  moe_status import() { return moe_tensor_from_dlpack(&m, &out, nullptr); }

  alignas(64) char data[1024] = {};
  std::int64_t shape[8] = {3, 4, 2, 2, 2, 2, 2, 2}, strides[8] = {8, 1, 1, 1, 1, 1, 1, 1};
  DlManaged m;
  moe_tensor out{};
};

TEST_F(DlPack, RowMajorAndStrided) {
  ASSERT_EQ(import(), MOE_OK);
  EXPECT_EQ(out.dtype, MOE_DTYPE_F32);
  EXPECT_EQ(out.ndim, 2);
  EXPECT_EQ(out.shape[1], 4);
  EXPECT_EQ(out.nbytes, 48U);
  EXPECT_EQ(out.data, data);
  m.t.strides = strides;
  m.t.byte_offset = 16;
  ASSERT_EQ(import(), MOE_OK);
  EXPECT_EQ(out.strides[0], 8);
  EXPECT_EQ(out.data, data + 16);
  EXPECT_EQ(out.nbytes, (2U * 8 + 3 + 1) * 4);
}

TEST_F(DlPack, Types) {
  struct Row {
    int code, bits;
    moe_dtype dtype;
  };
  for (const Row r : {Row{0, 8, MOE_DTYPE_I8},
                      {0, 64, MOE_DTYPE_I64},
                      {1, 8, MOE_DTYPE_U8},
                      {1, 4, MOE_DTYPE_U4},
                      {2, 16, MOE_DTYPE_F16},
                      {2, 64, MOE_DTYPE_F64},
                      {4, 16, MOE_DTYPE_BF16},
                      {6, 8, MOE_DTYPE_BOOL},
                      {10, 8, MOE_DTYPE_F8_E4M3FN},
                      {12, 8, MOE_DTYPE_F8_E5M2},
                      {14, 8, MOE_DTYPE_F8_E8M0FNU},
                      {17, 4, MOE_DTYPE_F4_E2M1FN}}) {
    m.t.code = static_cast<std::uint8_t>(r.code);
    m.t.bits = static_cast<std::uint8_t>(r.bits);
    ASSERT_EQ(import(), MOE_OK) << r.code << " " << r.bits;
    EXPECT_EQ(out.dtype, r.dtype);
  }
}

TEST_F(DlPack, ScalarAndSixDimensions) {
  m.t.ndim = 0;
  m.t.shape = nullptr;
  ASSERT_EQ(import(), MOE_OK);
  EXPECT_EQ(out.nbytes, 4U);
  m.t.ndim = 6;
  m.t.shape = shape;
  EXPECT_EQ(import(), MOE_OK);
  m.t.ndim = 7;
  EXPECT_EQ(import(), MOE_ERR_SHAPE);
}

TEST_F(DlPack, Refusals) {
  struct Row {
    const char* what;
    moe_status status;
    void (*spoil)(DlManaged&);
  };
  // clang-format off
  const Row rows[] = {
      {"major 2",            MOE_ERR_VERSION,          [](DlManaged& d) { d.major = 2; }},
      {"major 0",            MOE_ERR_VERSION,          [](DlManaged& d) { d.major = 0; }},
      {"a GPU",              MOE_ERR_UNSUPPORTED,      [](DlManaged& d) { d.t.device_type = 2; }},
      {"complex",            MOE_ERR_DTYPE,            [](DlManaged& d) { d.t.code = 5; d.t.bits = 64; }},
      {"vector lanes",       MOE_ERR_DTYPE,            [](DlManaged& d) { d.t.lanes = 4; }},
      {"no lanes",           MOE_ERR_DTYPE,            [](DlManaged& d) { d.t.lanes = 0; }},
      {"negative rank",      MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.ndim = -1; }},
      {"no shape",           MOE_ERR_INVALID_ARGUMENT, [](DlManaged& d) { d.t.shape = nullptr; }},
      {"no data",            MOE_ERR_INVALID_ARGUMENT, [](DlManaged& d) { d.t.data = nullptr; }},
      {"negative extent",    MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.shape[0] = -3; }},
      {"huge extents",       MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.shape[0] = d.t.shape[1] = INT64_MAX; }},
      {"one repeated",       MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.shape[2] = d.t.shape[3] = 0; d.t.strides = d.t.shape + 2; }},
      {"negative stride",    MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.shape[2] = -1; d.t.strides = d.t.shape + 2; }},
      {"odd offset",         MOE_ERR_INVALID_ARGUMENT, [](DlManaged& d) { d.t.byte_offset = 2; }},
      {"huge offset",        MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.byte_offset = UINT64_MAX; }},
      {"offset and address", MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.byte_offset = 64; d.t.data = reinterpret_cast<void*>(UINTPTR_MAX - 63); }},
      {"beyond all memory",  MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.shape[0] = 1; d.t.shape[1] = INT64_MAX / 4; }},
      {"wrapping address",   MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.data = reinterpret_cast<void*>(UINTPTR_MAX - 31); }},
      {"nibbles to no end",  MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.code = 1; d.t.bits = 4; d.t.shape[1] = INT64_MAX; }},
      {"an even end",        MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.code = 1; d.t.bits = 4; d.t.shape[1] = INT64_MAX - 1; }},
      {"nibbles below 0",    MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.code = 1; d.t.bits = 4; d.t.shape[1] = INT64_MIN; }},
      {"crumbs to no end",   MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.code = 1; d.t.bits = 2; d.t.shape[1] = INT64_MAX / 2 + 1; }},
      {"half-filled bytes",  MOE_ERR_SHAPE,            [](DlManaged& d) { d.t.code = 1; d.t.bits = 4; d.t.shape[1] = 3; }},
      {"a byte per nibble",  MOE_ERR_UNSUPPORTED,      [](DlManaged& d) { d.t.code = 1; d.t.bits = 4; d.flags = 4; }},
  };
  // clang-format on
  for (const Row& r : rows) {
    shape[0] = 3, shape[1] = 4, shape[2] = shape[3] = 2;
    m = DlManaged{};
    m.t = {data, 1, 0, 2, 2, 32, 1, shape, nullptr, 0};
    r.spoil(m);
    moe_tensor filled;
    std::memset(&filled, 0xa5, sizeof filled);
    filled.struct_size = sizeof filled;
    const moe_tensor before = filled;
    const Failure f = failure([&](moe_error** e) { return moe_tensor_from_dlpack(&m, &filled, e); });
    EXPECT_EQ(f.status, r.status) << r.what << ": " << f.message;
    EXPECT_EQ(std::memcmp(&before, &filled, sizeof filled), 0) << r.what;
  }
}

}  // namespace
}  // namespace moe::test::tensor_test
