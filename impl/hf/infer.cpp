// See infer.h. What the classes of architectures.cpp call a thing is what an unknown one is asked for first; what a key
// says is held against the shapes.
#include "hf/infer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "config/fields.h"
#include "hf/architecture.h"
#include "hf/hf.h"
#include "hf/nearest.h"
#include "hf/seen_tensors.h"
#include "scheme/activation.h"

namespace moe::hf {
namespace {

using Keys = std::vector<std::string_view>;

// The keys that rows name for something, each once.
template <class Add>
Keys keys_of_rows(Add add) {
  Keys keys;
  const auto once = [&](std::string_view key) {
    if (!key.empty() && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  };
  for (const Architecture& a : architectures()) add(a, once);
  return keys;
}
Keys size_keys(SizeKey Architecture::*member) {
  return keys_of_rows([&](const Architecture& a, auto once) {
    for (const std::string_view key : (a.*member).keys) once(key);
  });
}
Keys routing_keys(SizeKey Routing::*member) {
  return keys_of_rows([&](const Architecture& a, auto once) {
    for (const std::string_view key : (a.routing.*member).keys) once(key);
  });
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return text.find(w) != text.npos; });
}

// The file's key with that value: one of those, else one whose name has one of the words.
std::string_view key_with(const ModelFile& file, const Keys& known, std::int64_t value,
                          std::initializer_list<std::string_view> words) {
  const auto has = [&](const json::Value* v) { return v != nullptr && fields::as_integer(*v) == value; };
  for (const std::string_view key : known)
    if (has(file.holder(key).get(key))) return key;
  for (const Foreign* place : file.places())
    for (const auto& [key, v] : place->members())
      if (has(&v) && contains_any(key, words) && !contains_any(key, {"per_tok", "shared"})) return key;
  return {};
}
std::string_view first_key(const ModelFile& file, const Keys& known) {
  for (const std::string_view key : known)
    if (file.holder(key).has(key)) return key;
  return {};
}
std::optional<std::int64_t> number_at(const ModelFile& file, std::string_view key) {
  const json::Value* v = key.empty() ? nullptr : file.holder(key).get(key);
  return v == nullptr ? std::nullopt : fields::as_integer(*v);
}

std::optional<Projection> projection_by_name(std::string_view name) {
  const std::string lower = fields::lower_ascii(name.substr(0, name.find('.')));
  if (contains_any(lower, {"down", "w2", "output"})) return Projection::down;
  if (contains_any(lower, {"gate", "w1"})) return Projection::gate;
  if (contains_any(lower, {"up", "w3", "v1"})) return Projection::up;
  return std::nullopt;
}

class Inference {
 public:
  Inference(const ModelFile& file, const SeenTensors& seen) : file_(file), seen_(seen), experts_(seen.experts) {}

  // `holder`: the object of the file that was looked into.
  std::string answer(std::string_view class_name, const std::string& holder) {
    out_.set("module", experts_.module);
    if (!holder.empty()) out_.set("holder", holder);
    count();
    sizes();
    if (experts_.stacked) {
      stacks();
    } else {
      projections();
    }
    if (experts_.stack_bias || has_kind("bias")) out_.set("has_bias", true);
    rest_of_keys();
    routing();
    vectors();
    out_.set("keys", keys_);
    out_.set("routing", routing_);
    json::Writer w;
    w.begin_object().member("architecture", out_).key("unsure").array(unsure_).key("router").array(routers_);
    return w.key("nearest").array(nearest_architectures(class_name)).end_object().take();
  }

 private:
  void unsure(std::string sentence) { unsure_.push_back(std::move(sentence)); }
  void say(std::string_view member, std::string_view key) { keys_.set(std::string(member), key); }
  bool has_kind(std::string_view kind) const {
    return !experts_.parts.empty() && experts_.parts[0].kinds.contains(std::string(kind));
  }
  bool is_flat() const { return experts_.stacked && experts_.parts[0].weight.size() == 2; }

  void count() {
    const Keys known = size_keys(&Architecture::experts);
    const std::int64_t n = experts_.experts;
    std::string_view key = is_flat() ? std::string_view() : key_with(file_, known, n, {});
    if (key.empty()) {
      key = first_key(file_, known);
      const std::int64_t said = number_at(file_, key).value_or(0);
      if (!key.empty() && !is_flat())
        unsure(cat("keys.num_experts: the tensors show ", n, " experts, ", key, " says ", said));
    }
    if (key.empty() && !is_flat()) key = key_with(file_, {}, n, {"expert"});
    if (key.empty()) return unsure("keys.num_experts: no key of config.json has the number that the tensors show");
    say("num_experts", key);
    number_of_experts_ = number_at(file_, key).value_or(n);
  }

  // The last two axes of the parts.
  std::vector<SeenShape> planes() const {
    std::vector<SeenShape> all;
    for (const ExpertPart& p : experts_.parts)
      if (p.weight.size() >= 2) all.emplace_back(p.weight.end() - 2, p.weight.end());
    return all;
  }

  void sizes() {
    const Keys hidden = size_keys(&Architecture::hidden);
    Keys width = size_keys(&Architecture::width);  // a key of experts before one that dense layers may have, too
    std::stable_partition(width.begin(), width.end(), [](std::string_view k) {
      return contains_any(k, {"moe", "expert"});
    });
    std::string_view h_key, i_key;
    const std::vector<SeenShape> all = planes();
    if (all.empty()) {
      unsure("keys.hidden_dim and keys.intermediate_size: the weights are packed, so shapes did not tell the keys");
      h_key = first_key(file_, hidden), i_key = first_key(file_, width);
    } else {
      for (const std::string_view key : hidden)  // an axis of every part
        if (const auto h = number_at(file_, key); h && h_key.empty() && has_axis(all, *h)) h_key = key;
      for (const std::int64_t d : all[0])
        if (h_key.empty() && has_axis(all, d)) h_key = key_with(file_, {}, d, {"hidden", "model", "embed", "embd"});
      h_ = number_at(file_, h_key).value_or(0);
      if (h_ != 0) i_ = width_beside(all, h_);
      if (i_ != 0) i_key = key_with(file_, width, i_, {"intermediate", "ffn", "expert", "inner", "mlp"});
    }
    if (h_key.empty())
      unsure("keys.hidden_dim: no key of config.json has the value of an axis that all projections have");
    if (!h_key.empty()) say("hidden_dim", h_key);
    if (i_key.empty()) unsure("keys.intermediate_size: no key of config.json has the value of the experts' other axis");
    if (!i_key.empty()) say("intermediate_size", i_key);
  }
  static bool has_axis(const std::vector<SeenShape>& all, std::int64_t d) {
    return std::all_of(all.begin(), all.end(), [&](const SeenShape& s) { return s[0] == d || s[1] == d; });
  }
  // The smallest axis beside H: that of down where gate and up lie in one tensor.
  std::int64_t width_beside(const std::vector<SeenShape>& all, std::int64_t h) const {
    if (is_flat()) return number_of_experts_ > 0 ? all[0][0] / number_of_experts_ : 0;
    std::int64_t least = 0;
    for (const SeenShape& s : all) {
      const std::int64_t other = s[0] == h ? s[1] : s[0];
      if (least == 0 || other < least) least = other;
    }
    return least;
  }

  // Which part is which, by shapes for down where H and I differ, else by names.
  std::vector<std::optional<Projection>> roles(const std::vector<bool>& is_down, bool by_shape) const {
    std::vector<std::optional<Projection>> all;
    for (std::size_t i = 0; i < experts_.parts.size(); ++i) {
      const std::optional<Projection> named = projection_by_name(experts_.parts[i].name);
      if (!by_shape) all.push_back(named);
      if (by_shape && is_down[i]) all.push_back(Projection::down);
      if (by_shape && !is_down[i]) all.push_back(named == Projection::down ? std::nullopt : named);
    }
    return all;
  }
  std::string_view name_of(const std::vector<std::optional<Projection>>& roles, Projection which) const {
    std::string_view found;
    for (std::size_t i = 0; i < roles.size(); ++i) {
      if (roles[i] != which) continue;
      if (!found.empty()) return {};  // two of a kind
      found = experts_.parts[i].name;
    }
    return found;
  }
  // The names of gate, up and down; nullopt when they cannot be told.
  std::optional<json::Array> three_names(const std::vector<std::optional<Projection>>& roles, bool gated) const {
    const std::string_view up = name_of(roles, Projection::up), down = name_of(roles, Projection::down);
    std::string_view gate = name_of(roles, Projection::gate);
    if (!gated && gate.empty()) gate = up == "gate_proj" ? "gate" : "gate_proj";  // of none
    if (gate.empty() || up.empty() || down.empty()) return std::nullopt;
    return json::Array{gate, up, down};
  }

  void projections() {
    const bool gated = experts_.parts.size() == 3;
    const bool by_shape = h_ != 0 && i_ != 0 && h_ != i_ && planes().size() == experts_.parts.size();
    std::vector<bool> is_down;
    for (const ExpertPart& p : experts_.parts) {
      is_down.push_back(p.weight == SeenShape{h_, i_});
      if (by_shape && !is_down.back() && p.weight != SeenShape{i_, h_})
        unsure(cat("projections: ", p.name, " is neither [I, H] nor [H, I]"));
    }
    if (!gated) out_.set("gated", false);
    if (!by_shape) unsure("projections: told by their names alone, the shapes are square or packed");
    if (const auto names = three_names(roles(is_down, by_shape), gated)) {
      out_.set("projections", *names);
    } else {
      unsure(cat("projections: which of ", list_of_parts(), " are gate, up and down is not told by names and shapes"));
    }
  }
  std::string list_of_parts() const {
    std::string all;
    for (const ExpertPart& p : experts_.parts) all += cat(all.empty() ? "" : ", ", p.name);
    return all;
  }

  // 'r' when a plane has its outputs first, 'c' when its inputs, 0 when it is square.
  static char order(const SeenShape& plane, std::int64_t outputs, std::int64_t inputs) {
    if (outputs == inputs) return 0;
    return plane == SeenShape{outputs, inputs} ? 'r' : plane == SeenShape{inputs, outputs} ? 'c' : '?';
  }

  void stacks() {
    if (is_flat()) {
      out_.set("stacked", "flat");
    } else if (const std::vector<SeenShape> all = planes(); h_ != 0 && i_ != 0 && all.size() == experts_.parts.size()) {
      orientation(all);
    }
    if (experts_.parts.size() == 3 || is_flat()) {
      const auto names = three_names(roles({}, false), experts_.parts.size() == 3);
      if (names) out_.set("stacked_names", *names);
      if (!names) unsure(cat("stacked_names: which of ", list_of_parts(), " are gate, up and down"));
      return;
    }
    const auto is_w2 = [&](const ExpertPart& p) { return projection_by_name(p.name) == Projection::down; };
    const bool first = is_w2(experts_.parts[0]), second = is_w2(experts_.parts[1]);
    if (first == second) return unsure(cat("stacked_names: which of ", list_of_parts(), " is w2"));
    out_.set("stacked_names", json::Array{experts_.parts[first ? 1 : 0].name, experts_.parts[first ? 0 : 1].name});
    if (out_.find("gated") != nullptr) return;
    unsure(
        "interleaved: whether gate's rows come before up's or alternate with them (or up's come first) is not in "
        "shapes");
  }
  void orientation(const std::vector<SeenShape>& all) {
    std::string seen;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool down = projection_by_name(experts_.parts[i].name) == Projection::down;
      const bool both = all[i][0] == 2 * i_ || all[i][1] == 2 * i_;  // gate and up
      if (all.size() == 2 && !down && !both) out_.set("gated", false);
      const std::int64_t wide = all.size() == 2 && both ? 2 * i_ : i_;
      seen += down ? order(all[i], h_, i_) : order(all[i], wide, h_);
    }
    const bool square = seen.find('\0') != seen.npos;
    if (seen.find_first_not_of('r') == seen.npos)
      out_.set("stacked", "rows_first");
    else if (seen.find_first_not_of('c') == seen.npos)
      out_.set("stacked", "columns_first");
    else if (square)
      unsure("stacked: a tensor of the experts is square, so rows_first and columns_first look alike");
    else
      unsure("stacked: the shapes are neither those of rows_first nor those of columns_first");
  }

  void rest_of_keys() {
    struct Usual {
      std::string_view member, subject;
      Keys keys;
    };
    const Usual usual[] = {
        {"top_k", "keys.top_k", size_keys(&Architecture::top_k)},
        {"activation", "activation", keys_of_rows([](const Architecture& a, auto once) { once(a.activation.key); })},
        {"num_layers", "keys.num_layers", keys_of_rows([](const Architecture& a, auto once) { once(a.where.count); })},
    };
    for (const Usual& u : usual) {
      const std::string_view key = first_key(file_, u.keys);
      if (key.empty()) unsure(cat(u.subject, ": config.json has no key that known classes use"));
      if (!key.empty()) say(u.member, key);
    }
    which_layers();
  }
  void which_layers() {
    const std::string_view first =
        first_key(file_, keys_of_rows([](const Architecture& a, auto once) { once(a.where.first.keys[0]); }));
    if (!first.empty()) say("first_layer", first);
    for (const std::string_view key : {"mlp_only_layers", "decoder_sparse_step", "moe_layer_freq", "mlp_layer_types",
                                       "interleave_moe_layer_step", "expert_layer_period", "moe_layers"})
      if (file_.holder(key).has(key))
        unsure(cat("which layers have experts: config.json has ", key, ", a description knows keys.first_layer alone"));
    const std::int64_t start = number_at(file_, first).value_or(0), seen = *seen_.layers.begin();
    if (start != seen) unsure(cat("keys.first_layer: the first layer of the tensors that has experts is ", seen));
  }

  void routing() {
    const auto text = [&](std::string_view key) -> const std::string* {
      const json::Value* v = key.empty() ? nullptr : file_.holder(key).get(key);
      return v == nullptr ? nullptr : v->string();
    };
    const std::string* word =
        text(first_key(file_, keys_of_rows([](const Architecture& a, auto once) { once(a.routing.scoring_key); })));
    if (word != nullptr && fields::index_of(kScoringNames, *word)) {
      routing_.set("scoring_func", *word);
    } else {
      unsure("routing.scoring_func: softmax, sigmoid or sqrtsoftplus; config.json does not say it");
    }
    const std::string_view norm =
        first_key(file_, keys_of_rows([](const Architecture& a, auto once) { once(a.routing.renormalize.key); }));
    const json::Value* on = norm.empty() ? nullptr : file_.holder(norm).get(norm);
    if (on != nullptr && on->boolean() != nullptr) {
      routing_.set("renormalize", *on);
    } else {
      unsure("routing.renormalize: whether the weights are divided by their sum; config.json does not say it");
    }
    groups_and_factor();
  }
  void groups_and_factor() {
    const auto groups = number_at(file_, first_key(file_, routing_keys(&Routing::n_group)));
    const auto kept = number_at(file_, first_key(file_, routing_keys(&Routing::topk_group)));
    if (groups && kept) {
      routing_.set("num_expert_group", *groups), routing_.set("topk_group", *kept);
    }
    const std::string_view key =
        first_key(file_, keys_of_rows([](const Architecture& a, auto once) { once(a.routing.factor_key.key); }));
    const json::Value* factor = key.empty() ? nullptr : file_.holder(key).get(key);
    if (factor == nullptr || !fields::as_number(*factor)) return;
    routing_.set("routed_scaling_factor", *factor);
    unsure(cat("routing.apply_routed_scale_to_output: whether ", key, " multiplies the weights or the output"));
  }

  // The router's matrix, and what has a number for each expert.
  void vectors() {
    for (const LayerTensor& t : seen_.others) {
      if (t.shape.empty() || number_of_experts_ == 0) continue;
      const bool vector = t.shape.size() == 1 || (t.shape.size() == 2 && t.shape[0] == 1);
      if (t.shape.size() == 2 && !vector && t.shape[0] >= number_of_experts_ && t.shape[1] == h_ &&
          contains_any(t.inside, {"gate.", "router", "classifier"}))
        routers_.push_back(t.path);
      if (!vector || t.shape.back() != number_of_experts_) continue;
      if (contains_any(t.inside, {"correction_bias", "expert_bias", "balancing_bias"})) {
        routing_.set("e_score_correction_bias", true);
        routing_.set("correction_bias_name", t.inside);
        continue;
      }
      unsure(cat(t.path,
                 " has a number for each expert: a correction bias (routing.correction_bias_name), a scale "
                 "(routing.expert_scale), or what the router adds to its logits"));
    }
  }

  const ModelFile& file_;
  const SeenTensors& seen_;
  const SeenExperts& experts_;
  std::int64_t number_of_experts_ = 0, h_ = 0, i_ = 0;
  json::Value out_ = json::Object{}, keys_ = json::Object{}, routing_ = json::Object{};
  std::vector<std::string> unsure_, routers_;
};

// Where a file whose root and text_config have no number of experts has one.
std::string holder_of(const json::Value& object, const Keys& experts, int depth) {
  for (const auto& [key, value] : *object.object()) {
    if (value.object() == nullptr) continue;
    for (const std::string_view e : experts)
      if (value.find(e) != nullptr) return key;
    const std::string below = depth == 0 ? "" : holder_of(value, experts, depth - 1);
    if (!below.empty()) return cat(key, "/", below);
  }
  return {};
}

}  // namespace

Result<std::string> infer_architecture(const json::Value& hf_config, const json::Value& tensors,
                                       const std::string& pointer) {
  MOE_TRY(ModelFile file, ModelFile::open(hf_config));
  MOE_TRY(const SeenTensors seen, seen_tensors(tensors, pointer));
  MOE_TRY(const auto names, file.root().texts("architectures"));
  const Keys experts = size_keys(&Architecture::experts);
  std::string holder;
  if (first_key(file, experts).empty()) holder = holder_of(hf_config, experts, 1);
  if (!holder.empty()) MOE_CHECK(file.look_into(holder));
  return Inference(file, seen).answer(names.empty() ? "" : names[0], holder);
}

}  // namespace moe::hf
