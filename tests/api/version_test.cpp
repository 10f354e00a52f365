// What the build says about itself.
#include <gtest/gtest.h>

#include <regex>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::version_test {
namespace {

TEST(Version, NumbersAgree) {
  EXPECT_EQ(moe_version_number(), MOE_VERSION_MAJOR * 1000000 + MOE_VERSION_MINOR * 1000 + MOE_VERSION_PATCH);
  EXPECT_EQ(moe_abi_version(), MOE_ABI_VERSION);
  EXPECT_STREQ(moe_version_string(), "0.1.0");
}

TEST(Version, BuildInfoListsTheFeatures) {
  EXPECT_EQ(moe_build_info_json(), moe_build_info_json());  // static
  const auto info = nlohmann::json::parse(moe_build_info_json());
  EXPECT_EQ(info["version"], moe_version_string());
  EXPECT_EQ(info["environment"], (nlohmann::json{"MOE_LOG", "MOE_MAX_ISA"}));
  EXPECT_FALSE(info["compiler"].get<std::string>().empty());
  for (const auto& f : info["features"]) EXPECT_EQ(moe_has_feature(f.get<std::string>().c_str()), 1) << f;
  for (const char* f : {"isa.scalar", "backend.CPU_INT4", "backend.CPU", "io.mmap"})
    EXPECT_EQ(moe_has_feature(f), 1) << f;
#if defined(__x86_64__)
  for (const char* f : {"isa.avx2", "isa.avx512_vnni"}) EXPECT_EQ(moe_has_feature(f), 1) << f;
#endif
  for (const char* f : {"", "isa.", "isa.rvv", "backend.MARLIN", "backend.cpu_int4"})
    EXPECT_EQ(moe_has_feature(f), 0) << f;
  EXPECT_EQ(moe_has_feature(nullptr), 0);
}

TEST(Version, BuildInfoTellsFlagsAndCommit) {
  const auto info = nlohmann::json::parse(moe_build_info_json());
  const auto flags = " " + info["flags"].get<std::string>() + " ";
  EXPECT_NE(flags.find(" -ffp-contract=off "), std::string::npos) << flags;
  EXPECT_EQ(flags.find("-ffast-math"), std::string::npos) << flags;
  for (const char* of_the_machine : {"/", "\\", " -I", " -W", "native"})
    EXPECT_EQ(flags.find(of_the_machine), std::string::npos) << of_the_machine << " in " << flags;
#if defined(__OPTIMIZE__)
  EXPECT_NE(flags.find(" -O"), std::string::npos) << flags;
#endif
#if defined(NDEBUG)
  EXPECT_NE(flags.find(" -DNDEBUG "), std::string::npos) << flags;
#endif
  const auto commit = info["commit"].get<std::string>();  // empty outside a git checkout
  EXPECT_TRUE(commit.empty() || std::regex_match(commit, std::regex("[0-9a-f]{12,40}(-dirty)?"))) << commit;
}

TEST(Version, AbiJsonIsTheCommittedFile) {
  const std::string text = read_text(MOE_ABI_JSON);
  EXPECT_EQ(text, moe_abi_json());
  const auto abi = nlohmann::json::parse(text);
  EXPECT_EQ(abi["abi_version"], MOE_ABI_VERSION);
  EXPECT_GE(abi["functions"].size(), 80U);
}

TEST(Version, NamesOfTypes) {
  EXPECT_STREQ(moe_dtype_name(MOE_DTYPE_F8_E4M3FN), "f8_e4m3fn");
  EXPECT_NE(moe_dtype_name(-7), nullptr);
  for (const char* name : {"bf16", "torch.bfloat16", "BF16"})
    EXPECT_EQ(moe_dtype_from_name(name), MOE_DTYPE_BF16) << name;
  EXPECT_EQ(moe_dtype_from_name("float128"), MOE_DTYPE_INVALID);
  EXPECT_EQ(moe_dtype_from_name(nullptr), MOE_DTYPE_INVALID);
  EXPECT_STREQ(moe_reject_name(MOE_REJECT_ISA), "MOE_REJECT_ISA");
  EXPECT_NE(moe_reject_name(99), nullptr);
}

}  // namespace
}  // namespace moe::test::version_test
