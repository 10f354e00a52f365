// See seen_tensors.h.
#include "hf/seen_tensors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "config/quantization/foreign.h"

namespace moe::hf {
namespace {

constexpr std::size_t kMostParts = 3;  // a module with more is none of experts
constexpr fields::IntegerRange kDimensions = {0, std::int64_t{1} << 40};

struct Named {
  std::string_view name;
  SeenShape shape;
};

Result<Named> read_tensor(const json::Value& value, const std::string& pointer) {
  const auto bad = [&] {
    return fields::unexpected(pointer, value, "{\"name\": .., \"shape\": [..]} or [name, shape]");
  };
  const json::Array* pair = value.array();
  if (pair != nullptr && pair->size() != 2) return bad();
  const json::Value* name = pair != nullptr ? pair->data() : value.find("name");
  const json::Value* shape = pair != nullptr ? &(*pair)[1] : value.find("shape");
  if (name == nullptr || name->string() == nullptr || shape == nullptr || shape->array() == nullptr) return bad();
  Named out{*name->string(), {}};
  for (const json::Value& d : *shape->array()) {
    MOE_TRY(const std::int64_t n, fields::integer_value(d, pointer, kDimensions));
    out.shape.push_back(n);
  }
  return out;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t n = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (fault != std::errc() || end != text.data() + text.size() || n < 0 || n > 65535) return std::nullopt;
  return n;
}

// A name cut at its numbers: before.LAYER.middle.EXPERT.after, without an expert before.LAYER.middle.
struct Cut {
  std::string_view before, middle, after;
  std::int64_t layer = 0;
  std::optional<std::int64_t> expert = {};
};
std::optional<Cut> cut(std::string_view name) {
  std::optional<Cut> out;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    if (const auto n = number(name.substr(at, end - at)); n && at > 0 && end < name.size()) {
      if (!out) {
        out = Cut{name.substr(0, at - 1), name.substr(end + 1), {}, *n};
      } else if (!out->expert) {
        const auto start = static_cast<std::size_t>(out->middle.data() - name.data());
        if (at > start) out->middle = name.substr(start, at - 1 - start);
        out->after = name.substr(end + 1);
        if (at > start) out->expert = n;
      }
    }
    at = end + 1;
  }
  return out;
}

struct Group {
  SeenExperts seen;
  std::set<std::int64_t> layers;
};
using FoundGroups = std::map<std::string, Group>;

ExpertPart& part(SeenExperts& of, std::string_view name) {
  for (ExpertPart& p : of.parts)
    if (p.name == name) return p;
  if (of.parts.size() > kMostParts) return of.parts.back();
  of.parts.push_back({std::string(name)});
  return of.parts.back();
}

// gate_proj.weight of an expert.
void add_expert(const Cut& c, const Named& t, FoundGroups& groups) {
  const std::size_t dot = c.after.rfind('.');
  if (dot == c.after.npos) return;
  const std::string module = cat(c.before, ".{layer}.", c.middle);
  Group& g = groups[module];
  g.seen.module = module;
  g.seen.experts = std::max(g.seen.experts, *c.expert + 1);
  g.layers.insert(c.layer);
  ExpertPart& p = part(g.seen, c.after.substr(0, dot));
  p.kinds.emplace(c.after.substr(dot + 1));
  if (c.after.substr(dot + 1) == "weight" && t.shape.size() == 2) p.weight = t.shape;
}

// mlp.experts.gate_up_proj, block_sparse_moe.input_linear.weight: a tensor of three axes, or of two ([E * I, H]).
void add_stack(const Cut& c, const Named& t, FoundGroups& groups) {
  constexpr std::string_view kWeight = ".weight";
  const std::string_view bare =
      c.middle.ends_with(kWeight) ? c.middle.substr(0, c.middle.size() - kWeight.size()) : c.middle;
  const std::size_t dot = bare.rfind('.');
  if (dot == bare.npos) return;
  const std::string module = cat(c.before, ".{layer}.", bare.substr(0, dot));
  Group& g = groups[module];
  g.seen.module = module;
  g.seen.stacked = true;
  g.layers.insert(c.layer);
  const std::string_view name = c.middle.substr(dot + 1);
  if (name.ends_with("bias")) {
    g.seen.stack_bias = true;
    return;
  }
  g.seen.experts = t.shape[0];
  part(g.seen, name).weight = t.shape;
}

// The module with the most experts that has two or three parts.
const Group* most_experts(const FoundGroups& groups) {
  const Group* best = nullptr;
  for (const auto& [module, g] : groups) {
    const std::size_t parts = g.seen.parts.size();
    if (parts < 2 || parts > kMostParts || g.seen.experts < 2) continue;
    if (best == nullptr || g.seen.experts > best->seen.experts) best = &g;
  }
  return best;
}

}  // namespace

Result<SeenTensors> seen_tensors(const json::Value& tensors, const std::string& pointer) {
  if (tensors.array() == nullptr) return fields::unexpected(pointer, tensors, "a list of names and shapes");
  FoundGroups apart, stacks, flat;
  std::vector<std::pair<Cut, Named>> plain;
  for (std::size_t i = 0; i < tensors.array()->size(); ++i) {
    MOE_TRY(Named t, read_tensor((*tensors.array())[i], cat(pointer, "/", i)));
    const std::optional<Cut> c = cut(t.name);
    if (!c) continue;
    if (c->expert) {
      add_expert(*c, t, apart);
      continue;
    }
    if (t.shape.size() == 3 || (t.shape.size() == 2 && c->middle.ends_with("bias"))) add_stack(*c, t, stacks);
    if (t.shape.size() == 2 && !c->middle.ends_with(".weight")) add_stack(*c, t, flat);
    plain.emplace_back(*c, std::move(t));
  }
  const Group* found = nullptr;
  for (const FoundGroups* groups : {&apart, &stacks, &flat})
    if (found == nullptr) found = most_experts(*groups);
  if (found == nullptr)
    return fields::fault(pointer,
                         "no tensors of experts: none is named <path>.<layer>.<path>.<expert>.<projection>.weight, "
                         "and no two or three of one module have an axis for the experts");
  SeenTensors out{found->seen, {}, found->layers};
  std::set<std::string> paths;
  for (const auto& [c, t] : plain) {
    std::string path = cat(c.before, ".{layer}.", c.middle);
    if (!out.layers.contains(c.layer) || path.starts_with(out.experts.module + ".") || !paths.insert(path).second)
      continue;
    out.others.push_back({std::move(path), std::string(c.middle), t.shape});
  }
  return out;
}

}  // namespace moe::hf
