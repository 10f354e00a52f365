// Element types. The numbers are those of moe_dtype in moe.h and never change.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/float_rules.h"

namespace moe {

enum class DType : std::int32_t {
  invalid = 0,
  f32 = 1,
  f16 = 2,
  bf16 = 3,
  f64 = 4,
  i8 = 8,
  u8 = 9,
  i16 = 10,
  u16 = 11,
  i32 = 12,
  u32 = 13,
  i64 = 14,
  u64 = 15,
  boolean = 16,
  f8_e4m3fn = 20,
  f8_e5m2 = 21,
  f8_e4m3fnuz = 22,
  f8_e5m2fnuz = 23,
  f8_e8m0fnu = 24,
  f6_e2m3fn = 28,
  f6_e3m2fn = 29,
  f4_e2m1fn = 32,
  i4 = 36,
  u4 = 37,
  i2 = 38,
  u2 = 39
};

// Bits of one element, 0 for numbers that are no type.
int dtype_bits(DType t);
// "bf16", "f8_e4m3fn", ...; "invalid" for numbers that are no type. NUL-terminated.
const char* dtype_name(DType t);
// Inverse of dtype_name; also takes torch ("torch.bfloat16", "bfloat16") and safetensors ("BF16") spellings.
DType dtype_from_name(std::string_view name);
// safetensors spelling -> type ("F8_E4M3" -> f8_e4m3fn); invalid when unknown.
DType dtype_from_safetensors(std::string_view name);

constexpr bool is_known(DType t, int bits) { return t != DType::invalid && bits != 0; }
// The three types of activations, scales and biases.
constexpr bool is_float16_or_32(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

}  // namespace moe
