// The documents beside a model's weights: config.json, and files of quantization tools.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/os/file.h"
#include "base/result.h"

namespace moe::model {

constexpr const char* kConfigName = "config.json";
constexpr std::string_view kOfOptions = "options";
// What says how weights are quantized; "": nothing does.
constexpr std::array<std::string_view, 5> kQuantizationFrom = {kOfOptions, kConfigName, "hf_quant_config.json",
                                                               "quantize_config.json", ""};

struct Documents {
  json::Value hf;    // config.json
  std::string text;  // the same as bytes
  // Of moe_config_create_from_hf, for all layers: the caller's, and where another file than config.json says how the
  // weights are quantized, what it says.
  json::Value options = json::Object{};
  std::string quantization_from;  // one of kQuantizationFrom
  bool is_of_tool() const { return quantization_from.ends_with(".json") && quantization_from != kConfigName; }
  // Files that say it, too: the options that would read them. They have to agree.
  struct Rival {
    std::string file;
    json::Value options;
  };
  std::vector<Rival> rivals;
  // Files of tools that are there, as bytes, whether they decide or not.
  struct ToolText {
    std::string name, text;
  };
  std::vector<ToolText> tools;
};

// Options of moe_checkpoint_open, "" for none. Faults have the subject prefix "options:".
Result<json::Value> parse_options(std::string_view text);
// The same of options that are parsed. Those of a manifest hold a file of the source, and may be nested deeper than a
// caller's text.
Check check_options(const json::Value& options);
// Whether they say how the weights are quantized.
bool decides_quantization(const json::Value& options);
// `options` are checked; config.json must be in the folder.
Result<Documents> read_documents(const Folder& folder, json::Value options);
// A file of a folder as a document; its faults name the file. It may be nested deeper than others by `around`, where it
// holds such a document.
Result<json::Value> parse_file(const std::string& path, std::string_view text, bool python, int around = 0);
Result<std::string> read_text(const FileName& name);

}  // namespace moe::model
