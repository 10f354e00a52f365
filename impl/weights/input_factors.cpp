// See input_factors.h.
#include "weights/input_factors.h"

#include <algorithm>
#include <cmath>

#include "base/decimal.h"
#include "base/index.h"
#include "base/text.h"

namespace moe::weights {

Check InputFactors::add(const LayerFacts& facts, const ParsedName& p, std::vector<float> whole,
                        const std::string& name) {
  if (facts.places_of(p.expert).empty()) return ok();
  for (std::size_t k = 0; k < whole.size(); ++k)
    if (!std::isfinite(whole[k]))
      return fail(Code::invalid_argument, cat(name, "[", k, "]"),
                  cat(name, "[", k, "]: ", float_text(whole[k]), " is not a finite number"));
  Side& side = at(sides_, p.projection == Projection::down ? 1 : 0);
  std::set<std::pair<std::int64_t, Projection>> these = {{p.expert, p.projection}};
  if (p.joined) these.insert({p.expert, Projection::gate});
  if (side.seen.empty() || side.seen == these) {  // the first, or in its place
    side.whole = std::move(whole);
    side.first = name;
  } else if (whole != side.whole) {
    return fail(Code::unsupported, name,
                cat(name, ": has other numbers than ", side.first,
                    "; read are files whose experts have the same factors of their inputs"));
  }
  side.seen.merge(these);
  return ok();
}

Result<std::array<std::vector<float>, 2>> InputFactors::take(const LayerFacts& facts) const {
  std::array<std::vector<float>, 2> taken;
  for (std::size_t i = 0; i < sides_.size(); ++i) {
    const Side& side = sides_[i];
    if (side.seen.empty()) continue;
    std::set<std::int64_t> experts;
    for (const std::int64_t e : facts.experts()) experts.insert(facts.source_expert(e));
    const std::size_t wanted = experts.size() * (i == 0 && facts.gated() ? 2 : 1);
    if (side.seen.size() != wanted)
      return fail(Code::missing_weight, side.first,
                  cat(side.first, ": ", side.seen.size(), " of ", wanted,
                      " projections have factors of their inputs, expected all or none"));
    const bool cut = i == 1;  // tensor parallelism cuts the inputs of w2
    const std::int64_t part = facts.config().intermediate_size_per_partition;
    const std::int64_t first = cut ? facts.config().parallel.tp_rank * part : 0;
    const std::int64_t count = cut ? part : std::ssize(side.whole);
    taken[i].assign(side.whole.begin() + first, side.whole.begin() + first + count);
  }
  return taken;
}

}  // namespace moe::weights
