// The list of all CPU kernels, known on every host: selection explains kernels of machines that this build cannot run.
// kernels/registry.cpp binds functions to the rows it has. pick() is the one place where a kernel is chosen: selection,
// layers and emulation ask it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/enum_set.h"
#include "base/platform.h"
#include "layouts/layout.h"

namespace moe::kernels {

// What activations are inside the kernel: int8 with a scale per row, int8 with a scale per 32 columns, int16 with a
// scale per up to 128 columns, floats.
enum class ActFormat : std::uint8_t { tok8, blk8, blk16, bf16, f16, f32 };

// What weights and activations ask of a kernel. What is left at its default asks nothing.
struct KernelNeeds {
  LayoutKind layout = LayoutKind::none;
  EnumSet<ActFormat> acts = EnumSet<ActFormat>::all();
  bool zeros = false;
  Groups w13_groups = {}, w2_groups = {};  // as packed
  std::int64_t longest_sum = 0;            // columns that share a scale
};
// What packed weights ask.
inline KernelNeeds needs_of(const Layout& l) {
  return {.layout = l.kind,
          .zeros = l.w13.has_zeros,
          .w13_groups = l.w13.groups,
          .w2_groups = l.w2.groups,
          .longest_sum = std::max(l.w13.group(), l.w2.group())};
}

// The columns of kernels/kernel_rows.inc, which says what they mean.
enum class Zeros : std::uint8_t { sym, zp };
enum class Bits : std::uint8_t { exact, own };
enum class Rounding : std::uint8_t { stepwise, once };
enum class Middle : std::uint8_t { input, f32 };

struct KernelId {
  std::string_view name;
  LayoutKind layout;
  ActFormat act;
  Isa isa;
  std::int64_t group_multiple;
  Zeros zeros;
  int tile_rows;
  Bits bits;
  Rounding rounding;
  Middle middle;

  // Columns that one int32 sum may cover: int8 times int8 (|w| <= 128, |q| <= 127); others hold any K.
  constexpr std::int64_t longest_sum() const {
    return layout == LayoutKind::p16_w8 && act == ActFormat::tok8 ? INT32_MAX / (128 * 127) : INT64_MAX;
  }
  constexpr bool takes_zeros() const { return zeros == Zeros::zp; }
  constexpr bool takes(Groups g) const { return !g.is_even() || g.as_written() % group_multiple == 0; }
  constexpr bool takes_groups(const KernelNeeds& n) const { return takes(n.w13_groups) && takes(n.w2_groups); }
  constexpr bool fits(const KernelNeeds& n) const {
    return layout == n.layout && n.acts.has(act) && (takes_zeros() || !n.zeros) && takes_groups(n) &&
           n.longest_sum <= longest_sum();
  }
};

inline constexpr std::array kKernelIds = {
#define MOE_KERNEL(arch_, name_, layout_, act_, isa_, group_, zeros_, tile_, bits_, rounding_, middle_) \
  KernelId{#name_, LayoutKind::layout_, ActFormat::act_,     Isa::isa_,      group_, Zeros::zeros_,     \
           tile_,  Bits::bits_,         Rounding::rounding_, Middle::middle_},
#include "kernels/kernel_rows.inc"
};

// The first kernel from kKernelIds[first] on that fits and that `runs`, which is asked with its number.
template <class Runs>
std::optional<std::size_t> pick(const KernelNeeds& needs, const Runs& runs, std::size_t first = 0) {
  for (std::size_t i = first; i < kKernelIds.size(); ++i)
    if (kKernelIds[i].fits(needs) && runs(i)) return i;
  return std::nullopt;
}
// On whatever machine.
inline std::optional<std::size_t> pick(const KernelNeeds& needs) {
  return pick(needs, [](std::size_t) { return true; });
}

constexpr bool has_kernels(LayoutKind layout) {
  for (const KernelId& k : kKernelIds)
    if (k.layout == layout) return true;
  return false;
}

constexpr std::optional<std::size_t> kernel_index(std::string_view name) {
  for (std::size_t i = 0; i < kKernelIds.size(); ++i)
    if (kKernelIds[i].name == name) return i;
  return std::nullopt;
}

// What a kernel's file makes space for.
consteval int tile_rows(std::string_view name) { return kKernelIds[*kernel_index(name)].tile_rows; }

}  // namespace moe::kernels
