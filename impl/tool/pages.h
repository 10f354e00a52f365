// The man page and the completions of shells, printed from the tree of options itself.
#pragma once
#include <string>

namespace CLI {
class App;
}

namespace moe_tool {

// Hidden options of `app`: --man, --completion SHELL.
void add_pages(CLI::App& app);

}  // namespace moe_tool
