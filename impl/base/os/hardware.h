// Memory and processor: what the system says of them and what it is asked to let us do with them.
#pragma once

#include <cstddef>

#include "base/float_rules.h"

namespace moe {

std::size_t page_bytes();
// Advice for memory that lies on whole huge pages: a refusal costs speed only.
void prefer_huge_pages(void* memory, std::size_t size);

// Of the L1 data cache; 0: unknown.
long l1_bytes();
// Asks for the tile data state of AMX, for the whole process; false where it is refused or unknown. Cheap when granted.
bool permit_amx() noexcept;

}  // namespace moe
