// The numbers of one call of a layer, in three phases on one workspace (kernels.md 1):
//
//   phase 0  quantize (or only widen) each input row once, into the tiles of its slots; with activation order or with
//            weights on the input once for each slot
//   phase 1  (a piece of the list of all experts' blocks of w13, each a gate and an up panel): gemm, activation;
//            the thread that finishes a tile's last block quantizes its middle rows
//   phase 2  (some output columns): gemm of w2 tile by tile in ascending expert order, routed sum; with few tokens and
//            more than one thread (a piece of the list of all experts' panels of w2): gemm; the thread that finishes
//            the last panels of a chunk of output columns makes the routed sums
//   norm     (with expert_norm, whose phase 2 is the latter one without its sums: a slot) RMS norm of what it
//            gets; then (a chunk of output columns) the routed sums
//
// A row is quantized with the input scale of its expert, where compute asks for the checkpoint's.
//
// With input_factors an input row is multiplied by them in float32 before phase 0 orders and quantizes it, a middle row
// after the activation.
//
// The order of float operations within a step is the kernel's (kernels/kernel.h). Here: act is rounded to the input
// dtype before it is quantized (block32: not at all); y, what w2 gives, stays float32; acc begins as 0, takes a token's
// y by ascending global expert id (equal ids by slot), then its identity experts, is multiplied by the output's factor,
// and rounded once. With MOE_APPLY_ACCUMULATE acc begins as out; with a factor too, out is added behind it.
// (bit_compat vllm: weights, y and every sum are rounded to the input dtype.) So no bit depends on threads, tiles or
// the other tokens of a call.
//
// A layer that is spread over ranks takes rows and sums apart (impl/dist): what slots get stays in Workspace::results,
// in plan order, after its norm and without a weight; sum_results() makes the routed sums of such rows, from any rank.
//
// A phase ends with its parallel_for, so there are two inner barriers, one with few slots (kInlineSlots); a norm makes
// two more. Items of phases 1 and 2 stay inside one NUMA node's rows (stripes.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/control.h"
#include "base/parallel.h"
#include "base/tensor.h"
#include "config/config.h"
#include "io/packed.h"
#include "kernels/kernel.h"
#include "run/context/bays.h"
#include "run/context/scratch.h"
#include "run/engine/panel_source.h"
#include "run/engine/stripes.h"
#include "run/route/plan.h"

namespace moe::run {

constexpr std::int64_t kCallPanels = 8;  // panels of one gemm call at most
// Tokens of one run of the engine at most. A longer batch runs in chunks of nearly equal size. Each chunk reads all
// weights, and the workspace is that of one chunk.
constexpr std::int64_t kChunkTokens = 4096;
constexpr std::int64_t kKeptFloats = 1 << 20;  // of results that phase 2 keeps: with more it sums in its items

// What the routed sums of a layer are made by. A rank without experts has it, too.
struct SumRules {
  const Elementwise* steps = nullptr;
  std::int64_t hidden = 0;
  DType in_dtype = DType::bf16, out_dtype = DType::bf16;
  bool weight_on_input = false;  // then not in the sums
  bool rounded = false;          // bit_compat vllm: gates, results and sums rounded to in_dtype
  float output_scale = 1.0f;     // RoutingConfig::scales_output

  std::int64_t row_floats() const { return round_up(hidden, kPanelRows); }  // of a row of results
};

// What stays the same for all calls of a layer.
struct EngineSetup : SumRules {
  const Kernel* kernel = nullptr;
  const Packed* packed = nullptr;
  const PanelSource* source = nullptr;       // what makes panels of `packed`; nullptr: it has them
  std::span<const std::int32_t> expert_map;  // [physical experts]
  ExpertCopies experts;
  int items_at_once = 1;
  std::int64_t intermediate = 0, top_k = 0;
  ActivateArgs activate{};  // function and parameters; the pointers are filled per call
  HalfRule in_rule = HalfRule::away, mid_rule = HalfRule::away;
  std::span<const float> expert_norm{};  // [H], empty: none
  float expert_norm_eps = 0.0f;
  std::array<std::span<const float>, 2> input_factors{};  // by Which: [H], [I]; empty: none
  std::array<std::span<const float>, 2> input_scales{};   // by Which: [E], the checkpoint's; empty: rows have their own
  bool own_input_scales = false;  // those of w13 differ, so that a token's row is another one for each expert
  FloatActs float_acts{};         // of a kernel of e4m3
  PrefetchPolicy prefetch{};

  P16 w13, w2;  // of layout()

  const Layout& layout() const { return source != nullptr ? source->layout() : packed->info.layout; }
  const P16& matrix(Which which) const { return which == Which::w13 ? w13 : w2; }
  TileShape in_shape() const { return tile_shape(Which::w13); }
  TileShape mid_shape() const { return tile_shape(Which::w2); }
  TileShape tile_shape(Which which) const {
    const P16& m = matrix(which);
    // A code of a bf16 input has eight significant bits.
    const bool is_bf16 = in_dtype == DType::bf16 && input_factors[which == Which::w13 ? 0 : 1].empty();
    const int values = !kernel->takes_values ? 0 : is_bf16 ? 1 : 2;
    return {.k = m.k,
            .groups = m.groups,
            .act = kernel->id->act,
            .bias = m.sum_factor(),
            .qai8dx = kernel->id->layout == LayoutKind::kai,
            .values = values,
            .floats = float_acts,
            .halves = kernel->id->act == ActFormat::e4m3 && kernel->takes_halves};
  }
  // Each slot has an input row of its own; else the slots of a token share one.
  bool row_per_slot() const { return weight_on_input || w13.has_order || own_input_scales; }
  float input_scale(Which which, std::int64_t local) const {
    const std::span<const float> scales = input_scales[which == Which::w13 ? 0 : 1];
    return scales.empty() ? 0.0f : scales[usize(local)];
  }
  PlanShape plan_shape(std::int64_t tokens, std::int64_t first_token = 0) const {
    return {tokens, top_k, experts, kernel->tile_rows, first_token, kernel->few, kernel->few_rows};
  }
};

// Of a chunk of output columns (kCallPanels panels): panels, of all experts, that are not done yet.
struct alignas(64) Unsummed {
  std::atomic<std::int32_t> count;
};

// All memory of one run.
struct Workspace {
  std::byte* shared = nullptr;      // what the phases share
  Bays::Holder* holders = nullptr;  // [items at once]
  ScratchBays scratch;              // [items at once]
  Plan plan;
  std::byte* in_tiles = nullptr;
  std::byte* mid_tiles = nullptr;
  float* act = nullptr;          // [R][act_ld] as w13 makes them, then as w2 wants them
  float* acc = nullptr;          // per item of phase 2, or chunk of columns: [T][its output columns]
  float* rows = nullptr;         // [phase 0 items][2 * row_ld] scratch for widened rows
  float* results = nullptr;      // [R][out_ld] what slots get, where phase 2 keeps it
  Unsummed* unsummed = nullptr;  // [chunks of output columns]
  std::int64_t act_ld = 0, row_ld = 0, out_ld = 0;
  std::size_t bytes = 0;
};

// tokens: the most of a run. rows_only: of one whose results are read and not summed.
Workspace carve_workspace(const EngineSetup& setup, std::int64_t tokens, std::byte* base, bool rows_only = false);

struct EngineCall {
  std::int64_t tokens = 0;
  bool accumulate = false;
  TensorView hidden, out;
  Parallel parallel;
  Control* control = nullptr;
  const float* identity = nullptr;  // [T] weight of the token itself in its output (zero experts); null: none
  const NodeMap* nodes = nullptr;   // null: one
  bool rows_only = false;           // what slots get stays in the workspace; nothing is summed, `out` is not used
};

// The plan is built. Code::cancelled and Code::callback leave `out` unspecified.
Check run_engine(const EngineSetup& setup, Workspace& work, const EngineCall& call);

// Rows that are there already, and whose they are: of a plan its active experts, by any rank.
struct GivenRows {
  const ActiveExpert* active = nullptr;  // in the order of the sum: first_slot and slots
  std::int32_t num_active = 0;
  const std::int32_t* slot_token = nullptr;
  const float* slot_weight = nullptr;  // null: 1
  const float* results = nullptr;      // [slots][ld]
  std::int64_t ld = 0;
};
// The routed sums of a call's tokens. acc: [tokens * row_floats()].
Check sum_results(const SumRules& rules, const GivenRows& rows, float* acc, const EngineCall& call);

}  // namespace moe::run
