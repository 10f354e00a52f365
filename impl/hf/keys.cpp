// See keys.h.
#include "hf/keys.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "base/index.h"
#include "base/text.h"
#include "hf/architecture.h"
#include "hf/harmless_keys.h"

namespace moe::hf {
namespace {

// A member of the document: what it comes to where the document lacks it, and what its null says.
struct OurMember {
  std::string_view section, name;
  std::optional<double> otherwise = {};
  std::string_view null = {};

  std::string path() const { return section.empty() ? std::string(name) : cat(section, ".", name); }
  std::string_view overridden() const { return section.empty() ? name : section; }
};
constexpr OurMember kExperts = {"", "num_experts"}, kTopK = {"", "top_k"}, kWidth = {"", "intermediate_size"},
                    kHidden = {"", "hidden_dim"}, kScoring = {"routing", "scoring_func"},
                    kRenormalize = {"routing", "renormalize"}, kFactor = {"routing", "routed_scaling_factor", 1.0},
                    kGroups = {"routing", "num_expert_group", 1.0}, kKept = {"routing", "topk_group", 1.0},
                    kLeast = {"routing", "renormalize_min", 0.0}, kOnInput = {"", "apply_router_weight_on_input", 0.0},
                    kLayout = {"", "w13_layout"}, kZeroExperts = {"routing", "num_zero_experts", 0.0},
                    kLimit = {"activation_params", "limit", {}, "no clamp"}, kAlpha = {"activation_params", "alpha"},
                    kBeta = {"activation_params", "beta"}, kGateCap = {"activation_params", "gate_cap", {}, "no cap"},
                    kUpCap = {"activation_params", "up_cap", {}, "no cap"};

// Spellings of a member in files of any class. A list has an entry for each layer.
struct Compared {
  std::string_view key;
  const OurMember& member;
};
constexpr auto kCompared = std::to_array<Compared>({
    {"num_experts", kExperts},
    {"num_local_experts", kExperts},
    {"n_routed_experts", kExperts},
    {"moe_num_experts", kExperts},
    {"num_experts_per_tok", kTopK},
    {"num_experts_per_token", kTopK},
    {"experts_per_token", kTopK},
    {"top_k_experts", kTopK},
    {"moe_topk", kTopK},
    {"moe_top_k", kTopK},
    {"moe_k", kTopK},
    {"moe_router_topk", kTopK},
    {"moe_intermediate_size", kWidth},
    {"expert_ffn_hidden_size", kWidth},
    {"expert_intermediate_size", kWidth},
    {"moe_ffn_hidden_size", kWidth},
    {"moe_latent_size", kHidden},
    {"moe_hidden_size", kHidden},
    {"routed_expert_hidden_size", kHidden},
    {"scoring_func", kScoring},
    {"score_func", kScoring},
    {"score_function", kScoring},
    {"router_score_func", kScoring},
    {"router_score_function", kScoring},
    {"router_scoring_func", kScoring},
    {"moe_router_score_func", kScoring},
    {"moe_router_score_function", kScoring},
    {"moe_router_activation", kScoring},
    {"moe_router_activation_func", kScoring},
    {"expert_selection_fn", kScoring},
    {"gate_activation", kScoring},
    {"moe_gate_act", kScoring},
    {"norm_topk_prob", kRenormalize},
    {"moe_renormalize", kRenormalize},
    {"norm_expert_weight", kRenormalize},
    {"route_norm", kRenormalize},
    {"moe_normalize_expert_weights", kRenormalize},
    {"moe_norm_gate_logits", kRenormalize},
    {"norm_after_topk", kRenormalize},
    {"routed_scaling_factor", kFactor},
    {"moe_routed_scaling_factor", kFactor},
    {"moe_router_scaling_factor", kFactor},
    {"moe_router_topk_scaling_factor", kFactor},
    {"router_scaling_factor", kFactor},
    {"router_scale", kFactor},
    {"route_scale", kFactor},
    {"n_group", kGroups},
    {"num_expert_group", kGroups},
    {"num_expert_groups", kGroups},
    {"moe_router_num_groups", kGroups},
    {"topk_group", kKept},
    {"num_limited_groups", kKept},
    {"moe_router_group_topk", kKept},
    {"moe_norm_min", kLeast},
    {"zero_expert_num", kZeroExperts},
    {"moe_apply_router_weight_on_input", kOnInput},
    {"inference_moe_w13_interleaved", kLayout},
    {"swiglu_limit", kLimit},
    {"swiglu_limits", kLimit},
    {"expert_swiglu_limit_list", kLimit},
    {"swiglu_alpha", kAlpha},
    {"swiglu_beta", kBeta},
    {"mlp_gate_softcap", kGateCap},
    {"mlp_up_softcap", kUpCap},
});

const Compared* compared(std::string_view key) {
  const auto* found = std::find_if(kCompared.begin(), kCompared.end(), [&](const Compared& c) { return c.key == key; });
  return found == kCompared.end() ? nullptr : &*found;
}

// Members whose overrides answer for a key that only its name tells something about: the first row that fits.
struct Owner {
  std::string_view word;
  std::array<std::string_view, 2> members;
};
constexpr std::array kOwners = {
    Owner{"swiglu", {"activation_params"}},
    Owner{"size", {"intermediate_size", "hidden_dim"}},
    Owner{"router", {"routing"}},
    Owner{"scor", {"routing"}},
    Owner{"topk", {"routing"}},
    Owner{"limit", {"activation_params"}},
    Owner{"clamp", {"activation_params"}},
    Owner{"alpha", {"activation_params"}},
    Owner{"beta", {"activation_params"}},
    Owner{"cap", {"activation_params"}},
    Owner{"", {"routing"}},
};

// null, false, 0, "", and lists and objects of nothing else.
bool says_nothing(const json::Value& v) {
  if (v.is_null()) return true;
  if (const bool* flag = v.boolean()) return !*flag;
  if (const std::string* text = v.string()) return text->empty();
  if (const json::Array* list = v.array()) return std::all_of(list->begin(), list->end(), says_nothing);
  if (const json::Object* members = v.object())
    return std::all_of(members->begin(), members->end(), [](const json::Member& m) { return says_nothing(m.second); });
  return fields::as_number(v) == 0.0;
}

bool is_true(const json::Value& v) { return v.boolean() != nullptr ? *v.boolean() : fields::as_number(v) != 0.0; }

// The check of one layer.
class Keys {
 public:
  Keys(const ModelFile& file, const Architecture& row, std::int64_t layer, const Asked& asked, const Built& built)
      : file_(file),
        row_(row),
        read_(keys_read(row)),
        of_model_(keys_of_model(row)),
        layer_(layer),
        asked_(asked),
        built_(built) {
    const json::Value* count = file.holder(row.where.count).get(row.where.count);
    if (const auto n = count == nullptr ? std::nullopt : fields::as_number(*count)) own_layers_ = *n;
  }

  Check check(const Foreign& place, const json::Member& m) const {
    const std::string_view key = m.first;
    if (file_.is_of_layer(place) && contains(of_model_, key) && !m.second.is_null())
      return fail(
          Code::unsupported, place.at(key),
          cat(place.at(key), ": found ", fields::brief(m.second),
              ", but it is read for the whole model only; overrides, or a file without it, say how the layer is"));
    if (contains(read_, key)) return ok();
    if (const Compared* c = compared(key)) return compare(place, key, m.second, c->member);
    if (!speaks_of_experts(key) || is_harmless(key) || says_nothing(m.second)) return ok();
    const std::string name = fields::lower_ascii(key);
    const Owner& owner =
        *std::find_if(kOwners.begin(), kOwners.end(), [&](const Owner& o) { return name.find(o.word) != name.npos; });
    std::string ways;
    for (const std::string_view member : owner.members) {
      if (member.empty()) continue;
      if (overrides(member)) return ok();
      ways += cat(ways.empty() ? "" : " or ", "overrides.", member);
    }
    return fields::fault(
        place.at(key), cat("found ", fields::brief(m.second), ", a key of experts that is not read for ", whose(), "; ",
                           ways, " tells what the layer computes"));
  }

 private:
  static bool contains(const std::vector<std::string_view>& keys, std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }
  static bool is_harmless(std::string_view key) {
    return std::any_of(kHarmlessKeys.begin(), kHarmlessKeys.end(), [&](const HarmlessKey& h) { return h.key == key; });
  }
  bool overrides(std::string_view member) const {
    return asked_.overrides(member) || (member == "routing" && asked_.describes_routing);
  }
  std::string whose() const { return row_.name.empty() ? "the class" : std::string(row_.name); }

  // Whether something else decides about the member, so that another spelling of it says nothing.
  bool decided(const OurMember& member) const {
    // One who chooses a parameter of the activation chooses all of them.
    const bool whole = member.section != "routing" || asked_.describes_routing;
    if (whole ? overrides(member.overridden()) : asked_.overrides(member.section, member.name)) return true;
    if (&member == &kScoring || &member == &kRenormalize) return !row_.routing.method.empty();
    // A file may have the dense layers' width, or that of an older form, beside the key that the class reads.
    if (&member == &kWidth) return has(row_.width) || !row_.width_is_dense_beside.empty();
    return (&member == &kExperts && has_first(row_.experts)) || (&member == &kTopK && has_first(row_.top_k));
  }
  bool has(const SizeKey& key) const {
    return std::any_of(key.keys.begin(), key.keys.end(),
                       [&](std::string_view k) { return !k.empty() && file_.holder(k).has(k); });
  }
  bool has_first(const SizeKey& key) const { return key.first_counts && has(key); }

  // What the document says of a member.
  json::Value said(const OurMember& member) const {
    const json::Value* section = member.section.empty() ? &built_.document : built_.document.find(member.section);
    const json::Value* value = section == nullptr ? nullptr : section->find(member.name);
    if (value != nullptr) return *value;
    const json::Value* word = built_.document.find("activation");
    const bool oai = word != nullptr && word->string() != nullptr && word->string()->starts_with("swigluoai");
    if (&member == &kAlpha) return oai ? 1.702 : 1.0;
    if (&member == &kBeta) return oai ? 1.0 : 0.0;
    return member.otherwise ? json::Value(*member.otherwise) : json::Value();
  }

  Check compare(const Foreign& place, std::string_view key, const json::Value& all, const OurMember& member) const {
    const json::Array* list = all.array();
    if (list != nullptr && layer_ >= std::ssize(*list) && static_cast<double>(layer_) < own_layers_ &&
        !says_nothing(all) && !decided(member))
      return fields::unexpected(place.at(key), all, cat("a list with an entry for layer ", layer_));
    const json::Value& value = list == nullptr              ? all
                               : layer_ < std::ssize(*list) ? (*list)[usize(layer_)]
                                                            : json::Value();
    const json::Value ours = said(member);
    if (value.is_null() || decided(member) || agree(value, ours, member)) return ok();
    // In a list zero is as null is; as the one limit nothing would be left of it.
    if (list != nullptr && ours.is_null() && says_nothing(value)) return ok();
    const std::string pointer = list == nullptr ? place.at(key) : cat(place.at(key), "/", layer_);
    const std::string theirs = fields::brief(value);
    const std::string computes =
        ours.is_null() ? cat("computes without it") : cat("computes with ", fields::brief(ours));
    const std::string null = member.null.empty() ? "" : cat(" (null: ", member.null, ")");
    return fields::fault(pointer, cat("found ", theirs, ", but ", whose(), " does not read it and ", computes,
                                      "; overrides.", member.path(), " tells which it is", null));
  }

  static bool agree(const json::Value& theirs, const json::Value& ours, const OurMember& member) {
    if (&member == &kRenormalize || &member == &kOnInput) return is_true(theirs) == is_true(ours);
    if (&member == &kLayout) return is_true(theirs) == (ours == json::Value("interleaved"));
    if (&member == &kScoring) return in_our_words(member.name, theirs) == ours || theirs == json::Value("");
    const std::optional<double> number = fields::as_number(theirs);
    if (!number) return says_nothing(theirs);
    return number == fields::as_number(ours);
  }

  const ModelFile& file_;
  const Architecture& row_;
  const std::vector<std::string_view> read_, of_model_;
  std::int64_t layer_;
  // Without those of multi-token prediction, which lists may leave out.
  double own_layers_ = std::numeric_limits<double>::infinity();
  const Asked& asked_;
  const Built& built_;
};

}  // namespace

bool speaks_of_experts(std::string_view key) {
  constexpr std::array<std::string_view, 6> kWhose = {"swiglu", "expert", "moe", "router", "scor", "topk"};
  constexpr std::array<std::string_view, 9> kWhat = {"limit", "clamp", "alpha", "beta", "scal",
                                                     "norm",  "cap",   "func",  "size"};
  const std::string name = fields::lower_ascii(key);
  const auto in_name = [&](std::string_view word) { return name.find(word) != name.npos; };
  return std::any_of(kWhose.begin(), kWhose.end(), in_name) && std::any_of(kWhat.begin(), kWhat.end(), in_name);
}

std::vector<std::string_view> keys_compared() {
  std::vector<std::string_view> keys;
  for (const Compared& c : kCompared) keys.push_back(c.key);
  return keys;
}

std::span<const HarmlessKey> harmless_keys() { return kHarmlessKeys; }

KeyUse use_of(const Architecture& row, std::string_view key) {
  const std::vector<std::string_view> read = keys_read(row);
  if (std::find(read.begin(), read.end(), key) != read.end()) return KeyUse::read;
  if (compared(key) != nullptr) return KeyUse::compared;
  const bool harmless =
      std::any_of(kHarmlessKeys.begin(), kHarmlessKeys.end(), [&](const HarmlessKey& h) { return h.key == key; });
  return harmless ? KeyUse::harmless : KeyUse::unknown;
}

Check check_keys(const ModelFile& file, const Architecture& row, std::int64_t layer, const Asked& asked,
                 const Built& built) {
  const Keys keys(file, row, layer, asked, built);
  std::set<std::string_view> nearer;  // what is said there counts
  for (const Foreign* place : file.places_read())
    for (const json::Member& m : place->members())
      if (nearer.insert(m.first).second) MOE_CHECK(keys.check(*place, m));
  return ok();
}

}  // namespace moe::hf
