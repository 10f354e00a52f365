// What weights and their scales are made of: a row for each number format (float_formats.md 1). It
// is the one place that says how many bits an element has, how p16 keeps it and what its codes are
// worth.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/float_formats.h"
#include "base/index.h"
#include "base/load.h"
#include "scheme/scheme.h"

namespace moe {

// Numbers are stored; never renumber.
// int4 and int8 are signed values; how their codes are stored is code_bias's matter.
enum class Element : std::uint8_t {
  int4 = 0,
  int8 = 1,
  bf16 = 2,
  f16 = 3,
  f32 = 4,
  e2m1 = 5,
  e2m3 = 6,
  e3m2 = 7,
  e4m3 = 8,
  e5m2 = 9
};

// integers: codes that lie around a code of value 0; floats: codes of a small float. Both have scales. values: floats
// that need none.
// The three kinds need different code everywhere: integers meet zero points and integer sums,
// floats are looked up or have their bits moved, values are multiplied as they are.
enum class Numbers : std::uint8_t { integers, floats, values };

struct ElementRow {
  // Two names, since answers to hosts use the words of PyTorch's types and layout ids shorter ones.
  std::string_view name;  // in texts for developers and in layouts
  std::string_view word;  // in answers
  // 6-bit floats show why there are two numbers: four of them are three bytes in a checkpoint, but
  // each has a byte in p16, so that kernels find codes at whole bytes or nibbles.
  int bits;         // in checkpoints
  int packed_bits;  // in p16
  Numbers numbers;
  // Codes are unsigned in p16, because the products of bytes on x86 take one unsigned operand.
  std::int32_t code_bias = 0;  // of packed integers: value + this is the code
  SmallFloat format = {};      // of floats
};

// By Element.
// e2m3, e3m2 and e5m2 have rows although no layout holds them yet: readers know their codes.
inline constexpr std::array kElements = {
    ElementRow{"int4", "int4", 4, 4, Numbers::integers, 8},
    ElementRow{"int8", "int8", 8, 8, Numbers::integers, 128},
    ElementRow{"bf16", "bfloat16", 16, 16, Numbers::values},
    ElementRow{"f16", "float16", 16, 16, Numbers::values},
    ElementRow{"f32", "float32", 32, 32, Numbers::values},
    ElementRow{"e2m1", "float4_e2m1", 4, 4, Numbers::floats, 0, kE2m1},
    ElementRow{"e2m3", "float6_e2m3", 6, 8, Numbers::floats, 0, kE2m3},
    ElementRow{"e3m2", "float6_e3m2", 6, 8, Numbers::floats, 0, kE3m2},
    ElementRow{"e4m3", "float8_e4m3", 8, 8, Numbers::floats, 0, kE4m3},
    ElementRow{"e5m2", "float8_e5m2", 8, 8, Numbers::floats, 0, kE5m2},
};
static_assert(usize(Element::e5m2) + 1 == kElements.size());
constexpr const ElementRow& row_of(Element e) { return kElements[usize(e)]; }
// A width that no reader knows would otherwise be read as another one in silence.
static_assert(std::all_of(kElements.begin(), kElements.end(),
                          [](const ElementRow& e) { return e.numbers != Numbers::integers || is_code_width(e.bits); }),
              "codes of integers have a width that their readers know");

// Places and packing know these widths: place_in_unit (layouts/p16/p16.h), code_in (layouts/p16/p16_numbers.h),
// write_code_panel (layouts/p16/write_p16.cpp).
static_assert(std::all_of(kElements.begin(), kElements.end(),
                          [](const ElementRow& e) {
                            return e.numbers == Numbers::values ? e.packed_bits == 16 || e.packed_bits == 32
                                                                : e.packed_bits == 4 || e.packed_bits == 8;
                          }),
              "p16 has no place for codes of this width");

constexpr bool is_integer(Element e) { return row_of(e).numbers == Numbers::integers; }
constexpr bool is_value(Element e) { return row_of(e).numbers == Numbers::values; }  // else codes with scales
constexpr CodeWidth code_width(Element integer) { return code_width(row_of(integer).bits); }
// The code of value 0, where there are no zero points.
constexpr std::int32_t code_bias(Element e) { return row_of(e).code_bias; }

// What the arguments of a checkpoint mean: of 8-bit floats e4m3, of 6-bit ones e2m3.
// Where two formats have the same bits the first row wins; configs cannot name the other one.
constexpr std::optional<Element> element_of(NumType type, int bits) {
  const Numbers numbers = type == NumType::integer ? Numbers::integers : Numbers::floats;
  for (std::size_t i = 0; i < kElements.size(); ++i)
    if (kElements[i].numbers == numbers && kElements[i].bits == bits) return static_cast<Element>(i);
  return std::nullopt;
}

// How scales are kept in a layout. w4a8: bf16, channel-wise f32 / 16, with row sums (kernels.md 2.1).
// Numbers are stored; never renumber.
// w4a8 is one word for two types because a matrix with one group has the other type, and both
// matrices of a layer must be described by the same Scales.
enum class Scales : std::uint8_t { none = 0, w4a8 = 1, f32 = 2, bf16 = 3, f16 = 4, e4m3 = 5, e8m0 = 6 };

struct ScaleRow {
  // Empty where a kind has one type only: its id needs no word for it.
  std::string_view suffix;  // in ids of layouts that are kept with several of them
  std::size_t bytes;        // of one
};
// By Scales. The two that are no single type have no bytes (P16::scale_type).
inline constexpr std::array kScales = {ScaleRow{"", 0},     ScaleRow{"", 0}, ScaleRow{"-f32", 4}, ScaleRow{"-bf16", 2},
                                       ScaleRow{"-f16", 2}, ScaleRow{"", 1}, ScaleRow{"", 1}};
static_assert(usize(Scales::e8m0) + 1 == kScales.size());
constexpr const ScaleRow& row_of(Scales s) { return kScales[usize(s)]; }

// always_inline, because files of an instruction set call it: an inline function that the compiler
// kept apart might be merged across files, and baseline code would then run an AVX copy
// (kernels/target.h). Every type widens to float32 exactly.
[[gnu::always_inline]] inline float load_scale(Scales type, const std::byte* from) {
  switch (type) {
    case Scales::bf16:
      return bf16_to_f32(load<std::uint16_t>(from));
    case Scales::f16:
      return f16_to_f32(load<std::uint16_t>(from));
    case Scales::e4m3:
      return small_to_f32(kE4m3, load<std::uint8_t>(from));
    case Scales::e8m0:
      return e8m0_to_f32(load<std::uint8_t>(from));
    default:
      return load<float>(from);
  }
}
// Scales were read as numbers of the type: nothing is rounded. e8m0 has no 0, which is a scale of rows that only fill a
// panel up: 1 there, since their codes are 0. (Compared as bits: a host may have 2^-127 count as 0.)
// 2^0 instead of 0 changes no result: the codes of such rows are 0.
[[gnu::always_inline]] inline void store_scale(Scales type, float scale, std::byte* to) {
  const auto put = [&](auto stored) { std::memcpy(to, &stored, sizeof stored); };
  switch (type) {
    case Scales::bf16:
      return put(f32_to_bf16(scale));
    case Scales::f16:
      return put(f32_to_f16(scale));
    case Scales::e4m3:
      return put(static_cast<std::uint8_t>(f32_to_small(kE4m3, scale)));
    case Scales::e8m0:
      return put(static_cast<std::uint8_t>(f32_to_e8m0(std::bit_cast<std::uint32_t>(scale) == 0 ? 1.0f : scale)));
    default:
      return put(scale);
  }
}
// The types that checkpoints of integers have.
// The other types have formats of their own, whose scales are bytes.
constexpr bool is_float_scale(Scales s) { return s == Scales::f32 || s == Scales::bf16 || s == Scales::f16; }

}  // namespace moe
