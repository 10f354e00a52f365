// The ordered rules of selection (w4a8_int8.md 1.1, wna16.md 1.5, selection.md 2). Each names what the row
// needs and what was found. vLLM's checks come first, in its order; what only libmoe asks (layout,
// sizes, instruction sets) comes after them, so the reason is vLLM's wherever vLLM has one.
#include <algorithm>

#include "base/index.h"
#include "base/text.h"
#include "config/fields.h"
#include "oracle/backend.h"
#include "oracle/rules/machines.h"
#include "oracle/rules/wna16_needs.h"
#include "scheme/checkpoint.h"

namespace moe::oracle {
namespace {

std::string methods_in(const EnumSet<RoutingMethod>& set) {
  std::string s;
  for (const RoutingMethodName& row : routing_method_names())
    if (set.has(row.method)) s += cat(s.empty() ? "" : ", ", row.name);
  return s;
}

bool contains(std::span<const std::string_view> words, std::string_view w) {
  return std::find(words.begin(), words.end(), w) != words.end();
}

std::string_view name_of(Activation a) { return at(kActivationNames, a); }

// --- the machine: machines.cpp, and -----------------------------------------------------------------------

MaybeWhy in_dtype(const Query& q, const Trial& o) {
  if (o.accepts->in_dtypes.has(dtype_from_name(q.moe.in_dtype))) return std::nullopt;
  return Why{"activations of float32, bfloat16 or float16", "in_dtype is " + in_quotes(q.moe.in_dtype), "/in_dtype"};
}

MaybeWhy operators(const Query& q, const Trial& o) {
  if (o.accepts->ops_library.empty() || q.platform.lib(o.accepts->ops_library)) return std::nullopt;
  return Why{cat("the operators of ", o.accepts->ops_library), "platform.libs does not have them", "/platform/libs"};
}

// --- the layer ------------------------------------------------------------------------------------------

MaybeWhy gate(const Query& q, const Trial& o) {
  if (o.accepts->ungated || q.moe.is_act_and_mul) return std::nullopt;
  return Why{"a gated activation", cat("activation ", name_of(q.moe.activation), " is used without a gate"),
             "/activation"};
}

MaybeWhy activation(const Query& q, const Trial& o) {
  if (o.accepts->activations.has(q.moe.activation)) return std::nullopt;
  return Why{"activation " + names_in(o.accepts->activations, kActivationNames),
             cat("it is ", name_of(q.moe.activation)), "/activation"};
}

std::string pair_text(const Scheme& s) { return key_text(s.weight) + " with " + key_text(s.activation); }

// The row's scheme of these keys, on whatever machine; nullptr where it has none.
const Scheme* scheme_of(const Query& q, const Accepts& a) {
  const std::optional<QuantKey> activation = activation_key_of(q, a);
  for (const Scheme& s : a.schemes)
    if (q.weight_key == s.weight && activation == s.activation) return &s;
  return nullptr;
}

MaybeWhy scheme_pair(const Query& q, const Accepts& a) {
  const std::string found = "they are " + key_text(q.weight_key) + " with " + key_text(activation_key_of(q, a));
  if (const Scheme* s = scheme_of(q, a)) {
    if (is_one_of(s->on, q.platform)) return std::nullopt;
    return Why{"a machine that multiplies " + pair_text(*s), "the platform is " + platform_text(q.platform),
               "/platform"};
  }
  std::string pairs;
  bool known = false;
  for (const Scheme& s : a.schemes) {
    pairs += (pairs.empty() ? "" : ", ") + pair_text(s);
    known = known || q.weight_key == s.weight;
  }
  return Why{"weights and activations " + pairs, found,
             known ? "/quantization/input_activations" : "/quantization/weights"};
}

MaybeWhy quant_scheme(const Query& q, const Trial& o) {
  const Accepts& a = *o.accepts;
  if (a.any_key) return std::nullopt;
  if (!a.schemes.empty()) return scheme_pair(q, a);
  const std::optional<QuantKey> activation = activation_key_of(q, a);
  const bool known = q.weight_key
                         ? std::find(a.weight_keys.begin(), a.weight_keys.end(), *q.weight_key) != a.weight_keys.end()
                         : a.weight_keys.empty();
  if (known && (a.any_activation_key || !activation)) return std::nullopt;
  std::string keys;
  for (const QuantKey& k : a.weight_keys) keys += (keys.empty() ? "" : ", ") + key_text(k);
  return Why{"weights " + (keys.empty() ? "without a key" : keys) + " and activations " +
                 (a.any_activation_key ? "of any key" : "without a key"),
             "they are " + key_text(q.weight_key) + " and " + key_text(activation),
             known ? "/quantization/input_activations" : "/quantization/weights"};
}

MaybeWhy parallel(const Query& q, const Trial& o) {
  const Accepts& a = *o.accepts;
  const ParallelQuery& p = q.moe.parallel;
  if (!a.expert_parallel && p.ep_size != 1)
    return Why{"no expert parallelism", cat("ep_size is ", p.ep_size), "/parallel/ep_size"};
  if (!a.use_ep && p.use_ep) return Why{"no expert parallelism", "it is asked for", "/parallel/enable_expert_parallel"};
  if (!a.all2all && p.uses_all2all())
    return Why{"no all-to-all", "data and expert parallelism use one", "/parallel/all2all_backend"};
  const std::string found = "all2all_backend is " + p.all2all_backend;
  if (p.uses_all2all() && contains(a.all2all_refused, p.all2all_backend))
    return Why{"an all-to-all other than " + joined(a.all2all_refused), found, "/parallel/all2all_backend"};
  if (p.uses_all2all() && !a.all2all_only.empty() && !contains(a.all2all_only, p.all2all_backend))
    return Why{"all-to-all " + joined(a.all2all_only), found, "/parallel/all2all_backend"};
  if (!a.eplb && p.enable_eplb)
    return Why{"fixed experts", "enable_eplb is true (expert load balancing)", "/parallel/enable_eplb"};
  if (!a.data_parallel && p.dp_size > 1)
    return Why{"no data parallelism", cat("dp_size is ", p.dp_size), "/parallel/dp_size"};
  return std::nullopt;
}

MaybeWhy hash_routing(const Query& q, const Trial& o) {
  if (o.accepts->hash_routing || !q.moe.has_hash_routing) return std::nullopt;
  return Why{"routing by logits", "hash_routing is true", "/routing/hash_routing"};
}

MaybeWhy routing_method(const Query& q, const Trial& o) {
  const Scheme* scheme = scheme_of(q, *o.accepts);
  const EnumSet<RoutingMethod> too = scheme != nullptr ? scheme->routing_too : EnumSet<RoutingMethod>();
  if (o.accepts->routing.has(q.moe.routing_method) || too.has(q.moe.routing_method)) return std::nullopt;
  return Why{"routing method " + methods_in(o.accepts->routing | too),
             std::string("it is ") + routing_method_name(q.moe.routing_method), "/routing/method"};
}

MaybeWhy router_logits(const Query& q, const Trial& o) {
  const bool f32 = dtype_from_name(q.moe.router_logits_dtype) == DType::f32;
  if (!f32 || o.accepts->float32_logits.has(q.moe.routing_method)) return std::nullopt;
  return Why{"16-bit router logits, or routing method " + methods_in(o.accepts->float32_logits),
             cat("router_logits_dtype is float32 with ", routing_method_name(q.moe.routing_method)),
             "/router_logits_dtype"};
}

MaybeWhy activation_format(const Query& q, const Trial& o) {
  const bool batched = o.accepts->format == ActivationFormat::batched;
  if (o.accepts->format == ActivationFormat::any || batched == q.moe.parallel.batched()) return std::nullopt;
  return Why{batched ? "batched activations (a row block per expert)" : "standard activations (a row per token)",
             cat("the parallel members make them ", batched ? "standard" : "batched"), "/parallel/all2all_backend"};
}

// Humming has a class for each way to lay out its products.
MaybeWhy gemm_type(const Query& q, const Trial& o) {
  constexpr std::string_view kSwitch = "VLLM_HUMMING_MOE_GEMM_TYPE";
  const std::string word = fields::lower_ascii(q.env_value(kSwitch));
  // Any other word is as none.
  const GemmType asked = word == "grouped" || word == "grouped_contiguous" ? GemmType::grouped : GemmType::indexed;
  if (o.accepts->gemm_type == GemmType::any || o.accepts->gemm_type == asked) return std::nullopt;
  return Why{std::string(kSwitch) + (asked == GemmType::grouped ? " other than grouped" : " grouped"),
             word.empty() ? "it is not set" : "it is " + in_quotes(word), "/vllm_env"};
}

MaybeWhy batch_invariance(const Query& q, const Trial& o) {
  if (o.accepts->batch_invariant || !q.batch_invariant()) return std::nullopt;
  return Why{"no request for batch invariance", "batch invariance is asked for", "/vllm_env"};
}

MaybeWhy lora(const Query& q, const Trial& o) {
  if (o.accepts->lora || !q.moe.is_lora_enabled) return std::nullopt;
  return Why{"no LoRA", "is_lora_enabled is true", ""};
}

MaybeWhy sizes(const Query& q, const Trial& o) {
  const auto off = [](const char* name, std::int64_t size, std::int64_t step) -> MaybeWhy {
    if (size % step == 0) return std::nullopt;
    return Why{cat(name, " in multiples of ", step), cat("it is ", size), cat("/", name)};
  };
  if (MaybeWhy why = off("hidden_dim", q.moe.hidden_dim, o.accepts->hidden_step)) return why;
  if (!o.accepts->stepped_for.has(q.moe.activation)) return std::nullopt;
  return off("intermediate_size_per_partition", q.moe.intermediate_size_per_partition, o.accepts->intermediate_step);
}

// --- conversion and kernels: only for a config ------------------------------------------------------------

MaybeWhy checkpoint(const Query& q, const Trial& o) {
  if (q.layer == nullptr) return std::nullopt;
  const Quantization& z = q.layer->quantization;
  if (q.policy == Policy::vllm && is_narrow(z.format))
    return Why{"checkpoint format that vLLM reads", cat("it is ", at(kFormatNames, z.format)), "/quantization/format"};
  if (!o.accepts->checkpoints.has(read_as(z.format)))
    return Why{"checkpoint format " + names_in(o.accepts->checkpoints, kFormatNames),
               cat("it is ", at(kFormatNames, z.format)), "/quantization/format"};
  if (!o.accepts->transposed && z.is_transposed.value_or(false))
    return Why{"row-major stacked tensors", "is_transposed is true", "/quantization/is_transposed"};
  return std::nullopt;
}

MaybeWhy block_columns(const Config& c, std::int64_t multiple) {
  const std::optional<QuantArgs>& w = c.quantization.weights;
  if (!w || !w->block_structure || (*w->block_structure)[1] % multiple == 0) return std::nullopt;
  return Why{cat("blocks whose columns are a multiple of ", multiple), cat("they have ", (*w->block_structure)[1]),
             "/quantization/weights/block_structure"};
}

MaybeWhy group_size(const Query& q, const Trial& o) {
  if (q.layer == nullptr) return std::nullopt;
  const Config& c = *q.layer;
  if (MaybeWhy why = block_columns(c, o.accepts->group_multiple)) return why;
  if (o.accepts->only_group != 0 && c.weight_groups() != Groups::even(o.accepts->only_group))
    return Why{cat("groups of ", o.accepts->only_group), cat("the group size is ", c.weight_groups().as_written()),
               "/quantization/weights/group_size"};
  if (c.weight_groups().is_whole() || c.quantization.weights->block_structure) return std::nullopt;
  const std::int64_t g = c.weight_groups().as_written();
  if (g % o.accepts->group_multiple == 0 && g >= o.accepts->smallest_group &&
      groups_fit(c.weight_groups(), c.hidden_dim, c.intermediate_size_per_partition))
    return std::nullopt;
  const std::string sizes = o.accepts->smallest_group > 1
                                ? cat("of at least ", o.accepts->smallest_group, " that divides")
                                : cat("that is a multiple of ", o.accepts->group_multiple, " and divides");
  return Why{cat("channel-wise scales or a group size ", sizes, " both sizes"),
             cat("it is ", g, " for ", c.hidden_dim, " and ", c.intermediate_size_per_partition),
             "/quantization/weights/group_size"};
}

MaybeWhy alignment(const Query& q, const Trial& o) {
  if (q.layer == nullptr) return std::nullopt;
  const std::int64_t m = o.accepts->size_multiple;
  const auto off = [&](const char* name, std::int64_t size) -> MaybeWhy {
    if (size % m == 0) return std::nullopt;
    return Why{cat(name, " in multiples of ", m), cat("it is ", size), cat("/", name)};
  };
  if (MaybeWhy why = off("hidden_dim", q.layer->hidden_dim)) return why;
  return off("intermediate_size_per_partition", q.layer->intermediate_size_per_partition);
}

// With custom routing the caller's weights are final.
MaybeWhy callers_factor(const Query& q, const Trial& o) {
  if (q.layer == nullptr || o.accepts->callers_factor) return std::nullopt;
  const RoutingConfig& r = q.layer->routing;
  if (r.method != RoutingMethod::custom || r.routed_scaling_factor == 1.0) return std::nullopt;
  const json::Value* found = json::at_pointer(q.layer->resolved, "/routing/routed_scaling_factor");
  return Why{"a factor of 1 where the caller routes", "it is " + (found != nullptr ? json::write(*found) : "set"),
             "/routing/routed_scaling_factor"};
}

// What our kernels and readers take so far.
MaybeWhy plain_weights(const Query& q, const Trial& o) {
  if (q.layer == nullptr || !o.accepts->writes() || !q.layer->quantization.weights) return std::nullopt;
  const QuantArgs& w = *q.layer->quantization.weights;
  if (!w.symmetric && q.layer->quantization.input_activations && w.type == NumType::integer)
    return Why{"symmetric weights for a checkpoint's int8 activations",
               "symmetric is false, and this build has no such kernel", "/quantization/weights/symmetric"};
  if (tensor_set(q.layer->quantization) == nullptr)
    return Why{"weights that this build reads",
               cat("it has no reader for these arguments in format ", at(kFormatNames, q.layer->quantization.format)),
               "/quantization/weights"};
  if (!o.accepts->cuts_order && w.actorder == ActOrder::group && q.layer->parallel.tp_size > 1)
    return Why{"all columns of a layer whose actorder is group",
               "tensor parallelism cuts them, and this build does not write their layout from a part",
               "/quantization/weights/actorder"};
  return std::nullopt;
}

MaybeWhy activation_quant(const Query& q, const Trial& o) {
  if (q.layer == nullptr || !o.accepts->writes()) return std::nullopt;
  const LayoutKind layout = layout_kind(q, *o.accepts);
  if (!has_kernels(layout)) return std::nullopt;
  if (pick(needs_of(*q.layer, *o.accepts, layout))) return std::nullopt;
  if (q.layer->compute == Compute::a8 && !q.layer->quantization.weights->symmetric)
    return Why{"activation_quant block32 (or auto) for weights with zero points", "it is per_token",
               "/activation_quant"};
  return Why{"activations that its kernels multiply",
             "compute and activation_quant ask for int8 activations with these weights, which this build does not have",
             "/compute"};
}

MaybeWhy layout(const Query& q, const Trial& o) {
  if (q.layer == nullptr || o.accepts->answer_only || layout_kind(q, *o.accepts) != LayoutKind::none)
    return std::nullopt;
  const std::string name = o.row->name.empty() ? "" : cat(" (", o.row->name, ")");
  return Why{cat("the packed layout of ", o.row->backend, name), "this build does not write it", ""};
}

// What the layout of a row of floats needs.
MaybeNeed float_conversion(const Query& q, const Trial& o) {
  return q.layer == nullptr || o.accepts->needs == nullptr ? std::nullopt : o.accepts->needs(q, o);
}

MaybeWhy kernel_arch(const Query& q, const Trial& o) {
  if (o.kernel == nullptr) return std::nullopt;
  const Arch arch = isa_arch(o.kernel->isa);
  if (arch == Arch::automatic || arch == q.platform.arch) return std::nullopt;
  return Why{cat("architecture ", at(kArchNames, arch)), "the platform is " + platform_text(q.platform),
             "/platform/arch"};
}

std::string features_text(const FeatureSet& set) {
  std::string s;
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i)
    if (set.test(i) && i != usize(Feature::scalar)) s += cat(s.empty() ? "" : ", ", kFeatureNames[i]);
  return s.empty() ? "none" : s;
}

// The missing feature that gives the instruction set its name ("avx512vnni": avx512_vnni), else the first.
std::string telling_feature(std::string_view isa, const FeatureSet& missing) {
  std::string first;
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i) {
    if (!missing.test(i)) continue;
    std::string word(kFeatureNames[i]);
    if (first.empty()) first = word;
    std::erase(word, '_');
    if (word == isa) return std::string(kFeatureNames[i]);
  }
  return first;
}

MaybeWhy kernel_isa(const Query& q, const Trial& o) {
  if (o.kernel == nullptr || q.platform.runs(o.kernel->isa)) return std::nullopt;
  const FeatureSet missing = isa_features(o.kernel->isa) & ~q.platform.features;
  return Why{features_text(missing), "the platform has " + features_text(q.platform.features),
             telling_feature(at(kIsaNames, o.kernel->isa), missing)};
}

MaybeWhy kernel_group(const Query& q, const Trial& o) {
  if (o.kernel == nullptr || q.layer == nullptr || o.kernel->takes_groups(needs_of(layout_of(q, *o.accepts))))
    return std::nullopt;
  const bool parts = o.accepts->cuts_order && q.layer->quantization.weights->actorder == ActOrder::group &&
                     q.layer->parallel.tp_size > 1;
  return Why{
      cat("channel-wise weights or a group size that is a multiple of ", o.kernel->group_multiple),
      parts ? "tensor parallelism leaves groups of any sizes" : cat("it is ", q.layer->weight_groups().as_written()),
      "/quantization/weights/group_size"};
}

// Sums of int8 products are kept in int32.
MaybeWhy sum_length(const Query& q, const Trial& o) {
  if (o.kernel == nullptr || q.layer == nullptr) return std::nullopt;
  const std::int64_t sum = needs_of(layout_of(q, *o.accepts)).longest_sum;
  if (sum <= o.kernel->longest_sum()) return std::nullopt;
  return Why{cat("sums over at most ", o.kernel->longest_sum(), " columns"), cat("one scale covers ", sum),
             "/quantization/weights/group_size"};
}

// clang-format off
constexpr std::array kRules = {
    Rule{{Reject::platform,          "device"},              device},
    Rule{{Reject::input_dtype,       "in_dtype"},            in_dtype},
    Rule{{Reject::not_built,         "missing_ops"},         operators},
    Rule{{Reject::not_gated,         "act_and_mul"},         gate},
    Rule{{Reject::activation,        "activation"},          activation},
    Rule{{Reject::quant_scheme,      "quant_scheme"},        quant_scheme},
    Rule{{Reject::parallel,          "parallel"},            parallel},
    Rule{{Reject::routing,           "hash_routing"},        hash_routing},
    Rule{{Reject::routing,           "routing_method"},      routing_method},
    Rule{{Reject::router_dtype,      "router_logits_dtype"}, router_logits},
    Rule{{Reject::activation_format, "activation_format"},   activation_format},
    Rule{{Reject::user,              "gemm_type"},           gemm_type},
    Rule{{Reject::batch_invariance,  "batch_invariance"},    batch_invariance},
    Rule{{Reject::lora,              "lora"},                lora},
    Rule{{Reject::alignment,         "sizes"},               sizes},
    Rule{{Reject::weight_layout,     "checkpoint"},          checkpoint},
    Rule{{Reject::group_size,        "group_size"},          group_size},
    Rule{{Reject::alignment,         "alignment"},           alignment},
    Rule{{Reject::routing,           "routing"},             callers_factor},
    Rule{float_conversion},  // before whether this build writes the layout: that answer will not change
    Rule{{Reject::not_built,         "layout"},              layout},
    Rule{wna16_need},
    Rule{{Reject::not_built,         "plain_weights"},       plain_weights},
    Rule{{Reject::not_built,         "activation_quant"},    activation_quant},
    Rule{{Reject::platform,          "kernel_arch"},         kernel_arch},
    Rule{{Reject::isa,               "isa"},                 kernel_isa},
    Rule{{Reject::group_size,        "kernel_group"},        kernel_group},
    Rule{{Reject::group_size,        "sum_length"},          sum_length},
};
// clang-format on

}  // namespace

std::span<const Rule> rules() { return kRules; }

Verdict judge(const Query& q, const Trial& offer) {
  for (const Rule& rule : kRules)
    if (Verdict refused = rule.ask(q, offer)) return refused;
  return std::nullopt;
}

bool device_runs(const Query& q, const Trial& offer) { return !kRules[0].ask(q, offer); }

std::optional<QuantKey> activation_key_of(const Query& q, const Accepts& row) {
  if (q.activation_key || row.own_activation == nullptr) return q.activation_key;
  return *row.own_activation;
}

bool answers_to(const Query& q, const Accepts& row, std::string_view word) {
  if (word.empty() || (word != row.request && word != row.request_too)) return false;
  const bool batched = row.format == ActivationFormat::batched;
  return !row.request_in_format || batched == q.moe.parallel.batched();
}

}  // namespace moe::oracle
