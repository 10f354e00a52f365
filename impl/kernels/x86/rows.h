// The kernel rows of the x86 files; each file exports nothing else. registry.cpp lists them.
#pragma once

#include "kernels/kernel.h"

namespace moe {

extern const Kernel kW4a8Avx512Vnni;
extern const Kernel kW4a8Avx2;

}  // namespace moe
