// See kernel_here.h.
#include "bind/kernel_here.h"

#include <string>

#include "base/index.h"
#include "base/text.h"
#include "oracle/backend.h"

namespace moe::bind {

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

Result<const Kernel*> kernel_for(const Selection& s, const Layout& layout) {
  const std::string name = s.candidates[*s.winner].kernel;
  const auto unsupported = [](const std::string& why) {
    return fail(Code::unsupported, "selection", "selection: " + why);
  };
  const auto arch_word = [](Arch arch) { return std::string(at(kArchNames, arch)); };
  if (!s.kernel) return unsupported(cat("this library has no kernel for ", s.backend_name(), " (", name, ")"));
  const Arch arch = isa_arch(kKernelIds[*s.kernel].isa);
  if (arch != Arch::automatic && arch != native_arch())
    return unsupported(cat("this host cannot run kernel ", name, ": it is one of ", arch_word(arch), ", the host is ",
                           arch_word(native_arch())));
  const Kernel* kernel = kernel_at(*s.kernel);
  if (kernel == nullptr) return unsupported(cat("kernel ", name, " is not in this build"));
  MOE_TRY(const Machine machine, this_machine());
  if (!machine.platform.runs(kernel->id->isa))
    return unsupported(cat("this host cannot run kernel ", name, ": it needs ", at(kIsaNames, kernel->id->isa)));
  if (const Kernel* row = kernel_here(*s.config, layout, machine, *s.kernel)) return row;
  return unsupported(cat("the system refuses kernel ", name, " its registers"));
}

}  // namespace moe::bind
