// The picture of bench: bars of tokens per second, and the share of the memory's bandwidth.
#pragma once
#include <string>

#include "tool/library.h"

namespace moe_tool {

class Picture {
 public:
  // Throws where `path` cannot be written or gnuplot is missing: that is said before anything is measured.
  explicit Picture(std::string path);
  // Draws the document of bench, with gnuplot, as an SVG. What stood in the file before stays where that fails.
  void draw(const Json& found) const;

 private:
  std::string path_;
};

}  // namespace moe_tool
