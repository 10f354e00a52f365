// What this build is: version numbers, features, names of enumeration values.
//
// A feature is "isa.<cpu feature>" for each feature that a compiled kernel uses, "backend.<NAME>" for each
// backend that can run here, or one of kOther. The same list is in moe_build_info_json.
#include <string>
#include <string_view>
#include <vector>

#include "api/entry.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "kernels/kernel.h"
#include "oracle/backend.h"

#define MOE_TEXT2(x) #x
#define MOE_TEXT(x) MOE_TEXT2(x)

namespace {

constexpr const char* kVersion =
    MOE_TEXT(MOE_VERSION_MAJOR) "." MOE_TEXT(MOE_VERSION_MINOR) "." MOE_TEXT(MOE_VERSION_PATCH);
constexpr std::string_view kOther[] = {"io.mmap"};
// Everything that is ever read from the environment.
constexpr std::string_view kEnvironment[] = {"MOE_LOG", "MOE_MAX_ISA"};
#include "moe_build_flags.inc"  // kBuildFlags: written by impl/cmake/build_info.cmake
#include "moe_commit.inc"       // kCommit

moe::FeatureSet compiled_features() {
  moe::FeatureSet all;
  for (const moe::kernels::Kernel* k : moe::kernels::built_kernels()) all |= moe::isa_features(k->id->isa);
  add(all, moe::Feature::scalar);
  return all;
}

std::vector<std::string> feature_names() {
  std::vector<std::string> names;
  const moe::FeatureSet features = compiled_features();
  for (std::size_t i = 0; i < moe::kFeatureNames.size(); ++i)
    if (features.test(i)) names.push_back(cat("isa.", moe::kFeatureNames[i]));
  for (std::string_view b : moe::oracle::runnable_backends()) names.push_back(cat("backend.", b));
  for (std::string_view o : kOther) names.emplace_back(o);
  return names;
}

std::string build_info() {
  std::vector<std::string_view> kernels, isas;
  for (const moe::kernels::Kernel* k : moe::kernels::built_kernels()) {
    const std::string_view isa = at(moe::kIsaNames, k->id->isa);
    kernels.push_back(k->id->name);
    if (std::find(isas.begin(), isas.end(), isa) == isas.end()) isas.push_back(isa);
  }
  moe::json::Writer w;
  w.begin_object();
  w.member("version", kVersion);
  w.member("abi_version", MOE_ABI_VERSION);
#if defined(__clang__)
  w.member("compiler", "Clang " __clang_version__);
#else
  w.member("compiler", "GCC " __VERSION__);
#endif
  w.member("flags", kBuildFlags);
  w.member("commit", kCommit);
  w.member("cpp_standard", __cplusplus);
#if defined(NDEBUG)
  w.member("assertions", false);
#else
  w.member("assertions", true);
#endif
  w.member("arch", moe::at(moe::kArchNames, moe::native_arch()));
  w.key("backends").array(moe::oracle::runnable_backends());
  w.key("isas").array(isas);
  w.key("kernels").array(kernels);
  w.key("features").array(feature_names());
  w.key("environment").array(kEnvironment);
  return w.end_object().take();
}

}  // namespace

int32_t moe_version_number(void) { return MOE_VERSION_MAJOR * 1000000 + MOE_VERSION_MINOR * 1000 + MOE_VERSION_PATCH; }
const char* moe_version_string(void) { return kVersion; }
int32_t moe_abi_version(void) { return MOE_ABI_VERSION; }

int32_t moe_has_feature(const char* name) {
  if (name == nullptr) return 0;
  return guard_value<int32_t>(0, [&] {
    for (const std::string& feature : feature_names())
      if (feature == name) return 1;
    return 0;
  });
}

const char* moe_build_info_json(void) {
  return guard_value<const char*>("{}", [] {
    static const std::string text = build_info();  // made at the first call, the same ever after
    return text.c_str();
  });
}

#define MOE_REJECT(id, name) static_assert(static_cast<moe_reject>(moe::oracle::Reject::id) == MOE_REJECT_##name);
#include "oracle/rejects.inc"

const char* moe_reject_name(moe_reject reason) {
  return moe::oracle::reject_name(static_cast<moe::oracle::Reject>(reason));
}
const char* moe_dtype_name(moe_dtype dtype) { return moe::dtype_name(static_cast<moe::DType>(dtype)); }

moe_dtype moe_dtype_from_name(const char* name) {
  if (name == nullptr) return MOE_DTYPE_INVALID;
  return static_cast<moe_dtype>(moe::dtype_from_name(name));
}
