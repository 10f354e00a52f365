// The options of moe_comm_create and moe_dist_create.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace moe::dist {

struct CommOptions {
  std::int64_t timeout_ms = 60000;
  int poll_us = 50;
  bool aborts = false;  // on_timeout
};
Result<CommOptions> parse_comm_options(std::string_view text);

enum class Mode : std::uint8_t { ep, tp };
enum class Combine : std::uint8_t { exact, compact };
constexpr std::array<std::string_view, 2> kModeNames = {"ep", "tp"}, kCombineNames = {"exact", "compact"};

struct DistOptions {
  Mode mode = Mode::ep;
  Placement placement = Placement::linear;
  std::vector<std::vector<std::int64_t>> table =
      {};                            // of a placement that is a list: the experts of each rank, ascending
  Combine combine = Combine::exact;  // of tp always compact
  std::int64_t max_tokens = 2048;    // per rank
  std::int64_t workspace_mb = 1024;
  std::int64_t chunk_tokens = 0;  // 0: as the workspace allows
  std::int64_t layer_id = 0;

  // All members, as every rank must have them.
  std::string canonical() const;
};
Result<DistOptions> parse_dist_options(std::string_view text);

}  // namespace moe::dist
