// The shared steps of every instruction set against the scalar ones, bit by bit; the scalar activations against
// float64 formulas and the golden vectors.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <set>

#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/vectors.h"

namespace moe::test::elementwise_test {
namespace {

// NaNs whose upper half alone would be an infinity, or whose lower half would carry into the sign.
const float kLowNan = std::bit_cast<float>(0x7f800001u), kFullNan = std::bit_cast<float>(0x7fffffffu),
            kFullNegativeNan = std::bit_cast<float>(0xffffffffu);

const float kSpecials[] = {
    0.0f,    -0.0f,    1e-45f, -1e-45f, 1e-38f,   0x1p-126f, 65504.0f, 65519.9f, 65520.0f, 1e5f,     -1e30f,
    3.4e38f, -3.4e38f, 88.7f,  -88.7f,  -87.3f,   -104.0f,   0.5f,     1.5f,     2.5f,     6.1e-5f,  5.9e-8f,
    2.9e-8f, 7.0f,     -7.0f,  1.0f,    INFINITY, -INFINITY, NAN,      -NAN,     kLowNan,  kFullNan, kFullNegativeNan};

// One kernel row per set of steps.
std::vector<const Kernel*> runnable_steps() {
  std::vector<const Kernel*> rows;
  std::set<const Elementwise*> seen;
  for (const ActFormat act : {ActFormat::tok8, ActFormat::f32})
    for (const Kernel* k : runnable_kernels(act))
      if (seen.insert(k->steps).second) rows.push_back(k);
  for (const Kernel* k : runnable_kernels(LayoutKind::kai, ActFormat::tok8))
    if (seen.insert(k->steps).second) rows.push_back(k);
  return rows;
}

class Steps : public testing::TestWithParam<const Kernel*> {
 protected:
  const Elementwise& steps() const { return *GetParam()->steps; }
};

TEST_P(Steps, WidenAndNarrow) {
  std::vector<float> x(std::begin(kSpecials), std::end(kSpecials));
  for (std::uint32_t i = 0; i < 200000; ++i) x.push_back(std::bit_cast<float>(i * 21473u));
  const auto count = static_cast<std::int64_t>(x.size());
  for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<std::byte> want(x.size() * 4, std::byte{0}), got = want;
    ref::narrow(d, x.data(), count, want.data());
    steps().narrow(d, x.data(), count, got.data());
    ASSERT_EQ(want, got) << dtype_name(d);
    std::vector<float> w1(x.size()), w2(x.size());
    ref::widen(d, want.data(), count, w1.data());
    steps().widen(d, want.data(), count, w2.data());
    ASSERT_EQ(0, std::memcmp(w1.data(), w2.data(), w1.size() * 4)) << dtype_name(d);
  }
}

TEST_P(Steps, Activations) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  constexpr int kRows = 3;
  constexpr std::int64_t kBlocks = 9, kLd = kBlocks * 32 + 5, kOutLd = kBlocks * 16 + 7;
  for (int round = 0; round < rounds(40); ++round) {
    std::vector<float> y13(kRows * kLd);
    for (float& v : y13) v = rng() % 8 == 0 ? kSpecials[rng() % std::size(kSpecials)] : normal(rng);
    for (std::size_t f = 0; f < kActivationNames.size(); ++f)
      for (const bool clamp : {false, true})
        for (const Rounding rounding : {Rounding::stepwise, Rounding::once})
          for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
            std::vector<float> want(kRows * kOutLd, -1.0f), got = want;
            const auto activation = static_cast<Activation>(f);
            ActivateArgs a{activation, clamp, 1.702f, 1.0f,    7.0f,        d,     rounding,
                           y13.data(), kLd,   kRows,  kBlocks, want.data(), kOutLd};
            ref::activate(a);
            a.out = got.data();
            steps().activate(a);
            for (auto* v : {&want, &got})  // which NaN an operation makes is the machine's choice; narrow() has one
              for (float& y : *v) y = std::isnan(y) ? NAN : y;
            ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * 4))
                << kActivationNames[f] << clamp << dtype_name(d) << static_cast<int>(rounding);
          }
  }
}

TEST_P(Steps, Combine) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  constexpr int kRows = 5;
  constexpr std::int64_t kCount = 48, kLd = 50;
  const std::int32_t tokens[kRows] = {2, 0, 2, 1, 2};
  std::vector<float> y(kRows * kLd), start(3 * kLd), weights(kRows);
  for (auto* v : {&y, &start, &weights})
    for (float& f : *v) f = normal(rng);
  y[7] = NAN;
  for (const bool rounded : {false, true})
    for (const float* w : {static_cast<const float*>(nullptr), static_cast<const float*>(weights.data())})
      for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
        std::vector<float> want = start, got = start;
        CombineArgs a{want.data(), kLd, tokens, w, y.data(), kLd, kRows, kCount, rounded, d};
        ref::combine(a);
        a.acc = got.data();
        steps().combine(a);
        for (auto* v : {&want, &got})
          for (float& f : *v) f = std::isnan(f) ? NAN : f;
        ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * 4)) << rounded << dtype_name(d);
      }
}

INSTANTIATE_TEST_SUITE_P(All, Steps, testing::ValuesIn(runnable_steps()), [](const auto& param) {
  return std::string(kIsaNames[static_cast<std::size_t>(param.param->id->isa)]);
});

// --- against formulas ---------------------------------------------------------------------------------------

float activated(const ActivateArgs& given, float g, float u) {
  std::vector<float> y13(2 * kPanelRows, 0.0f), out(kPanelRows);
  y13[0] = g;
  y13[kPanelRows] = u;
  ActivateArgs a = given;
  a.y13 = y13.data();
  a.ld = 2 * kPanelRows;
  a.rows = 1;
  a.blocks = 1;
  a.out = out.data();
  a.out_ld = kPanelRows;
  ref::activate(a);
  return out[0];
}

TEST(Activation, GoldenVectors) {
  const auto index = load_json("activation/index.json");
  std::size_t checked = 0;
  for (const auto& c : index.at("cases")) {
    const std::string name = c.at("activation");
    const auto f = static_cast<Activation>(std::find(kActivationNames.begin(), kActivationNames.end(), name) -
                                           kActivationNames.begin());
    const auto& params = c.at("params");
    const bool step = f == Activation::swiglustep;
    const ActivateArgs a{.activation = f,
                         .clamp = step || (f == Activation::silu && params.contains("limit")),
                         .alpha = params.value("alpha", 1.702f),
                         .beta = params.value("beta", 1.0f),
                         .limit = params.value("limit", 7.0f),
                         .dtype = DType::f32,
                         .rounding = Rounding::once,
                         .y13 = nullptr,
                         .ld = 0,
                         .rows = 0,
                         .blocks = 0,
                         .out = nullptr,
                         .out_ld = 0};
    const VecFile file = load_vectors("activation/" + std::string(c.at("file")));
    const auto x = file.at("x").floats(), y = file.at("y").floats();
    const auto rows = static_cast<std::size_t>(file.at("y").shape[0]),
               d = static_cast<std::size_t>(file.at("y").shape[1]);
    const std::size_t width = x.size() / rows;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < d; ++i) {
        const float* row = x.data() + r * width;
        const bool interleaved = f == Activation::swigluoai;
        const float g = interleaved ? row[2 * i] : row[i];
        const float u = !is_gated(f) ? 0.0f : interleaved ? row[2 * i + 1] : row[d + i];
        const float want = y[r * d + i], got = activated(a, g, u);
        ASSERT_LE(std::fabs(got - want), 1e-6f + 4e-6f * std::fabs(want)) << name << " " << g << " " << u;
        ++checked;
      }
  }
  EXPECT_GT(checked, 2000u);
}

// Kimi-K3's, in float64: a cap that is not given caps nothing.
TEST(Activation, SituWithAndWithoutCaps) {
  for (const double gate_cap : {0.0, 1.0, 7.5})
    for (const double up_cap : {0.0, 3.0, 30.0})
      for (const double g : {-60.0, -2.5, -0.125, 0.0, 0.75, 4.0, 33.0})
        for (const double u : {-40.0, -0.5, 0.0, 1.5, 70.0}) {
          ActivateArgs a{};
          a.activation = Activation::situ;
          a.alpha = static_cast<float>(gate_cap), a.beta = static_cast<float>(up_cap);
          a.dtype = DType::f32;
          a.rounding = Rounding::once;
          const auto capped = [](double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); };
          const double want = capped(g, gate_cap) / (1 + std::exp(-g)) * capped(u, up_cap);
          const float got = activated(a, static_cast<float>(g), static_cast<float>(u));
          EXPECT_NEAR(static_cast<double>(got), want, 1e-6 + 4e-6 * std::fabs(want))
              << g << " " << u << " " << gate_cap;
        }
}

TEST(Activation, NonFiniteRowsStayThemselves) {
  for (std::size_t f = 0; f < kActivationNames.size(); ++f) {
    ActivateArgs a{};
    a.activation = static_cast<Activation>(f);
    a.alpha = 1.702f, a.beta = 1.0f, a.limit = 7.0f;
    a.clamp = a.activation == Activation::swiglustep;
    a.dtype = DType::f32;
    a.rounding = Rounding::once;
    EXPECT_TRUE(std::isnan(activated(a, NAN, 1.0f))) << kActivationNames[f];
    if (is_gated(a.activation)) {
      EXPECT_TRUE(std::isnan(activated(a, 1.0f, NAN))) << kActivationNames[f];
    }
    const float top = activated(a, INFINITY, 1.0f);  // clamped where there is a limit
    const bool clamped = a.activation >= Activation::swigluoai && a.activation <= Activation::situ;
    EXPECT_EQ(std::isinf(top), !clamped) << kActivationNames[f] << " " << top;
  }
}

}  // namespace
}  // namespace moe::test::elementwise_test
