// config.json of known architectures -> names, sizes, activation, dtype and routing of one layer
// (checkpoints.md 2 and 3). What a class takes for granted stands in its row (architecture.h); values are copied as
// they are, so that config_from_document checks them by the rules that hold for everybody.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/index.h"
#include "base/text.h"
#include "hf/architecture.h"
#include "hf/hf.h"
#include "hf/keys.h"
#include "hf/layers.h"
#include "scheme/activation.h"

namespace moe::hf {
namespace {

// Words of files that are another's name for one of ours.
struct Synonym {
  std::string_view member, theirs, ours;
};
constexpr std::array kSynonyms = {
    Synonym{"activation", "swish", "silu"},
    Synonym{"scoring_func", "noaux_tc", "sigmoid"},  // dots1; the bias that the word speaks of is there by default
};

// --- members of the document ------------------------------------------------------------------------

// The number of this layer, where there is one for each.
const json::Value& entry(const json::Value& value, std::int64_t layer) {
  const json::Array* list = value.array();
  return list != nullptr && layer < std::ssize(*list) ? (*list)[usize(layer)] : value;
}

json::Value number_or_null(const std::optional<std::int64_t>& n) { return n ? json::Value(*n) : json::Value(); }
json::Value number_or_null(const std::optional<double>& n) { return n ? json::Value(*n) : json::Value(); }

class DocumentWriter {
 public:
  DocumentWriter(const ModelFile& file, const Asked& asked, const LayerRule& rule, std::int64_t layer)
      : file_(file), asked_(asked), rule_(rule), layer_(layer) {}

  bool overrides_routing(std::string_view member) const {
    return asked_.describes_routing || asked_.overrides("routing", member);
  }
  Check copy_number(std::string_view section, std::string_view member, const NumberKey& key) {
    const std::array keys = {key.key, key.alias};
    return copy_number(section, member, keys, number_or_null(key.otherwise), number_or_null(key.null));
  }
  Check copy_number(std::string_view member, const SizeKey& key, const json::Value& otherwise) {
    return copy_number("routing", member, key.keys, otherwise, number_or_null(key.null));
  }

  // What the file says under keys that are spellings of one: nullopt when it has none, a null where it has only that.
  struct Said {
    const Foreign* holder;
    std::string_view key;
    const json::Value* value;

    std::string pointer() const { return holder->at(key); }
  };
  Result<std::optional<Said>> said(std::span<const std::string_view> keys, std::string_view member,
                                   bool first_counts = false) const {
    std::optional<Said> first;
    for (const std::string_view key : keys) {
      if (key.empty()) continue;
      const Foreign& holder = file_.holder(key);
      const json::Value* value = holder.value().find(key);
      if (value == nullptr || (value->is_null() && first)) continue;
      if (!first || first->value->is_null() || (file_.is_of_layer(holder) && !file_.is_of_layer(*first->holder))) {
        first = Said{&holder, key, value};
      } else if (const json::Value& other = entry(*first->value, layer_);
                 !first_counts && first->holder == &holder && other != entry(*value, layer_)) {
        return fields::fault(holder.at(key), cat("found ", fields::brief(*value), ", but ", first->pointer(), " is ",
                                                 fields::brief(other), "; overrides.", member, " tells which it is"));
      }
    }
    return first;
  }

  // The file's number, else the class's; what is overridden the file need not tell. A list has one of each layer.
  Check copy_size(std::string_view member, const SizeKey& key, std::string_view what) {
    if (asked_.overrides(member)) return ok();
    MOE_TRY(const std::optional<Said> found, said(key.keys, member, key.first_counts));
    if (!found && key.otherwise) {
      built.put(member, *key.otherwise, "");
      return ok();
    }
    if (!found || found->value->is_null())
      return fields::missing(file_.holder(key.keys[0]).at(key.keys[0]), std::string(what));
    const json::Array* list = found->value->array();
    if (list != nullptr) MOE_CHECK(check_length(*found, *list));
    const json::Value& number = entry(*found->value, layer_);
    std::string source = list == nullptr ? found->pointer() : cat(found->pointer(), "/", layer_);
    if (member == "num_experts" && number == json::Value(0))
      return fields::fault(std::move(source), "found 0: the layer is dense, it has no experts");
    built.put(member, number, std::move(source));
    return ok();
  }
  // A word, or what the class takes for granted.
  void copy_word(std::string_view section, std::string_view member, std::string_view key,
                 const json::Value& otherwise) {
    const Foreign& holder = file_.holder(key);
    const bool found = !key.empty() && holder.has(key);
    built.put(section, member, found ? in_our_words(member, *holder.get(key)) : otherwise, found ? holder.at(key) : "");
  }
  // Null is what most classes would compute with, and cannot.
  Check copy_number(std::string_view section, std::string_view member, std::span<const std::string_view> keys,
                    const json::Value& otherwise, const json::Value& null) {
    MOE_TRY(const std::optional<Said> found, said(keys, member));
    const bool is_null = found && found->value->is_null();
    if (is_null && null.is_null()) {
      if (asked_.overrides(section, member)) return ok();
      const std::string path = section.empty() ? std::string(member) : cat(section, ".", member);
      return fields::unexpected(found->pointer(), *found->value, cat("a number; overrides.", path, " tells which"));
    }
    if (!found && otherwise.is_null()) return ok();
    const json::Value& number = is_null ? null : found ? *found->value : otherwise;
    std::string source = found ? found->pointer() : "";
    if (section.empty()) {
      built.put(member, number, std::move(source));
    } else {
      built.put(section, member, number, std::move(source));
    }
    return ok();
  }
  // Null is false, as in Python.
  Check copy_flag(std::string_view member, const BoolKey& key) {
    const std::array keys = {key.key, key.alias};
    MOE_TRY(const std::optional<Said> found, said(keys, member));
    const bool null = found && found->value->is_null();
    built.put("routing", member,
              null    ? json::Value(false)
              : found ? *found->value
                      : json::Value(key.otherwise),
              found ? found->pointer() : "");
    return ok();
  }
  // Lists may leave out the layers of multi-token prediction.
  bool has_length(std::int64_t size) const { return size == rule_.count || size == rule_.count - rule_.predicted; }
  std::int64_t num_layers() const { return rule_.count; }

  Built built;

 private:
  Check check_length(const Said& found, const json::Array& list) const {
    if (has_length(std::ssize(list)) && layer_ < std::ssize(list)) return ok();
    return fields::unexpected(found.pointer(), *found.value,
                              cat("a number, or a list of ", rule_.count, ": one for each layer"));
  }

  const ModelFile& file_;
  const Asked& asked_;
  const LayerRule& rule_;
  std::int64_t layer_;
};

// The whole model's, as classes are loaded by default; a part's own where the root says none.
Check write_dtype(const ModelFile& file, DocumentWriter& w) {
  std::vector<const Foreign*> places = file.places();
  std::rotate(places.begin(), places.end() - 1, places.end());
  for (const Foreign* holder : places)
    for (const std::string_view key : {"dtype", "torch_dtype"}) {
      MOE_TRY(const auto name, holder->text(key));
      if (!name) continue;
      const DType t = dtype_from_name(*name);
      if (!is_float16_or_32(t))
        return fields::unexpected(holder->at(key), *holder->get(key), "float32, float16 or bfloat16");
      w.built.put("in_dtype", t == DType::f32 ? "float32" : t == DType::f16 ? "float16" : "bfloat16", holder->at(key));
      return ok();
    }
  return ok();
}

// Entry l of a list of numbers, whose zeros and nulls mean none.
Result<std::optional<double>> limit_of_layer(const ModelFile& file, std::string_view key, std::int64_t layer,
                                             const DocumentWriter& w) {
  const Foreign& holder = file.holder(key);
  const json::Value* list = holder.get(key);
  if (list == nullptr) return std::optional<double>();
  const std::string pointer = cat(holder.at(key), "/", layer);
  if (list->array() != nullptr && list->array()->empty()) return std::optional<double>();
  if (list->array() == nullptr || !w.has_length(std::ssize(*list->array())))
    return fields::unexpected(holder.at(key), *list, cat("a list of ", w.num_layers(), ": a number for each layer"));
  if (layer >= std::ssize(*list->array())) return std::optional<double>();  // of multi-token prediction
  const json::Value& entry = (*list->array())[usize(layer)];
  if (entry.is_null()) return std::optional<double>();
  const std::optional<double> limit = fields::as_number(entry);
  if (!limit || !(*limit >= 0) || !std::isfinite(*limit))
    return fields::unexpected(pointer, entry, "a number of at least 0, or null");
  return *limit == 0 ? std::optional<double>() : limit;
}

Check write_activation(const ModelFile& file, const Architecture& a, std::int64_t layer, DocumentWriter& w) {
  const ActivationKeys& act = a.activation;
  std::string_view word = act.otherwise;
  std::string source;
  if (const Foreign& holder = file.holder(act.key); !act.key.empty() && holder.has(act.key)) {
    const json::Value* value = holder.get(act.key);
    source = holder.at(act.key);
    if (const json::Value* name = value->find("name"); value->object() != nullptr && name != nullptr) {
      value = name;  // DBRX
      source += "/name";
    }
    const json::Value ours = in_our_words("activation", *value);
    const auto known = ours.string() == nullptr ? std::nullopt : activation_from_name(*ours.string());
    if (act.ungated && known && is_gated(*known)) {
      w.built.put("activation", activation_name(without_mul(*known)), source);
      return ok();
    }
    w.built.put("activation", ours, source);
    word = known ? activation_name(*known) : std::string_view();
  } else if (act.otherwise.empty()) {  // a description
    return fields::missing(holder.at(act.key), "the activation");
  } else {
    const std::optional<Activation> known = activation_from_name(act.otherwise);
    if (act.ungated && known) word = activation_name(without_mul(*known));
    w.built.put("activation", word, "");
  }
  if (!act.limits.empty()) {
    MOE_TRY(const std::optional<double> limit, limit_of_layer(file, act.limits, layer, w));
    const std::string from = cat(file.holder(act.limits).at(act.limits), "/", layer);
    if (limit) w.built.put("activation_params", "limit", *limit, from);
    // One that clamps by a list is another function than without.
    if (limit || act.key.empty()) w.built.put("activation", limit ? "swiglustep" : "silu", limit ? from : "");
    return ok();
  }
  const std::array params = {std::pair("limit", &act.limit), std::pair("alpha", &act.alpha),
                             std::pair("beta", &act.beta), std::pair("gate_cap", &act.gate_cap),
                             std::pair("up_cap", &act.up_cap)};
  for (const auto& [member, key] : params) MOE_CHECK(w.copy_number("activation_params", member, *key));
  return ok();
}

void write_experts(const Architecture& a, DocumentWriter& w) {
  if (a.has_bias) w.built.put("has_bias", true, "");
  if (a.interleaved && a.activation.otherwise != "swigluoai") w.built.put("w13_layout", "interleaved", "");
  if (!a.expert_norm.empty()) w.built.put("expert_norm", a.expert_norm, "");
  w.built.stacked = a.stacked;
  w.built.stacks = a.stacks;
  for (const std::string_view name : a.stack)
    if (!name.empty()) w.built.stacked_names.emplace_back(name);
}

Result<bool> has_bias(const ModelFile& file, const BoolKey& bias) {
  const Foreign& holder = file.holder(bias.key);
  const json::Value* found = bias.key.empty() ? nullptr : holder.value().find(bias.key);
  if (found == nullptr) return bias.otherwise;
  const json::Value& said = *found;
  if (said.is_null()) return bias.key == "topk_method" && bias.otherwise;
  if (said.boolean() != nullptr) return *said.boolean();
  if (said.string() != nullptr) return *said.string() == "noaux_tc";
  return fields::unexpected(holder.at(bias.key), said, "a word or a boolean");
}

// A file without the key is greedy, too.
Result<bool> is_greedy(const ModelFile& file, const Architecture& a, Policy compat) {
  if (a.routing.groups != GroupKeys::unless_greedy || compat == Policy::vllm) return false;
  MOE_TRY(const auto method, file.holder("topk_method").text("topk_method"));
  return method.value_or("greedy") == "greedy";
}

Result<bool> is_hash_layer(const ModelFile& file, const Architecture& a, std::int64_t layer) {
  if (!a.routing.hash_layers) return false;
  MOE_TRY(const auto types, file.holder("mlp_layer_types").texts("mlp_layer_types"));
  if (layer < std::ssize(types)) return types[usize(layer)] == "hash_moe";
  MOE_TRY(const auto count, file.holder("num_hash_layers").integer("num_hash_layers", {0, kMostLayers}));
  return layer < count.value_or(*a.routing.hash_layers);
}

// The key of a p-norm of the weights: 1 is their sum.
Check write_p_norm(const ModelFile& file, std::string_view key, DocumentWriter& w) {
  const Foreign& holder = file.holder(key);
  const json::Value* raw = holder.value().find(key);  // null says something here
  if (raw == nullptr || raw->is_null()) {
    w.built.put("routing", "renormalize", raw == nullptr, raw == nullptr ? "" : holder.at(key));
    return ok();
  }
  const std::optional<double> p = fields::as_number(*raw);
  if (!p || *p != 1.0)
    return fail(Code::unsupported, holder.at(key),
                cat(holder.at(key), ": found ", fields::brief(*raw), ", read are null and 1 (the sum)"));
  w.built.put("routing", "renormalize", true, holder.at(key));
  return ok();
}

Check write_weights(const ModelFile& file, const Architecture& a, Policy compat, DocumentWriter& w) {
  const Routing& r = a.routing;
  if (!r.p_norm.empty()) return write_p_norm(file, r.p_norm, w);
  const BoolKey& own = compat == Policy::vllm && r.vllm_renormalize ? *r.vllm_renormalize : r.renormalize;
  if (r.scoring_key == "expert_selection_fn") {  // Cohere2: the softmax is over the chosen logits
    MOE_TRY(const auto word, file.holder(r.scoring_key).text(r.scoring_key));
    if (word.value_or("softmax") == "softmax") {
      w.built.put("routing", "renormalize", true, "");
      return ok();
    }
  }
  MOE_CHECK(w.copy_flag("renormalize", own));
  NumberKey least = r.renormalize_min;
  if (compat == Policy::vllm) least.otherwise = {};  // vLLM's classes have none
  MOE_CHECK(w.copy_number("routing", "renormalize_min", least));
  const double eps = compat == Policy::vllm ? r.vllm_renormalize_eps : r.renormalize_eps;
  if (eps > 0) w.built.put("routing", "renormalize_eps", eps, "");
  return ok();
}

// Null says that there are no groups, where the class takes it.
Check write_groups(const ModelFile& file, const Architecture& a, Policy compat, DocumentWriter& w) {
  const Routing& r = a.routing;
  constexpr SizeKey kNone = {};
  MOE_TRY(const bool greedy, is_greedy(file, a, compat));
  const bool one = greedy || compat == Policy::vllm;  // vLLM's classes take one group where the file says nothing
  const auto otherwise = [&](const SizeKey& key) { return one ? json::Value(1) : number_or_null(key.otherwise); };
  const SizeKey& groups = greedy ? kNone : r.n_group;
  MOE_CHECK(w.copy_number("num_expert_group", groups, otherwise(r.n_group)));
  MOE_TRY(const auto said, w.said(groups.keys, "routing.num_expert_group"));
  SizeKey kept = greedy ? kNone : r.topk_group;
  if (said && said->value->is_null() && groups.null) {
    w.built.put("routing", "topk_group", 1, said->pointer());
  } else {
    // Of several groups null does not say how many are kept.
    const json::Value* number = w.built.document.find("routing")->find("num_expert_group");
    if (number == nullptr || *number != json::Value(1)) kept.null = {};
    MOE_CHECK(w.copy_number("topk_group", kept, otherwise(r.topk_group)));
  }
  if (!r.group_score.empty()) w.built.put("routing", "group_score", r.group_score, "");
  if (r.masked_zero) w.built.put("routing", "masked_groups", "zero", "");
  return ok();
}

Check write_factor(const Architecture& a, DocumentWriter& w) {
  const Routing& r = a.routing;
  if (r.factor == Factor::none) return ok();
  MOE_CHECK(w.copy_number("routing", "routed_scaling_factor", r.factor_key));
  if (r.factor == Factor::output) w.built.put("routing", "apply_routed_scale_to_output", true, "");
  return ok();
}

// The kind of LongCat's zero experts: engines know one.
Check check_zero_experts(const ModelFile& file) {
  constexpr std::string_view kType = "zero_expert_type";
  MOE_TRY(const auto type, file.holder(kType).text(kType));
  if (!type || *type == "identity") return ok();
  return fields::unexpected(file.holder(kType).at(kType), *file.holder(kType).get(kType), "\"identity\"");
}

Check write_extras(const ModelFile& file, const Architecture& a, DocumentWriter& w) {
  const Routing& r = a.routing;
  if (!r.zero_experts.keys[0].empty()) MOE_CHECK(check_zero_experts(file));
  if (r.on_input) w.built.put("apply_router_weight_on_input", true, "");
  if (r.bias_on_logits) w.built.put("routing", "bias_on_logits", true, "");
  if (!r.expert_scale.empty()) w.built.put("routing", "expert_scale", r.expert_scale, "");
  if (r.zero_experts.otherwise) MOE_CHECK(w.copy_number("num_zero_experts", r.zero_experts, *r.zero_experts.otherwise));
  if (r.shared_logits.otherwise)
    MOE_CHECK(w.copy_number("num_shared_logits", r.shared_logits, *r.shared_logits.otherwise));
  if (r.zero_experts_give_nothing) w.built.put("routing", "zero_experts", "nothing", "");
  return ok();
}

// The word of the file, of a class that reads it; of another one it may only say what the class does.
Check write_scoring(const ModelFile& file, const Routing& r, Policy compat, DocumentWriter& w) {
  w.copy_word("routing", "scoring_func", r.scoring_key, at(kScoringNames, r.scoring));
  const Foreign& holder = file.holder(r.scoring_key);
  if (!r.scoring_fixed || compat == Policy::vllm || !holder.has(r.scoring_key) || w.overrides_routing("scoring_func"))
    return ok();
  const json::Value& theirs = *holder.get(r.scoring_key);
  if (in_our_words("scoring_func", theirs) == json::Value(at(kScoringNames, r.scoring))) return ok();
  return fields::fault(holder.at(r.scoring_key),
                       cat("found ", fields::brief(theirs), ", but the class computes ", at(kScoringNames, r.scoring),
                           " whatever it says; overrides.routing.scoring_func tells which it is"));
}

Check write_routing(const ModelFile& file, const Architecture& a, Policy compat, std::int64_t layer,
                    DocumentWriter& w) {
  const Routing& r = a.routing;
  MOE_CHECK(write_scoring(file, r, compat, w));
  MOE_CHECK(write_weights(file, a, compat, w));
  if (r.groups != GroupKeys::none) MOE_CHECK(write_groups(file, a, compat, w));
  MOE_CHECK(write_factor(a, w));
  MOE_CHECK(write_extras(file, a, w));
  MOE_TRY(const bool hashed, is_hash_layer(file, a, layer));
  if (hashed) w.built.put("routing", "hash_routing", true, "");
  MOE_TRY(const bool bias, has_bias(file, r.bias));
  if (!r.bias.key.empty() && file.holder(r.bias.key).has(r.bias.key))
    w.built.origins.push_back({"/routing/e_score_correction_bias", file.holder(r.bias.key).at(r.bias.key), false});
  if (bias && !hashed) {
    w.built.put("routing", "e_score_correction_bias", true, "");
    if (!r.bias_name.empty()) w.built.put("routing", "correction_bias_name", r.bias_name, "");
  }
  if (!r.method.empty()) w.built.put("routing", "method", r.method, "");
  const Foreign& jitter = file.holder("router_jitter_noise");
  if (r.method == "sparsemixer" && jitter.has("router_jitter_noise"))
    w.built.put("routing", "jitter_eps", *jitter.get("router_jitter_noise"), jitter.at("router_jitter_noise"));
  return ok();
}

Check write_sizes(const ModelFile& file, const Architecture& a, DocumentWriter& w) {
  MOE_CHECK(w.copy_size("num_experts", a.experts, "the number of experts"));
  MOE_CHECK(w.copy_size("top_k", a.top_k, "the number of experts of a token"));
  MOE_CHECK(w.copy_size("hidden_dim", a.hidden, "the width of the layer"));
  // Inkling's published files: the experts' width stands where others have the dense layers'.
  const bool dense = file.holder(a.width_is_dense_beside).has(a.width_is_dense_beside);
  constexpr SizeKey kDense = {{"intermediate_size"}};
  return w.copy_size("intermediate_size", !a.width_is_dense_beside.empty() && dense ? kDense : a.width,
                     "the width of an expert");
}

}  // namespace

json::Value in_our_words(std::string_view member, const json::Value& theirs) {
  const std::string* word = theirs.string();
  for (const Synonym& s : kSynonyms)
    if (word != nullptr && s.member == member && s.theirs == *word) return s.ours;
  return theirs;
}

Result<ModelFile> ModelFile::open(const json::Value& document) {
  MOE_TRY(Foreign root, Foreign::open(document, ""));
  MOE_TRY(std::optional<Foreign> text, root.object("text_config"));
  if (const json::Value* own = root.get("llm_config"); !text && own != nullptr && own->object() != nullptr) {
    MOE_TRY(text, root.object("llm_config"));
  }
  return ModelFile(std::move(root), std::move(text));
}

Result<bool> ModelFile::look_into(std::string_view path) {
  Foreign at = root_;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    MOE_TRY(std::optional<Foreign> inner, at.object(path.substr(0, slash)));
    if (!inner) return false;
    at = std::move(*inner);
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  inner_ = std::move(at);
  return true;
}

Check ModelFile::look_at_layer(std::int64_t layer) {
  constexpr std::string_view kLayers = "per_layer_config";
  MOE_TRY(const std::optional<Foreign> layers, holder(kLayers).object(kLayers));
  if (!layers) return ok();
  for (const auto& [number, members] : layers->members()) {
    std::int64_t l = -1;
    const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), l);
    // Numbers are written with zeros before them; of two entries for one layer neither counts.
    if (fault != std::errc() || end != number.data() + number.size() || l < 0 || (l == layer && layer_))
      return fields::unexpected(layers->at(number), members, "members under the number of a layer, once for each");
    if (l != layer || members.is_null()) continue;
    MOE_TRY(layer_, layers->object(number));
  }
  if (!layer_) return ok();
  MOE_TRY(const auto left_out, layer_->texts("skip"));
  for (const std::string_view part : left_out)
    for (const std::string_view of_experts : {"mlp", "moe", "ffn", "feed_forward", "expert", "mixer"})
      if (part.find(of_experts) != part.npos)
        return fields::unexpected(layer_->at("skip"), *layer_->get("skip"), "a layer that keeps its experts");
  return ok();
}

Result<Built> describe_layer(const ModelFile& given, const Architecture& a, std::optional<std::int64_t> layer,
                             const std::string& layer_pointer, const Asked& asked) {
  ModelFile file = given;
  if (!a.holder.empty()) {
    MOE_TRY([[maybe_unused]] const bool there, file.look_into(a.holder));
  }
  MOE_TRY(const LayerRule rule, layer_rule(file, a.where, a.experts));
  MOE_TRY(const std::int64_t index, layer_index(file, rule, layer, layer_pointer));
  MOE_CHECK(file.look_at_layer(index));

  DocumentWriter w(file, asked, rule, index);
  const std::int64_t own_count = rule.count - rule.predicted;
  const bool predicts = !a.where.predicting_at.empty() && index >= own_count;
  const std::string counted_on = cat(a.layers_at, ".", index, ".", a.block);
  if (predicts) w.built.other_name = counted_on;
  w.built.put("name", predicts ? cat(a.where.predicting_at, ".", index - own_count, ".", a.block) : counted_on, "");
  w.built.put("projection_names", json::Array(a.projections.begin(), a.projections.end()), "");
  MOE_CHECK(write_sizes(file, a, w));
  MOE_CHECK(write_activation(file, a, index, w));
  write_experts(a, w);
  MOE_CHECK(w.copy_number("", "expert_norm_eps", a.expert_norm_eps));
  MOE_CHECK(write_dtype(file, w));
  MOE_CHECK(write_routing(file, a, asked.compat, index, w));
  MOE_CHECK(check_keys(file, a, index, asked, w.built));
  return std::move(w.built);
}

}  // namespace moe::hf
