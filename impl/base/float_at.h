// One stored element of a floating type as float32. For small tensors: loops over many use the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/float_formats.h"

namespace moe {

// f32, f16 or bf16 at any address.
inline float float_at(DType dtype, const std::byte* at) {
  if (dtype == DType::f32) {
    float x;
    std::memcpy(&x, at, sizeof x);
    return x;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace moe
