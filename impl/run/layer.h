// A layer ready to run: config, kernel and packed weights bound together. Immutable and shareable.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/control.h"
#include "base/result.h"
#include "base/tensor.h"
#include "config/config.h"
#include "io/packed.h"
#include "kernels/kernel.h"
#include "run/context/context.h"
#include "run/context/workspaces.h"
#include "run/engine/engine.h"
#include "run/engine/panel_source.h"
#include "run/route/route.h"

namespace moe::run {

struct LayerSpec {
  std::shared_ptr<const Config> config;
  std::shared_ptr<const Packed> packed;
  std::shared_ptr<Context> context;  // may be null
  const Kernel* kernel = nullptr;
  std::string backend;
  std::string selected_kernel{};  // of the selection; another than `kernel` where the system refused it
  // [G] place in [E, ...] or -1, zero experts left out; empty = the config's.
  std::vector<std::int32_t> expert_map{};
  std::vector<float> correction_bias{};         // empty: the config's, or what the loader found
  std::optional<NodeMap> nodes{};               // pretended ones, for tests; empty: the context's
  std::shared_ptr<const PanelSource> panels{};  // what makes the kernel's panels of `packed`; null: it has them
};

enum class ApplyMode : std::int32_t { router_logits = 0, topk = 1 };

// One call. Tensors are checked by the api room for dtype, rank, shape, strides and overlap; the number of tokens, the
// size of the workspace and expert ids are checked by apply() before anything is written.
struct ApplyArgs {
  ApplyMode mode = ApplyMode::topk;
  bool accumulate = false;
  std::int64_t num_tokens = 0;
  TensorView hidden;               // [T, H] in_dtype, last stride 1
  TensorView router_logits;        // [T, router columns], router_logits mode
  TensorView topk_ids;             // [T, K] i32 or i64, topk mode; hash routing: [T, top_k]
  TensorView topk_weights;         // [T, K] f32, topk mode
  TensorView out;                  // [T, H] out_dtype, last stride 1
  std::span<std::byte> workspace;  // empty: the context's
  Control* control = nullptr;
  std::optional<TensorView> out_topk_ids, out_topk_weights;
};

// 0 or more, and num_tokens * top_k slots fit what a call can number. `name`: of the argument.
Check check_num_tokens(const Config& config, std::int64_t num_tokens, const char* name);

// What routing chose goes to the tensors of a call that ask for it; ids, weights: [T*K].
Check give_routed(const ApplyArgs& args, const std::int32_t* ids, const float* weights, const Parallel& parallel);
// The sums of a layer with this config; `rounded` is its kernel's.
SumRules sum_rules_of(const Config& config, const Elementwise& steps, bool rounded);

// Rows that come from any rank. Their ids are places in [E, ...] of this layer, -1 for none, and checked.
struct RowsCall {
  TensorView hidden;        // [n, H] in_dtype, last stride 1
  TensorView ids, weights;  // [n, K] i32, f32
  float* sums =
      nullptr;  // [n][row_floats] routed sums without the output's factor; null: what slots get stays in the workspace
  std::span<std::byte> workspace;
  Parallel parallel;  // the layer's, or one around it
};
// Where it stays: `results` of a slot of the plan, until the workspace is used again.
struct RowsDone {
  const Plan* plan = nullptr;
  const float* results = nullptr;
  std::int64_t ld = 0;
};

class Layer {
 public:
  static Result<std::shared_ptr<const Layer>> create(LayerSpec spec);
  ~Layer();

  const Config& config() const;
  std::uint64_t workspace_bytes(ApplyMode mode, std::int64_t num_tokens) const;  // exact; alignment kWorkspaceAlignment
  Check apply(const ApplyArgs& args) const;
  std::string to_json() const;

  // For a layer that is spread over ranks (impl/dist). Allocates nothing.
  std::uint64_t rows_bytes(std::int64_t rows, bool sums) const;  // of the workspace of run_rows
  Check run_rows(const RowsCall& call, Workspace& work, RowsDone& done) const;
  Parallel parallel() const;  // of its context
  const SumRules& sum_rules() const;
  const Router& router() const;
  bool places_experts_itself() const;                // by an expert_map of the host
  std::array<float, 2> shared_input_scales() const;  // of w13, w2, where all experts held share them by a rule; else 0
  // Tokens routed to each held expert since the last reset.
  void expert_counts(std::span<std::uint64_t> counts, bool reset) const;

 private:
  Layer();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moe::run
