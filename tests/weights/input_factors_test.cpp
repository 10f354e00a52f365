// Factors of inputs (pre_quant_scale): one for all experts of a layer, or refused; the rank's part; no other layout has
// a place for them. What a layer computes with them: qwen3-mo-v4int4awq in hf_checkpoints_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "weights/weight_fixture.h"

namespace moe::test::input_factors_test {
namespace {

using ::testing::HasSubstr;
using weights::WeightSet;

constexpr std::int64_t kHidden = 64, kWidth = 32, kExperts = 2;

std::shared_ptr<const Config> config(const std::string& more = "") {
  auto c = parse_config(R"({"name":"experts","num_experts":2,"top_k":1,"hidden_dim":64,"intermediate_size":32,)"
                        R"("hf_quantization_config":{"quant_method":"modelopt","quant_algo":"W8A8_SQ_PER_CHANNEL"})" +
                        more + "}");
  EXPECT_TRUE(c) << c.error().message;
  return std::make_shared<const Config>(*std::move(c));
}

std::vector<float> factors(std::int64_t count, float first = 1.0f) {
  std::vector<float> p(static_cast<std::size_t>(count));
  for (std::size_t k = 0; k < p.size(); ++k) p[k] = first + static_cast<float>(k) / 8;
  return p;
}

// The layer's file; `change` may give a projection other factors, or none.
struct File {
  TempDir dir;
  SafetensorsWriter writer;

  template <class Change>
  explicit File(const Change& change) {
    for (std::int64_t e = 0; e < kExperts; ++e)
      for (const std::string projection : {"gate_proj", "up_proj", "down_proj"}) {
        const bool down = projection == "down_proj";
        const std::int64_t n = down ? kHidden : kWidth, k = down ? kWidth : kHidden;
        const std::string prefix = "experts." + std::to_string(e) + "." + projection + ".";
        const std::vector<std::int8_t> codes(static_cast<std::size_t>(n * k), 1);
        const std::vector<float> scales(static_cast<std::size_t>(n), 0.5f);
        std::vector<float> p = factors(k);
        change(e, projection, p);
        writer.add(prefix + "weight", "I8", {n, k}, codes.data(), codes.size());
        writer.add(prefix + "weight_scale", "F32", {n}, scales.data(), scales.size() * 4);
        if (!p.empty())
          writer.add(prefix + "pre_quant_scale", "F32", {static_cast<std::int64_t>(p.size())}, p.data(), p.size() * 4);
      }
    dir.write("model.safetensors", writer.bytes());
  }
};

TEST(InputFactors, AreThoseOfAllExperts) {
  const File file([](std::int64_t, const std::string&, std::vector<float>&) {});
  WeightSet set(config());
  ASSERT_TRUE(set.load_safetensors(file.dir.path().c_str(), nullptr));
  const auto p = set.input_factors();
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ((*p)[0], factors(kHidden));
  EXPECT_EQ((*p)[1], factors(kWidth));
}

TEST(InputFactors, ARankHasItsPartOfTheMiddle) {
  const File file([](std::int64_t, const std::string&, std::vector<float>&) {});
  WeightSet set(config(R"(,"parallel":{"tp_size":2,"tp_rank":1})"));
  ASSERT_TRUE(set.load_safetensors(file.dir.path().c_str(), nullptr));
  const auto p = set.input_factors();
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ((*p)[0], factors(kHidden));
  EXPECT_EQ((*p)[1], factors(kWidth / 2, 1.0f + kWidth / 16.0f));
}

TEST(InputFactors, FilesWithoutThemHaveNone) {
  const File file([](std::int64_t, const std::string&, std::vector<float>& p) { p.clear(); });
  WeightSet set(config());
  ASSERT_TRUE(set.load_safetensors(file.dir.path().c_str(), nullptr));
  const auto p = set.input_factors();
  ASSERT_TRUE(p);
  EXPECT_TRUE((*p)[0].empty() && (*p)[1].empty());
}

TEST(InputFactors, OfOneExpertOnlyAreMissing) {
  const File file([](std::int64_t e, const std::string& projection, std::vector<float>& p) {
    if (e == 1 && projection == "up_proj") p.clear();
  });
  WeightSet set(config());
  ASSERT_TRUE(set.load_safetensors(file.dir.path().c_str(), nullptr));
  const auto p = set.input_factors();
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().code, Code::missing_weight);
  EXPECT_THAT(p.error().message, HasSubstr("pre_quant_scale: 3 of 4 projections"));
}

TEST(InputFactors, OtherNumbersOrNoneAreRefused) {
  struct Row {
    float value;
    Code code;
    const char* words;
  };
  for (const Row& row : {Row{3.0f, Code::unsupported, "has other numbers than experts.0."},
                         Row{std::numeric_limits<float>::quiet_NaN(), Code::invalid_argument, "[63]: NaN is not"},
                         Row{INFINITY, Code::invalid_argument, "[63]: Inf is not"}}) {
    const File file([&](std::int64_t e, const std::string& projection, std::vector<float>& p) {
      if (e == 1 && projection == "up_proj") p[63] = row.value;
    });
    WeightSet set(config());
    const Check loaded = set.load_safetensors(file.dir.path().c_str(), nullptr);
    ASSERT_FALSE(loaded) << row.words;
    EXPECT_EQ(loaded.error().code, row.code) << loaded.error().message;
    EXPECT_THAT(loaded.error().message, HasSubstr(row.words));
    const auto p = set.input_factors();
    ASSERT_TRUE(p);
    EXPECT_TRUE((*p)[0].empty());  // nothing of the file stays
  }
}

// Setting again replaces, of weights and of factors; old factors are never those of a new weight.
TEST(InputFactors, SecondFile) {
  const File first([](std::int64_t, const std::string&, std::vector<float>&) {});
  const File other([](std::int64_t, const std::string&, std::vector<float>& p) { p = factors(std::ssize(p), 2.0f); });
  const File none([](std::int64_t, const std::string&, std::vector<float>& p) { p.clear(); });
  WeightSet set(config());
  ASSERT_TRUE(set.load_safetensors(first.dir.path().c_str(), nullptr));
  ASSERT_TRUE(set.load_safetensors(other.dir.path().c_str(), nullptr));
  auto p = set.input_factors();
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ((*p)[0], factors(kHidden, 2.0f));
  ASSERT_TRUE(set.load_safetensors(none.dir.path().c_str(), nullptr));
  p = set.input_factors();
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().code, Code::missing_weight);
  EXPECT_THAT(p.error().message, HasSubstr("experts.0.gate_proj.pre_quant_scale: came before the weight"));
  ASSERT_TRUE(set.load_safetensors(first.dir.path().c_str(), nullptr));
  p = set.input_factors();
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ((*p)[1], factors(kWidth));
}

TEST(InputFactors, ShapesAreChecked) {
  const File file([&](std::int64_t e, const std::string& projection, std::vector<float>& p) {
    if (e == 1 && projection == "gate_proj") p.pop_back();
  });
  WeightSet set(config());
  const Check loaded = set.load_safetensors(file.dir.path().c_str(), nullptr);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::shape);
}

}  // namespace
}  // namespace moe::test::input_factors_test
