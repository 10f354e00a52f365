// Floating-point numbers as text: the shortest that reads back, in the form of std::to_chars, byte for byte (a test
// compares them). Written here because libstdc++'s brings 135 KB of tables, for a speed that reports and error messages
// don't need.
#pragma once

#include <string>

#include "base/float_rules.h"

namespace moe {

// Finite values only.
std::string decimal(double x);
std::string decimal(float x);
std::string float_text(float x);  // of any value: NaN, Inf, -Inf, or its decimal

}  // namespace moe
