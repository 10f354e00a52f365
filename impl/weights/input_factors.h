// Factors of the inputs of a layer's matrices, one for each column (pre_quant_scale of ModelOpt, checkpoints.md 5).
// Files have them for each projection of each expert. A layer multiplies its input once, so all experts must have the
// same.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
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
  // A projection's, whole, in the place of older ones.
  Check add(const LayerFacts& facts, const ParsedName& p, std::vector<float> whole, const std::string& name);
  // A weight that came by its name.
  void weight_came(const ParsedName& p);
  // What came later, together. Factors of a weight that was replaced by one without them are those of no weight.
  void merge(InputFactors later);
  // unsupported where two projections have unlike ones.
  Check check_alike() const;
  // By matrix: [H], and this rank's [I]; empty: none. missing_weight where only some of the experts have them.
  Result<std::array<std::vector<float>, 2>> take(const LayerFacts& facts) const;

 private:
  using Key = std::pair<std::int64_t, Projection>;  // of an expert
  struct Given {
    std::shared_ptr<const std::vector<float>> whole;  // equal ones share it
    std::string name;
    bool of_no_weight = false;
  };
  static std::vector<Key> keys(const ParsedName& p);

  std::array<std::map<Key, Given>, 2> sides_;  // gate's and up's, and down's
  std::set<Key> weights_;
};

}  // namespace moe::weights
