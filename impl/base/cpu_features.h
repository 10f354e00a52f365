// What the processor and the operating system support, asked once per architecture (platform_x86.cpp,
// os/platform_arm.cpp; none elsewhere). Selection and dispatch ask platform.h; how weights are read asks this.
#pragma once

#include <string>

#include "base/platform.h"

namespace moe {

struct CpuFacts {
  FeatureSet features;        // without `scalar`
  std::string vendor, model;  // "" = unknown
};
CpuFacts cpu_facts();

}  // namespace moe
