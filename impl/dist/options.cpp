// JSON -> options. A fault has the pointer of its member.
#include "dist/options.h"

#include <algorithm>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "config/fields.h"

namespace moe::dist {
namespace {

using config::fields::Members;

constexpr std::array<std::string_view, 2> kTimeoutNames = {"error", "abort"}, kPlacements = {"linear", "round_robin"};
constexpr auto kCommNames = std::to_array<std::string_view>({"timeout_ms", "poll_us", "on_timeout"});
constexpr auto kDistNames = std::to_array<std::string_view>(
    {"mode", "placement", "combine", "max_tokens_per_rank", "workspace_mb", "chunk_tokens", "layer_id"});

// "" is an empty object.
Result<json::Value> parse_object(std::string_view text) {
  if (text.empty()) return json::Value(json::Object{});
  Result<json::Value> value = json::parse(text, {.max_bytes = std::size_t{1} << 20, .max_depth = 8});
  if (!value) value.error().subject = "options_json";
  return value;
}

// A list of a list of experts for each rank.
Check read_table(const json::Value& value, const std::string& pointer, std::vector<std::vector<std::int64_t>>& table) {
  for (const json::Value& rank : *value.array()) {
    const std::string at_rank = config::fields::child(pointer, cat(table.size()));
    if (rank.array() == nullptr) return config::fields::unexpected(at_rank, rank, "an array of the numbers of experts");
    std::vector<std::int64_t>& experts = table.emplace_back();
    for (const json::Value& item : *rank.array()) {
      MOE_TRY(const std::int64_t expert,
              config::fields::integer_value(item, config::fields::child(at_rank, cat(experts.size())), {0, 65535}));
      experts.push_back(expert);
    }
    std::sort(experts.begin(), experts.end());
  }
  return ok();
}

}  // namespace

Result<CommOptions> parse_comm_options(std::string_view text) {
  MOE_TRY(const json::Value document, parse_object(text));
  MOE_TRY(const Members m, Members::open(&document, "", kCommNames));
  CommOptions o;
  MOE_TRY(o.timeout_ms, m.integer("timeout_ms", {1, 86'400'000}, o.timeout_ms));
  MOE_TRY(const std::int64_t poll, m.integer("poll_us", {0, 1'000'000}, o.poll_us));
  o.poll_us = static_cast<int>(poll);
  MOE_TRY(const std::optional<std::size_t> word, m.word("on_timeout", kTimeoutNames));
  o.aborts = word == 1U;
  return o;
}

Result<DistOptions> parse_dist_options(std::string_view text) {
  MOE_TRY(const json::Value document, parse_object(text));
  MOE_TRY(const Members m, Members::open(&document, "", kDistNames));
  DistOptions o;
  MOE_TRY(o.mode, m.word("mode", kModeNames, o.mode));
  if (const json::Value* v = m.get("placement"); v != nullptr && v->array() != nullptr) {
    if (o.mode == Mode::tp)
      return config::fields::fault("/placement", "found a list, expected none in mode tp: every rank has all experts");
    MOE_CHECK(read_table(*v, "/placement", o.table));
    if (o.table.empty()) return config::fields::unexpected("/placement", *v, "a list of experts for each rank");
  } else {
    MOE_TRY(const std::optional<std::size_t> placement, m.word("placement", kPlacements));
    if (placement == 1U) o.placement = Placement::round_robin;
  }
  MOE_TRY(o.combine, m.word("combine", kCombineNames, o.mode == Mode::tp ? Combine::compact : Combine::exact));
  if (o.mode == Mode::tp && o.combine == Combine::exact)
    return config::fields::fault("/combine", "found \"exact\", expected \"compact\" in mode tp: its sums are cut");
  MOE_TRY(o.max_tokens, m.integer("max_tokens_per_rank", {1, 1 << 24}, o.max_tokens));
  MOE_TRY(o.workspace_mb, m.integer("workspace_mb", {1, 1 << 24}, o.workspace_mb));
  MOE_TRY(o.chunk_tokens, m.integer("chunk_tokens", {0, 1 << 24}, 0));
  MOE_TRY(o.layer_id, m.integer("layer_id", {0, INT64_MAX}, 0));
  return o;
}

std::string DistOptions::canonical() const {
  json::Writer w;
  w.begin_object().member("mode", at(kModeNames, mode)).member("combine", at(kCombineNames, combine));
  w.key("placement");
  if (table.empty()) {
    w.value(kPlacements[placement == Placement::linear ? 0 : 1]);
  } else {
    w.begin_array();
    for (const auto& experts : table) w.array(experts);
    w.end_array();
  }
  w.member("max_tokens_per_rank", max_tokens).member("workspace_mb", workspace_mb);
  return w.member("chunk_tokens", chunk_tokens).member("layer_id", layer_id).end_object().take();
}

}  // namespace moe::dist
