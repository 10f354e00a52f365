// Scales of the float layouts (layouts/floats/float_layout.h), by the place where they lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "layouts/floats/float_layout.h"
#include "layouts/rows.h"

namespace moe {

// One tensor of an expert; `rows` has the scales of the checkpoint's rows, which are made what the layout keeps.
struct FloatScales {
  ScalePlace place;
  // Faults: unsupported, where rows that share a scale of the layout have several; invalid_argument, where one is
  // beyond the layout's numbers. Subject "w13_scale" or "w2_scale".
  Check (*write)(const FloatMatrix& m, CanonicalRows& rows, std::byte* out);
  void (*read)(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows);
};
const FloatScales& float_scales(ScalePlace place);

}  // namespace moe
