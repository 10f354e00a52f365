// A CPU kernel is a row: its identity (scheme/kernel_ids.h) and the functions of one ISA.
//
// The steps of a layer that touch numbers, in order (decisions 7.1; kernels/ref/w4a8.cpp is the definition):
//   quantise   a row of K values in the input dtype -> int8 codes, recip, z, group sums
//   gemm       panels of packed weights x one tile of quantised rows -> float32 results with bias
//   activate   gate and up results -> the middle row, values of the input dtype
//   combine    accumulator of output columns += weight * result
//   finish     accumulator -> output dtype
// All rows of a layout that are `exact` give the same bits. Kernels check nothing and allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/dtype.h"
#include "base/platform.h"
#include "scheme/kernel_ids.h"
#include "scheme/layout.h"
#include "scheme/scheme.h"

namespace moe {

// --- quantised rows ("A tiles") -------------------------------------------------------------------
// A tile holds n rows (1 <= n <= Kernel::tile_rows) of one expert, side by side per 32 k so that a
// kernel walks it with one pointer:
//   int8  code[ceil(K/32)][n][32]      0 beyond K
//   int32 corr[G][n]                   -8 * sum of the codes of each weight group (the weights are value + 8)
//   float recip[n], int32 z[n]
// Its size is n * tile_row_bytes(), so the tile of slots s..s+n-1 begins at base + s * tile_row_bytes().
struct TileShape {
  std::int64_t k = 0;
  std::int64_t group = 0;  // of the weights that will meet it; == k: channel-wise

  constexpr std::int64_t blocks() const { return ceil_div(k, std::int64_t{32}); }
  constexpr std::int64_t groups() const { return k / group; }
  constexpr std::size_t code_bytes() const { return static_cast<std::size_t>(blocks()) * 32; }
  constexpr std::size_t row_bytes() const {
    return round_up(code_bytes() + static_cast<std::size_t>(groups()) * 4 + 8, std::size_t{64});
  }
};

// Where a quantised row goes: straight into its place in a tile.
struct QuantRow {
  std::int8_t* codes;  // 32 codes of block b at codes + b * code_stride
  std::ptrdiff_t code_stride;
  std::int32_t* corr;  // of group g at corr[g * corr_stride]
  std::ptrdiff_t corr_stride;
  float* recip;
  std::int32_t* z;
};

// Row `row` of the tile of n rows at `tile`.
inline QuantRow tile_row(const TileShape& shape, std::byte* tile, int n, int row) {
  auto* corr = reinterpret_cast<std::int32_t*>(tile + shape.code_bytes() * static_cast<std::size_t>(n));
  auto* recip = reinterpret_cast<float*>(corr + shape.groups() * n);
  return {reinterpret_cast<std::int8_t*>(tile) + row * 32, n * 32, corr + row, n, recip + row,
          reinterpret_cast<std::int32_t*>(recip + n) + row};
}

enum class HalfRule : std::uint8_t { away, even };  // halves away from zero; to even, but away for k >= 8*floor(K/8)

struct QuantArgsRow {
  TileShape shape;
  const float* x;  // [k] float32 values (bf16 and fp16 input is widened exactly by `widen`)
  HalfRule rule;
  QuantRow out;
};

struct GemmArgs {
  const P16Matrix* matrix;
  const std::byte* panels;   // first panel
  std::int64_t panel_count;  // consecutive panels
  const std::byte* tile;     // A tile
  int n;                     // its rows
  TileShape shape;
  float* out;             // [n][ld], 16 * panel_count columns written
  std::ptrdiff_t ld;      // floats
  const std::byte* next;  // where reading goes on after the last panel: prefetched; nullptr = nowhere
};

// The middle of n rows: y13 holds 16 gate, 16 up, 16 gate, ... columns as the panels of w13 do.
struct ActivateArgs {
  Activation activation;  // silu, swigluoai(_uninterleave), swiglustep
  bool clamp;             // silu with limit: clamp before; swiglustep: with clamps (not bit_compat vllm)
  float alpha = 0, beta = 0, limit = 0;
  DType dtype;       // of the input: gate, up and every listed operation are rounded to it
  const float* y13;  // [rows][ld]
  std::ptrdiff_t ld;
  int rows;
  std::int64_t blocks;  // of 16 + 16 columns
  float* out;           // [rows][out_ld], 16 * blocks columns written
  std::ptrdiff_t out_ld;
};

// acc[tokens[i]] += weights[i] * y[i] for rows in order.
struct CombineArgs {
  float* acc;  // [T][acc_ld]
  std::ptrdiff_t acc_ld;
  const std::int32_t* tokens;  // [rows]
  const float* weights;        // [rows]; nullptr = 1 (the router weight was applied to the input)
  const float* y;              // [rows][ld]
  std::ptrdiff_t ld;
  int rows;
  std::int64_t count;  // columns, a multiple of 16
  bool rounded;        // false: acc = fma(weight, y, acc)
  DType dtype;         // rounded (bit_compat vllm): acc = r(acc + r(r(y) * weight)), r = to dtype
};

struct Kernel {
  const KernelId* id = nullptr;
  bool exact = true;  // same bits as the scalar row of its layout and activation format
  int tile_rows = 1;  // largest tile
  void (*widen)(DType dtype, const std::byte* src, std::int64_t count, float* dst) = nullptr;
  void (*quantise)(const QuantArgsRow& args) = nullptr;
  void (*gemm)(const GemmArgs& args) = nullptr;
  void (*activate)(const ActivateArgs& args) = nullptr;
  void (*combine)(const CombineArgs& args) = nullptr;
  // dst = src rounded to dtype; every NaN becomes the one positive quiet NaN, so that outputs are equal bits
  // on machines whose arithmetic makes different NaNs.
  void (*narrow)(DType dtype, const float* src, std::int64_t count, std::byte* dst) = nullptr;
};

// All rows that are compiled in, in priority order.
std::span<const Kernel* const> kernels();
// The row of kKernelIds[index], nullptr when this build has no functions for it.
const Kernel* kernel_at(std::size_t index);

}  // namespace moe
