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

// A quantised row before it is placed into tiles: codes [blocks*32], corr [groups], recip, z.
struct QuantRow {
  std::int8_t* codes;
  std::int32_t* corr;
  float* recip;
  std::int32_t* z;
};

enum class HalfRule : std::uint8_t { away, even };  // halves away from zero; to even, but away for k >= 8*floor(K/8)

struct QuantArgsRow {
  TileShape shape;
  const float* x;  // [k] float32 values (bf16 and fp16 input is widened exactly by `widen`)
  HalfRule rule;
  QuantRow out;
};

struct GemmArgs {
  const P16Matrix* matrix;
  const std::byte* panels;       // first panel
  std::int64_t panel_count;      // consecutive panels
  const std::byte* tile;         // A tile
  int n;                         // its rows
  TileShape shape;
  float* out;                    // [n][ld], 16 * panel_count columns written
  std::ptrdiff_t ld;             // floats
  const std::byte* next;         // where reading goes on after the last panel: prefetched; nullptr = nowhere
};

struct ActivateArgs {
  Activation activation;         // silu, swigluoai(_uninterleave), swiglustep
  bool clamp;                    // silu with limit: clamp before; swiglustep: with clamps (not bit_compat vllm)
  float alpha, beta, limit;
  DType dtype;                   // values of the middle: every listed operation is rounded to it
  const float* gate;             // [count] float32 results of w13
  const float* up;               // [count]
  float* out;                    // [count]
  std::int64_t count;
};

struct CombineArgs {
  float* acc;                    // [count]
  const float* y;                // [count]
  std::int64_t count;
  float weight;
  // Default: acc = fma(weight, y, acc). Rounded (bit_compat vllm): acc = r(acc + r(r(y) * weight)), r = to dtype.
  bool rounded;
  bool unit_weight;              // the weight was applied to the input: acc = acc + y, resp. r(acc + r(y))
  DType dtype;
};

struct Kernel {
  const KernelId* id = nullptr;
  bool exact = true;             // same bits as the scalar row of its layout and activation format
  int tile_rows = 1;             // largest tile
  void (*widen)(DType dtype, const std::byte* src, std::int64_t count, float* dst) = nullptr;
  void (*quantise)(const QuantArgsRow& args) = nullptr;
  void (*gemm)(const GemmArgs& args) = nullptr;
  void (*activate)(const ActivateArgs& args) = nullptr;
  void (*combine)(const CombineArgs& args) = nullptr;
  // dst = round(src) in dtype; with `scale`: round(src * scale).
  void (*narrow)(DType dtype, const float* src, std::int64_t count, std::byte* dst) = nullptr;
};

// All rows that are compiled in, in priority order.
std::span<const Kernel> kernels();
// The row of kKernelIds[index], nullptr when this build has no functions for it.
const Kernel* kernel_at(std::size_t index);

}  // namespace moe
