// Platform documents: the three uses, round trips, what is detected and what is not.
#include <gtest/gtest.h>

#include "config/documents.h"
#include "support/rooms.h"

namespace moe::test::platform_test {
namespace {

using nlohmann::json;

std::string fault(const json& document, PlatformUse use) {
  const auto value = moe::json::parse(document.dump());
  EXPECT_TRUE(value);
  const auto p = parse_platform(*value, "/p", use);
  if (p) return "accepted";
  EXPECT_EQ(p.error().code, Code::invalid_config);
  return p.error().subject;
}

FeatureSet set_of(std::initializer_list<Feature> features) {
  FeatureSet s;
  for (const Feature f : features) s.set(static_cast<std::size_t>(f));
  return s;
}

Platform platform(const json& document) {
  const auto p = platform_from_text(document.dump());
  EXPECT_TRUE(p) << document << ": " << (p ? "" : p.error().message);
  return p ? *p : Platform();
}

TEST(PlatformDocument, MembersOfEachUse) {
  for (const PlatformUse use : {PlatformUse::config, PlatformUse::standalone, PlatformUse::query}) {
    const bool query = use == PlatformUse::query;
    EXPECT_EQ(fault(json::object(), use), query ? "/p/type" : "accepted");
    EXPECT_EQ(fault({{"type", "cuda"}}, use), query ? "accepted" : "/p/capability");
    EXPECT_EQ(fault({{"type", "rocm"}}, use), query ? "accepted" : "/p/gfx");
    EXPECT_EQ(fault({{"type", "cuda"}, {"capability", {9, 0}}}, use), "accepted");
    EXPECT_EQ(fault({{"type", "rocm"}, {"gfx", "gfx942"}}, use), "accepted");
    EXPECT_EQ(fault({{"type", "gpu"}}, use), "/p/type");
    EXPECT_EQ(fault({{"type", "cpu"}, {"isa", "avx2"}}, use), "/p/isa");
    EXPECT_EQ(fault({{"type", "cpu"}, {"arch", "i386"}}, use), "/p/arch");
    EXPECT_EQ(fault({{"type", "cpu"}, {"features", {"avx2", "avx512vnni"}}}, use), "/p/features/1");
    EXPECT_EQ(fault({{"type", "cpu"}, {"features", {"avx2", "fma", "avx2"}}}, use), "/p/features/2");
    EXPECT_EQ(fault({{"type", "cpu"}, {"features", nullptr}}, use), "/p/features");
    EXPECT_EQ(fault({{"type", "cpu"}, {"capability", {9}}}, use), "/p/capability");
    EXPECT_EQ(fault({{"type", "cpu"}, {"capability", {9, 256}}}, use), "/p/capability/1");
    for (const char* gfx : {"gfx", "gfx94", "gfx942123", "gfx94X", "GFX942", "gfx 942"})
      EXPECT_EQ(fault({{"type", "cpu"}, {"gfx", gfx}}, use), "/p/gfx") << gfx;
    EXPECT_EQ(fault({{"type", "cpu"}, {"libs", {{"a/b", 1}}}}, use), "/p/libs/a~1b");
    EXPECT_EQ(fault({{"type", "cpu"}, {"libs", json::array()}}, use), "/p/libs");
    EXPECT_EQ(fault({{"type", "cpu"}, {"native", true}}, use),
              use == PlatformUse::standalone ? "accepted" : "/p/native");
    EXPECT_EQ(fault({{"type", "cpu"}, {"cores", 4}}, use), use == PlatformUse::standalone ? "accepted" : "/p/cores");
  }
}

TEST(PlatformDocument, ReportedMembersHaveTypes) {
  const std::pair<const char*, json> good[] = {{"vendor", "v"},
                                               {"model", ""},
                                               {"cores", 4},
                                               {"threads", 8},
                                               {"allowed_cpus", "0-3"},
                                               {"allowed_cpus", 4},
                                               {"allowed_cpus", {0, 1}},
                                               {"quota_cpus", 1.5},
                                               {"quota_cpus", 2},
                                               {"numa", {{{"id", 0}, {"cpus", "0-3"}, {"memory_bytes", 1}}}},
                                               {"numa", json::array()},
                                               {"cache", {{"l1d", 32768}}},
                                               {"memory_bytes", 1},
                                               {"page_sizes", {4096}},
                                               {"os", "Linux"},
                                               {"native", false}};
  for (const auto& [key, value] : good)
    EXPECT_EQ(fault({{key, value}}, PlatformUse::standalone), "accepted") << key << value;
  const std::pair<const char*, json> bad[] = {{"vendor", 1},
                                              {"model", nullptr},
                                              {"cores", -1},
                                              {"threads", 1.5},
                                              {"allowed_cpus", {-1}},
                                              {"allowed_cpus", true},
                                              {"quota_cpus", "1"},
                                              {"numa", {1}},
                                              {"numa", {{{"id", "a"}}}},
                                              {"cache", {{"l1d", "32K"}}},
                                              {"cache", 1},
                                              {"memory_bytes", "1"},
                                              {"page_sizes", 4096},
                                              {"os", 1},
                                              {"native", 1}};
  for (const auto& [key, value] : bad)
    EXPECT_EQ(fault({{key, value}}, PlatformUse::standalone), std::string("/p/").append(key)) << value;
}

TEST(PlatformDocument, RoundTrip) {
  const json documents[] = {
      {{"type", "cuda"},
       {"capability", {9, 0}},
       {"cuda_version", 12080},
       {"libs", {{"flashinfer", true}, {"deep_gemm", false}}},
       {"multiprocessor_count", 132}},
      {{"type", "rocm"}, {"gfx", "gfx942"}},
      {{"type", "xpu"}, {"arch", "x86_64"}},
      {{"type", "cpu"}, {"arch", "aarch64"}, {"features", {"neon", "dotprod"}}, {"num_threads", 4}, {"numa_node", 1}},
      {{"type", "cpu"},
       {"features", json::array()},
       {"vendor", "x \"y\""},
       {"cores", 2},
       {"cache", {{"l2", 1}}},
       {"native", true}},
  };
  for (const json& d : documents) {
    const Platform p = platform(d);
    EXPECT_FALSE(p.native);
    const std::string text = platform_to_json(p);
    const json shown = json::parse(text);
    for (const auto& [key, value] : d.items()) {
      if (key == "native") {
        EXPECT_EQ(shown[key], false) << "only detection can say that a machine is this one";
      } else if (key == "features") {
        for (const json& f : value) EXPECT_NE(std::find(shown[key].begin(), shown[key].end(), f), shown[key].end());
      } else {
        EXPECT_EQ(shown[key], value) << key;
      }
    }
    const auto again = platform_from_text(text);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(platform_to_json(*again), text);
  }
}

TEST(PlatformDocument, ThisMachine) {
  const auto host = detect_platform();
  ASSERT_TRUE(host);
  const std::string text = platform_to_json(*host);
  const json shown = json::parse(text);
  EXPECT_EQ(shown["native"], true);
  EXPECT_EQ(shown["type"], "cpu");
  const auto described = platform_from_text(text);
  ASSERT_TRUE(described) << described.error().message;
  EXPECT_FALSE(described->native);
  EXPECT_EQ(described->features, host->features);
  EXPECT_EQ(described->arch, host->arch);
  json expected = shown;
  expected["native"] = false;
  EXPECT_EQ(json::parse(platform_to_json(*described)), expected);
  // What is not said is detected.
  for (const json& open :
       {json::object(), json{{"type", "auto"}}, json{{"type", "cpu"}}, json{{"arch", shown["arch"]}}}) {
    const Platform p = platform(open);
    EXPECT_EQ(p.type, DeviceType::cpu);
    EXPECT_EQ(p.features, host->features);
    EXPECT_EQ(p.arch, host->arch);
    EXPECT_TRUE(p.native);
  }
  // Listed features take the place of the detected ones; portable code always runs.
  const Platform listed = platform({{"features", {"avx2"}}});
  EXPECT_EQ(listed.features, set_of({Feature::scalar, Feature::avx2}));
  EXPECT_EQ(listed.arch, host->arch);
  EXPECT_FALSE(listed.native);
}

TEST(PlatformDocument, OtherMachines) {
  const bool on_arm = native_arch() == Arch::aarch64;
  const Platform foreign = platform({{"type", "cpu"}, {"arch", on_arm ? "x86_64" : "aarch64"}});
  EXPECT_EQ(foreign.features, on_arm ? set_of({Feature::scalar}) : set_of({Feature::scalar, Feature::neon}));
  EXPECT_FALSE(foreign.native);
  EXPECT_TRUE(foreign.runs(Isa::scalar));
  const Platform s390 = platform({{"type", "cpu"}, {"arch", "s390x"}});
  EXPECT_EQ(s390.features, set_of({Feature::scalar}));
  const Platform gpu = platform({{"type", "cuda"}, {"capability", {8, 9}}});
  EXPECT_EQ(gpu.arch, Arch::automatic);
  EXPECT_TRUE(gpu.features.none());
  EXPECT_FALSE(gpu.runs(Isa::scalar));
}

TEST(PlatformDocument, BadText) {
  for (const char* text : {"", "{", "[]", "null", "{\"type\":\"cpu\",\"type\":\"cpu\"}"}) {
    const auto p = platform_from_text(text);
    ASSERT_FALSE(p) << text;
    EXPECT_EQ(p.error().code, Code::invalid_config);
    EXPECT_EQ(p.error().subject, "");
  }
}

TEST(PlatformDocument, EffectiveForAConfig) {
  const auto host = detect_platform();
  ASSERT_TRUE(host);
  const auto effective = [](const json& platform) {
    const auto c = parse_config(layer_document({{"platform", platform}}).dump());
    EXPECT_TRUE(c);
    const auto p = effective_platform(*c);
    EXPECT_TRUE(p);
    return *p;
  };
  const Platform none = effective(json::object());
  EXPECT_TRUE(none.native);
  EXPECT_EQ(none.features, host->features);
  EXPECT_EQ(effective({{"num_threads", 3}}).num_threads, 3);
  const Platform listed = effective({{"features", {"avx2", "fma"}}});
  EXPECT_EQ(listed.type, DeviceType::cpu);
  EXPECT_EQ(listed.features, set_of({Feature::scalar, Feature::avx2, Feature::fma}));
  const Platform gpu = effective({{"type", "cuda"}, {"capability", {9, 0}}, {"libs", {{"flashinfer", true}}}});
  EXPECT_EQ(gpu.type, DeviceType::cuda);
  EXPECT_EQ(gpu.capability, (std::array<int, 2>{9, 0}));
  EXPECT_TRUE(gpu.lib("flashinfer"));
  EXPECT_EQ(effective({{"type", "cpu"}, {"arch", "s390x"}}).arch, Arch::s390x);
}

}  // namespace
}  // namespace moe::test::platform_test
