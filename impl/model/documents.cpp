// Which file says how a model is quantized. See documents.h.
#include "model/documents.h"

#include <array>
#include <utility>

#include "base/index.h"
#include "base/os/file.h"
#include "base/text.h"
#include "config/config.h"
#include "config/fields.h"
#include "hf/hf.h"
#include "hf/layers.h"

namespace moe::model {
namespace {

constexpr std::string_view kQuantization = "quantization_config", kOverrides = "overrides";

// Options of one layer, which a checkpoint does not take.
constexpr std::array<std::string_view, 3> kOfOneLayer = {"/layer_index", "/module", "/overrides/name"};

// A file of a tool beside config.json, whose content the option quantization_config takes.
struct ToolFile {
  std::string_view name;
  // What is filled in where a file lacks quant_method but has all of these.
  std::string_view method;
  std::array<std::string_view, 3> told_by;
};
constexpr std::array kToolFiles = {
    ToolFile{"hf_quant_config.json", "", {}},
    ToolFile{"quantize_config.json", "gptq", {"bits", "group_size", "desc_act"}},
};

bool has_all(const json::Value& object, const std::array<std::string_view, 3>& keys) {
  for (const std::string_view key : keys)
    if (object.find(key) == nullptr) return false;
  return true;
}

Result<json::Value> tool_object(const std::string& path, std::string_view text, const ToolFile& tool) {
  MOE_TRY(json::Value object, parse_file(path, text, true));
  if (object.object() == nullptr)
    return fail(Code::invalid_config, path, cat(path, ": found ", fields::brief(object), ", expected an object"));
  if (!tool.method.empty() && object.find("quant_method") == nullptr) {
    if (!has_all(object, tool.told_by))
      return fail(Code::invalid_config, path,
                  cat(path, ": has no quant_method, and not all of ", fields::join(tool.told_by),
                      ", which would tell that it is ", tool.method, "'s"));
    object.set("quant_method", tool.method);
  }
  return object;
}

json::Value with_quantization(const json::Value& options, json::Value object) {
  json::Value all = options;
  all.set(std::string(kQuantization), std::move(object));
  return all;
}

// Whether a tool's file has the group size of the same algorithm that config.json leaves out (ModelOpt's W4A16_AWQ).
bool adds_group_size(const json::Value& config, const json::Value& tool) {
  const auto text = [](const json::Value* v) {
    return v == nullptr || v->string() == nullptr ? std::string() : *v->string();
  };
  const json::Value *said = config.find(kQuantization), *more = tool.find("quantization");
  if (said == nullptr || more == nullptr || said->find("group_size") != nullptr) return false;
  const std::string algorithm = text(said->find("quant_algo"));
  return algorithm == "W4A16_AWQ" && algorithm == text(more->find("quant_algo")) && more->find("group_size") != nullptr;
}

}  // namespace

bool decides_quantization(const json::Value& options) {
  const json::Value* overrides = options.find(kOverrides);
  return options.find(kQuantization) != nullptr ||
         (overrides != nullptr &&
          (overrides->find("quantization") != nullptr || overrides->find("hf_quantization_config") != nullptr));
}

Result<std::string> read_text(const FileName& name) {
  const std::string& path = name.path();
  MOE_TRY(const File file, File::open(name));
  if (file.size() > config::kMostForeignBytes)
    return fail(Code::invalid_config, path,
                cat(path, ": has ", file.size(), " bytes, at most ", config::kMostForeignBytes, " are allowed"));
  std::string text(usize(file.size()), '\0');
  MOE_CHECK(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<json::Value> parse_file(const std::string& path, std::string_view text, bool python, int around) {
  json::Limits limits = {.max_bytes = config::kMostForeignBytes, .python = python};
  limits.max_depth += around;
  auto value = json::parse(text, limits);
  if (!value) {
    value.error().subject = path;
    value.error().message = cat(path, ": ", value.error().message);
  }
  return value;
}

Result<json::Value> parse_options(std::string_view text) {
  if (text.empty()) return json::Value(json::Object{});
  auto options = json::parse(text, {.max_bytes = config::kMostForeignBytes});
  if (!options) {
    options.error().subject = hf::kOptions;
    return options;
  }
  MOE_CHECK(check_options(*options));
  return options;
}

Check check_options(const json::Value& options) {
  if (options.object() == nullptr) return fields::unexpected(std::string(hf::kOptions), options, "an object");
  for (const std::string_view pointer : kOfOneLayer)
    if (json::at_pointer(options, pointer) != nullptr)
      return fields::fault(
          cat(hf::kOptions, pointer),
          "a checkpoint is opened for all of its layers; moe_checkpoint_config takes one layer's number");
  return ok();
}

Result<Documents> read_documents(const Folder& folder, json::Value options) {
  Documents d;
  const FileName name(folder, kConfigName);
  const std::string& path = name.path();
  MOE_TRY(d.text, read_text(name));
  MOE_TRY(d.hf, parse_file(path, d.text, true));
  if (d.hf.object() == nullptr)
    return fail(Code::invalid_config, path, cat(path, ": found ", fields::brief(d.hf), ", expected an object"));
  d.options = std::move(options);
  const bool decided = decides_quantization(d.options);
  d.quantization_from = decided ? kOfOptions : hf::tells_quantization(d.hf) ? kConfigName : "";
  const json::Value callers = d.options;
  for (const ToolFile& tool : kToolFiles) {
    const FileName of_tool(folder, tool.name);
    MOE_TRY(const PathKind kind, path_kind(of_tool));
    if (kind == PathKind::absent) continue;
    MOE_TRY(std::string text, read_text(of_tool));
    d.tools.push_back({std::string(tool.name), std::move(text)});
    if (decided) continue;
    MOE_TRY(json::Value object, tool_object(of_tool.path(), d.tools.back().text, tool));
    const bool adds = adds_group_size(d.hf, object);
    json::Value all = with_quantization(callers, std::move(object));
    if (d.quantization_from.empty() || adds) {
      d.quantization_from = tool.name;
      d.options = std::move(all);
    } else {
      d.rivals.push_back({std::string(tool.name), std::move(all)});
    }
  }
  return d;
}

}  // namespace moe::model
