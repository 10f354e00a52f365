// The loaded library against the headers that the tool was compiled with. Functions are bound when they are first
// called, so that a library without one of them can be told by name instead of by the loader's message.
#include "tool/library_check.h"

#include <dlfcn.h>

#include "tool/library.h"
#include "tool/session.h"

namespace moe_tool {
namespace {

constexpr int kVersion = MOE_VERSION_MAJOR * 1000000 + MOE_VERSION_MINOR * 1000 + MOE_VERSION_PATCH;

// The youngest functions that the tool calls: a library that has them has the others.
constexpr const char* kYoungest[] = {"moe_checkpoint_open", "moe_control_state", "moe_checkpoint_fingerprint"};

std::string tool_version() { return fmt::format("{}.{}.{}", MOE_VERSION_MAJOR, MOE_VERSION_MINOR, MOE_VERSION_PATCH); }

}  // namespace

std::string library_path() {
  Dl_info info = {};
  void* symbol = dlsym(RTLD_DEFAULT, "moe_version_string");
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

void check_library() {
  const auto refuse = [](const std::string& what) {
    throw Failure(kNo,
                  fmt::format("the library {} is {} with ABI {}, this program is {} with ABI {}: {}", library_path(),
                              moe_version_string(), library_abi(), tool_version(), MOE_ABI_VERSION, what));
  };
  if (library_abi() != MOE_ABI_VERSION) refuse("install both from one release");
  for (const char* name : kYoungest)
    if (dlsym(RTLD_DEFAULT, name) == nullptr) refuse(fmt::format("it lacks {}; install both from one release", name));
  if (moe_version_number() < kVersion) refuse("the library is older; install both from one release");
}

std::string version_text() {
  const Json build = Json::parse(moe_build_info_json());
  const std::string commit = build.value("commit", "");
  return fmt::format("moe {}\nlibmoe {} (ABI {}{}{})  {}", tool_version(), moe_version_string(), library_abi(),
                     commit.empty() ? "" : ", ", commit, printable(library_path()));
}

}  // namespace moe_tool
