// Names of activations against the golden index, parameters, and the order of rows.
#include "scheme/activation.h"

#include <gtest/gtest.h>

#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::activation_test {
namespace {

TEST(ActivationNames, GoldenIndex) {
  const auto index = load_json("activation/index.json");
  EXPECT_EQ(index.at("cases").size(), 15U);
  for (const auto& c : index["cases"]) {
    const auto a = activation_from_name(c["activation"].get<std::string>());
    ASSERT_TRUE(a) << c.dump();
    EXPECT_EQ(activation_name(*a), c["activation"].get<std::string>());
    EXPECT_EQ(is_gated(*a), c["gated"].get<bool>()) << c.dump();
    EXPECT_EQ(activation_name(without_mul(*a)), c["without_mul"].get<std::string>()) << c.dump();
  }
  EXPECT_EQ(index.at("unknown").size(), 5U);
  for (const auto& u : index["unknown"]) EXPECT_FALSE(activation_from_name(u["activation"].get<std::string>()));
  for (const auto& [alias, name] : index.at("alias").items())
    EXPECT_EQ(activation_name(activation_from_name(alias).value()), name.get<std::string>());
}

TEST(ActivationNames, EveryNameReadsBack) {
  for (const std::string_view name : kActivationNames) {
    const auto a = activation_from_name(name);
    ASSERT_TRUE(a) << name;
    EXPECT_EQ(activation_name(*a), name);
    EXPECT_NE(activation_words().find(name), std::string::npos);
    EXPECT_EQ(usual_w13_layout(*a).has_value(), is_gated(*a)) << name;
    EXPECT_EQ(without_mul(without_mul(*a)), without_mul(*a)) << name;
  }
  EXPECT_NE(activation_words().find("gelu_pytorch_tanh"), std::string::npos);
  EXPECT_EQ(usual_w13_layout(Activation::swigluoai), W13Layout::interleaved);
  EXPECT_EQ(usual_w13_layout(Activation::swigluoai_uninterleave), W13Layout::gate_up);
}

TEST(ActivationNames, Parameters) {
  const ActivationParams oai = activation_params(Activation::swigluoai);
  EXPECT_TRUE(oai.alpha_beta && oai.limit);
  EXPECT_EQ(oai.default_alpha, 1.702);
  EXPECT_EQ(oai.default_beta, 1.0);
  EXPECT_EQ(oai.default_limit, 7.0);
  const ActivationParams silu = activation_params(Activation::silu);
  EXPECT_TRUE(silu.limit && !silu.alpha_beta);
  EXPECT_FALSE(silu.default_limit || silu.default_alpha || silu.default_beta);
  EXPECT_EQ(activation_params(Activation::swiglustep).default_limit, 7.0);
  EXPECT_FALSE(activation_params(Activation::gelu).limit);
}

}  // namespace
}  // namespace moe::test::activation_test
