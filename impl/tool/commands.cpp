// The commands, in the order of `moe --help`. A new one is a row here, a line of commands.h, and a file.
#include "tool/commands.h"

#include "tool/session.h"

namespace moe_tool {

const std::vector<Command> kCommands = {
    {"doctor", "Show the library, this machine, and what may be wrong with either", declare_doctor},
    {"inspect", "Show what is in a model's directory and whether it runs here", declare_inspect},
    {"why", "Show every kernel for a layer, and why each was taken or refused", declare_why},
    {"convert", "Convert a model once, into a directory that is mapped in milliseconds", declare_convert},
    {"bench", "Measure tokens per second of a model's experts, or of a shape", declare_bench},
    {"check", "Compare a converted model with its hashes, its source and float64", declare_check},
};

}  // namespace moe_tool
