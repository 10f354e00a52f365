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
#include "moe_build_flags.inc"  // kBuildFlags: written by pkgconfig/moe_build_info.cmake
#include "moe_commit.inc"       // kCommit

moe::FeatureSet compiled_features() {
  moe::FeatureSet all;
  for (const moe::Kernel* k : moe::kernels()) all |= moe::isa_features(k->id->isa);
  add(all, moe::Feature::scalar);
  return all;
}

std::vector<std::string> feature_names() {
  std::vector<std::string> names;
  const moe::FeatureSet features = compiled_features();
  for (std::size_t i = 0; i < moe::kFeatureNames.size(); ++i)
    if (features.test(i)) names.push_back("isa." + std::string(moe::kFeatureNames[i]));
  for (std::string_view b : moe::runnable_backends()) names.push_back("backend." + std::string(b));
  for (std::string_view o : kOther) names.emplace_back(o);
  return names;
}

template <class List>
moe::json::Value json_list(const List& list) {
  moe::json::Array a;
  for (const auto& item : list) a.emplace_back(std::string_view(item));
  return a;
}

std::string build_info() {
  std::vector<std::string_view> kernels, isas;
  for (const moe::Kernel* k : moe::kernels()) {
    const std::string_view isa = at(moe::kIsaNames, k->id->isa);
    kernels.push_back(k->id->name);
    if (std::find(isas.begin(), isas.end(), isa) == isas.end()) isas.push_back(isa);
  }
  moe::json::Value info{moe::json::Object{}};
  info.set("version", kVersion);
  info.set("abi_version", MOE_ABI_VERSION);
#if defined(__clang__)
  info.set("compiler", "Clang " __clang_version__);
#else
  info.set("compiler", "GCC " __VERSION__);
#endif
  info.set("flags", kBuildFlags);
  info.set("commit", kCommit);
  info.set("cpp_standard", static_cast<std::int64_t>(__cplusplus));
#if defined(NDEBUG)
  info.set("assertions", false);
#else
  info.set("assertions", true);
#endif
  info.set("arch", at(moe::kArchNames, moe::native_arch()));
  info.set("backends", json_list(moe::runnable_backends()));
  info.set("isas", json_list(isas));
  info.set("kernels", json_list(kernels));
  info.set("features", json_list(feature_names()));
  info.set("environment", json_list(kEnvironment));
  return moe::json::write(info);
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

const char* moe_reject_name(moe_reject reason) { return moe::reject_name(static_cast<moe::Reject>(reason)); }
const char* moe_dtype_name(moe_dtype dtype) { return moe::dtype_name(static_cast<moe::DType>(dtype)); }

moe_dtype moe_dtype_from_name(const char* name) {
  if (name == nullptr) return MOE_DTYPE_INVALID;
  return static_cast<moe_dtype>(moe::dtype_from_name(name));
}
