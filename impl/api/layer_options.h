// moe_layer_options: read, checked, and bound to packed weights.
#pragma once

#include <moe/moe.h>

#include <array>
#include <memory>

#include "api/tensor_check.h"
#include "base/result.h"
#include "io/packed.h"
#include "oracle/selection.h"
#include "run/context/context.h"
#include "run/layer.h"

namespace moe::api {

class LayerOptions {
 public:
  LayerOptions();
  LayerOptions(const LayerOptions&) = delete;
  LayerOptions& operator=(const LayerOptions&) = delete;

  Check read(const moe_layer_options* options);  // nullptr: none
  // Against the config of a selection, with flags and shapes.
  Check check(const Selection& selection);
  // Only after both.
  Result<std::shared_ptr<const Layer>> make_layer(const std::shared_ptr<Context>& context, const Selection& selection,
                                                  const std::shared_ptr<const Packed>& packed) const;

 private:
  moe_layer_options given_{};
  std::array<TensorParam, 2> rows_;  // correction_bias, expert_map
};

}  // namespace moe::api
