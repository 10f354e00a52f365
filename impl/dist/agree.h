// Whether all ranks were given the same config and options, and if not, which member differs on which ranks.
#pragma once

#include <string>

#include "base/result.h"
#include "dist/comm.h"

namespace moe::dist {

// `text`: one JSON object. Collective; every rank gives the same answer: Code::config_mismatch with "pointer", "ranks",
// "expected", "actual".
Check agree_on(Comm& comm, const std::string& text);

}  // namespace moe::dist
