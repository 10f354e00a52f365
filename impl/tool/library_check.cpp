// The loaded library against the headers that the tool was compiled with. Functions are bound when they are first
// called, so that a library without one of them can be told by name instead of by the loader's message.
#include "tool/library_check.h"

#include <dlfcn.h>

#include "tool/library.h"
#include "tool/session.h"

namespace moe_tool {
namespace {

constexpr int kVersion = MOE_VERSION_MAJOR * 1000000 + MOE_VERSION_MINOR * 1000 + MOE_VERSION_PATCH;

// All functions that the tool calls: one that is missing would be called at address 0. A test compares the list.
constexpr const char* kCalled[] = {"moe_apply",
                                   "moe_buffer_data",
                                   "moe_buffer_destroy",
                                   "moe_buffer_size",
                                   "moe_build_info_json",
                                   "moe_checkpoint_config",
                                   "moe_checkpoint_convert",
                                   "moe_checkpoint_destroy",
                                   "moe_checkpoint_fingerprint",
                                   "moe_checkpoint_layer",
                                   "moe_checkpoint_layer_count",
                                   "moe_checkpoint_open",
                                   "moe_checkpoint_packed",
                                   "moe_checkpoint_to_json",
                                   "moe_config_create",
                                   "moe_config_destroy",
                                   "moe_config_merge",
                                   "moe_config_to_json",
                                   "moe_context_create",
                                   "moe_context_destroy",
                                   "moe_context_to_json",
                                   "moe_control_cancel",
                                   "moe_control_create",
                                   "moe_control_destroy",
                                   "moe_control_state",
                                   "moe_convert_weights",
                                   "moe_dtype_from_name",
                                   "moe_error_create",
                                   "moe_error_destroy",
                                   "moe_error_details_json",
                                   "moe_error_message",
                                   "moe_error_status",
                                   "moe_error_subject",
                                   "moe_layer_create",
                                   "moe_layer_destroy",
                                   "moe_layer_to_json",
                                   "moe_packed_dequantize",
                                   "moe_packed_destroy",
                                   "moe_packed_get",
                                   "moe_packed_load",
                                   "moe_packed_to_json",
                                   "moe_platform_create",
                                   "moe_platform_destroy",
                                   "moe_platform_has",
                                   "moe_platform_to_json",
                                   "moe_route",
                                   "moe_select_backend",
                                   "moe_selection_backend",
                                   "moe_selection_destroy",
                                   "moe_selection_kernel",
                                   "moe_selection_layout",
                                   "moe_selection_packed_size",
                                   "moe_selection_to_json",
                                   "moe_tensor_nbytes",
                                   "moe_version_number",
                                   "moe_version_string",
                                   "moe_weights_create_from_source",
                                   "moe_weights_destroy"};

std::string tool_version() { return fmt::format("{}.{}.{}", MOE_VERSION_MAJOR, MOE_VERSION_MINOR, MOE_VERSION_PATCH); }

}  // namespace

std::string library_path() {
  Dl_info info = {};
  void* symbol = dlsym(RTLD_DEFAULT, "moe_abi_version");
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

void check_library() {
  const auto refuse = [](const std::string& what) {
    throw Failure(kNo,
                  fmt::format("the library {} is {} with ABI {}, this program is {} with ABI {}: {}", library_path(),
                              moe_version_string == nullptr ? "of no version" : moe_version_string(), library_abi(),
                              tool_version(), MOE_ABI_VERSION, what));
  };
  if (library_abi() != MOE_ABI_VERSION) refuse("install both from one release");
  if (moe_version_number != nullptr && moe_version_number() < kVersion)
    refuse("the library is older; install both from one release");
  for (const char* name : kCalled)
    if (dlsym(RTLD_DEFAULT, name) == nullptr) refuse(fmt::format("it lacks {}; install both from one release", name));
}

std::string version_text() {
  const Json build = Json::parse(moe_build_info_json());
  const std::string commit = build.value("commit", "");
  return fmt::format("moe {}\nlibmoe {} (ABI {}{}{})  {}", tool_version(), moe_version_string(), library_abi(),
                     commit.empty() ? "" : ", ", commit, printable(library_path()));
}

}  // namespace moe_tool
