// A caller's weight source (moe_weight_source_ops) as a TensorSource.
//
// get fills a zeroed moe_tensor; what it gives is checked like any tensor of the caller, and put ends its
// use exactly once, also when the tensor is refused. MOE_ERR_MISSING_WEIGHT and MOE_ERR_CANCELLED pass
// through; every other failure is MOE_ERR_CALLBACK with the callback's own error as "cause".
#pragma once

#include <moe/moe.h>

#include <mutex>

#include "scheme/tensor_source.h"
#include "weights/weight_set.h"

namespace moe::api {

class CallbackSource : public TensorSource {
 public:
  CallbackSource(const moe_weight_source_ops& ops, HandedOver owner);
  Result<TensorLease> get(const Place& place) const override;
  void put(const Place& place, const TensorView& view) const override;

 private:
  std::unique_lock<std::recursive_mutex> lock() const;

  moe_weight_source_ops ops_;
  HandedOver owner_;
  // Held around each call when ops.serial is 1; what get does may be a call that asks it.
  mutable std::recursive_mutex mutex_;
};

}  // namespace moe::api
