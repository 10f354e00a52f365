// compressed-tensors: which config group an expert's projections belong to, and its arguments
// (checkpoints.md 4 and 6).
//
//   config_groups {name: {targets, weights, input_activations, format}}   or   {"W4A16": [targets]}
//   a target is an exact name, "re:pattern", or a part of a class name without case; first target wins
#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/index.h"
#include "base/text.h"
#include "config/quantization/foreign.h"
#include "config/quantization/quantization.h"
#include "config/sections.h"
#include "scheme/checkpoint.h"

namespace moe::config {
namespace {

// vLLM's class of a layer's experts, whose name the tools know: of now and of before.
constexpr std::array<std::string_view, 2> kExpertsClasses = {"RoutedExperts", "FusedMoE"};
constexpr std::string_view kLinearClass = "Linear";  // covers experts too
constexpr std::string_view kRegex = "re:";

struct Group {
  std::string pointer;
  std::vector<std::string_view> targets;
  std::string targets_pointer;
  const Preset* preset = nullptr;  // {"W4A16": [..]}, else
  std::optional<Foreign> members;  // {weights, ..}
};

// One entry of a list of module names, which lies at `list`.
struct Entry {
  std::string_view text;
  const std::string* list;
  std::size_t index;

  std::string pointer() const { return cat(*list, "/", index); }
};

struct GroupTarget {
  Entry entry;
  const Group* group;
};

Result<Group> read_group(const Foreign& groups, const std::string& key, const json::Value& value) {
  Group g;
  g.pointer = groups.at(key);
  if (value.array() != nullptr) {
    g.preset = find_preset(key);
    if (g.preset == nullptr || !g.preset->weights)
      return fields::fault(g.pointer, cat("a list of targets, but ", json::quote(key), " is the name of no scheme"));
    g.targets_pointer = g.pointer;
    MOE_TRY(g.targets, groups.texts(key));
    return g;
  }
  MOE_TRY(Foreign members, Foreign::open(value, g.pointer));
  g.targets_pointer = members.at("targets");
  if (!members.has("targets")) return fields::missing(g.targets_pointer, "an array of strings");
  MOE_TRY(g.targets, members.texts("targets"));
  g.members = std::move(members);
  return g;
}

Result<std::vector<Group>> read_groups(const Foreign& h) {
  std::vector<Group> all;
  MOE_TRY(const auto groups, h.object("config_groups"));
  if (!groups) return all;
  for (const auto& [key, value] : groups->members()) {
    MOE_TRY(Group g, read_group(*groups, key, value));
    const bool attention = g.targets.size() == 1 && g.targets[0].ends_with("Attention");
    if (!attention) all.push_back(std::move(g));
  }
  return all;
}

// Targets in the order of the text; a target named twice belongs to the later group. "Linear" also
// stands for the class of the experts unless that has a group of its own.
std::vector<GroupTarget> list_targets(const std::vector<Group>& groups) {
  std::vector<GroupTarget> all;
  std::map<std::string_view, std::size_t> places;
  for (const Group& g : groups)
    for (std::size_t i = 0; i < g.targets.size(); ++i) {
      const GroupTarget t{{g.targets[i], &g.targets_pointer, i}, &g};
      const auto [at, is_new] = places.emplace(t.entry.text, all.size());
      if (is_new)
        all.push_back(t);
      else
        all[at->second] = t;
    }
  const auto linear = places.find(kLinearClass);
  const bool own_group = std::any_of(kExpertsClasses.begin(), kExpertsClasses.end(),
                                     [&](std::string_view name) { return places.count(name) != 0; });
  if (linear != places.end() && !own_group) {
    GroupTarget experts = all[linear->second];
    experts.entry.text = kExpertsClasses[0];
    all.push_back(experts);
  }
  return all;
}

Check add_names(Matcher& matcher, const Entry& entry, std::size_t rule, const LayerNames& layer, RuleOfNames& names) {
  if (entry.text.starts_with(kRegex)) {
    MOE_TRY(const Hits hits, matcher.names(entry.text.substr(kRegex.size()), layer, entry.pointer()));
    names.add(rule, hits);
  } else if (const auto name = layer.find(entry.text)) {
    names.add(rule, *name, 1);
  }
  return ok();
}

Result<bool> matches_class(Matcher& matcher, const Entry& entry) {
  for (const std::string_view name : kExpertsClasses) {
    if (entry.text.starts_with(kRegex)) {
      MOE_TRY(const bool hit, matcher.regex(entry.text.substr(kRegex.size()), name, entry.pointer()));
      if (hit) return true;
    } else if (entry.text.size() <= name.size() &&
               fields::lower_ascii(name).find(fields::lower_ascii(entry.text)) != std::string::npos) {
      return true;
    }
  }
  return false;
}

// The rule of each of the layer's names: the entries of `ignore`, which have no group, then the targets, by names and
// by the class.
Result<RuleOfNames> rules_of_names(const std::vector<GroupTarget>& rules, const LayerNames& layer) {
  Matcher matcher;
  RuleOfNames names(layer);
  for (std::size_t i = 0; i < rules.size() && !names.complete(); ++i)
    MOE_CHECK(add_names(matcher, rules[i].entry, i, layer, names));
  for (std::size_t i = 0; i < rules.size() && !names.complete(); ++i) {
    if (rules[i].group == nullptr) continue;
    MOE_TRY(const bool hit, matches_class(matcher, rules[i].entry));
    if (hit) names.add_rest(i);
  }
  return names;
}

// "128x128" as its tools write it at times.
json::Value block_from_text(const json::Value& value) {
  const std::string* s = value.string();
  const std::size_t x = s == nullptr ? std::string::npos : s->find('x');
  if (x == std::string::npos) return value;
  const auto number = [](std::string_view digits) -> std::optional<std::int64_t> {
    std::int64_t n = 0;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (ec != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return n;
  };
  const auto rows = number(std::string_view(*s).substr(0, x)), columns = number(std::string_view(*s).substr(x + 1));
  if (!rows || !columns) return value;
  return json::Array{*rows, *columns};
}

// The members that the strict form knows, without nulls.
json::Value strict_args(const Foreign& args) {
  json::Object kept;
  for (const std::string_view key :
       {"num_bits", "type", "strategy", "group_size", "block_structure", "symmetric", "dynamic", "actorder"}) {
    const json::Value* v = args.get(key);
    if (v != nullptr) kept.emplace_back(key, key == "block_structure" ? block_from_text(*v) : *v);
  }
  return kept;
}

// Formats of compressed-tensors that are no fault of a file.
constexpr std::array<std::string_view, 4> kUnreadFormats = {"marlin-24", "sparse-24-bitmask", "sparse-bitmask",
                                                            "dense"};
// As are bits of weights that it packs.
bool is_unread_width(std::string_view pointer, const json::Value& document) {
  const json::Value* bits = pointer.ends_with("/num_bits") ? json::at_pointer(document, pointer) : nullptr;
  const std::int64_t n = bits == nullptr ? 0 : fields::as_integer(*bits).value_or(0);
  return n >= 1 && n <= 16;
}

struct StatedFormat {
  Format format;
  std::string pointer;
};

// The group's format, else the global one; nullopt when they leave it open.
Result<std::optional<StatedFormat>> stated_format(const Foreign& h, const Group& g) {
  for (const Foreign* source : {g.members ? &*g.members : nullptr, &h}) {
    if (source == nullptr) continue;
    MOE_TRY(const auto word, source->text("format"));
    if (!word || word->empty()) continue;
    if (*word == "fakequant" || *word == "mixed-precision") break;
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < kFormats.size(); ++i) {
      if (!kFormats[i].compressed_tensors) continue;
      names.push_back(kFormats[i].name);
      if (names.back() == *word) return std::optional(StatedFormat{static_cast<Format>(i), source->at("format")});
    }
    Error unknown = fields::unexpected(source->at("format"), *source->get("format"), fields::join(names));
    if (fields::index_of(kUnreadFormats, *word)) unknown.code = Code::unsupported;
    return unknown;
  }
  return std::optional<StatedFormat>();
}

// The narrow format whose codes these weights are; anything odd is left for the strict form to refuse.
std::optional<Format> narrow_format(const json::Value& weights) {
  const auto is = [&](std::string_view key, std::int64_t number) {
    const json::Value* v = weights.find(key);
    return v != nullptr && fields::as_integer(*v) == number;
  };
  const json::Value* type = weights.find("type");
  const NumType held = type != nullptr && *type == json::Value("float") ? NumType::floating : NumType::integer;
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    const FormatRow& row = kFormats[i];
    if (row.stored_bits != 0 && row.type == held && is("num_bits", row.stored_bits) &&
        (row.group == 0 || is("group_size", row.group)))
      return static_cast<Format>(i);
  }
  return std::nullopt;
}

// Codes of fewer bits than a layer's weights have become wider ones, which mean the same numbers: the strict form says
// which, and its format how they are stored (checkpoints.md 4). In int-quantized a byte holds a code of any width.
Check widen(json::Value& strict, const std::optional<StatedFormat>& stated) {
  json::Value& weights = *strict.find("weights");
  const std::optional<Format> narrow = narrow_format(weights);
  if (!narrow) {
    if (!stated || !is_narrow(stated->format)) return ok();
    const FormatRow& row = at(kFormats, stated->format);
    return fields::fault(stated->pointer,
                         cat("found ", row.name, ", which needs weights with num_bits ", row.stored_bits, ", type ",
                             at(kNumTypeNames, row.type), " and group_size ", row.group));
  }
  const FormatRow& row = at(kFormats, *narrow);
  const json::Value* inputs = strict.find("input_activations");
  const json::Value* type = inputs == nullptr ? nullptr : inputs->find("type");
  const bool int_inputs = inputs != nullptr && (type == nullptr || *type == json::Value("int"));
  const Format usual = int_inputs && row.type == NumType::integer ? Format::int_quantized : *narrow;
  Format format = stated ? stated->format : usual;
  if (format == row.read_as && !row.compressed_tensors) format = *narrow;  // one word of the tool for all widths
  if (format != *narrow && format != Format::int_quantized) return ok();
  weights.set("num_bits", row.bits);
  strict.set("format", at(kFormatNames, format));
  return ok();
}

// Checks the group as a member "quantization" of our own documents, whose rules are the same; its
// sizes are not known here (0, which every group divides). A fault is moved to where it was read.
Result<Quantization> check_strict(json::Value strict, const Group& g, const std::string& format_pointer) {
  json::Value document = json::Object{{"quantization", std::move(strict)}};
  static constexpr std::array<std::string_view, 1> kNames = {"quantization"};
  MOE_TRY(const fields::Members members, fields::Members::open(&document, "", kNames));
  Draft draft;
  const Check check = read_quantization(members, draft);
  if (check) return std::move(draft.config.quantization);
  Error e = check.error();
  if (is_unread_width(e.subject, document)) e.code = Code::unsupported;
  constexpr std::string_view kStrict = "/quantization", kFormat = "/quantization/format";
  const std::string there = e.subject == kFormat ? format_pointer : g.pointer + e.subject.substr(kStrict.size());
  if (e.message.starts_with(e.subject)) e.message.replace(0, e.subject.size(), there);
  e.subject = there;
  return e;
}

// nullopt: the group leaves its weights as they are.
Result<std::optional<Quantization>> scheme_of(const Foreign& h, const Group& g) {
  json::Value strict;
  if (g.preset != nullptr) {
    Quantization named;
    named.weights = g.preset->weights;
    named.input_activations = g.preset->input_activations;
    const json::Value preset = quantization_value(named);
    strict.set("weights", *preset.find("weights"));
    strict.set("input_activations", *preset.find("input_activations"));
  } else {
    MOE_TRY(const auto weights, g.members->object("weights"));
    if (!weights) return std::optional<Quantization>();
    strict.set("weights", strict_args(*weights));
    MOE_TRY(const auto activations, g.members->object("input_activations"));
    if (activations) strict.set("input_activations", strict_args(*activations));
  }
  MOE_TRY(const auto format, stated_format(h, g));
  if (format) strict.set("format", at(kFormatNames, format->format));
  MOE_CHECK(widen(strict, format));
  MOE_TRY(Quantization q, check_strict(std::move(strict), g, format ? format->pointer : g.pointer));
  return std::optional(std::move(q));
}

std::vector<std::string> suffixes_of(const Quantization& q) {
  const auto& a = q.input_activations;
  std::vector<std::string> names;
  switch (read_as(q.format)) {
    case Format::pack_quantized:
      names = {"weight_packed", "weight_scale", "weight_shape"};
      break;
    case Format::mxfp4_pack_quantized:
      names = {"weight_packed", "weight_scale"};
      break;
    case Format::nvfp4_pack_quantized:
      names = {"weight_packed", "weight_scale", "weight_global_scale"};
      if (a && a->dynamic != Dynamic::yes) names.emplace_back("input_global_scale");
      break;
    default:
      if (const TensorSet* set = tensor_set(q)) {
        for (const CheckpointTensor& t : set->tensors)
          if (t.need({}) == Need::required) names.emplace_back(t.suffix);
      } else {
        names = {"weight", "weight_scale"};
      }
      if (a && a->dynamic == Dynamic::no) names.emplace_back("input_scale");
      break;
  }
  if (!q.weights->symmetric) names.emplace_back("weight_zero_point");
  if (q.weights->actorder == ActOrder::group) names.emplace_back("weight_g_idx");
  return names;
}

// Rotations that are in the weights already need nothing more; those of inputs and outputs are work of every call.
Check check_transforms(const Foreign& h) {
  constexpr std::string_view kTransforms = "transform_config", kGroups = "config_groups";
  MOE_TRY(const auto transforms, h.object(kTransforms));
  if (!transforms || !transforms->has(kGroups)) return ok();
  MOE_TRY(const auto groups, transforms->object(kGroups));
  for (const auto& [name, group] : groups->members()) {
    const json::Value* applied = group.find("apply");
    if (applied == nullptr || applied->array() == nullptr)
      return fields::unexpected(groups->at(name), group, "a transform with a list apply");
    for (const json::Value& one : *applied->array()) {
      const json::Value* location = one.find("location");
      const std::string* word = location == nullptr ? nullptr : location->string();
      if (word == nullptr || (*word != "weight_input" && *word != "weight_output"))
        return fail(Code::unsupported, groups->at(name),
                    cat(groups->at(name), ": found a transform of ", word == nullptr ? "no location" : *word,
                        ", read are those that are in the weights (weight_input, weight_output)"));
    }
  }
  return ok();
}

}  // namespace

Resolved resolve_compressed_tensors(const Foreign& h, const LayerNames& layer) {
  MOE_CHECK(check_transforms(h));
  MOE_TRY(const std::vector<Group> groups, read_groups(h));
  MOE_TRY(const std::vector<std::string_view> ignore, h.texts("ignore"));
  const std::string ignore_pointer = h.at("ignore");
  std::vector<GroupTarget> rules;
  for (std::size_t i = 0; i < ignore.size(); ++i) rules.push_back({{ignore[i], &ignore_pointer, i}, nullptr});
  for (const GroupTarget& t : list_targets(groups)) rules.push_back(t);
  MOE_TRY(const RuleOfNames names, rules_of_names(rules, layer));
  return one_scheme(
      names,
      [&](std::size_t rule) -> Resolved {
        if (rule >= rules.size() || rules[rule].group == nullptr) return std::optional<HfQuantization>();
        MOE_TRY(const std::optional<Quantization> q, scheme_of(h, *rules[rule].group));
        if (!q) return std::optional<HfQuantization>();
        return std::optional(HfQuantization{*q, suffixes_of(*q)});
      },
      [&](const RuleOfNames::Odd& odd) {
        const std::size_t projections = layer.projections.size();
        if (odd.name >= projections || odd.other >= projections)
          return names.fault(odd, rules[odd.rule].entry.pointer());
        return fields::fault(h.at("config_groups"),
                             cat(layer.projections[0], " and ", layer.projections[std::max(odd.name, odd.other)],
                                 " of an expert have different schemes, expected one for all"));
      });
}

}  // namespace moe::config
