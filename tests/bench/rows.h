// The kernels that this machine runs, for benchmarks of single rows, and matrices for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/platform.h"
#include "kernels/kernel.h"
#include "layouts/p16/p16_layout.h"
#include "support/rooms.h"

namespace moe::bench {

// Of panels that are ours; what they ask the system for is granted.
inline std::vector<const Kernel*> rows_here() {
  std::vector<const Kernel*> out;
  const auto host = detect_platform();
  for (const Kernel* kernel : built_kernels())
    if (p16_element(kernel->id->layout) && host && host->runs(kernel->id->isa) &&
        (kernel->ready == nullptr || kernel->ready()))
      out.push_back(kernel);
  return out;
}

// group: -1 = channel-wise, 0 for elements without scales.
inline P16 matrix_of(const Kernel& kernel, std::int64_t group, std::int64_t k, std::int64_t rows) {
  const LayoutShape shape{.experts = 1,
                          .hidden = k,
                          .intermediate = rows,
                          .groups = Groups::of_size(group == 0 ? -1 : group),
                          .gated = false,
                          .has_bias = false,
                          .has_zeros = kernel.id->name.ends_with("_zp")};
  return {p16_layout(kernel.id->layout, shape).w13};
}
inline bool has_scales(const Kernel& kernel) { return matrix_of(kernel, -1, 64, 16).grouping() != Grouping::none; }

inline TileShape tile_of(const Kernel& kernel, const P16& m) {
  TileShape shape;
  shape.k = m.k;
  shape.groups = m.groups;
  shape.act = kernel.id->act;
  shape.bias = m.sum_factor();
  shape.values = kernel.takes_values ? 1 : 0;  // of a bf16 layer
  shape.floats = kernel.id->layout == LayoutKind::p16_e4m3 ? FloatActs{} : kMxActs;
  shape.halves = kernel.id->act == ActFormat::e4m3 && kernel.takes_halves;
  return shape;
}

// Codes of any kind, and ordinary numbers as scales and values of any type: subnormal ones would be slow.
inline constexpr std::byte kFill{0x4c};
inline Buffer filled_buffer(std::size_t bytes) {
  Buffer out = *Buffer::create(bytes);
  std::fill(out.bytes().begin(), out.bytes().end(), kFill);
  return out;
}

// Of GemmArgs.
inline Buffer scratch_of(const Kernel& kernel) {
  return *Buffer::create(std::max(kernel.scratch_bytes, std::size_t{64}));
}

}  // namespace moe::bench
