// The kernel that a layer on this machine runs.
#pragma once

#include <cstddef>

#include "base/platform.h"
#include "base/result.h"
#include "config/config.h"
#include "kernels/kernel.h"
#include "layouts/layout.h"
#include "oracle/selection.h"

namespace moe::bind {

// What a row needs of its machine.
struct Machine {
  Platform platform;
  bool (*ready)(const Kernel& row) = nullptr;  // asks the system for what the row needs
};
Result<Machine> this_machine();

// The first row from kKernelIds[first] on that multiplies activations of the config with weights in this very layout,
// and that the machine runs; nullptr: none.
const Kernel* kernel_here(const Config& config, const Layout& layout, const Machine& machine, std::size_t first = 0);

// The kernel of the selection, if this build and this machine have it. Where the system refuses what it needs (the
// tile registers of AMX), or the weights turned out to have groups that it does not take, the next one of the same
// layout that runs here.
Result<const Kernel*> kernel_for(const Selection& selection, const Layout& layout);

}  // namespace moe::bind
