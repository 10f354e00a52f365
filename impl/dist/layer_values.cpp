// The rows that ranks send each other at attach (layer_values.h).
#include "dist/layer_values.h"

#include <algorithm>
#include <array>

#include "base/decimal.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::dist {
namespace {

enum ValuePlace : std::size_t { kHasLayer, kScaleW13, kScaleW2, kHasBias, kHasExpertScale, kLists };

std::size_t floats_of(const run::Router& r) { return kLists + r.columns + r.experts; }

}  // namespace

bool LayerValues::are_told(const Config& c, const ExpertPlaces& places, int ranks, bool tp) {
  if (!tp && c.bit_compat == Policy::vllm && c.takes_input_scales()) return true;
  const bool of_the_layer = c.routing.has_bias || c.routing.expert_scale.wanted();
  for (int r = 0; r < ranks; ++r)
    if (of_the_layer && !places.holds_any(r)) return true;
  return false;
}

LayerValues::LayerValues(const run::Layer* layer, const run::Router& router, int ranks)
    : ranks_(ranks), floats_(floats_of(router)), rows_(floats_ * sizeof(float), ranks) {
  auto* const mine = reinterpret_cast<float*>(rows_.mine());
  std::fill_n(mine, floats_, 0.0f);
  if (layer == nullptr) return;
  const std::array<float, 2> scales = layer->shared_input_scales();
  mine[kHasLayer] = 1.0f;
  mine[kScaleW13] = scales[0];
  mine[kScaleW2] = scales[1];
  mine[kHasBias] = router.bias.empty() ? 0.0f : 1.0f;
  mine[kHasExpertScale] = router.expert_scale.empty() ? 0.0f : 1.0f;
  if (!router.bias.empty()) std::copy_n(router.bias.begin(), router.columns, mine + kLists);
  if (!router.expert_scale.empty())
    std::copy_n(router.expert_scale.begin(), router.experts, mine + kLists + router.columns);
}

std::span<const float> LayerValues::row(int rank) const {
  return {reinterpret_cast<const float*>(rows_.of(rank)), floats_};
}

Check LayerValues::tell(Comm& comm) {
  MOE_CHECK(comm.gather(rows_, "values"));
  int first = -1;
  for (int r = 0; r < ranks_; ++r) {
    if (row(r)[kHasLayer] == 0.0f) continue;
    if (first < 0) first = r;
    for (const auto& [place, name] : {std::pair{kScaleW13, "w13"}, std::pair{kScaleW2, "w2"}})
      if (const float a = row(first)[place], b = row(r)[place]; a != b)
        return fail(Code::unsupported, "/compute",
                    cat("/compute: with bit_compat vllm a rank's experts share their largest input scale; of ", name,
                        " it is ", float_text(a), " on rank ", first, " and ", float_text(b), " on rank ", r,
                        "; bit_compat libmoe, or mode tp, has the bits of one process"),
                    json::members("rank", r));
  }
  return ok();
}

void LayerValues::fill(run::Router& router) const {
  for (int r = 0; r < ranks_; ++r) {
    const std::span<const float> from = row(r);
    if (from[kHasLayer] == 0.0f) continue;
    router.lacks_bias = !router.bias.empty() && from[kHasBias] == 0.0f;
    router.lacks_scale = !router.expert_scale.empty() && from[kHasExpertScale] == 0.0f;
    if (!router.bias.empty()) std::copy_n(from.begin() + kLists, router.columns, router.bias.begin());
    if (!router.expert_scale.empty())
      std::copy_n(from.begin() + kLists + static_cast<std::ptrdiff_t>(router.columns), router.experts,
                  router.expert_scale.begin());
    return;
  }
}

}  // namespace moe::dist
