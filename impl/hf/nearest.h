// Names of architectures that look like another: for a message about one that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moe::hf {

// Names of rows, at most three, the nearest first; none where nothing looks like it. What stands before "For" counts.
std::vector<std::string_view> nearest_architectures(std::string_view name);
class ModelFile;
// The same of a file: rows with the most of their keys in it, fewest others first.
std::vector<std::string_view> nearest_by_keys(const ModelFile& file);
// The error about a name that no row has: `pointer` says where it stands. Its details list the nearest ones, by their
// names, else, of a file, by their keys.
Error not_known(Code code, const std::string& pointer, std::string_view name, const ModelFile* file = nullptr);

}  // namespace moe::hf
