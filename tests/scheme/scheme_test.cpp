// Names of routing methods and what counts as W4A8-int8 (scheme/scheme.h).
#include "scheme/scheme.h"
#include "scheme/elements.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>
#include <string>

namespace moe::test::scheme_test {
namespace {

TEST(Scheme, RoutingMethodNamesThereAndBack) {
  std::set<std::string> names;
  for (const int number : {0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102, 103, 104}) {
    const auto method = static_cast<RoutingMethod>(number);
    const std::string name = routing_method_name(method);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(routing_method_from_name(name), method);
  }
  EXPECT_STREQ(routing_method_name(RoutingMethod::deepseek_v3), "DeepSeekV3");
  EXPECT_STREQ(routing_method_name(RoutingMethod::renormalize_naive), "RenormalizeNaive");
  EXPECT_EQ(routing_method_from_name("renormalize"), std::nullopt);
  EXPECT_EQ(routing_method_from_name(""), std::nullopt);
}

TEST(Scheme, NamesFollowTheirEnums) {
  EXPECT_EQ(kFormatNames[static_cast<std::size_t>(Format::mxfp4_gpt_oss)], "mxfp4-gpt-oss");
  EXPECT_EQ(kFormatNames[static_cast<std::size_t>(Format::int_quantized)], "int-quantized");
  EXPECT_EQ(kStrategyNames[static_cast<std::size_t>(Strategy::tensor_group)], "tensor_group");
  EXPECT_EQ(kActivationNames[static_cast<std::size_t>(Activation::swiglustep)], "swiglustep");
  EXPECT_TRUE(is_gated(Activation::swiglustep));
  EXPECT_FALSE(is_gated(Activation::silu_no_mul));
}

// A width that a checkpoint's format may have is one that readers of codes switch over.
TEST(Scheme, IntegersHaveTheWidthsOfCodes) {
  for (int bits = 1; bits <= 16; ++bits) {
    EXPECT_EQ(is_code_width(bits), bits == 4 || bits == 8) << bits;
    EXPECT_EQ(has_bits(NumType::integer, bits), is_code_width(bits)) << bits;
    const std::optional<Element> element = element_of(NumType::integer, bits);
    ASSERT_EQ(element.has_value(), is_code_width(bits)) << bits;
    if (element) {
      EXPECT_EQ(static_cast<int>(code_width(*element)), bits);
    }
  }
}

TEST(Scheme, W4A8Int8NeedsAllOfItsMembers) {
  Quantization q;
  q.weights.emplace();
  q.weights->num_bits = 4;
  q.weights->strategy = Strategy::channel;
  q.input_activations.emplace();
  q.input_activations->strategy = Strategy::token;
  q.input_activations->dynamic = Dynamic::yes;
  EXPECT_TRUE(q.is_w4a8_int8());
  q.input_activations->symmetric = false;  // ignored
  EXPECT_TRUE(q.is_w4a8_int8());
  const std::function<void(Quantization&)> spoilers[] = {
      [](Quantization& x) { x.weights.reset(); },
      [](Quantization& x) { x.input_activations.reset(); },
      [](Quantization& x) { x.weights->num_bits = 8; },
      [](Quantization& x) { x.weights->strategy = Strategy::tensor; },
      [](Quantization& x) { x.weights->symmetric = false; },
      [](Quantization& x) { x.weights->dynamic = Dynamic::yes; },
      [](Quantization& x) { x.input_activations->num_bits = 4; },
      [](Quantization& x) { x.input_activations->strategy = Strategy::tensor; },
      [](Quantization& x) { x.input_activations->dynamic = Dynamic::no; },
  };
  for (const auto& spoil : spoilers) {
    Quantization changed = q;
    spoil(changed);
    EXPECT_FALSE(changed.is_w4a8_int8());
  }
}

}  // namespace
}  // namespace moe::test::scheme_test
