// The names of the codes in moe.h, for messages that tell a status.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace moe {

struct CodeName {
  Code code;
  const char* name;
};

constexpr CodeName kCodeNames[] = {
#define MOE_CODE(code, status) {Code::code, #status},
#include "base/code_names.inc"
#undef MOE_CODE
};

// Any number: a status may come from a caller or another rank.
constexpr const char* name_of(std::int32_t code) {
  for (const CodeName& n : kCodeNames)
    if (static_cast<std::int32_t>(n.code) == code) return n.name;
  return "MOE_ERR_UNKNOWN";
}

}  // namespace moe
