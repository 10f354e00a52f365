// KleidiAI's packed int4 weights (scheme/layout_kai.h), byte for byte.
#pragma once

#include "convert/named_forms.h"

namespace moe {

Check write_kai(CanonicalRows& rows, Matrix which, const ExpertTensors<std::byte>& out);
Check read_kai(const ExpertTensors<const std::byte>& in, Matrix which, CanonicalRows& rows);

}  // namespace moe
