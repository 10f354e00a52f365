// config.json of known architectures -> names, sizes, activation, dtype and routing of one layer
// (checkpoints.md 2 and 3). An architecture is one row; values are copied as they are, so that
// config_from_document checks them by the rules that hold for everybody.
#include <algorithm>
#include <array>

#include "base/index.h"
#include "base/text.h"
#include "hf/hf.h"

namespace moe::hf {
namespace {

using Names = std::array<std::string_view, 3>;  // gate, up, down on disk
constexpr Names kProjNames = {"gate_proj", "up_proj", "down_proj"};
constexpr Names kNumberedNames = {"w1", "w3", "w2"};

enum class Layers : std::uint8_t {
  all,
  qwen,     // not in mlp_only_layers, and (l + 1) % decoder_sparse_step == 0
  deepseek  // l >= first_k_dense_replace and l % moe_layer_freq == 0
};
enum class Groups : std::uint8_t {
  none,
  factor,        // none, but routed_scaling_factor in the weights
  always,        // n_group, topk_group; and routed_scaling_factor on the output
  unless_greedy  // the same, but topk_method greedy chooses among all experts
};

// A routing value: that of the file's key, else the architecture's own. Files leave out what their class takes for
// granted: what is not there is never "no".
struct Renormalize {
  std::string_view key;
  bool otherwise;
};
struct ScoringFunction {
  std::string_view key;
  Scoring otherwise;
};
// A correction bias beside the router; the key says true or noaux_tc where there is one.
struct CorrectionBias {
  std::string_view key;
  bool otherwise;
};

struct Architecture {
  std::string_view name;
  std::string_view block;  // module path of the experts inside the layer
  Names projections;
  std::string_view experts_key, width_key;  // width_key: the width of one expert
  Layers layers;
  ScoringFunction scoring;
  Renormalize renormalize;
  Renormalize vllm_renormalize;  // with bit_compat vllm, whose classes do not always agree with transformers'
  Groups groups = Groups::none;
  CorrectionBias bias = {"", false};
  std::string_view method = {};
  // What its experts are, whatever hidden_act says; else those of hidden_act, without biases, each tensor by itself.
  struct Experts {
    std::string_view activation;
    bool has_bias = false;
    StackedWeights stacked = StackedWeights::none;
  };
  Experts experts = {};
  // The first layers may choose by a table of the token's number: mlp_layer_types, num_hash_layers.
  bool hash_layers = false;
};

constexpr std::string_view kMlp = "mlp.experts", kSparse = "block_sparse_moe.experts", kFfn = "ffn.experts";
constexpr std::string_view kWidth = "moe_intermediate_size", kDense = "intermediate_size";
constexpr ScoringFunction kSoftmax = {"", Scoring::softmax}, kSigmoid = {"", Scoring::sigmoid};
constexpr ScoringFunction kScoringOrSoftmax = {"scoring_func", Scoring::softmax};
constexpr ScoringFunction kScoringOrSoftplus = {"scoring_func", Scoring::sqrtsoftplus};
constexpr ScoringFunction kScoringOrSigmoid = {"scoring_func", Scoring::sigmoid};
constexpr Renormalize kAlways = {"", true}, kNever = {"", false};
constexpr Renormalize kNormOrFalse = {"norm_topk_prob", false}, kNormOrTrue = {"norm_topk_prob", true};
constexpr CorrectionBias kNoBias = {"", false}, kBias = {"", true};
constexpr CorrectionBias kMethodOrNone = {"topk_method", false}, kMethodOrBias = {"topk_method", true};
constexpr CorrectionBias kUseOrBias = {"use_routing_bias", true};
constexpr Architecture::Experts kGptOss = {"swigluoai", true, StackedWeights::columns_first};
constexpr Groups kNone = Groups::none, kGroups = Groups::always, kUnlessGreedy = Groups::unless_greedy;

// clang-format off
constexpr std::array kArchitectures = {
    // name                                block    projections     experts              width   layers            scoring            renormalize   vllm          groups         bias           method
    Architecture{"MixtralForCausalLM",     kSparse, kNumberedNames, "num_local_experts", kDense, Layers::all,      kSoftmax,          kAlways,      kAlways},
    Architecture{"Qwen2MoeForCausalLM",    kMlp,    kProjNames,     "num_experts",       kWidth, Layers::qwen,     kSoftmax,          kNormOrFalse, kNormOrFalse},
    Architecture{"Qwen3MoeForCausalLM",    kMlp,    kProjNames,     "num_experts",       kWidth, Layers::qwen,     kSoftmax,          kNormOrFalse, kNormOrFalse},
    Architecture{"Qwen3NextForCausalLM",   kMlp,    kProjNames,     "num_experts",       kWidth, Layers::qwen,     kSoftmax,          kNormOrTrue,  kNormOrTrue},
    Architecture{"OlmoeForCausalLM",       kMlp,    kProjNames,     "num_experts",       kDense, Layers::all,      kSoftmax,          kNormOrFalse, kNever},
    Architecture{"PhimoeForCausalLM",      kSparse, kNumberedNames, "num_local_experts", kDense, Layers::all,      kSoftmax,          kNever,       kNever,       kNone,         kNoBias,       "sparsemixer"},
    Architecture{"PhiMoEForCausalLM",      kSparse, kNumberedNames, "num_local_experts", kDense, Layers::all,      kSoftmax,          kNever,       kNever,       kNone,         kNoBias,       "sparsemixer"},
    Architecture{"MiniMaxM2ForCausalLM",   kSparse, kNumberedNames, "num_local_experts", kDense, Layers::all,      kScoringOrSigmoid, kAlways,      kAlways,      kNone,         kUseOrBias},
    Architecture{"DeepseekV2ForCausalLM",  kMlp,    kProjNames,     "n_routed_experts",  kWidth, Layers::deepseek, kScoringOrSoftmax, kNever,       kNormOrFalse, kUnlessGreedy, kMethodOrNone},
    Architecture{"DeepseekV3ForCausalLM",  kMlp,    kProjNames,     "n_routed_experts",  kWidth, Layers::deepseek, kScoringOrSigmoid, kNormOrTrue,  kNormOrTrue,  kGroups,       kMethodOrBias},
    Architecture{"DeepseekV32ForCausalLM", kMlp,    kProjNames,     "n_routed_experts",  kWidth, Layers::deepseek, kScoringOrSigmoid, kNormOrTrue,  kNormOrTrue,  kGroups,       kMethodOrBias},
    Architecture{"Dots1ForCausalLM",       kMlp,    kProjNames,     "n_routed_experts",  kWidth, Layers::deepseek, kScoringOrSigmoid, kNormOrFalse, kNormOrFalse, kGroups,       kMethodOrBias},
    Architecture{"Glm4MoeForCausalLM",     kMlp,    kProjNames,     "n_routed_experts",  kWidth, Layers::deepseek, kSigmoid,          kNormOrTrue,  kNormOrTrue,  kGroups,       kBias},
    Architecture{"DeepseekV4ForCausalLM",  kFfn,    kNumberedNames, "n_routed_experts",  kWidth, Layers::deepseek, kScoringOrSoftplus, kNormOrTrue, kNormOrTrue,  Groups::factor, kBias,        "",            {},            true},
    Architecture{"GptOssForCausalLM",      kMlp,    kProjNames,     "num_local_experts", kDense, Layers::all,      kSoftmax,          kAlways,      kAlways,      kNone,         kNoBias,       "",            kGptOss},
};
// clang-format on

// Words of files that are another's name for one of ours.
struct Synonym {
  std::string_view member, theirs, ours;
};
constexpr std::array kSynonyms = {
    Synonym{"activation", "swish", "silu"},
    Synonym{"scoring_func", "noaux_tc", "sigmoid"},  // dots1; the bias that the word speaks of is there by default
};

json::Value in_our_words(std::string_view member, const json::Value& theirs) {
  const std::string* word = theirs.string();
  for (const Synonym& s : kSynonyms)
    if (word != nullptr && s.member == member && s.theirs == *word) return s.ours;
  return theirs;
}

constexpr fields::Range kLayerCount = {1, 65536};

Result<const Architecture*> architecture_of(const ModelFile& file) {
  MOE_TRY(const auto names, file.root().texts("architectures"));
  if (names.empty()) return fields::missing(file.root().at("architectures"), "the name of an architecture");
  for (const Architecture& a : kArchitectures)
    if (a.name == names[0]) return &a;
  const std::string pointer = file.root().at("architectures") + "/0";
  std::string known;
  for (const Architecture& a : kArchitectures) known += cat(known.empty() ? "" : ", ", a.name);
  return fail(Code::unsupported, pointer,
              cat(pointer, ": the architecture ", fields::brief((*file.root().get("architectures")->array())[0]),
                  " is not known, known are ", known));
}

// --- which layers have experts ----------------------------------------------------------------------

struct LayerRule {
  std::int64_t count = 0;            // layers, those of multi-token prediction included
  std::int64_t first = 0, step = 1;  // l >= first and (l + shift) % step == 0
  std::int64_t shift = 0;
  std::vector<std::int64_t> dense = {};  // sorted

  bool has_experts(std::int64_t l) const {
    return l >= first && (l + shift) % step == 0 && !std::binary_search(dense.begin(), dense.end(), l);
  }
};

Result<LayerRule> layer_rule(const ModelFile& file, Layers layers) {
  const auto integer = [&](std::string_view key, fields::Range range, std::int64_t otherwise) -> Result<std::int64_t> {
    MOE_TRY(const auto value, file.holder(key).integer(key, range));
    return value.value_or(otherwise);
  };
  LayerRule r;
  MOE_TRY(r.count, file.holder("num_hidden_layers").need_integer("num_hidden_layers", kLayerCount));
  if (layers == Layers::qwen) {
    r.shift = 1;
    MOE_TRY(r.step, integer("decoder_sparse_step", kLayerCount, 1));
    MOE_TRY(r.dense, file.holder("mlp_only_layers").integers("mlp_only_layers", {0, kLayerCount.high}));
    std::sort(r.dense.begin(), r.dense.end());
  }
  if (layers == Layers::deepseek) {
    MOE_TRY(r.first, integer("first_k_dense_replace", {0, kLayerCount.high}, 0));
    MOE_TRY(r.step, integer("moe_layer_freq", kLayerCount, 1));
    MOE_TRY(const std::int64_t predicting, integer("num_nextn_predict_layers", {0, kLayerCount.high}, 0));
    r.count += predicting;
  }
  return r;
}

Result<std::int64_t> layer_index(const ModelFile& file, const LayerRule& rule, std::optional<std::int64_t> asked,
                                 const std::string& asked_pointer) {
  if (!asked) {
    for (std::int64_t l = 0; l < rule.count; ++l)
      if (rule.has_experts(l)) return l;
    const std::string pointer = file.holder("num_hidden_layers").at("num_hidden_layers");
    return fields::fault(pointer, cat("none of the ", rule.count, " layers has experts"));
  }
  if (*asked >= rule.count)
    return fields::fault(asked_pointer, cat("found ", *asked, ", the model has ", rule.count, " layers"));
  if (!rule.has_experts(*asked))
    return fields::fault(asked_pointer, cat("layer ", *asked, " has no experts, it is a dense layer"));
  return *asked;
}

// --- members of the document ------------------------------------------------------------------------

class Writer {
 public:
  explicit Writer(const ModelFile& file) : file_(file) {}

  // The file's value under the first key that it has; false when it has none.
  bool copy(std::string_view member, std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) {
      const Foreign& holder = file_.holder(key);
      if (!holder.has(key)) continue;
      built.put(member, in_our_words(member, *holder.get(key)), holder.at(key));
      return true;
    }
    return false;
  }
  Check copy_required(std::string_view member, std::initializer_list<std::string_view> keys, std::string_view what) {
    if (copy(member, keys)) return ok();
    return fields::missing(file_.holder(*keys.begin()).at(*keys.begin()), std::string(what));
  }
  void copy_routing(std::string_view member, std::string_view key, const json::Value& otherwise) {
    const Foreign& holder = file_.holder(key);
    const bool found = !key.empty() && holder.has(key);
    built.put("routing", member, found ? in_our_words(member, *holder.get(key)) : otherwise,
              found ? holder.at(key) : "");
  }

  Built built;

 private:
  const ModelFile& file_;
};

Check write_dtype(const ModelFile& file, Writer& w) {
  for (const std::string_view key : {"torch_dtype", "dtype"}) {
    const Foreign& holder = file.holder(key);
    MOE_TRY(const auto name, holder.text(key));
    if (!name) continue;
    const DType t = dtype_from_name(*name);
    if (!is_float16_or_32(t))
      return fields::unexpected(holder.at(key), *holder.get(key), "float32, float16 or bfloat16");
    w.built.put("in_dtype", t == DType::f32 ? "float32" : t == DType::f16 ? "float16" : "bfloat16", holder.at(key));
    return ok();
  }
  return ok();
}

void write_experts(const ModelFile& file, const Architecture& a, Writer& w) {
  const bool own = !a.experts.activation.empty();
  if (own)
    w.built.put("activation", a.experts.activation, "");
  else
    w.copy("activation", {"hidden_act"});
  struct Parameter {
    std::string_view key, member;
    bool known;
  };
  for (const Parameter& p : {Parameter{"swiglu_limit", "limit", true}, Parameter{"swiglu_alpha", "alpha", own}}) {
    const Foreign& holder = file.holder(p.key);
    if (p.known && holder.has(p.key)) w.built.put("activation_params", p.member, *holder.get(p.key), holder.at(p.key));
  }
  if (a.experts.has_bias) w.built.put("has_bias", true, "");
  if (a.experts.stacked != StackedWeights::none)
    w.built.put("stacked_weights", at(config::kStackedWeightsNames, a.experts.stacked), "");
}

Result<bool> has_bias(const ModelFile& file, const CorrectionBias& bias) {
  const Foreign& holder = file.holder(bias.key);
  if (bias.key.empty() || !holder.has(bias.key)) return bias.otherwise;
  const json::Value& said = *holder.get(bias.key);
  if (said.boolean() != nullptr) return *said.boolean();
  if (said.string() != nullptr) return *said.string() == "noaux_tc";
  return fields::unexpected(holder.at(bias.key), said, "a word or a boolean");
}

// A file without the key is greedy, too.
Result<bool> is_greedy(const ModelFile& file, const Architecture& a, Policy compat) {
  if (a.groups != Groups::unless_greedy || compat == Policy::vllm) return false;
  MOE_TRY(const auto method, file.holder("topk_method").text("topk_method"));
  return method.value_or("greedy") == "greedy";
}

Result<bool> is_hash_layer(const ModelFile& file, const Architecture& a, std::int64_t layer) {
  if (!a.hash_layers) return false;
  MOE_TRY(const auto types, file.holder("mlp_layer_types").texts("mlp_layer_types"));
  if (layer < std::ssize(types)) return types[usize(layer)] == "hash_moe";
  MOE_TRY(const auto count, file.holder("num_hash_layers").integer("num_hash_layers", {0, kLayerCount.high}));
  return layer < count.value_or(0);
}

Check write_routing(const ModelFile& file, const Architecture& a, Policy compat, std::int64_t layer, Writer& w) {
  const std::string_view scoring = at(kScoringNames, a.scoring.otherwise);
  w.copy_routing("scoring_func", a.scoring.key, scoring);
  const Renormalize& renormalize = compat == Policy::vllm ? a.vllm_renormalize : a.renormalize;
  w.copy_routing("renormalize", renormalize.key, renormalize.otherwise);
  if (a.groups == Groups::factor) {
    w.copy_routing("routed_scaling_factor", "routed_scaling_factor", 1.0);
  } else if (a.groups != Groups::none) {
    MOE_TRY(const bool greedy, is_greedy(file, a, compat));
    w.copy_routing("num_expert_group", greedy ? "" : "n_group", 1);
    w.copy_routing("topk_group", greedy ? "" : "topk_group", 1);
    w.copy_routing("routed_scaling_factor", "routed_scaling_factor", 1.0);
    w.built.put("routing", "apply_routed_scale_to_output", true, "");
  }
  MOE_TRY(const bool hashed, is_hash_layer(file, a, layer));
  if (hashed) w.built.put("routing", "hash_routing", true, "");
  MOE_TRY(const bool bias, has_bias(file, a.bias));
  if (bias && !hashed) w.built.put("routing", "e_score_correction_bias", true, "");
  if (!a.method.empty()) w.built.put("routing", "method", a.method, "");
  const Foreign& jitter = file.holder("router_jitter_noise");
  if (a.method == "sparsemixer" && jitter.has("router_jitter_noise"))
    w.built.put("routing", "jitter_eps", *jitter.get("router_jitter_noise"), jitter.at("router_jitter_noise"));
  return ok();
}

}  // namespace

Result<ModelFile> ModelFile::open(const json::Value& document) {
  MOE_TRY(Foreign root, Foreign::open(document, ""));
  MOE_TRY(std::optional<Foreign> text, root.object("text_config"));
  return ModelFile(std::move(root), std::move(text));
}

Result<Built> describe_layer(const ModelFile& file, std::optional<std::int64_t> layer, const std::string& layer_pointer,
                             Policy compat) {
  MOE_TRY(const Architecture* a, architecture_of(file));
  MOE_TRY(const LayerRule rule, layer_rule(file, a->layers));
  MOE_TRY(const std::int64_t index, layer_index(file, rule, layer, layer_pointer));

  Writer w(file);
  w.built.put("name", cat("model.layers.", index, ".", a->block), "");
  w.built.put("projection_names", json::Array(a->projections.begin(), a->projections.end()), "");
  MOE_CHECK(w.copy_required("num_experts", {a->experts_key, "num_local_experts", "n_routed_experts", "num_experts"},
                            "the number of experts"));
  MOE_CHECK(w.copy_required("top_k", {"num_experts_per_tok"}, "the number of experts of a token"));
  MOE_CHECK(w.copy_required("hidden_dim", {"hidden_size"}, "the width of the layer"));
  MOE_CHECK(w.copy_required("intermediate_size", {a->width_key}, "the width of an expert"));
  write_experts(file, *a, w);
  MOE_CHECK(write_dtype(file, w));
  MOE_CHECK(write_routing(file, *a, compat, index, w));
  return std::move(w.built);
}

}  // namespace moe::hf
