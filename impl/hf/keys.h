// What becomes of the keys of a config.json that speak of experts, of their router or of their activation: a row reads
// them, or the document already says what they say, or they say nothing about the layer, or the file is refused
// (checkpoints.md 3).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hf/hf.h"

namespace moe::hf {

enum class KeyUse : std::uint8_t {
  read,      // the row has it
  compared,  // it is a known spelling of a member: what it says must be what the document says
  harmless,  // it says nothing about the routed experts
  unknown,
};
KeyUse use_of(const Architecture& row, std::string_view key);
// A key by whose name nothing is known must not be left out.
bool speaks_of_experts(std::string_view key);

// All keys that a row reads, once or more often.
std::vector<std::string_view> keys_read(const Architecture& row);
// Those that are read before a layer is chosen: what is said of one layer alone does not count there.
std::vector<std::string_view> keys_of_model(const Architecture& row);
// Spellings of members, from all classes.
std::vector<std::string_view> keys_compared();
struct HarmlessKey {
  std::string_view key, why;
};
std::span<const HarmlessKey> harmless_keys();

// Of the layer that `built` describes. What is overridden the file may say otherwise.
Check check_keys(const ModelFile& file, const Architecture& row, std::int64_t layer, const Asked& asked,
                 const Built& built);

}  // namespace moe::hf
