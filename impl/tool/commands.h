// The commands: what each declares on the tree of options. commands.cpp has the table.
#pragma once

namespace CLI {
class App;
}

namespace moe_tool {

struct Session;

void declare_doctor(CLI::App& command, Session& session);
void declare_inspect(CLI::App& command, Session& session);
void declare_why(CLI::App& command, Session& session);
void declare_convert(CLI::App& command, Session& session);
void declare_bench(CLI::App& command, Session& session);
void declare_check(CLI::App& command, Session& session);

}  // namespace moe_tool
