// Man page and completions.
#include "tool/pages.h"
namespace moe_tool {
void add_pages(CLI::App&) {}
}  // namespace moe_tool
