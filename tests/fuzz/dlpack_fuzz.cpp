// DLPack structs: types of all widths, shapes, strides and offsets of any size. What moe_tensor_from_dlpack takes says
// what the struct said, and its view ends where the struct's last element ends; what it refuses leaves `out` as it was.
//
//   input: a byte for each choice below; sizes are small, or one of kNumbers
#include <moe/moe.h>

#include <algorithm>
#include <cstring>

#include "fuzz/producer.h"
#include "fuzz/require.h"

namespace {

using moe::fuzz::Producer;
__extension__ using Wide = __int128;  // holds the sizes of what may be accepted, and of what just may not

struct DlTensor {
  void* data;
  std::int32_t device_type, device_id, ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DlManaged {
  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(DlManaged*);
  std::uint64_t flags;
  DlTensor tensor;
};

// clang-format off
constexpr std::array<std::int64_t, 16> kNumbers = {
    INT64_MAX, INT64_MIN, -1, INT64_MAX - 1, INT64_MAX / 2, INT64_MAX / 4, INT64_MAX / 4 + 1, INT64_MAX / 8,
    std::int64_t{1} << 62, std::int64_t{1} << 61, std::int64_t{1} << 60, std::int64_t{1} << 48,
    std::int64_t{1} << 33, std::int64_t{1} << 32, std::int64_t{1} << 31, 4096};
constexpr std::array<std::uint8_t, 8> kBits = {4, 2, 6, 8, 16, 32, 64, 0};
// clang-format on

std::int64_t number(Producer& p) {
  const std::uint8_t b = p.byte();
  return b < 128 ? b % 16 : kNumbers[b % kNumbers.size()];
}

struct Input {
  explicit Input(Producer& p) {
    m.major = p.below(16) == 15 ? 2 : 1;
    m.flags = p.below(16) == 15 ? p.byte() : 0;
    DlTensor& t = m.tensor;
    t.data = p.below(16) == 15 ? nullptr : memory;
    t.device_type = p.below(16) == 15 ? 2 : 1;
    t.ndim = p.below(16) == 15 ? p.byte() - 128 : static_cast<std::int32_t>(p.below(7));
    t.code = static_cast<std::uint8_t>(p.below(19));
    t.bits = p.pick(kBits);
    t.lanes = p.below(16) == 15 ? p.byte() : std::uint8_t{1};
    t.shape = p.below(16) == 15 ? nullptr : shape.data();
    t.strides = p.flag() ? strides.data() : nullptr;
    t.byte_offset = static_cast<std::uint64_t>(number(p));
    std::generate(shape.begin(), shape.end(), [&] { return number(p); });
    std::generate(strides.begin(), strides.end(), [&] { return number(p); });
  }
  alignas(64) char memory[64] = {};
  std::array<std::int64_t, 8> shape{}, strides{};
  DlManaged m{};
};

// Bits from the first element to the end of the last; elements are packed without regard to rows.
Wide bits_of(const DlTensor& t) {
  Wide last = 0, dense = 1;
  for (int d = t.ndim; d-- > 0;) {
    if (t.shape[d] == 0) return 0;
    last += (Wide{t.shape[d]} - 1) * (t.strides != nullptr ? Wide{t.strides[d]} : dense);
    dense *= t.shape[d];
  }
  return (last + 1) * t.bits;
}

void check_view(const Input& in, const moe_tensor& view) {
  const DlTensor& t = in.m.tensor;
  MOE_REQUIRE(in.m.major == 1 && t.device_type == 1 && t.lanes == 1 && view.flags == 0);
  MOE_REQUIRE(view.ndim == t.ndim && std::equal(t.shape, t.shape + t.ndim, view.shape));
  for (int d = 0; d < t.ndim; ++d) MOE_REQUIRE(t.shape[d] >= 0 && (t.strides == nullptr || t.strides[d] >= 0));
  MOE_REQUIRE(t.strides == nullptr || std::equal(t.strides, t.strides + t.ndim, view.strides));
  const std::int64_t eight[] = {8};
  MOE_REQUIRE(moe_tensor_nbytes(view.dtype, 1, eight) == t.bits);
  MOE_REQUIRE(Wide{view.nbytes} == (bits_of(t) + 7) / 8);
  const Wide given = reinterpret_cast<std::uintptr_t>(t.data), first = reinterpret_cast<std::uintptr_t>(view.data);
  MOE_REQUIRE(given != 0 ? first == given + t.byte_offset : first == 0 && view.nbytes == 0);
  MOE_REQUIRE(first + view.nbytes <= UINTPTR_MAX);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Producer p(data, size);
  Input in(p);
  moe_tensor view;
  std::memset(&view, 0xa5, sizeof view);
  view.struct_size = sizeof view;
  const moe_tensor before = view;
  const moe_status status = moe_tensor_from_dlpack(&in.m, &view, nullptr);
  if (status == MOE_OK) {
    check_view(in, view);
    return 0;
  }
  MOE_REQUIRE(status == MOE_ERR_SHAPE || status == MOE_ERR_DTYPE || status == MOE_ERR_UNSUPPORTED ||
              status == MOE_ERR_VERSION || status == MOE_ERR_INVALID_ARGUMENT);
  MOE_REQUIRE(std::memcmp(&before, &view, sizeof view) == 0);
  return 0;
}
