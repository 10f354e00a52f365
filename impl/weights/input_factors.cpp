// See input_factors.h.
#include "weights/input_factors.h"

#include <algorithm>
#include <cmath>

#include "base/decimal.h"
#include "base/index.h"
#include "base/text.h"

namespace moe::weights {

std::vector<InputFactors::Key> InputFactors::keys(const ParsedName& p) {
  std::vector<Key> all = {{p.expert, p.projection}};
  if (p.joined) all.emplace_back(p.expert, Projection::gate);
  return all;
}

Check InputFactors::add(const LayerFacts& facts, const ParsedName& p, std::vector<float> whole,
                        const std::string& name) {
  if (facts.places_of(p.expert).empty()) return ok();
  for (std::size_t k = 0; k < whole.size(); ++k)
    if (!std::isfinite(whole[k]))
      return fail(Code::invalid_argument, cat(name, "[", k, "]"),
                  cat(name, "[", k, "]: ", float_text(whole[k]), " is not a finite number"));
  std::map<Key, Given>& side = at(sides_, p.projection == Projection::down ? 1 : 0);
  auto values = std::make_shared<const std::vector<float>>(std::move(whole));
  if (!side.empty() && *side.begin()->second.whole == *values) values = side.begin()->second.whole;
  for (const Key& key : keys(p)) side.insert_or_assign(key, Given{.whole = values, .name = name});
  return ok();
}

void InputFactors::weight_came(const ParsedName& p) {
  for (const Key& key : keys(p)) weights_.insert(key);
}

void InputFactors::merge(InputFactors later) {
  for (const Key& key : later.weights_) {
    std::map<Key, Given>& side = at(sides_, key.second == Projection::down ? 1 : 0);
    const auto had = side.find(key);
    const bool replaced = !weights_.insert(key).second;
    if (replaced && had != side.end()) had->second.of_no_weight = true;
  }
  for (std::size_t i = 0; i < sides_.size(); ++i)
    for (auto& [key, given] : later.sides_[i]) sides_[i].insert_or_assign(key, std::move(given));
}

Check InputFactors::check_alike() const {
  for (const std::map<Key, Given>& side : sides_)
    for (const auto& [key, given] : side) {
      const Given& first = side.begin()->second;
      if (given.whole != first.whole && *given.whole != *first.whole)
        return fail(Code::unsupported, given.name,
                    cat(given.name, ": has other numbers than ", first.name,
                        "; read are files whose experts have the same factors of their inputs"));
    }
  return ok();
}

Result<std::array<std::vector<float>, 2>> InputFactors::take(const LayerFacts& facts) const {
  std::array<std::vector<float>, 2> taken;
  MOE_CHECK(check_alike());
  for (std::size_t i = 0; i < sides_.size(); ++i) {
    const std::map<Key, Given>& side = sides_[i];
    if (side.empty()) continue;
    const Given& one = side.begin()->second;
    for (const auto& [key, given] : side)
      if (given.of_no_weight)
        return fail(Code::missing_weight, given.name,
                    cat(given.name, ": came before the weight that is set now, and may not be its factors; set it ",
                        "again, or fill a new set of weights where there are none"));
    std::set<std::int64_t> experts;
    for (const std::int64_t e : facts.experts()) experts.insert(facts.source_expert(e));
    const std::size_t wanted = experts.size() * (i == 0 && facts.gated() ? 2 : 1);
    if (side.size() != wanted)
      return fail(Code::missing_weight, one.name,
                  cat(one.name, ": ", side.size(), " of ", wanted,
                      " projections have factors of their inputs, expected all or none"));
    const bool cut = i == 1;  // tensor parallelism cuts the inputs of w2
    const std::int64_t part = facts.config().intermediate_size_per_partition;
    const std::int64_t first = cut ? facts.config().parallel.tp_rank * part : 0;
    const std::int64_t count = cut ? part : std::ssize(*one.whole);
    taken[i].assign(one.whole->begin() + first, one.whole->begin() + first + count);
  }
  return taken;
}

}  // namespace moe::weights
