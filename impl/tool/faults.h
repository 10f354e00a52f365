// What would end the process from outside, and without a word: closed standard files, a limit on files, memory that is
// a file which became shorter.
#pragma once

namespace moe_tool {

// Once, before anything is opened. `json`: whether an error is a document too, looked at when one happens.
void prepare_process(const bool& json);

}  // namespace moe_tool
