// The table of element types: number, bits, names. See dtype.h.
#include "base/dtype.h"

#include <array>

namespace moe {
namespace {

struct Row {
  DType type;
  int bits;
  const char* name;
  std::string_view torch;        // without the prefix "torch."
  std::string_view safetensors;  // "" where the format has none
};

// clang-format off
constexpr std::array kTypes = {
    Row{DType::f32, 32, "f32", "float32", "F32"},
    Row{DType::f16, 16, "f16", "float16", "F16"},
    Row{DType::bf16, 16, "bf16", "bfloat16", "BF16"},
    Row{DType::f64, 64, "f64", "float64", "F64"},
    Row{DType::i8, 8, "i8", "int8", "I8"},
    Row{DType::u8, 8, "u8", "uint8", "U8"},
    Row{DType::i16, 16, "i16", "int16", "I16"},
    Row{DType::u16, 16, "u16", "uint16", "U16"},
    Row{DType::i32, 32, "i32", "int32", "I32"},
    Row{DType::u32, 32, "u32", "uint32", "U32"},
    Row{DType::i64, 64, "i64", "int64", "I64"},
    Row{DType::u64, 64, "u64", "uint64", "U64"},
    Row{DType::boolean, 8, "bool", "bool", "BOOL"},
    Row{DType::f8_e4m3fn, 8, "f8_e4m3fn", "float8_e4m3fn", "F8_E4M3"},
    Row{DType::f8_e5m2, 8, "f8_e5m2", "float8_e5m2", "F8_E5M2"},
    Row{DType::f8_e4m3fnuz, 8, "f8_e4m3fnuz", "float8_e4m3fnuz", "F8_E4M3FNUZ"},
    Row{DType::f8_e5m2fnuz, 8, "f8_e5m2fnuz", "float8_e5m2fnuz", "F8_E5M2FNUZ"},
    Row{DType::f8_e8m0fnu, 8, "f8_e8m0fnu", "float8_e8m0fnu", "F8_E8M0"},
    Row{DType::f6_e2m3fn, 6, "f6_e2m3fn", "float6_e2m3fn", "F6_E2M3"},
    Row{DType::f6_e3m2fn, 6, "f6_e3m2fn", "float6_e3m2fn", "F6_E3M2"},
    Row{DType::f4_e2m1fn, 4, "f4_e2m1fn", "float4_e2m1fn", "F4"},
    Row{DType::i4, 4, "i4", "int4", ""},
    Row{DType::u4, 4, "u4", "uint4", ""},
    Row{DType::i2, 2, "i2", "int2", ""},
    Row{DType::u2, 2, "u2", "uint2", ""},
};
// clang-format on

const Row* find(DType t) {
  for (const Row& r : kTypes)
    if (r.type == t) return &r;
  return nullptr;
}

}  // namespace

int dtype_bits(DType t) {
  const Row* r = find(t);
  return r ? r->bits : 0;
}

const char* dtype_name(DType t) {
  const Row* r = find(t);
  return r ? r->name : "invalid";
}

DType dtype_from_safetensors(std::string_view name) {
  for (const Row& r : kTypes)
    if (!r.safetensors.empty() && r.safetensors == name) return r.type;
  return DType::invalid;
}

DType dtype_from_name(std::string_view name) {
  constexpr std::string_view prefix = "torch.";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  for (const Row& r : kTypes)
    if (r.name == name || r.torch == name) return r.type;
  return dtype_from_safetensors(name);
}

}  // namespace moe
