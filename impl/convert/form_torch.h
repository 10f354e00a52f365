// PyTorch's generic blob of W4A8 weights (w4a8_int8.md 4): every number a float32, one byte of two codes, too.
#pragma once

#include "convert/named_forms.h"

namespace moe {

Check write_torch_blob(CanonicalRows& rows, Matrix which, const ExpertTensors<std::byte>& out);
Check read_torch_blob(const ExpertTensors<const std::byte>& in, Matrix which, CanonicalRows& rows);

}  // namespace moe
