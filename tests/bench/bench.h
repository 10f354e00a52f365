// The benchmarks that main.cpp registers, each for a list of thread counts.
#pragma once

#include <vector>

#include "support/rooms.h"

namespace moe::bench {

void add_benchmarks(const std::vector<int>& threads);  // what a program measures beside the probes

void add_probes(const std::vector<int>& threads);       // probe/<name>/threads:<n>
void add_layers(const std::vector<int>& threads);       // layer/...
void add_overhead(const std::vector<int>& threads);     // overhead/...
void add_pool(const std::vector<int>& threads);         // pool/...
void add_conversions(const std::vector<int>& threads);  // convert/...
void add_openings();                                    // open/...

}  // namespace moe::bench
