// Operand types and OCP-MX schemes: every golden pair, and which unknown pairs deserve a warning.
#include "vllm/ocp_mx.h"

#include <gtest/gtest.h>

#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::ocp_mx_test {
namespace {

QuantType type_of(const nlohmann::json& name) {
  if (name.is_null()) return QuantType::none;
  const auto t = quant_type_from_name(name.get<std::string>());
  EXPECT_TRUE(t) << name;
  return t.value_or(QuantType::none);
}

TEST(OcpMx, EveryGoldenPair) {
  const auto cases = load_json("config/ocp_mx_cases.json").at("cases");
  EXPECT_EQ(cases.size(), 80U);
  for (const auto& c : cases) {
    const OcpMxScheme s = ocp_mx_scheme(type_of(c["act"]), type_of(c["weight"]));
    EXPECT_EQ(s.name, c["scheme"].is_null() ? "" : c["scheme"].get<std::string>()) << c.dump();
    EXPECT_FALSE(s.unknown_mx_pair && !s.name.empty()) << c.dump();
  }
}

TEST(OcpMx, UnknownPairsWarnOnlyWhereMxIsInvolved) {
  using enum QuantType;
  EXPECT_TRUE(ocp_mx_scheme(mxfp6_e2m3, mxfp6_e3m2).unknown_mx_pair);
  EXPECT_TRUE(ocp_mx_scheme(mxfp8, mxfp4).unknown_mx_pair);
  EXPECT_TRUE(ocp_mx_scheme(none, mxint8).unknown_mx_pair);
  EXPECT_FALSE(ocp_mx_scheme(mxfp8, mxfp8).unknown_mx_pair);
  EXPECT_FALSE(ocp_mx_scheme(none, none).unknown_mx_pair);
  EXPECT_FALSE(ocp_mx_scheme(int8, mxfp4).unknown_mx_pair);  // a machine type: another scheme altogether
  EXPECT_FALSE(ocp_mx_scheme(fp8_e4m3fn, mxfp4).unknown_mx_pair);
}

TEST(OcpMx, NamesReadBack) {
  for (int i = 1; i <= static_cast<int>(QuantType::mxint8); ++i) {
    const auto t = static_cast<QuantType>(i);
    EXPECT_EQ(quant_type_from_name(quant_type_name(t)), t);
    EXPECT_NE(quant_type_names().find(quant_type_name(t)), std::string::npos);
  }
  EXPECT_EQ(quant_type_name(QuantType::none), "");
  for (const char* name : {"", "none", "float32", "INT8", "fp8_e5m2"}) EXPECT_FALSE(quant_type_from_name(name)) << name;
  EXPECT_TRUE(is_ocp_mx(QuantType::mxint8) && is_ocp_mx(QuantType::mxfp6_e2m3) && is_ocp_mx(QuantType::mxfp8_e5m2));
  EXPECT_FALSE(is_ocp_mx(QuantType::mxfp8) || is_ocp_mx(QuantType::fp8) || is_ocp_mx(QuantType::nvfp4));
  EXPECT_FALSE(is_format_tag(QuantType::fp8_e4m3fnuz));
  EXPECT_TRUE(is_format_tag(QuantType::fp8));
}

}  // namespace
}  // namespace moe::test::ocp_mx_test
