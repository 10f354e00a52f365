// Names of operand types and the table of OCP-MX schemes. See ocp_mx.h.
#include "vllm/ocp_mx.h"

#include <array>

#include "base/index.h"
#include "base/text.h"

namespace moe::vllm {
namespace {

constexpr std::array<std::string_view, 17> kNames = {
    "",      "fp32",       "fp16",       "bf16",  "int8", "fp8_e4m3fn", "fp8_e4m3fnuz", "int4",  "nvfp4",
    "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8", "fp8",  "mxfp8_e4m3", "mxfp8_e5m2",   "mxint8"};

struct Pair {
  QuantType weight, activation;
  std::string_view scheme;
};

// clang-format off
constexpr std::array kSchemes = {
    Pair{QuantType::mxfp4,      QuantType::none,       "w_mxfp4"},
    Pair{QuantType::mxfp4,      QuantType::mxfp4,      "w_mxfp4_a_mxfp4"},
    Pair{QuantType::mxfp4,      QuantType::mxfp6_e3m2, "w_mxfp4_a_mxfp6_e3m2"},
    Pair{QuantType::mxfp4,      QuantType::mxfp6_e2m3, "w_mxfp4_a_mxfp6_e2m3"},
    Pair{QuantType::mxfp4,      QuantType::fp8,        "w_mxfp4_a_fp8"},
    Pair{QuantType::mxfp6_e3m2, QuantType::none,       "w_mxfp6_e3m2"},
    Pair{QuantType::mxfp6_e3m2, QuantType::mxfp6_e3m2, "w_mxfp6_e3m2_a_mxfp6_e3m2"},
    Pair{QuantType::mxfp6_e3m2, QuantType::fp8,        "w_mxfp6_e3m2_a_fp8"},
    Pair{QuantType::mxfp6_e2m3, QuantType::none,       "w_mxfp6_e2m3"},
    Pair{QuantType::mxfp6_e2m3, QuantType::mxfp6_e2m3, "w_mxfp6_e2m3_a_mxfp6_e2m3"},
    Pair{QuantType::mxfp6_e2m3, QuantType::fp8,        "w_mxfp6_e2m3_a_fp8"},
};
// clang-format on

constexpr bool is_machine_type(QuantType t) { return t != QuantType::none && !is_format_tag(t); }

}  // namespace

std::string_view quant_type_name(QuantType t) { return at(kNames, t); }

std::optional<QuantType> quant_type_from_name(std::string_view name) {
  for (std::size_t i = 1; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<QuantType>(i);
  return std::nullopt;
}

std::string quant_type_names() {
  std::string s;
  for (std::size_t i = 1; i < kNames.size(); ++i) s += cat(i == 1 ? "" : ", ", kNames[i]);
  return s;
}

OcpMxScheme ocp_mx_scheme(QuantType activation, QuantType weight) {
  if (is_machine_type(activation) || is_machine_type(weight)) return {};
  if (!is_ocp_mx(activation) && !is_ocp_mx(weight)) return {};
  for (const Pair& p : kSchemes)
    if (p.weight == weight && p.activation == activation) return {p.scheme, false};
  return {"", true};
}

}  // namespace moe::vllm
