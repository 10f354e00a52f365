// Factors of the inputs of a layer's matrices, one for each column (pre_quant_scale of ModelOpt, checkpoints.md 5).
// Files have them for each projection of each expert. A layer multiplies its input once, so all experts must have the
// same.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "scheme/checkpoint.h"
#include "weights/layer_facts.h"

namespace moe::weights {

class InputFactors {
 public:
  // A projection's, whole. unsupported where an expert that is here has others.
  Check add(const LayerFacts& facts, const ParsedName& p, std::vector<float> whole, const std::string& name);
  // By matrix: [H], and this rank's [I]; empty: none. missing_weight where only some of the experts have them.
  Result<std::array<std::vector<float>, 2>> take(const LayerFacts& facts) const;

 private:
  // Of gate and up, and of down: those of the first projection that came, and its name.
  struct Side {
    std::vector<float> whole;
    std::string first;
    std::set<std::pair<std::int64_t, Projection>> seen;
  };
  std::array<Side, 2> sides_;
};

}  // namespace moe::weights
