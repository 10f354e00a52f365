// Which library the tool found, and whether it is the right one.
#pragma once
#include <string>

namespace moe_tool {

// Throws where the loaded library has another ABI than the tool was built for, or lacks a function that the tool calls.
void check_library();
// Its number, which every libmoe has.
int library_abi();
// The file that the library was loaded from.
std::string library_path();
// "moe 0.1.0 ..." and the library's own line.
std::string version_text();

}  // namespace moe_tool
