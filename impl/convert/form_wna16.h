// The WNA16 layouts (wna16.h) as named layouts.
#pragma once

#include "convert/named_forms.h"
#include "convert/wna16.h"

namespace moe {

Check write_wna16_form(CanonicalRows& rows, Matrix which, const ExpertTensors<std::byte>& out);
Check read_wna16_form(const ExpertTensors<const std::byte>& in, Matrix which, CanonicalRows& rows);
void read_wna16_form_rows(const ExpertTensors<const std::byte>& in, Matrix which, const RowRange& range,
                          CanonicalRows& rows);
Check finish_wna16_form(const Layout& layout, std::byte* payload);

}  // namespace moe
