// Backend EMULATION on a CPU: a layer on packed weights of any int_wna16 layout (wna16.md 11).
#pragma once

#include <memory>

#include "bind/kernel_here.h"
#include "io/packed.h"
#include "kernels/kernel.h"
#include "oracle/selection.h"
#include "run/context/context.h"
#include "run/engine/panel_source.h"

namespace moe::bind {

bool is_emulation(const Selection& selection);

struct Emulated {
  std::shared_ptr<const Packed> weights;        // in one of our layouts, or
  std::shared_ptr<const PanelSource> panels{};  // what makes panels of them
  const Kernel* kernel = nullptr;               // of this host, for them
};

// Checks that the weights are of the selection's model and brings them into a layout that a kernel of the machine
// reads: with emulation_layout on_the_fly panel by panel in each call, with dense once, into a copy. The kernel is the
// last choice: weights may turn out to need a wider layout.
Result<Emulated> emulate(const std::shared_ptr<const Packed>& packed, const Selection& selection,
                         const std::shared_ptr<Context>& context, const Machine& machine);

}  // namespace moe::bind
