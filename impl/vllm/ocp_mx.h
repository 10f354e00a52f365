// What an operand of a quantized product is, and the OCP-MX schemes that pairs of them make (config.md 4).
//
// A type is a machine type, which an array can have, or the tag of a format, which says how bytes are read.
// "fp8" the tag and fp8_e4m3fn the machine type are two things: mxfp4 weights take the one, fp8 weights the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/float_rules.h"

namespace moe::vllm {

// none: not quantized, or quantized before the operation.
enum class QuantType : std::uint8_t {
  none,
  fp32,
  fp16,
  bf16,
  int8,
  fp8_e4m3fn,
  fp8_e4m3fnuz,
  // tags
  int4,
  nvfp4,
  mxfp4,
  mxfp6_e3m2,
  mxfp6_e2m3,
  mxfp8,
  fp8,
  mxfp8_e4m3,
  mxfp8_e5m2,
  mxint8
};

constexpr bool is_format_tag(QuantType t) { return t >= QuantType::int4; }
// The tags of OCP-MX; "mxfp8" is none of them.
constexpr bool is_ocp_mx(QuantType t) {
  return (t >= QuantType::mxfp4 && t <= QuantType::mxfp6_e2m3) || t >= QuantType::mxfp8_e4m3;
}

std::string_view quant_type_name(QuantType t);  // "fp8_e4m3fn"; "" for none
std::optional<QuantType> quant_type_from_name(std::string_view name);
std::string quant_type_names();  // "fp32, fp16, ..."

struct OcpMxScheme {
  std::string_view name;         // "w_mxfp4_a_fp8"; "" = none
  bool unknown_mx_pair = false;  // an MX type is involved, but the pair makes no scheme: worth a warning
};
OcpMxScheme ocp_mx_scheme(QuantType activation, QuantType weight);

}  // namespace moe::vllm
