// moe_abi_json: the committed abi_check/moe_abi.json, built into the library. The build writes its bytes as
// numbers into moe_abi_json.inc (CMakeLists.txt); abi_check/generate.py --check holds it against moe.h.
#include <moe/moe.h>

#include "base/float_rules.h"

namespace {
constexpr char kAbiJson[] = {
#include "moe_abi_json.inc"
};
}  // namespace

const char* moe_abi_json(void) { return kAbiJson; }
