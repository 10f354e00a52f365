// The kernel that a layer on this machine runs.
#pragma once

#include <cstddef>

#include "base/platform.h"
#include "base/result.h"
#include "config/config.h"
#include "kernels/kernel.h"
#include "scheme/layout.h"

namespace moe::api {

// What a row needs of its machine.
struct Machine {
  Platform platform;
  bool (*ready)(const Kernel& row) = nullptr;  // asks the system for what the row needs
};
Result<Machine> this_machine();

// The first row from kKernelIds[first] on that multiplies activations of the config with weights in this very layout,
// and that the machine runs; nullptr: none.
const Kernel* kernel_here(const Config& config, const Layout& layout, const Machine& machine, std::size_t first = 0);

}  // namespace moe::api
