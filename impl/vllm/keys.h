// Quantization keys: what weights or activations are, as an oracle compares them (config.md 9).
//
// key = (dtype, scale, optional second scale, symmetric);  scale = (dtype, static, group shape)
// Keys are equal when all members are; a name is only a spelling.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "vllm/group_shape.h"

namespace moe::vllm {

enum class KeyType : std::uint8_t {
  fp8,
  u8x2_fp4,
  uint4b8,
  uint8b128,
  uint4,
  int4,
  uint8,
  int8,
  fp32,
  fp16,
  bf16,
  float8_e4m3fn,
  float8_e4m3fnuz,
  float8_e5m2,
  float8_e8m0fnu,
  float6_e3m2f,
  float6_e2m3f,
  float4_e2m1f
};

struct ScaleDesc {
  KeyType dtype = KeyType::fp32;
  bool is_static = true;
  GroupShape group;
  friend constexpr bool operator==(const ScaleDesc&, const ScaleDesc&) = default;
};

struct QuantKey {
  KeyType dtype = KeyType::int8;
  ScaleDesc scale;
  std::optional<ScaleDesc> scale2;
  bool symmetric = true;
  friend constexpr bool operator==(const QuantKey&, const QuantKey&) = default;
};

struct NamedKey {
  std::string_view name;
  QuantKey key;
};

namespace key_rows {
constexpr GroupShape groups_of(std::int64_t g) { return {1, g}; }
constexpr QuantKey fixed(KeyType t, KeyType scale, GroupShape group) { return {t, {scale, true, group}, {}, true}; }
constexpr QuantKey dynamic(KeyType t, KeyType scale, GroupShape group) { return {t, {scale, false, group}, {}, true}; }
constexpr QuantKey nvfp4(bool is_static) {
  return {
      KeyType::u8x2_fp4, {KeyType::fp8, is_static, groups_of(16)}, ScaleDesc{KeyType::fp32, true, kPerTensor}, true};
}
constexpr QuantKey asymmetric(QuantKey k) {
  k.symmetric = false;
  return k;
}
}  // namespace key_rows

// clang-format off
inline constexpr std::array kQuantKeys = [] {
  using enum KeyType;
  using key_rows::asymmetric, key_rows::dynamic, key_rows::fixed, key_rows::groups_of, key_rows::nvfp4;
  return std::array{
      NamedKey{"kFp8StaticTensorSym",        fixed(fp8, fp32, kPerTensor)},
      NamedKey{"kFp8DynamicTensorSym",       dynamic(fp8, fp32, kPerTensor)},
      NamedKey{"kFp8StaticTokenSym",         fixed(fp8, fp32, kPerToken)},
      NamedKey{"kFp8DynamicTokenSym",        dynamic(fp8, fp32, kPerToken)},
      NamedKey{"kFp8StaticChannelSym",       fixed(fp8, fp32, kPerChannel)},
      NamedKey{"kFp8Dynamic128Sym",          dynamic(fp8, fp32, groups_of(128))},
      NamedKey{"kFp8Dynamic64Sym",           dynamic(fp8, fp32, groups_of(64))},
      NamedKey{"kFp8Static128BlockSym",      fixed(fp8, fp32, {128, 128})},
      NamedKey{"kNvfp4Static",               nvfp4(true)},
      NamedKey{"kNvfp4Dynamic",              nvfp4(false)},
      NamedKey{"kMxfp8Static",               fixed(fp8, uint8, groups_of(32))},
      NamedKey{"kMxfp8Dynamic",              dynamic(fp8, uint8, groups_of(32))},
      NamedKey{"kMxfp4Static",               fixed(u8x2_fp4, uint8, groups_of(32))},
      NamedKey{"kMxfp4Dynamic",              dynamic(u8x2_fp4, uint8, groups_of(32))},
      NamedKey{"kInt4Static",                fixed(uint4b8, fp16, kPerToken)},
      NamedKey{"kInt8Static",                fixed(uint8b128, fp16, kPerToken)},
      NamedKey{"kInt8StaticChannelSym",      fixed(int8, fp32, kPerChannel)},
      NamedKey{"kInt8DynamicTokenSym",       dynamic(int8, fp32, kPerToken)},
      NamedKey{"kInt4W4A8StaticChannelSym",  fixed(int8, fp32, kPerChannel)},
      NamedKey{"kInt4W4A8StaticGroupSym",    fixed(int8, bf16, kPerToken)},
      NamedKey{"kInt4W4A8StaticGroup32Sym",  fixed(int8, bf16, groups_of(32))},
      NamedKey{"kInt4W4A8StaticGroup64Sym",  fixed(int8, bf16, groups_of(64))},
      NamedKey{"kInt4W4A8StaticGroup128Sym", fixed(int8, bf16, groups_of(128))},
      NamedKey{"kInt4Static32",              fixed(uint4b8, fp16, groups_of(32))},
      NamedKey{"kInt4StaticAsym",            asymmetric(fixed(uint4, fp16, kPerToken))},
      NamedKey{"kInt4Static32Asym",          asymmetric(fixed(uint4, fp16, groups_of(32)))},
  };
}();
// clang-format on

constexpr const QuantKey* find_key(std::string_view name) {
  for (const NamedKey& row : kQuantKeys)
    if (row.name == name) return &row.key;
  return nullptr;
}
// For tables: a name that is not in the catalogue does not compile.
// constexpr, not consteval: Clang 14 loses the value of a consteval call that returns an aggregate.
constexpr QuantKey key_named(std::string_view name) { return *find_key(name); }

std::optional<KeyType> key_type_from_name(std::string_view name);
// Catalogue name (the first that is equal by value), else the members in words.
std::string key_text(const std::optional<QuantKey>& key);
// Name where one exists, else {"dtype", "scale": {..}, "scale2", "symmetric"}; null for none.
json::Value key_to_json(const std::optional<QuantKey>& key);
// A name, an object in one of the two forms, or null. `at`: pointer of the value.
Result<std::optional<QuantKey>> parse_key(const json::Value& value, const std::string& at);
// moe_describe("quant_key", query), describe.md 4: the members of a name, or all names, as JSON text.
Result<std::string> describe_quant_key(const json::Value& query);

}  // namespace moe::vllm
