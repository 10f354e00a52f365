// One stored number of type f32, f16 or bf16 at any address, read and written as float32. For small tensors: loops over
// many use the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/float_formats.h"
#include "base/load.h"

namespace moe {

inline float load_float(DType dtype, const std::byte* at) {
  if (dtype == DType::f32) return load<float>(at);
  const auto bits = load<std::uint16_t>(at);
  return dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

// Rounds to nearest even.
inline void store_float(DType dtype, float x, std::byte* at) {
  if (dtype == DType::f32) {
    std::memcpy(at, &x, sizeof x);
    return;
  }
  const std::uint16_t bits = dtype == DType::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
  std::memcpy(at, &bits, sizeof bits);
}

}  // namespace moe
