// See nearest.h.
#include "hf/nearest.h"

#include <algorithm>

#include "base/json.h"
#include "base/nearest.h"
#include "base/text.h"
#include "config/fields.h"
#include "hf/architecture.h"
#include "hf/hf.h"

namespace moe::hf {
namespace {

constexpr std::size_t kMostNames = 3, kMostLetters = 64;

// What tells classes apart: "Qwen3_5MoeForCausalLM" -> "qwen35moe".
std::string stem_of(std::string_view name) {
  std::string stem = config::fields::lower_ascii(name.substr(0, std::min(name.rfind("For"), kMostLetters)));
  std::erase(stem, '_');
  return stem;
}

}  // namespace

std::vector<std::string_view> nearest_architectures(std::string_view name) {
  struct Candidate {
    std::size_t distance;
    int likeness;  // the name itself, another with its ending, any
    std::string_view name;
  };
  const auto ending = [](std::string_view n) { return n.substr(std::min(n.rfind("For"), n.size())); };
  const std::string stem = stem_of(name);
  std::vector<Candidate> all;
  for (const Architecture& a : architectures()) {
    const std::string other = stem_of(a.name);
    const std::size_t distance = edits(stem, other);
    if (looks_like(stem, other, distance))
      all.push_back({distance, name == a.name ? 0 : ending(name) == ending(a.name) ? 1 : 2, a.name});
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.likeness < b.likeness;
  });
  std::vector<std::string_view> nearest;
  for (std::size_t i = 0; i < std::min(all.size(), kMostNames); ++i) nearest.push_back(all[i].name);
  return nearest;
}

std::vector<std::string_view> nearest_by_keys(const ModelFile& file) {
  struct Candidate {
    int found, lacking;
    std::string_view name;
  };
  std::vector<Candidate> all;
  for (const Architecture& a : architectures()) {
    Candidate c = {0, 0, a.name};
    const auto count = [&](std::string_view key) {
      if (!key.empty()) ++(file.holder(key).has(key) ? c.found : c.lacking);
    };
    const Routing& r = a.routing;
    bool sized = true;
    for (const SizeKey* size : {&a.experts, &a.top_k}) {
      const auto there = [&](std::string_view key) { return !key.empty() && file.holder(key).has(key); };
      sized = sized && std::any_of(size->keys.begin(), size->keys.end(), there);
    }
    for (const std::string_view key :
         {a.experts.keys[0], a.top_k.keys[0], a.width.keys[0], a.activation.key, a.where.first.keys[0], a.where.step,
          r.scoring_key, r.renormalize.key, r.bias.key})
      count(key);
    if (r.groups != GroupKeys::none) count(r.n_group.keys[0]);
    if (r.factor != Factor::none) count(r.factor_key.key);
    if (sized) all.push_back(c);
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.found != b.found ? a.found > b.found : a.lacking < b.lacking;
  });
  std::vector<std::string_view> nearest;
  for (std::size_t i = 0; i < std::min(all.size(), kMostNames); ++i) nearest.push_back(all[i].name);
  return nearest;
}

namespace {

// A dense model's file has no member that counts, sizes or chooses experts.
bool speaks_of_experts(const ModelFile& file) {
  const auto says = [](const auto& members) {
    return std::any_of(members.begin(), members.end(), [](const json::Member& m) {
      const std::string key = config::fields::lower_ascii(m.first);
      return key.find("expert") != std::string::npos || key.find("moe") != std::string::npos ||
             key.find("ffn_config") != std::string::npos;
    });
  };
  // Parts of multimodal models have names of many kinds.
  return says(file.root().members()) ||
         std::any_of(file.root().members().begin(), file.root().members().end(),
                     [&](const json::Member& m) { return m.second.object() != nullptr && says(*m.second.object()); });
}

}  // namespace

Error not_known(Code code, const std::string& pointer, std::string_view name, const ModelFile* file) {
  std::vector<std::string_view> nearest = nearest_architectures(name);
  const bool by_keys = nearest.empty() && file != nullptr;
  if (by_keys) nearest = nearest_by_keys(*file);
  std::string names;
  for (const std::string_view n : nearest)
    names += cat(!names.empty() ? ", " : by_keys ? ", files with such members are of " : ", names like it are ", n);
  return fail(
      code, pointer,
      cat(pointer, ": the architecture ", in_quotes(name), " is not known", names,
          file != nullptr && !speaks_of_experts(*file)
              ? "; its config.json says nothing of experts: a dense model has no experts to read"
              : "",
          "; option \"architecture\" takes a known name or a description: moe_describe(\"checkpoint\", "
          "{\"config\": .., \"tensors\": [[name, shape], ..]}) makes one of the file's tensors to be looked at, "
          "{\"architectures\": true} lists all names"),
      json::Writer().key("nearest").array(nearest).take());
}

}  // namespace moe::hf
