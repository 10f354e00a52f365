// What moe_apply and moe_layer_workspace_size check alike.
#pragma once

#include <moe/moe.h>

#include <array>
#include <cstdint>

#include "api/tensor_check.h"
#include "base/result.h"
#include "config/config.h"
#include "run/layer.h"

namespace moe::api {

// Unknown numbers: invalid_argument. 2 is the batched mode of later versions: unsupported.
Result<ApplyMode> apply_mode(moe_apply_mode mode);

// The rows of a call, in the order of moe_apply_args. Absent ones stay nullptr.
enum ApplyRow : std::size_t { kHidden, kLogits, kTopkIds, kTopkWeights, kOut, kOutIds, kOutWeights, kApplyRows };

// moe_apply_args without what needs a handle: read first, checked against a config after the handles.
class GivenCall {
 public:
  Check read(const moe_apply_args* args);
  // Allocates nothing unless it fails.
  Result<ApplyArgs> check(const Config& config);
  const moe_apply_args& args() const { return args_; }

 private:
  Check check_presence(const Config& config, ApplyMode mode) const;
  Check check_overlap(bool in_place) const;
  Check check_workspace() const;

  moe_apply_args args_{};
  std::array<TensorParam, kApplyRows> rows_{};
};

}  // namespace moe::api
