// What the layouts of other engines' WNA16 kernels (layouts/wna16/wna16_layout.h) ask of a layer, beyond vLLM's own
// checks: nothing is accepted that could not be written (wna16.md 1.5a).
#pragma once

#include <optional>

#include "layouts/layout.h"
#include "oracle/backend.h"

namespace moe::oracle {

// Of a row whose layout is one of these; nullopt: it can be written.
MaybeNeed wna16_need(const Query& q, const Trial& offer);
// This rank's share.
Layout wna16_layout(const Query& q, LayoutKind kind, const LayoutShape& shape);

}  // namespace moe::oracle
