// The rows of architecture.h as JSON, for callers and for the page that is written of them.
#pragma once

#include <string>

namespace moe::hf {

// {"architectures": [{"name", "module", "projections", .., "keys", "routing"}], "unread": [{"name", "why"}]}
// (describe.md 10). Names and keys have the form that the option "architecture" takes.
std::string architecture_list();

}  // namespace moe::hf
