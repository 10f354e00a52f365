// Layer: binds config, kernel and packed weights, checks and runs a call.
#include "run/layer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "config/quantization/float_acts.h"
#include "kernels/prefetch_policy.h"
#include "layouts/p16/p16_layout.h"
#include "run/engine/engine.h"
#include "run/engine/zero_experts.h"
#include "run/route/route.h"

namespace moe::run {
namespace {

ActivateArgs activation_of(const Config& c, const Kernel& kernel) {
  const bool stepwise = kernel.id->rounding == Rounding::stepwise;
  ActivateArgs a{};
  a.activation = c.activation;
  a.clamp = (c.activation == Activation::silu && c.limit) ||
            (c.activation == Activation::swiglustep && (c.bit_compat == Policy::libmoe || !stepwise));
  a.alpha = static_cast<float>(c.alpha.value_or(c.gate_cap.value_or(0)));
  a.beta = static_cast<float>(c.beta.value_or(c.up_cap.value_or(0)));
  a.limit = static_cast<float>(c.limit.value_or(0));
  a.dtype = kernel.id->middle == Middle::f32 ? DType::f32 : c.in_dtype;
  a.rounding = kernel.id->rounding;
  return a;
}

// KleidiAI's bf16 packer rounds halves to even, its float32 packer away from zero (w4a8_int8.md 6).
HalfRule rule_of(const Config& c, const P16& m) {
  return c.in_dtype == DType::bf16 && m.grouping() == Grouping::channel ? HalfRule::even : HalfRule::away;
}

// Copies a dense [T, K] result of routing into the caller's tensor.
template <class T>
Check copy_out(const T* from, const TensorView& to, const Parallel& parallel) {
  const auto size = static_cast<std::int64_t>(dtype_bits(to.dtype) / 8);
  const std::int64_t tokens = to.shape[0], width = to.shape[1];
  return parallel.parts(tokens, slot_parts(tokens * width), [&](std::int64_t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t j = 0; j < width; ++j) {
        std::byte* dst = to.data + (t * to.strides[0] + j * to.strides[1]) * size;
        if (to.dtype == DType::i64) {
          const auto v = static_cast<std::int64_t>(from[t * width + j]);
          std::memcpy(dst, &v, sizeof v);
        } else {
          std::memcpy(dst, from + t * width + j, sizeof(T));
        }
      }
  });
}

template <class T>
Check copy_if(const T* from, const std::optional<TensorView>& to, const Parallel& parallel) {
  return to ? copy_out(from, *to, parallel) : ok();
}

// The lists of columns that packed weights came with (activation order) are used as indices: each must name its own
// places once, else Code::format.
Check check_orders(const Packed& packed) {
  const Layout& l = packed.info.layout;
  for (std::int64_t e = 0; e < l.experts; ++e)
    for (const Which which : {Which::w13, Which::w2}) {
      const P16 m{l.matrix(which)};
      if (!m.has_order) continue;
      const std::byte* matrix = packed.expert(e) + (which == Which::w13 ? 0 : l.w2_offset());
      const auto* list = reinterpret_cast<const std::int32_t*>(matrix + m.order_offset());
      if (!is_order({list, usize(m.k)}, m.columns()))
        return fail(Code::format, "packed",
                    cat("packed: the columns of ", which == Which::w13 ? "w13" : "w2", " of expert ",
                        packed.info.experts[usize(e)], " are no list that names each once"));
    }
  return ok();
}

// Whoever chose the kernel: one that does not take the layout would read beyond the weights.
Check check_kernel(const KernelId& kernel, const Layout& layout) {
  if (kernel.fits(needs_of(layout))) return ok();
  return fail(Code::internal, "kernel", cat("kernel: ", kernel.name, " does not take the layout ", layout.id()));
}

// The config's own, or what the loader found; empty: the layer has none.
Result<std::span<const float>> expert_norm_of(const Config& c, std::span<const float> loaded) {
  const std::vector<float>& given = c.expert_norm.values;
  if (!loaded.empty() && (!given.empty() || !c.expert_norm.wanted()))
    return fail(Code::unexpected_weight, "expert_norm",
                cat("expert_norm: the checkpoint's is with the weights, and the config has ",
                    given.empty() ? "no use for it" : "one, too; there is one source"));
  const std::span<const float> values = loaded.empty() ? std::span<const float>(given) : loaded;
  if (!c.expert_norm.wanted() || std::ssize(values) == c.hidden_dim) return values;
  return fail(Code::config_mismatch, "expert_norm",
              cat("expert_norm: the packed weights have ", values.size(), " values, the config has ", c.hidden_dim));
}

// By Which; empty where activations are not quantized with them. vLLM gives every expert the largest one.
Result<std::array<std::vector<float>, 2>> input_scales_of(const Config& c, const Packed& packed) {
  std::array<std::vector<float>, 2> all;
  if (!c.takes_input_scales()) return all;
  for (const Which which : {Which::w13, Which::w2}) {
    std::vector<float>& scales = at(all, which) = at(packed.info.input_scales, which);
    if (scales.empty() || std::ssize(scales) != packed.info.layout.experts)
      return fail(Code::config_mismatch, "/compute",
                  "/compute: the packed weights have no scales of inputs; convert the checkpoint with this config");
    if (c.bit_compat == Policy::vllm)
      std::fill(scales.begin(), scales.end(), *std::max_element(scales.begin(), scales.end()));
  }
  return all;
}

// All memory of a call: the engine's, and what routing needs beside it.
struct CallMemory {
  Workspace work;
  std::int32_t* ids = nullptr;   // [T*K] what routing chose, in router_logits mode
  float* weights = nullptr;      // [T*K]
  std::byte* scratch = nullptr;  // of route()
  float* identity = nullptr;     // [T], of zero experts
  std::size_t bytes = 0;
};

}  // namespace

struct Layer::State {
  LayerSpec spec;
  EngineSetup setup;
  Router router;
  std::vector<std::int32_t> expert_map;  // of the experts with weights
  std::vector<std::int32_t> own_places;  // [E] 0, 1, ..: of rows whose ids are places
  std::array<std::vector<float>, 2> input_scales;
  KnownIds known_ids;          // of a call: logical experts, then zero experts
  bool adds_identity = false;  // zero experts, and this rank adds their part
  mutable Workspaces own_workspaces;
  mutable std::vector<std::atomic<std::uint64_t>> counts;  // [E]

  // The context's, else the layer's own.
  Workspaces& workspaces() const { return spec.context ? spec.context->workspaces() : own_workspaces; }
  const NodeMap* nodes() const { return spec.nodes ? &*spec.nodes : nodes_of(spec.context.get()); }
  void count_slots(const Plan& plan) const {
    for (std::int32_t i = 0; i < plan.num_active; ++i) {
      const ActiveExpert& e = plan.active[i];
      counts[usize(e.local)].fetch_add(static_cast<std::uint64_t>(e.slots), std::memory_order_relaxed);
    }
  }
  CallMemory carve_call(ApplyMode mode, std::int64_t tokens, std::byte* base) const {
    CallMemory m;
    m.work = carve_workspace(setup, std::min(tokens, kChunkTokens), base);
    Carver more(base == nullptr ? nullptr : base + m.work.bytes);
    if (mode == ApplyMode::router_logits) {
      m.ids = more.take<std::int32_t>(tokens * setup.top_k);
      m.weights = more.take<float>(tokens * setup.top_k);
      m.scratch = more.take<std::byte>(route_scratch_bytes(router, tokens));
    }
    if (adds_identity) m.identity = more.take<float>(usize(tokens));
    m.bytes = m.work.bytes + more.used();
    return m;
  }
  // Of its sizes. Gives the memory that it needs: its places in the caller's workspace, without one its size.
  Result<CallMemory> check_call(const ApplyArgs& a) const;
  Check check_routing(const ApplyArgs& a, const Parallel& parallel) const {
    MOE_CHECK(check_router(router));
    return router.rule == RouteRule::hash ? check_hash_ids(router, a.topk_ids, "topk_ids", parallel) : ok();
  }
  Check route_call(const ApplyArgs& a, const CallMemory& m, const Parallel& parallel) const {
    MOE_CHECK(route(router,
                    {.num_tokens = a.num_tokens,
                     .logits_dtype = a.router_logits.dtype,
                     .logits = a.router_logits.data,
                     .row_stride = a.router_logits.strides[0],
                     .hash_ids = &a.topk_ids,
                     .ids = m.ids,
                     .weights = m.weights,
                     .scratch = m.scratch},
                    parallel));
    return give_routed(a, m.ids, m.weights, parallel);
  }
  Check run_call(const ApplyArgs& a, CallMemory m, const Parallel& parallel) const;
  // Tokens [begin, end) of a call: their plan, then the engine.
  Check run_chunk(const ApplyArgs& a, CallMemory& m, const TensorView& ids, const TensorView& weights,
                  std::int64_t begin, std::int64_t end, const Parallel& parallel) const;
};

Layer::Layer() : state_(std::make_unique<State>()) {}
Layer::~Layer() = default;

Result<std::shared_ptr<const Layer>> Layer::create(LayerSpec spec) {
  std::shared_ptr<Layer> layer(new Layer());
  State& s = *layer->state_;
  s.spec = std::move(spec);
  const Config& c = *s.spec.config;
  EngineSetup& e = s.setup;
  e.packed = s.spec.packed.get();
  e.source = s.spec.panels.get();
  const Layout& l = e.layout();
  MOE_CHECK(check_kernel(*s.spec.kernel->id, l));
  e.w13 = {l.w13};
  e.w2 = {l.w2};
  if (e.source == nullptr) MOE_CHECK(check_orders(*s.spec.packed));
  s.expert_map = s.spec.expert_map;
  if (s.expert_map.empty()) {
    s.expert_map.assign(usize(c.num_weight_experts()), -1);
    const std::vector<std::int64_t>& held = s.spec.packed->info.experts;
    for (std::size_t i = 0; i < held.size(); ++i) s.expert_map[usize(held[i])] = static_cast<std::int32_t>(i);
  }
  s.adds_identity = c.routing.num_zero_experts != 0 && c.routing.zero_experts == ZeroExperts::identity &&
                    c.parallel.ep_rank == 0 && c.parallel.tp_rank == 0;
  MOE_TRY(s.router, make_router(c, route_kernel_within(s.spec.kernel->id->isa),
                                {.option = s.spec.correction_bias,
                                 .loaded = s.spec.packed->info.correction_bias,
                                 .scale = s.spec.packed->info.expert_scale}));
  s.counts = std::vector<std::atomic<std::uint64_t>>(usize(l.experts));
  e.kernel = s.spec.kernel;
  static_cast<SumRules&>(e) =
      sum_rules_of(c, *e.kernel->steps, c.bit_compat == Policy::vllm && e.kernel->id->rounding == Rounding::stepwise);
  s.own_places.resize(usize(l.experts));
  std::iota(s.own_places.begin(), s.own_places.end(), 0);
  e.expert_map = s.expert_map;
  e.prefetch = prefetch_policy_here();
  e.experts = expert_copies(c);
  s.known_ids = {.end = e.experts.logical + c.routing.num_zero_experts, .skip = c.routing.skip_id};
  e.items_at_once = std::max(1, parallel_of(s.spec.context.get()).num_threads);
  e.intermediate = c.intermediate_size_per_partition;
  e.top_k = c.slots_per_token();
  e.activate = activation_of(c, *e.kernel);
  e.in_rule = rule_of(c, e.w13);
  e.mid_rule = rule_of(c, e.w2);
  MOE_TRY(e.expert_norm, expert_norm_of(c, s.spec.packed->info.expert_norm));
  e.expert_norm_eps = static_cast<float>(c.expert_norm_eps);
  for (const Which which : {Which::w13, Which::w2}) {
    const std::vector<float>& factors = at(s.spec.packed->info.input_factors, which);
    const std::int64_t wanted = which == Which::w13 ? e.hidden : e.intermediate;
    if (!factors.empty() && std::ssize(factors) != wanted)
      return fail(Code::config_mismatch, "input_factors",
                  cat("input_factors: the packed weights have ", factors.size(), " values, the config has ", wanted));
    at(e.input_factors, which) = factors;
  }
  if (c.scales_whole_batches()) return whole_batches_unsupported();
  MOE_TRY(s.input_scales, input_scales_of(c, *s.spec.packed));
  e.input_scales = {s.input_scales[0], s.input_scales[1]};
  const std::span<const float> scales = e.input_scales[0];
  e.own_input_scales = std::any_of(scales.begin(), scales.end(), [&](float scale) { return scale != scales[0]; });
  e.float_acts = c.float8_acts().value_or(FloatActs{});
  return std::shared_ptr<const Layer>(std::move(layer));
}

SumRules sum_rules_of(const Config& c, const Elementwise& steps, bool rounded) {
  SumRules rules;
  rules.steps = &steps;
  rules.hidden = c.hidden_dim;
  rules.in_dtype = c.in_dtype;
  rules.out_dtype = c.out_dtype;
  rules.weight_on_input = c.apply_router_weight_on_input;
  rules.rounded = rounded;
  if (c.routing.scales_output()) rules.output_scale = static_cast<float>(c.routing.routed_scaling_factor);
  return rules;
}

Check give_routed(const ApplyArgs& a, const std::int32_t* ids, const float* weights, const Parallel& parallel) {
  MOE_CHECK(copy_if(ids, a.out_topk_ids, parallel));
  return copy_if(weights, a.out_topk_weights, parallel);
}

const SumRules& Layer::sum_rules() const { return state_->setup; }
const Router& Layer::router() const { return state_->router; }
bool Layer::places_experts_itself() const { return !state_->spec.expert_map.empty(); }

std::array<float, 2> Layer::shared_input_scales() const {
  const auto first = [&](const std::vector<float>& scales) {
    return state_->spec.config->bit_compat == Policy::vllm && !scales.empty() ? scales[0] : 0.0f;
  };
  return {first(state_->input_scales[0]), first(state_->input_scales[1])};
}

std::uint64_t Layer::rows_bytes(std::int64_t rows, bool sums) const {
  return carve_workspace(state_->setup, rows, nullptr, !sums).bytes;
}

Check Layer::run_rows(const RowsCall& call, Workspace& work, RowsDone& done) const {
  const State& s = *state_;
  const std::int64_t rows = call.hidden.shape[0], places = std::ssize(s.own_places);
  EngineSetup setup = s.setup;  // of sums that are added up further: float32, and the factor comes last
  if (call.sums != nullptr) setup.out_dtype = DType::f32, setup.output_scale = 1.0f;
  work = carve_workspace(setup, rows, call.workspace.data(), call.sums == nullptr);
  PlanShape shape = setup.plan_shape(rows);
  shape.experts = {places, places};
  MOE_CHECK(build_plan(work.plan, shape, s.own_places, call.ids, call.weights, call.parallel));
  s.count_slots(work.plan);
  EngineCall run;
  run.tokens = rows;
  run.hidden = call.hidden;
  run.parallel = call.parallel;
  run.nodes = s.nodes();
  run.rows_only = call.sums == nullptr;
  if (call.sums != nullptr) run.out = row_major(DType::f32, {rows, setup.row_floats()}, call.sums);
  done = {&work.plan, work.results, work.out_ld};
  return run_engine(setup, work, run);
}

const Config& Layer::config() const { return *state_->spec.config; }
Parallel Layer::parallel() const { return parallel_of(state_->spec.context.get()); }

std::uint64_t Layer::workspace_bytes(ApplyMode mode, std::int64_t num_tokens) const {
  return num_tokens == 0 ? 0 : state_->carve_call(mode, num_tokens, nullptr).bytes;
}

Check check_num_tokens(const Config& config, std::int64_t num_tokens, const char* name) {
  const std::int64_t most =
      std::numeric_limits<std::int32_t>::max() / std::max<std::int64_t>(config.slots_per_token(), 1);
  if (num_tokens >= 0 && num_tokens <= most) return ok();
  return fail(Code::invalid_argument, name,
              cat(name, ": ", num_tokens, " tokens, expected 0 to ", most, " (2^31 - 1 slots)"));
}

Result<CallMemory> Layer::State::check_call(const ApplyArgs& a) const {
  MOE_CHECK(check_num_tokens(*spec.config, a.num_tokens, "hidden"));
  if (a.num_tokens == 0) return CallMemory{};
  const CallMemory m = carve_call(a.mode, a.num_tokens, nullptr);
  if (a.workspace.data() == nullptr) return m;
  if (a.workspace.size() >= m.bytes) return carve_call(a.mode, a.num_tokens, a.workspace.data());
  return fail(Code::buffer_too_small, "workspace_size",
              cat("workspace_size: ", m.bytes, " bytes needed, got ", a.workspace.size()),
              json::members("needed", m.bytes));
}

Check Layer::apply(const ApplyArgs& a) const {
  const State& s = *state_;
  MOE_TRY(CallMemory memory, s.check_call(a));
  begin_call(a.control);
  begin_phase(a.control, Phase::apply, Unit::none, 0);
  MOE_CHECK(report(a.control, 0, 0));
  const bool routes = a.mode == ApplyMode::router_logits;
  const Parallel parallel = parallel_of(s.spec.context.get());
  MOE_CHECK(routes ? s.check_routing(a, parallel) : check_ids(a.topk_ids, s.known_ids, parallel));
  if (a.num_tokens == 0) return ok();
  Buffer own;
  if (a.workspace.data() == nullptr) {
    MOE_TRY(own, s.workspaces().take(memory.bytes, allocator_of(s.spec.context.get())));
    memory = s.carve_call(a.mode, a.num_tokens, own.data());
  }
  Check result = s.run_call(a, memory, parallel);
  if (own) s.workspaces().give_back(std::move(own));
  return result;
}

Check Layer::State::run_call(const ApplyArgs& a, CallMemory m, const Parallel& parallel) const {
  TensorView ids = a.topk_ids, weights = a.topk_weights;
  if (a.mode == ApplyMode::router_logits) {
    MOE_CHECK(route_call(a, m, parallel));
    ids = row_major(DType::i32, {a.num_tokens, setup.top_k}, m.ids);
    weights = row_major(DType::f32, {a.num_tokens, setup.top_k}, m.weights);
  }
  if (adds_identity)
    MOE_CHECK(sum_zero_weights(ids, weights, {spec.config->num_experts, spec.config->router_columns()}, m.identity,
                               parallel));
  const std::int64_t chunks = ceil_div(a.num_tokens, kChunkTokens);
  for (std::int64_t i = 0; i < chunks; ++i)
    MOE_CHECK(run_chunk(a, m, ids, weights, a.num_tokens * i / chunks, a.num_tokens * (i + 1) / chunks, parallel));
  return ok();
}

Check Layer::State::run_chunk(const ApplyArgs& a, CallMemory& m, const TensorView& ids, const TensorView& weights,
                              std::int64_t begin, std::int64_t end, const Parallel& parallel) const {
  const std::int64_t tokens = end - begin;
  Plan& plan = m.work.plan;
  MOE_CHECK(build_plan(plan, setup.plan_shape(tokens, begin), expert_map, rows(ids, begin, tokens),
                       rows(weights, begin, tokens), parallel));
  count_slots(plan);
  return run_engine(setup, m.work,
                    {tokens, a.accumulate, rows(a.hidden, begin, tokens), rows(a.out, begin, tokens), parallel,
                     a.control, m.identity == nullptr ? nullptr : m.identity + begin, nodes()});
}

void Layer::expert_counts(std::span<std::uint64_t> counts, bool reset) const {
  for (std::size_t i = 0; i < counts.size(); ++i)
    counts[i] = reset ? state_->counts[i].exchange(0, std::memory_order_relaxed)
                      : state_->counts[i].load(std::memory_order_relaxed);
}

std::string Layer::to_json() const {
  const State& s = *state_;
  const Workspaces::Usage used = s.workspaces().usage();
  json::Writer w;
  w.begin_object().member("backend", s.spec.backend).member("kernel", s.spec.kernel->id->name);
  if (!s.spec.selected_kernel.empty()) w.member("selected_kernel", s.spec.selected_kernel);
  w.member("layout", s.spec.packed->info.layout_id);
  w.member("threads", parallel_of(s.spec.context.get()).num_threads);
  w.member("tile_rows", s.spec.kernel->tile_rows);
  w.key("memory").begin_object().member("packed_bytes", s.spec.packed->block.size());
  if (s.setup.source != nullptr) w.member("panel_bytes", s.setup.source->bytes());
  w.member("workspace_bytes", used.kept).member("workspace_high", used.high).end_object();
  return w.member("config", json::Text{s.spec.config->canonical}).end_object().take();
}

}  // namespace moe::run
