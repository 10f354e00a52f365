// A CPU kernel is a row: its identity (kernels/kernel_rows.inc) and the functions of one ISA.
//
// The steps of a layer that touch numbers, in order (kernels/ref is the definition):
//   widen      values of the input dtype -> float32
//   quantize   a row of K float32 values -> its place in a tile (tile.h)
//   gemm       panels of packed weights x one tile -> float32 results with bias
//   activate   gate and up results -> the middle row, values of the input dtype (block32: float32)
//   combine    accumulator of output columns += weight * result
//   narrow     accumulator -> output dtype
// quantize and gemm belong to a family, the others to an instruction set. Kernels check nothing and allocate nothing.
//
// The order of the float operations of one result, the same for every tile, batch and thread count; `fma` is one
// rounding, every other operation has its own. All rows of a layout that are `exact` give the same bits:
//   integer codes   sum = sum(q * w) of a group or block, exact in int32; then in ascending k
//     W4A8, a scale per row       (16 * float(sum)) * (s_w/16 * s_a)
//     groups, per-token codes     a = fma(float(sum), s_g, a); W4A8: then a = fma(row sum of w, float(z), a); a * s_a
//                                 (W8A8: also a scale per row, which is one group)
//     blocks of activations       a = fma(float(sum), s_w * s_block, a); MXFP4: a * 0.5, NVFP4: a * 0.5 * tensor scale
//   float products  per block of kBlockK columns b = fma(x, w, b) in ascending k, then a = fma(b, scale, a), without
//                   scales a = a + b. bf16 activations (!exact): the order of their instructions, always the same one
//   all of them     + bias last, + 0.0 without one (AMX-BF16: nothing)
//   combine         acc = fma(weight, y, acc), a token's experts by ascending global id, equal ids by slot
// numerics.md 1-4 has the rest: the rules of quantization, where values are rounded to the input dtype, activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "kernels/kernel_ids.h"
#include "kernels/prefetch_policy.h"
#include "kernels/tile.h"
#include "layouts/layout.h"
#include "layouts/p16/p16.h"
#include "scheme/scheme.h"

namespace moe::kernels {

enum class HalfRule : std::uint8_t { away, even };  // halves away from zero; to even, but away for k >= 8*floor(K/8)

struct QuantizeArgs {
  TileShape shape;
  const float* x;  // [k] float32 values (bf16 and fp16 input is widened exactly by `widen`)
  HalfRule rule;
  TilePlace out;
};

struct GemmArgs {
  const P16* matrix;         // of every layout: results come in its panels
  const std::byte* panels;   // first panel; where the layout has no panels of its own: the matrix
  std::int64_t panel_count;  // consecutive panels
  const std::byte* tile;     // A tile
  int n;                     // its rows
  TileShape shape;
  float* out;         // [n][ld], 16 * panel_count columns written
  std::ptrdiff_t ld;  // floats
  // Where reading goes on after the last panel, for prefetches; nullptr = nowhere. When the same panels meet several
  // tiles, call `part` of `parts` reads ahead its share, so that memory is busy all the time and never the bottleneck.
  const std::byte* next;
  std::int64_t first = 0;  // number of the first panel within the matrix
  int part = 0, parts = 1;
  PrefetchPolicy prefetch{};
  std::byte* scratch = nullptr;  // Kernel::scratch_bytes, of this call alone; 64-byte aligned
};

// The middle of n rows: y13 holds 16 gate, 16 up, 16 gate, ... columns as the panels of w13 do; ungated 16, 16, ...
struct ActivateArgs {
  Activation activation;
  bool clamp;                            // silu with limit: clamp before; swiglustep: with clamps (not bit_compat vllm)
  float alpha = 0, beta = 0, limit = 0;  // swiglu_softcap: alpha caps gate, beta caps up
  DType dtype;                           // of the input
  Rounding rounding = Rounding::stepwise;  // stepwise: w4a8_int8.md 8.3
  const float* y13;                        // [rows][ld]
  std::ptrdiff_t ld;
  int rows;
  std::int64_t blocks;  // of 16 + 16 columns, ungated of 16
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

// The steps that do not depend on the family: one set per instruction set, all with the same bits.
struct Elementwise {
  void (*widen)(DType dtype, const std::byte* src, std::int64_t count, float* dst);
  void (*activate)(const ActivateArgs& args);
  void (*combine)(const CombineArgs& args);
  // dst = src rounded to dtype; every NaN becomes the one positive quiet NaN, so that outputs are equal bits
  // on machines whose arithmetic makes different NaNs.
  void (*narrow)(DType dtype, const float* src, std::int64_t count, std::byte* dst);
};

struct Kernel {
  const KernelId* id = nullptr;
  bool exact = true;              // same bits as the scalar row of its layout and activation format
  int tile_rows = 1;              // largest tile
  std::size_t scratch_bytes = 0;  // memory that gemm needs in GemmArgs::scratch; its stack is small
  const Elementwise* steps = nullptr;
  void (*quantize)(const QuantizeArgs& args) = nullptr;
  void (*gemm)(const GemmArgs& args) = nullptr;
  bool (*ready)() noexcept = nullptr;  // asks the system for what the row needs; nullptr: nothing
};

// Every row of the list, defined by a file of this room:  constinit const Kernel kernel_rows::<name> =
// kernel_row("<name>", ...);
namespace kernel_rows {
#define MOE_KERNEL(arch_, name_, ...) extern const Kernel name_;
#include "kernels/kernel_rows.inc"
}  // namespace kernel_rows

constexpr Kernel kernel_row(std::string_view name, const Elementwise& steps, void (*quantize)(const QuantizeArgs&),
                            void (*gemm)(const GemmArgs&)) {
  const KernelId& id = kKernelIds[*kernel_index(name)];
  return {.id = &id,
          .exact = id.bits == Bits::exact,
          .tile_rows = id.tile_rows,
          .steps = &steps,
          .quantize = quantize,
          .gemm = gemm};
}

// All rows that are compiled in: those of instruction sets, then the scalar ones, each in the list's order.
std::span<const Kernel* const> built_kernels();
// The row of kKernelIds[index], nullptr when this build has no functions for it.
const Kernel* kernel_at(std::size_t index);

}  // namespace moe::kernels
