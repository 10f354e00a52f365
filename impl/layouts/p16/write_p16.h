// Plain rows -> one panel of p16 (layouts/p16/p16.h), and back to dense numbers in convert.h.
#pragma once

#include <cstddef>

#include "layouts/p16/p16.h"
#include "layouts/rows.h"

namespace moe {

// Writes all matrix.panel_bytes() bytes of one panel. rows.count == kPanelRows; rows past the matrix are
// zero in `rows` and become the layout's padding (integers: the code of value 0, else 0).
void write_p16_panel(const P16& matrix, const CanonicalRows& rows, std::byte* panel);

}  // namespace moe
