// The one call that is not weak (library.h): linkers leave out a library of which all that is called is weak.
#include <moe/moe.h>

#include "tool/library_check.h"

namespace moe_tool {

int library_abi() { return moe_abi_version(); }

}  // namespace moe_tool
