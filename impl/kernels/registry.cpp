// The rows of kernels/kernel_rows.inc that this build has functions for.
#include <algorithm>
#include <array>

#include "base/index.h"
#include "kernels/kernel.h"

namespace moe::kernels {
namespace {

#if defined(__x86_64__)
#define MOE_KERNEL_x86(name_) &kernel_rows::name_
#else
#define MOE_KERNEL_x86(name_) nullptr
#endif
#if defined(__aarch64__)
#define MOE_KERNEL_arm(name_) &kernel_rows::name_
#else
#define MOE_KERNEL_arm(name_) nullptr
#endif
#define MOE_KERNEL_any(name_) &kernel_rows::name_

constexpr std::array<const Kernel*, kKernelIds.size()> kByNumber = {
#define MOE_KERNEL(arch_, name_, ...) MOE_KERNEL_##arch_(name_),
#include "kernels/kernel_rows.inc"
};

constexpr std::size_t kBuilt = kByNumber.size() - usize(std::count(kByNumber.begin(), kByNumber.end(), nullptr));

constexpr std::array<const Kernel*, kBuilt> kRows = [] {
  std::array<const Kernel*, kBuilt> rows{};
  std::size_t n = 0;
  for (const bool scalar : {false, true})
    for (std::size_t i = 0; i < kByNumber.size(); ++i)
      if (kByNumber[i] != nullptr && (kKernelIds[i].isa == Isa::scalar) == scalar) rows[n++] = kByNumber[i];
  return rows;
}();

}  // namespace

std::span<const Kernel* const> built_kernels() { return kRows; }

const Kernel* kernel_at(std::size_t index) { return kByNumber[index]; }

}  // namespace moe::kernels
