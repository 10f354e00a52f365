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
//
// The engine (run/engine) calls these functions, bind chooses the row, tests run every row beside
// the scalar one. So a new instruction set changes only a row: no caller knows which one it has.
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

// How W4A8 rounds x * scale when it lies exactly between two integers. KleidiAI differs by type:
// its float32 path rounds halves away from zero, its bf16 path to even but not in the tail of a row
// that has no whole 8 columns (w4a8_int8.md 6). A single rule for both would differ from it in some
// bytes.
enum class HalfRule : std::uint8_t { away, even };  // halves away from zero; to even, but away for k >= 8*floor(K/8)

// One row of activations goes into its place in a tile. The engine calls this once per input row
// and slot, and once per middle row when its last block is done. Only W4A8 looks at `rule`.
struct QuantizeArgs {
  TileShape shape;
  const float* x;  // [k] float32 values (bf16 and fp16 input is widened exactly by `widen`)
  HalfRule rule;
  TilePlace out;
  float input_scale = 0.0f;  // the checkpoint's, of FloatScale::tensor and of NVFP4's e2m1
};

// The first `panel_count` panels at `panels` meet the n rows of one tile. A call has one expert and
// one matrix. It may be one of several for the same panels (`part` of `parts`) if the expert has
// more slots than a tile holds.
struct GemmArgs {
  const P16* matrix;  // of every layout: results come in its panels
  // A kernel reads whole panels with the padding in them: rows beyond N have the value 0 and the
  // bias 0, so no kernel has a case for the last panel of a matrix.
  const std::byte* panels;   // first panel; where the layout has no panels of its own: the matrix
  std::int64_t panel_count;  // consecutive panels
  const std::byte* tile;     // A tile
  int n;                     // its rows
  TileShape shape;
  // Row i of the tile goes to out + i * ld. Nothing is added to what lies there: a call sees all of
  // K, so a result is complete when it is stored and its sum never depends on how work was cut.
  float* out;         // [n][ld], 16 * panel_count columns written
  std::ptrdiff_t ld;  // floats
  // Where reading goes on after the last panel, for prefetches; nullptr = nowhere. When the same panels meet several
  // tiles, call `part` of `parts` reads ahead its share, so that memory is busy all the time and never the bottleneck.
  const std::byte* next;
  // Layouts without panels of their own (KleidiAI's) need it to find the panel's rows: `panels` is
  // the whole matrix there.
  std::int64_t first = 0;  // number of the first panel within the matrix
  int part = 0, parts = 1;
  // Measured per machine (prefetch_policy.cpp). It moves time, never a bit of a result.
  PrefetchPolicy prefetch{};
  std::byte* scratch = nullptr;  // Kernel::scratch_bytes, of this call alone; 64-byte aligned
};

// The middle of n rows: y13 holds 16 gate, 16 up, 16 gate, ... columns as the panels of w13 do; ungated 16, 16, ...
struct ActivateArgs {
  Activation activation;
  // vLLM's W4A8 op drops the clamps of swiglustep (w4a8_int8.md 8.3). The flag lets bit_compat vllm
  // do so without an activation of its own.
  bool clamp;                            // silu with limit: clamp before; swiglustep: with clamps (not bit_compat vllm)
  float alpha = 0, beta = 0, limit = 0;  // swiglu_softcap, situ: alpha caps gate, beta caps up; 0: no cap
  DType dtype;                           // of the input
  // stepwise repeats vLLM's W4A8 op, which works on tensors of the input dtype and so rounds after
  // every operation. once is what a fused kernel does: float32 inside, one rounding at the end.
  Rounding rounding = Rounding::stepwise;  // stepwise: w4a8_int8.md 8.3
  // Panels of w13 alternate between gate and up, so both halves of a pair are in the same 32 floats
  // and one pass over memory serves the product. Separate halves would be I columns apart.
  const float* y13;  // [rows][ld]
  std::ptrdiff_t ld;
  int rows;
  std::int64_t blocks;  // of 16 + 16 columns, ungated of 16
  float* out;           // [rows][out_ld], 16 * blocks columns written
  std::ptrdiff_t out_ld;
};

// acc[tokens[i]] += weights[i] * y[i] for rows in order.
// The routed sum of a token. `tokens` may name a token twice, as rows are added one after the
// other; their order (ascending global expert id) is the engine's promise and makes the bits
// reproducible.
struct CombineArgs {
  float* acc;  // [T][acc_ld]
  std::ptrdiff_t acc_ld;
  const std::int32_t* tokens;  // [rows]
  const float* weights;        // [rows]; nullptr = 1 (the router weight was applied to the input)
  const float* y;              // [rows][ld]
  std::ptrdiff_t ld;
  int rows;
  // A multiple of 16 because H is padded to whole panels of w2: vector forms need no tail here.
  std::int64_t count;  // columns, a multiple of 16
  bool rounded;        // false: acc = fma(weight, y, acc)
  DType dtype;         // rounded (bit_compat vllm): acc = r(acc + r(r(y) * weight)), r = to dtype
};

// The steps that do not depend on the family: one set per instruction set, all with the same bits.
// A table of functions and not templates: code for an instruction set must stay in files with
// target regions (target.h), and the engine that calls them is baseline code.
struct Elementwise {
  // Exact for every input dtype, so it has no rounding rule. `src` may have any alignment: it is
  // memory of the caller.
  void (*widen)(DType dtype, const std::byte* src, std::int64_t count, float* dst);
  void (*activate)(const ActivateArgs& args);
  void (*combine)(const CombineArgs& args);
  // dst = src rounded to dtype; every NaN becomes the one positive quiet NaN, so that outputs are equal bits
  // on machines whose arithmetic makes different NaNs.
  void (*narrow)(DType dtype, const float* src, std::int64_t count, std::byte* dst);
};

// A row at run time: the functions behind a KernelId. It is a constant, so a layer keeps a pointer
// to it for as long as it likes, and the table costs no code before main().
struct Kernel {
  const KernelId* id = nullptr;
  // Layers may move between machines with the same bits as long as all of their rows are exact. The
  // bf16 rows are not: vdpbf16ps and tdpbf16ps add pairs of products and flush subnormals in their
  // own way.
  bool exact = true;  // same bits as the scalar row of its layout and activation format
  // The plan cuts an expert's slots into tiles of at most this many rows. Larger tiles reuse
  // weights more often but need more registers (vector rows) or more buffers (AMX).
  int tile_rows = 1;  // largest tile
  // An expert of at most `few` slots has tiles of at most `few_rows`: those of the row that multiplies them instead.
  int few = 0, few_rows = 1;
  // It isn't on the stack, because threads of the host may have small stacks and the buffers of an
  // AMX row take some tens of KB. The engine has it in the workspace, once per item that runs.
  std::size_t scratch_bytes = 0;  // memory that gemm needs in GemmArgs::scratch; its stack is small
  // Codes of 16 bits come as bf16 numbers in tiles of more than kDigitTokens rows (tile.h).
  bool takes_values = false;
  bool takes_halves = false;  // rows of e4m3 come as bf16 numbers (tile.h)
  const Elementwise* steps = nullptr;
  void (*quantize)(const QuantizeArgs& args) = nullptr;
  void (*gemm)(const GemmArgs& args) = nullptr;
  // AMX asks Linux for leave to use tile registers. CPUID alone does not tell: a host may refuse,
  // and the first tile instruction would then kill the process. Selection falls back to the next
  // row.
  bool (*ready)() noexcept = nullptr;  // asks the system for what the row needs; nullptr: nothing
};

// Every row of the list, defined by a file of this room:  constinit const Kernel kernel_rows::<name> =
// kernel_row("<name>", ...);
// The definitions are constinit: a row must be complete before any dynamic initializer runs,
// because a host's own initializer may create a layer.
namespace kernel_rows {
#define MOE_KERNEL(arch_, name_, ...) extern const Kernel name_;
#include "kernels/kernel_rows.inc"
}  // namespace kernel_rows

// Everything that kernel_rows.inc says of the row comes from there by its name, so that no file
// repeats a tile size or an instruction set. A name that is not in the list does not compile in a
// constant.
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
// Tests and benchmarks walk this list. Selection walks kKernelIds, because it also explains rows
// that this build lacks.
std::span<const Kernel* const> built_kernels();
// The row of kKernelIds[index], nullptr when this build has no functions for it.
const Kernel* kernel_at(std::size_t index);

}  // namespace moe::kernels
