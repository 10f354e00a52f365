// The names of a layer's experts under the rules of a checkpoint. See foreign.h.
#include <algorithm>
#include <charconv>
#include <map>

#include "base/index.h"
#include "base/text.h"
#include "config/quantization/foreign.h"
#include "config/quantization/quantization.h"

namespace moe::config {

std::string LayerNames::name(std::size_t i) const {
  return cat(module, ".", i / projections.size(), ".", projections[i % projections.size()]);
}

std::optional<std::size_t> LayerNames::expert_of(std::string_view text) const {
  if (!text.starts_with(module)) return std::nullopt;
  text.remove_prefix(module.size());
  if (!text.starts_with('.')) return std::nullopt;
  text.remove_prefix(1);
  std::int64_t expert = -1;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), expert);
  const bool plain = ec == std::errc() && text.substr(0, usize(end - text.data())) == std::to_string(expert);
  if (!plain || expert < 0 || expert >= experts || (end != text.data() + text.size() && *end != '.'))
    return std::nullopt;
  return usize(expert);
}

std::optional<std::size_t> LayerNames::find(std::string_view text) const {
  const std::optional<std::size_t> expert = expert_of(text);
  for (std::size_t p = 0; expert && p < projections.size(); ++p)
    if (const std::size_t i = *expert * projections.size() + p; text == name(i)) return i;
  return std::nullopt;
}

void RuleOfNames::set(std::size_t i, std::size_t rule) {
  if (rules_[i] != kNone) return;
  rules_[i] = rule;
  --left_;
}

void RuleOfNames::add(std::size_t rule, const Hits& hits) {
  for (std::size_t i = 0; i < hits.size(); ++i)
    if (hits[i]) set(i, rule);
}

void RuleOfNames::add_named(std::size_t rule, std::string_view text) {
  if (text == layer_.module)
    add_rest(rule);
  else if (const auto name = layer_.find(text))
    add(rule, *name, 1);
}

void RuleOfNames::add(std::size_t rule, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) set(i, rule);
}

void RuleOfNames::add_rest(std::size_t rule) {
  if (!complete()) add(rule, 0, rules_.size());
}

std::optional<RuleOfNames::Odd> RuleOfNames::find_odd(Among among,
                                                      const std::function<bool(std::size_t, std::size_t)>& same) const {
  const std::size_t step = among == Among::all ? 1 : layer_.projections.size();
  const auto names_of = [&](std::size_t rule) { return std::count(rules_.begin(), rules_.end(), rule); };
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const std::size_t first = i % step, here = rules_[i], there = rules_[first];
    if (here == there || same(here, there)) continue;
    const bool rarer = there == kNone || (here != kNone && names_of(here) <= names_of(there));
    return rarer ? Odd{i, first, here} : Odd{first, i, there};
  }
  return std::nullopt;
}

Error RuleOfNames::fault(const Odd& odd, const std::string& pointer) const {
  return fail(Code::unsupported, pointer,
              cat(pointer, ": treats ", layer_.name(odd.name), " unlike ", layer_.name(odd.other),
                  "; the experts of a layer have one scheme"));
}

bool same_scheme(const std::optional<HfQuantization>& a, const std::optional<HfQuantization>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  const Quantization &p = a->quantization, &q = b->quantization;
  return p.weights == q.weights && p.input_activations == q.input_activations && p.format == q.format &&
         p.zero_point_convention == q.zero_point_convention;
}

Resolved one_scheme(const RuleOfNames& names, const std::function<Resolved(std::size_t)>& scheme_of,
                    const std::function<Error(const RuleOfNames::Odd&)>& fault) {
  std::map<std::size_t, std::optional<HfQuantization>> schemes;
  for (const std::size_t rule : names.rules()) {
    if (schemes.contains(rule)) continue;
    MOE_TRY(schemes[rule], scheme_of(rule));
  }
  const auto same = [&](std::size_t a, std::size_t b) { return same_scheme(schemes.at(a), schemes.at(b)); };
  if (const auto odd = names.find_odd(RuleOfNames::Among::all, same)) return fault(*odd);
  return schemes.at(names.rules().front());
}

}  // namespace moe::config
