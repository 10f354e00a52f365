// The list of all CPU kernels, known on every host: selection explains kernels of machines that this build cannot run.
// kernels/registry.cpp binds functions to the rows it has. pick() is the one place where a kernel is chosen: selection,
// layers and emulation ask it.
//
// No function pointer is here, on purpose: the oracle must answer for an Arm host on x86-64 and the
// other way round, so identities are data on every machine and functions only where they compile.
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
// scale per up to 128 columns, 4-bit floats with a scale per group of the weights, 8-bit floats, floats.
// tok8 is what W4A8 and W8A8 checkpoints ask for. blk8 and blk16 are ours: blk16 keeps almost all
// of a bf16 value and still runs on the units for int8 products, which is why weight-only int4,
// int8, MXFP4 and NVFP4 take it by default (numerics.md 2.2). e2m1 and e4m3 are what files of float weights ask for
// (compute a4, a8 and mxfp8). f16 has no row in kernel_rows.inc: fp16 input goes in as blk16 or widened to f32.
enum class ActFormat : std::uint8_t { tok8, blk8, blk16, e2m1, e4m3, bf16, f16, f32 };

// What weights and activations ask of a kernel. What is left at its default asks nothing.
// A KernelNeeds is made from a config before anything is packed (oracle) or from packed weights
// (bind). Both must lead to the same row, or a selection could promise a kernel that the layer then
// lacks.
struct KernelNeeds {
  LayoutKind layout = LayoutKind::none;
  EnumSet<ActFormat> acts = EnumSet<ActFormat>::all();
  bool zeros = false;
  // The groups after p16_layout() has filled them up: a checkpoint's group of 40 columns arrives as
  // 64.
  Groups w13_groups = {}, w2_groups = {};  // as packed
  // It bounds int32 sums, see KernelId::longest_sum. 0 asks nothing.
  std::int64_t longest_sum = 0;  // columns that share a scale
};
// What packed weights ask.
// `acts` stays open: packed bytes do not tell what activations will come, the config does.
inline KernelNeeds needs_of(const Layout& l) {
  return {.layout = l.kind,
          .zeros = l.w13.has_zeros,
          .w13_groups = l.w13.groups,
          .w2_groups = l.w2.groups,
          .longest_sum = std::max(l.w13.group(), l.w2.group())};
}

// The columns of kernels/kernel_rows.inc, which says what they mean.
// Enums instead of bools: eleven arguments of MOE_KERNEL in a row would read as `1, 0, 1`.
enum class Zeros : std::uint8_t { sym, zp };
enum class Bits : std::uint8_t { exact, own };
enum class Rounding : std::uint8_t { stepwise, once };
enum class Middle : std::uint8_t { input, f32 };

struct KernelId {
  std::string_view name;
  LayoutKind layout;
  ActFormat act;
  Isa isa;
  // Even groups must be multiples of it, because the kernel makes one sum per step of so many
  // columns and one sum can have one scale only. Whole rows fit every step.
  std::int64_t group_multiple;
  Zeros zeros;
  int tile_rows;
  Bits bits;
  Rounding rounding;
  Middle middle;

  // Columns that one int32 sum may cover: int8 times int8 (|w| <= 128, |q| <= 127); others hold any K.
  // The bound concerns the sum of value * code at its end. In between, unsigned codes (value + 128)
  // may pass 2^31; int32 then wraps, and the correction that the sum began with brings it back,
  // since all additions are modulo 2^32 and none saturates. The others end earlier or are smaller:
  // a sum over blocks has at most 128 columns, and W4A8 adds at most 255 * 8 per column, below 2^31
  // up to 2^20 columns, which is the config's limit for H and I.
  constexpr std::int64_t longest_sum() const {
    return layout == LayoutKind::p16_w8 && act == ActFormat::tok8 ? INT32_MAX / (128 * 127) : INT64_MAX;
  }
  // A row with zp also takes weights without zero points: their code of value 0 is a constant then.
  constexpr bool takes_zeros() const { return zeros == Zeros::zp; }
  // as_written() is a size only if groups are even. Groups of p16 are even or whole: filled() cuts
  // uneven ones into even steps (layouts/p16/p16_layout.h).
  constexpr bool takes(Groups g) const { return !g.is_even() || g.as_written() % group_multiple == 0; }
  constexpr bool takes_groups(const KernelNeeds& n) const { return takes(n.w13_groups) && takes(n.w2_groups); }
  constexpr bool fits(const KernelNeeds& n) const {
    return layout == n.layout && n.acts.has(act) && (takes_zeros() || !n.zeros) && takes_groups(n) &&
           n.longest_sum <= longest_sum();
  }
};

// The order of the list is the order of preference. Its numbers are not stored anywhere (packed
// files keep layouts, not kernels), so rows may move.
inline constexpr std::array kKernelIds = {
#define MOE_KERNEL(arch_, name_, layout_, act_, isa_, group_, zeros_, tile_, bits_, rounding_, middle_) \
  KernelId{#name_, LayoutKind::layout_, ActFormat::act_,     Isa::isa_,      group_, Zeros::zeros_,     \
           tile_,  Bits::bits_,         Rounding::rounding_, Middle::middle_},
#include "kernels/kernel_rows.inc"
};

// The first kernel from kKernelIds[first] on that fits and that `runs`, which is asked with its number.
// `runs` answers with the row's number and not with the row, so that it may look at functions, at
// the features of another machine or at nothing. `first` lets a caller go on behind a row that
// turned out not to be ready, or list every alternative.
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

// A layout may be known without any kernel: those of other engines are only written for their
// hosts.
constexpr bool has_kernels(LayoutKind layout) {
  for (const KernelId& k : kKernelIds)
    if (k.layout == layout) return true;
  return false;
}

// Linear, but used in constants and by few look-ups by name: the list has fewer than 100 rows.
constexpr std::optional<std::size_t> kernel_index(std::string_view name) {
  for (std::size_t i = 0; i < kKernelIds.size(); ++i)
    if (kKernelIds[i].name == name) return i;
  return std::nullopt;
}

// What a kernel's file makes space for.
// consteval, so that arrays and tables of code have this size, and a wrong name fails to compile
// instead of reading an empty optional.
consteval int tile_rows(std::string_view name) { return kKernelIds[*kernel_index(name)].tile_rows; }

}  // namespace moe::kernels
