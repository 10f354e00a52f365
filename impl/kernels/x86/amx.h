// What all AMX rows share: the permission of the system, and tile registers configured for one gemm.
#pragma once

namespace moe {

// Asks Linux for the tile data state, for the whole process; false where it is refused or unknown. Cheap when granted.
bool permit_amx() noexcept;

}  // namespace moe
