// Packed weights bound to a selection: what a layer is made of.
#pragma once

#include <memory>

#include "base/result.h"
#include "io/packed.h"
#include "oracle/selection.h"
#include "run/context/context.h"
#include "run/layer.h"

namespace moe::bind {

// Checks that the weights are what the selection leads to, and finds the kernel of this machine that runs them: the
// selection's, or with backend EMULATION one of our layouts. any_name: the weights may be of another layer with the
// same config. The map of experts and the correction bias are the caller's to fill in. `context` may be null.
Result<LayerSpec> layer_spec(const std::shared_ptr<const Packed>& packed, const Selection& selection,
                             const std::shared_ptr<Context>& context, bool any_name);

}  // namespace moe::bind
