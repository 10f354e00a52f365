// Which rank holds which experts, and by which numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "dist/options.h"

namespace moe::dist {

struct ExpertPlaces {
  std::vector<std::int32_t> owner, local;          // by expert; in mode tp every rank has all, and owner is -1
  std::vector<std::vector<std::int64_t>> experts;  // by rank, ascending

  std::int64_t num_experts() const { return std::ssize(local); }
  // A rank's place among those that hold experts.
  std::int64_t holder(int rank) const;
  std::int64_t holders() const { return holder(static_cast<int>(experts.size())); }
  bool holds_any(int rank) const { return !experts[static_cast<std::size_t>(rank)].empty(); }
};

// A patch of the whole config that gives the config of a rank's part; "{}" for one rank.
std::string local_patch(const DistOptions& options, const ExpertPlaces& places, int rank);

// The config is one of the whole layer. Code::unsupported for one that is cut already, and for what cannot be spread.
Check check_whole(const Config& config, const DistOptions& options);
// Code::invalid_config where a rank's part has no config.
Result<ExpertPlaces> place_experts(const Config& config, const DistOptions& options, int size);

}  // namespace moe::dist
