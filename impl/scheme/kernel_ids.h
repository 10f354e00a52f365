// The names of all CPU kernels, in priority order, known on every host: selection explains kernels of
// machines that this build cannot run. kernels/registry.cpp binds functions to the rows it has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/platform.h"
#include "scheme/layout.h"

namespace moe {

// What activations are inside the kernel: int8 with a scale per row, int8 with a scale per 32 columns, int16 with a
// scale per up to 128 columns, floats.
enum class ActFormat : std::uint8_t { tok8, blk8, blk16, bf16, f16, f32 };

struct KernelId {
  std::string_view name;  // <family>_<act>_<layout>_<isa>[_zp]
  LayoutKind layout;
  ActFormat act;
  Isa isa;
  std::int64_t group_multiple = 1;  // weight groups are whole rows or multiples of this

  // Columns that one int32 sum may cover: int8 times int8 (|w| <= 128, |q| <= 127); others have room for any K.
  constexpr std::int64_t longest_sum() const {
    return layout == LayoutKind::p16_w8 && act == ActFormat::tok8 ? INT32_MAX / (128 * 127) : INT64_MAX;
  }
  // Whether the weights may have zero points.
  constexpr bool takes_zeros() const {
    return layout == LayoutKind::p16_w4 || (layout == LayoutKind::p16_w8 && act != ActFormat::tok8);
  }
  constexpr bool takes_group(std::int64_t group) const { return group == -1 || group % group_multiple == 0; }
  constexpr bool takes(const Layout& l) const {
    return (takes_zeros() || !l.w13.has_zeros) && (l.w13.group == l.w13.k || takes_group(l.w13.group)) &&
           (l.w2.group == l.w2.k || takes_group(l.w2.group));
  }
};

// clang-format off
inline constexpr std::array kKernelIds = {
    KernelId{"w4a8_tok8_p16_amxint8",    LayoutKind::p16_int4, ActFormat::tok8, Isa::amxint8, 64},
    KernelId{"w4a8_tok8_p16_avx512vnni", LayoutKind::p16_int4, ActFormat::tok8, Isa::avx512vnni},
    KernelId{"w4a8_tok8_p16_avxvnni",    LayoutKind::p16_int4, ActFormat::tok8, Isa::avxvnni},
    KernelId{"w4a8_tok8_p16_avx2",       LayoutKind::p16_int4, ActFormat::tok8, Isa::avx2},
    KernelId{"w4a8_tok8_p16_scalar",     LayoutKind::p16_int4, ActFormat::tok8, Isa::scalar},
    KernelId{"w4a8_tok8_kai_i8mm",       LayoutKind::kai,      ActFormat::tok8, Isa::i8mm},
    KernelId{"w4a8_tok8_kai_dotprod",    LayoutKind::kai,      ActFormat::tok8, Isa::dotprod},
    KernelId{"w4a8_tok8_kai_scalar",     LayoutKind::kai,      ActFormat::tok8, Isa::scalar},
    KernelId{"w4a8_blk8_p16_avx512vnni", LayoutKind::p16_int4, ActFormat::blk8, Isa::avx512vnni},
    KernelId{"w4a8_blk8_p16_avxvnni",    LayoutKind::p16_int4, ActFormat::blk8, Isa::avxvnni},
    KernelId{"w4a8_blk8_p16_avx2",       LayoutKind::p16_int4, ActFormat::blk8, Isa::avx2},
    KernelId{"w4a8_blk8_p16_scalar",     LayoutKind::p16_int4, ActFormat::blk8, Isa::scalar},
    KernelId{"w4a8_blk8_p16_avx512vnni_zp", LayoutKind::p16_w4, ActFormat::blk8, Isa::avx512vnni},
    KernelId{"w4a8_blk8_p16_avxvnni_zp", LayoutKind::p16_w4,   ActFormat::blk8, Isa::avxvnni},
    KernelId{"w4a8_blk8_p16_avx2_zp",    LayoutKind::p16_w4,   ActFormat::blk8, Isa::avx2},
    KernelId{"w4a8_blk8_p16_scalar_zp",  LayoutKind::p16_w4,   ActFormat::blk8, Isa::scalar},
    KernelId{"w8a8_tok8_p16_amxint8",    LayoutKind::p16_w8,   ActFormat::tok8, Isa::amxint8, 64},
    KernelId{"w8a8_tok8_p16_avx512vnni", LayoutKind::p16_w8,   ActFormat::tok8, Isa::avx512vnni},
    KernelId{"w8a8_tok8_p16_avxvnni",    LayoutKind::p16_w8,   ActFormat::tok8, Isa::avxvnni},
    KernelId{"w8a8_tok8_p16_avx2",       LayoutKind::p16_w8,   ActFormat::tok8, Isa::avx2},
    KernelId{"w8a8_tok8_p16_scalar",     LayoutKind::p16_w8,   ActFormat::tok8, Isa::scalar},
    KernelId{"w8a8_blk8_p16_avx512vnni", LayoutKind::p16_w8,   ActFormat::blk8, Isa::avx512vnni},
    KernelId{"w8a8_blk8_p16_avxvnni",    LayoutKind::p16_w8,   ActFormat::blk8, Isa::avxvnni},
    KernelId{"w8a8_blk8_p16_avx2",       LayoutKind::p16_w8,   ActFormat::blk8, Isa::avx2},
    KernelId{"w8a8_blk8_p16_scalar",     LayoutKind::p16_w8,   ActFormat::blk8, Isa::scalar},
    KernelId{"w4a16_blk16_p16_amxint8",  LayoutKind::p16_w4,   ActFormat::blk16, Isa::amxint8, 64},
    KernelId{"w4a16_blk16_p16_avx512vnni",LayoutKind::p16_w4,  ActFormat::blk16, Isa::avx512vnni},
    KernelId{"w4a16_blk16_p16_avxvnni",  LayoutKind::p16_w4,   ActFormat::blk16, Isa::avxvnni},
    KernelId{"w4a16_blk16_p16_avx2",     LayoutKind::p16_w4,   ActFormat::blk16, Isa::avx2},
    KernelId{"w4a16_blk16_p16_scalar",   LayoutKind::p16_w4,   ActFormat::blk16, Isa::scalar},
    KernelId{"w8a16_blk16_p16_amxint8",  LayoutKind::p16_w8,   ActFormat::blk16, Isa::amxint8, 64},
    KernelId{"w8a16_blk16_p16_avx512vnni",LayoutKind::p16_w8,  ActFormat::blk16, Isa::avx512vnni},
    KernelId{"w8a16_blk16_p16_avxvnni",  LayoutKind::p16_w8,   ActFormat::blk16, Isa::avxvnni},
    KernelId{"w8a16_blk16_p16_avx2",     LayoutKind::p16_w8,   ActFormat::blk16, Isa::avx2},
    KernelId{"w8a16_blk16_p16_scalar",   LayoutKind::p16_w8,   ActFormat::blk16, Isa::scalar},
    KernelId{"w4a16_f32_p16_avx512vnni", LayoutKind::p16_w4,   ActFormat::f32,  Isa::avx512vnni},
    KernelId{"w4a16_f32_p16_avx2",       LayoutKind::p16_w4,   ActFormat::f32,  Isa::avx2},
    KernelId{"w4a16_f32_p16_scalar",     LayoutKind::p16_w4,   ActFormat::f32,  Isa::scalar},
    KernelId{"w8a16_f32_p16_avx512vnni", LayoutKind::p16_w8,   ActFormat::f32,  Isa::avx512vnni},
    KernelId{"w8a16_f32_p16_avx2",       LayoutKind::p16_w8,   ActFormat::f32,  Isa::avx2},
    KernelId{"w8a16_f32_p16_scalar",     LayoutKind::p16_w8,   ActFormat::f32,  Isa::scalar},
    KernelId{"bf16_bf16_p16_amxbf16",    LayoutKind::p16_bf16, ActFormat::bf16, Isa::amxbf16},
    KernelId{"bf16_bf16_p16_avx512bf16", LayoutKind::p16_bf16, ActFormat::bf16, Isa::avx512bf16},
    KernelId{"bf16_f32_p16_avx512vnni",  LayoutKind::p16_bf16, ActFormat::f32,  Isa::avx512vnni},
    KernelId{"bf16_f32_p16_avx2",        LayoutKind::p16_bf16, ActFormat::f32,  Isa::avx2},
    KernelId{"bf16_f32_p16_scalar",      LayoutKind::p16_bf16, ActFormat::f32,  Isa::scalar},
    KernelId{"f16_f32_p16_avx512vnni",   LayoutKind::p16_f16,  ActFormat::f32,  Isa::avx512vnni},
    KernelId{"f16_f32_p16_avx2",         LayoutKind::p16_f16,  ActFormat::f32,  Isa::avx2},
    KernelId{"f16_f32_p16_scalar",       LayoutKind::p16_f16,  ActFormat::f32,  Isa::scalar},
    KernelId{"f32_f32_p16_avx512vnni",   LayoutKind::p16_f32,  ActFormat::f32,  Isa::avx512vnni},
    KernelId{"f32_f32_p16_avx2",         LayoutKind::p16_f32,  ActFormat::f32,  Isa::avx2},
    KernelId{"f32_f32_p16_scalar",       LayoutKind::p16_f32,  ActFormat::f32,  Isa::scalar},
};
// clang-format on

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

}  // namespace moe
