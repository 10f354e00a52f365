// Tensor views: moe_tensor_nbytes, moe_tensor_from_dlpack.
//
// DLPack's structs are written out here (major version 1, its public layout): a managed tensor carries
// version, owner, flags and a DLTensor whose shape and strides count elements; strides NULL = row-major.
#include <limits>
#include <string>

#include "api/entry.h"
#include "base/checked.h"
#include "base/text.h"

namespace {

struct DlVersion {
  uint32_t major, minor;
};
struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t* shape;
  const int64_t* strides;
  uint64_t byte_offset;
};
struct DlManagedVersioned {
  DlVersion version;
  void* manager;
  void (*deleter)(DlManagedVersioned* self);
  uint64_t flags;
  DlTensor tensor;
};
static_assert(sizeof(DlManagedVersioned) == 80 && offsetof(DlManagedVersioned, tensor) == 32);
static_assert(sizeof(DlTensor) == 48 && offsetof(DlTensor, shape) == 24);

constexpr uint32_t kMajor = 1;
constexpr int32_t kCpu = 1;
constexpr uint64_t kSubBytePadded = 4;  // flag: each sub-byte element takes a byte

// clang-format off
struct TypeCode { uint8_t code, bits; moe_dtype dtype; };
constexpr TypeCode kTypes[] = {
    {0, 8, MOE_DTYPE_I8},          {0, 16, MOE_DTYPE_I16},       {0, 32, MOE_DTYPE_I32},  {0, 64, MOE_DTYPE_I64},
    {0, 4, MOE_DTYPE_I4},          {0, 2, MOE_DTYPE_I2},
    {1, 8, MOE_DTYPE_U8},          {1, 16, MOE_DTYPE_U16},       {1, 32, MOE_DTYPE_U32},  {1, 64, MOE_DTYPE_U64},
    {1, 4, MOE_DTYPE_U4},          {1, 2, MOE_DTYPE_U2},
    {2, 16, MOE_DTYPE_F16},        {2, 32, MOE_DTYPE_F32},       {2, 64, MOE_DTYPE_F64},
    {4, 16, MOE_DTYPE_BF16},       {6, 8, MOE_DTYPE_BOOL},
    {10, 8, MOE_DTYPE_F8_E4M3FN},  {11, 8, MOE_DTYPE_F8_E4M3FNUZ},
    {12, 8, MOE_DTYPE_F8_E5M2},    {13, 8, MOE_DTYPE_F8_E5M2FNUZ},
    {14, 8, MOE_DTYPE_F8_E8M0FNU}, {15, 6, MOE_DTYPE_F6_E2M3FN}, {16, 6, MOE_DTYPE_F6_E3M2FN},
    {17, 4, MOE_DTYPE_F4_E2M1FN},
};
// clang-format on

constexpr const char* kName = "dl_managed_tensor_versioned";

moe::Error refuse(Code code, const std::string& text) { return fail(code, kName, cat(kName, ": ", text)); }

Result<moe_dtype> dtype_of(const DlTensor& t) {
  for (const TypeCode& row : kTypes)
    if (row.code == t.code && row.bits == t.bits && t.lanes == 1) return row.dtype;
  return refuse(Code::dtype,
                cat("no element type for DLPack code ", t.code, ", ", t.bits, " bits, ", t.lanes, " lanes"));
}

// Elements narrower than a byte: DLPack packs the whole tensor, we pack each row.
Check check_sub_byte(const DlTensor& t, uint64_t flags) {
  if (t.bits % 8 == 0) return ok();
  if ((flags & kSubBytePadded) != 0)
    return refuse(Code::unsupported, cat("elements of ", t.bits, " bits that take a byte each"));
  if (t.ndim < 2) return ok();
  const int64_t row = t.shape[t.ndim - 1];
  const auto row_bits = moe::checked_mul({row, t.bits});  // none: view_of refuses the shape
  if (row_bits && *row_bits % 8 != 0)
    return refuse(Code::shape, cat("rows of ", row, " elements of ", t.bits, " bits do not fill whole bytes"));
  return ok();
}

Result<void*> first_element(const DlTensor& t) {
  const auto offset = moe::narrow<std::ptrdiff_t>(t.byte_offset);
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (!offset || !moe::checked_add(address, static_cast<std::uintptr_t>(*offset)))
    return refuse(Code::shape, cat("byte_offset ", t.byte_offset, " leaves the address space"));
  return t.data == nullptr ? nullptr : static_cast<std::byte*>(t.data) + *offset;
}

Result<moe_tensor> convert(const DlManagedVersioned& m) {
  if (m.version.major != kMajor)
    return refuse(Code::version, cat("DLPack version ", m.version.major, ".", m.version.minor, ", expected 1.x"));
  const DlTensor& t = m.tensor;
  if (t.device_type != kCpu) return refuse(Code::unsupported, cat("device type ", t.device_type, ", expected 1 (CPU)"));
  moe_tensor out{};
  out.struct_size = sizeof out;
  MOE_TRY(out.dtype, dtype_of(t));
  if (t.ndim < 0 || t.ndim > MOE_MAX_DIMS)
    return refuse(Code::shape, cat("ndim is ", t.ndim, ", expected 0 to ", MOE_MAX_DIMS));
  if (t.ndim > 0 && t.shape == nullptr) return refuse(Code::invalid_argument, "shape is NULL");
  out.ndim = t.ndim;
  bool any_stride = false, spread = false;
  for (int i = 0; i < t.ndim; ++i) {
    out.shape[i] = t.shape[i];
    out.strides[i] = t.strides == nullptr ? 0 : t.strides[i];
    any_stride |= out.strides[i] != 0;
    spread |= t.shape[i] > 1;
  }
  if (t.strides != nullptr && !any_stride && spread)
    return refuse(Code::shape, "all strides are 0: one element repeated");
  MOE_CHECK(check_sub_byte(t, m.flags));
  MOE_TRY(out.data, first_element(t));
  MOE_TRY(const TensorView view, view_of(out, kName));  // shape, strides and address, as for any tensor
  out.nbytes = view.nbytes;
  return out;
}

}  // namespace

int64_t moe_tensor_nbytes(moe_dtype dtype, int32_t ndim, const int64_t* shape) {
  if (ndim < 0 || ndim > MOE_MAX_DIMS || (ndim > 0 && shape == nullptr)) return -1;
  return guard_value<int64_t>(-1, [&] {
    return moe::tensor_nbytes(static_cast<moe::DType>(dtype), {shape, static_cast<size_t>(ndim)}).value_or(-1);
  });
}

moe_status moe_tensor_from_dlpack(const void* dl_managed_tensor_versioned, moe_tensor* out, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{kName, dl_managed_tensor_versioned}, {"out", out}}));
    MOE_CHECK(check_struct_size(out, "out"));
    if (reinterpret_cast<std::uintptr_t>(dl_managed_tensor_versioned) % alignof(DlManagedVersioned) != 0)
      return refuse(Code::invalid_argument, "not aligned");
    MOE_TRY(const moe_tensor tensor, convert(*static_cast<const DlManagedVersioned*>(dl_managed_tensor_versioned)));
    write_struct(out, tensor);
    return ok();
  });
}
