// How the tool calls libmoe: handles that end by themselves, and failed calls as exceptions. The tool is a program of
// its own and sees the library as any other caller does, through moe/moe.h.
#pragma once
// Weak: a library that lacks a function is then told by name (library_check.cpp) instead of by the loader.
#define MOE_API __attribute__((weak))
#include <moe/moe.h>

#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace moe_tool {

using Json = nlohmann::ordered_json;

// Exit codes, as README.md of this folder promises them.
enum ExitCode : int { kYes = 0, kNo = 1, kUsage = 2, kInterrupted = 130 };

// What ends a command early: a line for people, and a document for programs.
class Failure : public std::exception {
 public:
  // The library's error, which is destroyed.
  explicit Failure(moe_error* error)
      : details_(Json::parse(moe_error_details_json(error), nullptr, false)), status_(moe_error_status(error)) {
    const std::string_view subject = moe_error_subject(error);
    text_ = subject.empty() ? moe_error_message(error) : std::string(subject) + ": " + moe_error_message(error);
    if (status_ == MOE_ERR_CANCELLED) {
      exit_code_ = kInterrupted;
      text_ = "interrupted";
    }
    moe_error_destroy(error);
  }
  // The tool's own: status is a constant's name that says what kind of failure it is.
  Failure(ExitCode exit_code, std::string text) : text_(std::move(text)), exit_code_(exit_code) {
    details_ = {{"status", exit_code == kUsage ? "USAGE" : "FAILED"}, {"message", text_}};
  }

  // The same with where it was met in front, such as the option.
  Failure within(std::string_view where) const {
    Failure out = *this;
    out.text_ = std::string(where) + ": " + text_;
    out.details_["where"] = where;
    return out;
  }

  const char* what() const noexcept override { return text_.c_str(); }
  const Json& details() const { return details_; }
  moe_status status() const { return status_; }  // MOE_OK for failures of the tool's own
  ExitCode exit_code() const { return exit_code_; }

 private:
  std::string text_;
  Json details_;
  moe_status status_ = MOE_OK;
  ExitCode exit_code_ = kNo;
};

template <auto kDestroy>
struct Destroyer {
  template <typename Handle>
  void operator()(Handle* handle) const {
    kDestroy(handle);
  }
};
template <typename Handle, auto kDestroy>
using Owned = std::unique_ptr<Handle, Destroyer<kDestroy>>;

using BufferHandle = Owned<moe_buffer, moe_buffer_destroy>;
using ContextHandle = Owned<moe_context, moe_context_destroy>;
using ControlHandle = Owned<moe_control, moe_control_destroy>;
using PlatformHandle = Owned<moe_platform, moe_platform_destroy>;
using ConfigHandle = Owned<moe_config, moe_config_destroy>;
using SelectionHandle = Owned<moe_selection, moe_selection_destroy>;
using WeightsHandle = Owned<moe_weights, moe_weights_destroy>;
using PackedHandle = Owned<moe_packed, moe_packed_destroy>;
using LayerHandle = Owned<moe_layer, moe_layer_destroy>;
using CheckpointHandle = Owned<moe_checkpoint, moe_checkpoint_destroy>;

// call(moe_x, ...): the call without its `err`; a failure is thrown.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
  moe_error* error = nullptr;
  if (function(arguments..., &error) != MOE_OK) throw Failure(error);
}

// make<LayerHandle>(moe_layer_create, ...): the call without its `out` and `err`.
template <typename Handle, typename Function, typename... Arguments>
Handle make(Function function, Arguments... arguments) {
  typename Handle::pointer out = nullptr;
  call(function, arguments..., &out);
  return Handle(out);
}

// document_of(moe_layer_to_json, layer): the JSON that the call writes.
template <typename Function, typename... Arguments>
Json document_of(Function function, Arguments... arguments) {
  const auto buffer = make<BufferHandle>(function, arguments...);
  const auto* text = static_cast<const char*>(moe_buffer_data(buffer.get()));
  return Json::parse(text, text + moe_buffer_size(buffer.get()));
}

// A struct that the library reads or fills, zeroed and with its size.
template <typename Struct>
Struct sized() {
  Struct out = {};
  out.struct_size = sizeof out;
  return out;
}

}  // namespace moe_tool
