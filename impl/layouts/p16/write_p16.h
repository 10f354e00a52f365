// Plain rows -> one panel of p16 (layouts/p16/p16.h). The way back is layouts/dequantize.h.
#pragma once

#include <cstddef>

#include "layouts/p16/p16.h"
#include "layouts/rows.h"

namespace moe {

// Writes all matrix.panel_bytes() bytes of one panel. rows.count == kPanelRows; rows past the matrix are
// zero in `rows` and become the layout's padding (integers: the code of value 0, else 0).
// A panel is the unit of work: its rows fit in L1, and threads share nothing but the payload, where
// each has its own bytes. "All bytes" keeps rubbish out of the padding: a scale that happens to be
// subnormal would make an fma two to three times slower (kernels.md 13), and equal weights would
// not hash alike.
void write_p16_panel(const P16& matrix, const CanonicalRows& rows, std::byte* panel);

}  // namespace moe
