// The WNA16 layouts (wna16.h) as named layouts: some rows of a matrix alone, for panels that are made on the fly.
#pragma once

#include "layouts/families.h"
#include "layouts/wna16/wna16.h"

namespace moe {

void read_wna16_form_rows(const ExpertTensors<const std::byte>& in, Matrix which, const RowRange& at,
                          CanonicalRows& rows);

}  // namespace moe
