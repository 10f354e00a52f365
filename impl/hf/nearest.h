// Names of architectures that look like another: for a message about one that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moe::hf {

// Names of rows, at most three, the nearest first; none where nothing looks like it. What stands before "For" counts.
std::vector<std::string_view> nearest_architectures(std::string_view name);
// The error about a name that no row has: `pointer` says where it stands. Its details list the nearest ones.
Error not_known(Code code, const std::string& pointer, std::string_view name);

}  // namespace moe::hf
