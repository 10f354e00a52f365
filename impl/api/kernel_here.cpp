// See kernel_here.h.
#include "api/kernel_here.h"

#include "oracle/backend.h"

namespace moe::api {

Result<Machine> this_machine() {
  MOE_TRY(Platform platform, detect_platform());
  return Machine{std::move(platform), [](const Kernel& row) { return row.ready == nullptr || row.ready(); }};
}

const Kernel* kernel_here(const Config& config, const Layout& layout, const Machine& machine, std::size_t first) {
  for (std::size_t i = first; i < kKernelIds.size(); ++i) {
    const KernelId& id = kKernelIds[i];
    if (id.layout != layout.kind || !id.takes(layout) || !act_fits(config, id.act) || !machine.platform.runs(id.isa))
      continue;
    if (const Kernel* row = kernel_at(i); row != nullptr && machine.ready(*row)) return row;
  }
  return nullptr;
}

}  // namespace moe::api
