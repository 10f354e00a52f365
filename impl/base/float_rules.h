// The arithmetic is IEEE 754 as it is written: sums keep their order, NaN and infinity are values, and the same bits
// come out of every build. Every source of impl/ includes this, by its headers or itself (tests/include_levels.py).
#pragma once

#include "base/rooms.h"

#if defined(__FAST_MATH__) || __FINITE_MATH_ONLY__ || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "libmoe is compiled with -ffast-math or a part of it: end its options with -fno-fast-math -ffp-contract=off"
#endif
