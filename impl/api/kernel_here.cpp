// See kernel_here.h.
#include "api/kernel_here.h"

#include "oracle/backend.h"

namespace moe::api {

Result<Machine> this_machine() {
  MOE_TRY(Platform platform, detect_platform());
  return Machine{std::move(platform), [](const Kernel& row) { return row.ready == nullptr || row.ready(); }};
}

const Kernel* kernel_here(const Config& config, const Layout& layout, const Machine& machine, std::size_t first) {
  KernelNeeds needs = needs_of(layout);
  needs.acts = acts_of(config);
  const std::optional<std::size_t> found = pick(
      needs,
      [&](std::size_t i) {
        const Kernel* row = kernel_at(i);
        return row != nullptr && machine.platform.runs(row->id->isa) && machine.ready(*row);
      },
      first);
  return found ? kernel_at(*found) : nullptr;
}

}  // namespace moe::api
