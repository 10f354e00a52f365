// A layer in float64, from its packed weights as moe_packed_dequantize gives them back: what check compares calls with.
// It is written for clarity and shares nothing with the kernels.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tool/runner.h"

namespace moe_tool {

class ReferenceLayer {
 public:
  // `config`: the resolved one of the layer; `packed` lives at least as long as this object does.
  ReferenceLayer(const Json& config, const moe_packed* packed);

  // Why the layer cannot be calculated here, "" where it can.
  const std::string& problem() const { return problem_; }
  // [tokens, H]: the sum of the experts that `batch` chose.
  std::vector<double> outputs(const TokenBatch& batch, int threads) const;

 private:
  const moe_packed* packed_;
  Json config_;
  CallSizes sizes_;
  std::vector<std::int64_t> held_;
  std::string problem_;
};

// Relative error of the whole batch: the root of the squares' sums. Numbers that are not finite must be so in both.
double relative_error(const TokenBatch& batch, const CallSizes& sizes, const std::vector<double>& expected);

}  // namespace moe_tool
