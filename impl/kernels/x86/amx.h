// What all AMX rows share beside their walk (amx_tiles.inl): the permission of the system.
#pragma once

#include "base/float_rules.h"

namespace moe {

// Asks Linux for the tile data state, for the whole process; false where it is refused or unknown. Cheap when granted.
bool permit_amx() noexcept;

}  // namespace moe
