// ISA words, their clusters, the cap MOE_MAX_ISA, and what detection says about this machine.
#include "base/platform.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace moe::test::platform_test {
namespace {

std::set<std::string> names(const FeatureSet& features) {
  std::set<std::string> s;
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i)
    if (features.test(i)) s.emplace(kFeatureNames[i]);
  return s;
}

using Names = std::set<std::string>;

TEST(IsaWords, ClustersOfTheDecisions) {
  EXPECT_EQ(names(isa_features(Isa::avx2)), (Names{"avx2", "fma", "f16c"}));
  EXPECT_EQ(names(isa_features(Isa::avxvnni)), (Names{"avx2", "fma", "f16c", "avx_vnni"}));
  const Names vnni = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"};
  EXPECT_EQ(names(isa_features(Isa::avx512vnni)), vnni);
  const auto with = [&](Names more) {
    more.insert(vnni.begin(), vnni.end());
    return more;
  };
  EXPECT_EQ(names(isa_features(Isa::avx512bf16)), with({"avx512_bf16"}));
  EXPECT_EQ(names(isa_features(Isa::avx512fp16)), with({"avx512_fp16"}));
  EXPECT_EQ(names(isa_features(Isa::amxint8)), with({"amx_tile", "amx_int8"}));
  EXPECT_EQ(names(isa_features(Isa::amxbf16)), with({"avx512_bf16", "amx_tile", "amx_bf16"}));
  EXPECT_EQ(names(isa_features(Isa::neon)), (Names{"neon"}));
  EXPECT_EQ(names(isa_features(Isa::dotprod)), (Names{"neon", "dotprod"}));
  EXPECT_EQ(names(isa_features(Isa::i8mm)), (Names{"neon", "dotprod", "i8mm"}));
  EXPECT_EQ(names(isa_features(Isa::sve)), (Names{"neon", "dotprod", "i8mm", "sve"}));
}

TEST(IsaWords, BelongToOneArchitecture) {
  EXPECT_EQ(isa_arch(Isa::scalar), Arch::automatic);
  for (std::size_t i = 1; i < kIsaNames.size(); ++i)
    EXPECT_EQ(isa_arch(static_cast<Isa>(i)), i < 8 ? Arch::x86_64 : Arch::aarch64) << kIsaNames[i];
}

TEST(FeatureWords, ReadBack) {
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i)
    EXPECT_EQ(feature_from_name(kFeatureNames[i]), static_cast<Feature>(i));
  for (const char* name : {"", "avx", "AVX2", "avx2 ", "avx512vnni"}) EXPECT_EQ(feature_from_name(name), std::nullopt);
}

Platform described(Arch arch, std::initializer_list<Isa> words) {
  Platform p;
  p.arch = arch;
  for (Isa w : words) p.features |= isa_features(w);
  return p;
}

TEST(PlatformRuns, OnlyWithEveryFeatureOfTheClusterAndItsArchitecture) {
  Platform p = described(Arch::x86_64, {Isa::avx512vnni});
  EXPECT_TRUE(p.runs(Isa::scalar));
  EXPECT_TRUE(p.runs(Isa::avx2));
  EXPECT_TRUE(p.runs(Isa::avx512vnni));
  EXPECT_FALSE(p.runs(Isa::avxvnni));
  EXPECT_FALSE(p.runs(Isa::amxint8));
  EXPECT_FALSE(p.runs(Isa::neon));
  for (Feature f : {Feature::fma, Feature::avx512vl, Feature::avx512_vnni}) {
    Platform less = p;
    less.features.reset(static_cast<std::size_t>(f));
    EXPECT_FALSE(less.runs(Isa::avx512vnni)) << kFeatureNames[static_cast<std::size_t>(f)];
  }
  p.arch = Arch::aarch64;  // the same words of another architecture mean nothing
  EXPECT_FALSE(p.runs(Isa::avx2));
  p.type = DeviceType::cuda;
  EXPECT_FALSE(p.runs(Isa::scalar));
}

TEST(PlatformLibs, OnlyThoseSetTrue) {
  Platform p;
  p.libs = {{"flashinfer", true}, {"aiter", false}};
  EXPECT_TRUE(p.lib("flashinfer"));
  EXPECT_FALSE(p.lib("aiter"));
  EXPECT_FALSE(p.lib("deep_gemm"));
}

TEST(Detect, ThisMachine) {
  const auto p = detect_platform("");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->type, DeviceType::cpu);
  EXPECT_EQ(p->arch, native_arch());
  EXPECT_TRUE(p->native);
  EXPECT_TRUE(has(p->features, Feature::scalar));
  EXPECT_TRUE(p->runs(Isa::scalar));
  const auto report = nlohmann::json::parse("{" + p->report + "}");
  EXPECT_TRUE(report.contains("page_sizes"));
}

// The kernel's own list of flags has only what processor and operating system both support.
TEST(Detect, AgreesWithProcCpuinfo) {
  if (native_arch() != Arch::x86_64 && native_arch() != Arch::aarch64)
    GTEST_SKIP() << "no list of flags to compare with";
  const bool x86 = native_arch() == Arch::x86_64;
  std::set<std::string> flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(x86 ? "flags" : "Features", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string w; words >> w;) flags.insert(w);
    break;
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags here (an emulator shows the host's)";
  struct Pair {
    Feature feature;
    const char* flag;
  };
  const std::vector<Pair> pairs =
      x86 ? std::vector<Pair>{{Feature::avx2, "avx2"},
                              {Feature::fma, "fma"},
                              {Feature::f16c, "f16c"},
                              {Feature::avx512f, "avx512f"},
                              {Feature::avx512bw, "avx512bw"},
                              {Feature::avx512vl, "avx512vl"},
                              {Feature::avx512_vnni, "avx512_vnni"},
                              {Feature::avx512_vbmi, "avx512vbmi"},
                              {Feature::avx_vnni, "avx_vnni"},
                              {Feature::avx512_bf16, "avx512_bf16"},
                              {Feature::avx512_fp16, "avx512_fp16"},
                              {Feature::amx_tile, "amx_tile"},
                              {Feature::amx_int8, "amx_int8"},
                              {Feature::amx_bf16, "amx_bf16"},
                              {Feature::amx_fp8, "amx_fp8"}}
          : std::vector<Pair>{{Feature::neon, "asimd"}, {Feature::dotprod, "asimddp"}, {Feature::i8mm, "i8mm"},
                              {Feature::bf16, "bf16"},  {Feature::fp16, "asimdhp"},    {Feature::sve, "sve"},
                              {Feature::sve2, "sve2"}};
  const auto p = detect_platform("");
  ASSERT_TRUE(p);
  for (const Pair& pair : pairs) EXPECT_EQ(has(p->features, pair.feature), flags.count(pair.flag) != 0) << pair.flag;
}

TEST(MaxIsa, UnknownWordsAreInvalidArguments) {
  for (const char* word : {"avx512", "AVX2", "avx2 ", "avx512_vnni", "none"}) {
    const auto p = detect_platform(word);
    ASSERT_FALSE(p) << word;
    EXPECT_EQ(p.error().code, Code::invalid_argument);
    EXPECT_EQ(p.error().subject, "MOE_MAX_ISA");
    EXPECT_NE(p.error().message.find(word), std::string::npos);
    EXPECT_NE(p.error().message.find("avx512vnni"), std::string::npos);
  }
}

TEST(MaxIsa, ScalarLeavesNothingElse) {
  const auto p = detect_platform("scalar");
  ASSERT_TRUE(p);
  EXPECT_EQ(names(p->features), Names{"scalar"});
}

TEST(MaxIsa, DropsAllLaterWordsAndKeepsAllEarlierOnes) {
  const auto whole = detect_platform("");
  ASSERT_TRUE(whole);
  for (std::size_t cap = 1; cap < kIsaNames.size(); ++cap) {
    const auto p = detect_platform(std::string(kIsaNames[cap]).c_str());
    ASSERT_TRUE(p) << kIsaNames[cap];
    const bool foreign = isa_arch(static_cast<Isa>(cap)) != whole->arch;
    for (std::size_t i = 1; i < kIsaNames.size(); ++i) {
      const auto word = static_cast<Isa>(i);
      if (isa_arch(word) != whole->arch) continue;
      const bool want = whole->runs(word) && (foreign || i <= cap);
      EXPECT_EQ(p->runs(word), want) << kIsaNames[i] << " capped by " << kIsaNames[cap];
    }
    if (foreign) {
      EXPECT_EQ(p->features, whole->features);
    }
  }
}

#if defined(__x86_64__)
TEST(MaxIsa, FeaturesOfNoClusterGoWithTheWordTheyExtend) {
  const auto whole = detect_platform("");
  const auto p = detect_platform("avx2");
  ASSERT_TRUE(whole && p);
  EXPECT_FALSE(has(p->features, Feature::avx512_vbmi));
  const auto vnni = detect_platform("avx512vnni");
  ASSERT_TRUE(vnni);
  EXPECT_EQ(has(vnni->features, Feature::avx512_vbmi), has(whole->features, Feature::avx512_vbmi));
  EXPECT_FALSE(has(vnni->features, Feature::amx_tile));
}
#endif

// Tests run in one thread per process as far as the environment goes.
class MaxIsaEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* v = std::getenv("MOE_MAX_ISA")) before_ = v;
  }
  void TearDown() override {
    if (before_) {
      setenv("MOE_MAX_ISA", before_->c_str(), 1);
    } else {
      unsetenv("MOE_MAX_ISA");
    }
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(MaxIsaEnvironment, IsReadAtEachCall) {
  setenv("MOE_MAX_ISA", "scalar", 1);
  auto p = detect_platform();
  ASSERT_TRUE(p);
  EXPECT_EQ(names(p->features), Names{"scalar"});
  setenv("MOE_MAX_ISA", "", 1);  // empty: not set
  p = detect_platform();
  ASSERT_TRUE(p);
  EXPECT_EQ(p->features, detect_platform("")->features);
  setenv("MOE_MAX_ISA", "best", 1);
  p = detect_platform();
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().subject, "MOE_MAX_ISA");
}

TEST(Detect, FirstCallFromManyThreads) {
  std::vector<std::thread> threads;
  std::array<FeatureSet, 16> seen;
  for (auto& s : seen) threads.emplace_back([&s] { s = detect_platform("")->features; });
  for (auto& t : threads) t.join();
  for (const auto& s : seen) EXPECT_EQ(s, seen[0]);
}

}  // namespace
}  // namespace moe::test::platform_test
