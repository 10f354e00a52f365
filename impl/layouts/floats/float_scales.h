// Scales of the float layouts (layouts/floats/float_layout.h), by the place where they lie.
//
// A table from place to functions (float_scales.cpp). Scales are separated from weights because the
// two vary independently: 9 places of weights and 15 of scales would otherwise be all their pairs.
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
  // Codes are never changed in silence to make scales fit: requantize.h does it where the layout's
  // engine does, and `requantized` tells.
  Check (*write)(const FloatMatrix& m, CanonicalRows& rows, std::byte* out);
  void (*read)(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows);
};
// Every place is in the table, so there is no failure.
const FloatScales& float_scales(ScalePlace place);

}  // namespace moe
