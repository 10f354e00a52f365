// The picture of bench: bars of tokens per second, and the share of the memory's bandwidth.
#pragma once
#include <string>

#include "tool/library.h"

namespace moe_tool {

// Writes `path`, an SVG, with gnuplot; throws where that is not installed or fails. `found`: the document of bench.
void plot(const Json& found, const std::string& path);

}  // namespace moe_tool
