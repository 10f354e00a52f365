// Names of the golden files of W4A8-int8 that begin with a prefix, "pack_" or "moe_".
#pragma once

#include <string>
#include <vector>

#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test {

inline std::vector<std::string> w4a8_files(const std::string& prefix) {
  std::vector<std::string> names;
  const auto index = load_json("w4a8_int8/index.json");
  for (const auto& f : index["files"])
    if (const auto name = f["file"].get<std::string>(); name.rfind(prefix, 0) == 0)
      names.push_back("w4a8_int8/" + name);
  return names;
}

}  // namespace moe::test
