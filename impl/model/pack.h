// One layer's packed weights from a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/control.h"
#include "base/result.h"
#include "io/packed.h"
#include "model/checkpoint.h"
#include "oracle/selection.h"
#include "run/context/context.h"

namespace moe::model {

// The backend for a layer. `stored`: it is converted in `folder`, and only kernels of that layout can be chosen;
// nullptr: it is not.
Result<Selection> select_for_layer(const StoredLayer* stored, const std::string& folder,
                                   std::shared_ptr<const Config> config, const Platform* platform, SelectFlags flags);
// Made from the source's tensors; or of a converted checkpoint loaded. `context` may be null.
Result<Packed> pack_layer(const Checkpoint& checkpoint, std::int64_t layer, const Selection& selection, LoadFlags flags,
                          const std::shared_ptr<Context>& context, Control* control);

}  // namespace moe::model
