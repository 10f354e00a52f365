// Variants of a configuration: an RFC 7396 patch on the document it was made from, checked again.
//
// A setting may have several names, so both the document and the patch are first brought to one name
// each. intermediate_size_per_partition has a meaning of its own and keeps its name, but a width set by
// the patch takes the place of the width in the document, whatever its name.
#include <array>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/fields.h"
#include "config/quantization/foreign.h"
#include "config/sections.h"
#include "config/settings.h"

namespace moe::config {
namespace {

constexpr std::string_view kWholeWidth = "intermediate_size", kPartWidth = "intermediate_size_per_partition";

// A patch may set one name of a setting while it removes another; setting two is a fault.
Check rename_patch_aliases(json::Value& patch) {
  json::Object& members = *patch.object();
  for (const Setting& setting : kSettings) {
    const std::string first(setting.first());
    for (const std::string_view alias : setting.alias_names()) {
      const json::Value* value = patch.find(alias);
      if (value == nullptr) continue;
      const json::Value* same = patch.find(first);
      if (same != nullptr && !same->is_null() && !value->is_null()) {
        return fields::fault(fields::child("", alias),
                             cat("the patch also sets /", first, ", expected only one name of a setting"));
      }
      json::Value keep = same != nullptr && value->is_null() ? *same : *value;
      std::erase_if(members, [alias](const json::Member& m) { return m.first == alias; });
      patch.set(first, std::move(keep));
    }
  }
  return ok();
}

// A width set by the patch takes the place of a width under the other name.
void replace_width(json::Value& document, const json::Value& patch) {
  const std::array<std::pair<std::string_view, std::string_view>, 2> kPairs = {
      {{kWholeWidth, kPartWidth}, {kPartWidth, kWholeWidth}}};
  for (const auto& [set, other] : kPairs) {
    const json::Value* v = patch.find(set);
    if (v == nullptr || v->is_null()) continue;
    std::erase_if(*document.object(), [name = other](const json::Member& m) { return m.first == name; });
  }
}

}  // namespace

void rename_aliases(json::Value& document) {
  for (auto& [key, value] : *document.object()) {
    const Setting* setting = kSettings.find(key);
    if (setting == nullptr) continue;
    for (const std::string_view alias : setting->alias_names())
      if (key == alias) key = setting->first();
  }
}

Result<Config> merge_config(const Config& config, std::string_view patch_text) {
  MOE_TRY(json::Value patch, json::parse(patch_text));
  json::Value document = config.input;
  if (patch.object() != nullptr) {
    MOE_CHECK(rename_patch_aliases(patch));
    replace_width(document, patch);
  }
  json::merge_patch(document, patch);
  constexpr std::size_t kMost = json::Limits().max_bytes;
  const bool carries_file = json::write(config.input).size() > kMost;  // already
  const std::size_t size = json::write(document).size(), most = carries_file ? kMostForeignBytes : kMost;
  if (size > most) {
    return fields::fault("", cat("the merged document has ", size, " bytes, at most ", most, " are allowed"));
  }
  MOE_TRY(Config merged, config_from_document(std::move(document)));
  const bool same_file = patch.find("quantization") == nullptr && patch.find("hf_quantization_config") == nullptr;
  if (same_file) {
    merged.quantization.file_method = config.quantization.file_method;
    merged.assumed = config.assumed;
  }
  if (patch.find("name") == nullptr) {
    merged.named_by_class = config.named_by_class;
    merged.other_name = config.other_name;
  }
  if (patch.find("routing") == nullptr) merged.file_keys = config.file_keys;
  return merged;
}

}  // namespace moe::config
