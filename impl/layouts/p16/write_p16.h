// Plain rows -> one panel of p16 (layouts/layout.h), and back to dense numbers in convert.h.
#pragma once

#include <cstddef>

#include "layouts/layout.h"
#include "layouts/rows.h"

namespace moe {

// Writes all matrix.panel_bytes() bytes of one panel. rows.count == kPanelRows; rows past the matrix are
// zero in `rows` and become the layout's padding (integers: the code of value 0, else 0).
void write_p16_panel(const P16Matrix& matrix, const CanonicalRows& rows, std::byte* panel);

}  // namespace moe
