// moe_describe("expert_map"), ("eplb_map"), ("align_block_size") and ("permute"): the tables of expert_maps.h for one
// question (describe.md 7, 8).
#include <array>

#include "base/text.h"
#include "config/sections.h"
#include "vllm/expert_maps.h"
#include "vllm/topics.h"

namespace moe::vllm {
namespace {

using fields::Members;

constexpr fields::IntegerRange kExperts = {1, 65536};
// Numbers in one array of an answer: a query of a few bytes must not ask for gigabytes.
constexpr std::int64_t kMaxNumbers = std::int64_t{1} << 20;

void write_rows(json::Writer& w, const std::vector<Ids>& rows) {
  w.begin_array();
  for (const Ids& row : rows) w.array(row);
  w.end_array();
}

Result<std::int64_t> required(const Members& query, std::string_view name, fields::IntegerRange range) {
  MOE_TRY(const std::optional<std::int64_t> n, query.integer(name, range));
  if (!n) return fields::missing(query.at(name), cat("an integer in [", range.low, ", ", range.high, "]"));
  return *n;
}

// topk_ids [T][k], any integers.
Result<std::vector<Ids>> read_ids(const Members& query) {
  const json::Value* v = query.get("topk_ids");
  if (v == nullptr) return fields::missing("/topk_ids", "an array of rows of integers");
  if (v->array() == nullptr) return fields::unexpected("/topk_ids", *v, "an array of rows of integers");
  std::vector<Ids> rows;
  for (const json::Value& given : *v->array()) {
    const std::string at = cat("/topk_ids/", rows.size());
    if (given.array() == nullptr) return fields::unexpected(at, given, "an array of integers");
    if (!rows.empty() && given.array()->size() != rows[0].size())
      return fields::unexpected(at, given, cat("a row of ", rows[0].size(), " ids, like the first"));
    Ids row;
    for (const json::Value& id : *given.array()) {
      const std::optional<std::int64_t> i = fields::as_integer(id);
      if (!i) return fields::unexpected(cat(at, "/", row.size()), id, "an integer");
      row.push_back(*i);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// What align_block_size and permute have in common.
struct Batch {
  std::int64_t num_experts = 0;
  Ids ids;         // flat
  Ids expert_map;  // empty: none
};

Result<Ids> read_map(const Members& query, std::int64_t num_experts, std::int64_t num_local) {
  const json::Value* v = query.get("expert_map");
  if (v == nullptr || v->is_null()) return Ids();
  if (v->array() == nullptr || static_cast<std::int64_t>(v->array()->size()) != num_experts)
    return fields::unexpected("/expert_map", *v, cat("null or an array of num_experts = ", num_experts, " integers"));
  Ids map;
  for (const json::Value& entry : *v->array()) {
    const std::optional<std::int64_t> i = fields::as_integer(entry);
    if (!i || *i < -1 || *i >= num_local)
      return fields::unexpected(cat("/expert_map/", map.size()), entry, cat("-1 or a local index below ", num_local));
    map.push_back(*i);
  }
  return map;
}

Result<Batch> read_batch(const Members& query, std::int64_t num_experts, std::int64_t num_local) {
  Batch b;
  b.num_experts = num_experts;
  MOE_TRY(const std::vector<Ids> rows, read_ids(query));
  MOE_TRY(const std::optional<std::int64_t> top_k, query.integer("top_k", {1, 65536}));
  if (rows.empty() && !top_k) return fields::missing("/top_k", "an integer, because topk_ids has no rows");
  if (!rows.empty() && top_k && *top_k != static_cast<std::int64_t>(rows[0].size()))
    return fields::fault("/top_k", cat("found ", *top_k, ", expected the length of a row, ", rows[0].size()));
  for (std::size_t t = 0; t < rows.size(); ++t)
    for (std::size_t j = 0; j < rows[t].size(); ++j) {
      if (rows[t][j] < 0 || rows[t][j] >= num_experts)
        return fields::fault(cat("/topk_ids/", t, "/", j),
                             cat("found expert ", rows[t][j], ", expected one of [0, ", num_experts, ")"));
      b.ids.push_back(rows[t][j]);
    }
  MOE_TRY(b.expert_map, read_map(query, num_experts, num_local));
  return b;
}

}  // namespace

Result<std::string> describe_expert_map(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 4> kMembers = {"num_experts", "ep_size", "ep_rank", "strategy"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  MOE_TRY(const std::int64_t experts, required(query, "num_experts", kExperts));
  MOE_TRY(const std::int64_t size, query.integer("ep_size", {1, 65536}, 1));
  MOE_TRY(const std::int64_t rank, query.integer("ep_rank", {-65536, 65536}, 0));
  MOE_TRY(const Placement strategy, query.word("strategy", kPlacementNames, Placement::linear));
  if (size > experts)
    return fields::fault("/ep_size",
                         cat("found ", size, " ranks, expected at most one per expert, which are ", experts));
  if (rank < 0 || rank >= size)
    return fields::fault("/ep_rank", cat("found ", rank, ", expected one of [0, ", size, ")"));
  json::Writer w;
  w.begin_object().member("num_local", experts_of_rank(experts, size, rank, strategy).size()).key("map");
  if (size == 1)
    w.null();
  else
    w.array(expert_map(experts, size, rank, strategy));
  if (size > 1 && strategy == Placement::round_robin) {
    const RoundRobinTables t = round_robin_tables(experts, size, rank);
    w.key("global_to_physical").array(t.global_to_physical);
    w.key("physical_to_global").array(t.physical_to_global);
    w.key("local_to_global").array(t.local_to_global);
  }
  return w.end_object().take();
}

Result<std::string> describe_eplb_map(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 3> kMembers = {"num_logical", "num_redundant", "topk_ids"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  MOE_TRY(const std::int64_t logical, required(query, "num_logical", kExperts));
  MOE_TRY(const std::int64_t redundant, required(query, "num_redundant", {0, 65536}));
  if (logical * (redundant + 1) > kMaxNumbers)
    return fields::fault("/num_redundant",
                         cat("found ", redundant, ", expected a table [num_logical][num_redundant + 1] of at most ",
                             kMaxNumbers, " numbers"));
  MOE_TRY(const std::vector<Ids> ids, read_ids(query));
  const EplbPlacement p = initial_eplb_placement(logical, redundant);
  std::vector<Ids> physical = ids;
  for (std::size_t row = 0; row < physical.size(); ++row)
    for (std::int64_t& id : physical[row]) id = eplb_physical_id(p, static_cast<std::int64_t>(row), id);
  json::Writer w;
  w.begin_object().key("physical_to_logical").array(p.physical_to_logical);
  write_rows(w.key("logical_to_physical"), p.logical_to_physical);
  w.key("replica_count").array(p.replica_count);
  write_rows(w.key("physical_ids"), physical);
  return w.end_object().take();
}

Result<std::string> describe_align_block_size(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 6> kMembers = {"topk_ids",    "top_k",      "block_size",
                                                               "num_experts", "expert_map", "pad_sorted_ids"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  MOE_TRY(const std::int64_t experts, required(query, "num_experts", kExperts));
  MOE_TRY(const std::int64_t block, required(query, "block_size", {1, kMaxNumbers}));
  MOE_TRY(const bool pad, query.boolean("pad_sorted_ids", false));
  MOE_TRY(const Batch b, read_batch(query, experts, experts));
  const AlignQuestion q{.block_size = block, .num_experts = experts, .expert_map = b.expert_map, .pad_sorted_ids = pad};
  if (const std::int64_t n = aligned_length(static_cast<std::int64_t>(b.ids.size()), q); n > kMaxNumbers)
    return fields::fault("/block_size",
                         cat("found ", block, ", so an answer of ", n, " slots, expected at most ", kMaxNumbers));
  const AlignedBlocks a = align_block_size(b.ids, q);
  json::Writer w;
  w.begin_object().key("sorted_ids").array(a.sorted_ids).key("expert_ids").array(a.expert_ids);
  return w.member("num_tokens_post_padded", a.num_tokens_post_padded).end_object().take();
}

Result<std::string> describe_permute(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 5> kMembers = {"topk_ids", "top_k", "num_experts", "expert_map",
                                                               "num_local"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  MOE_TRY(const std::int64_t experts, required(query, "num_experts", kExperts));
  MOE_TRY(const std::int64_t local, query.integer("num_local", {1, experts}, experts));
  MOE_TRY(const Batch b, read_batch(query, experts, local));
  const Permutation p = permute(b.ids, experts, b.expert_map, local);
  json::Writer w;
  w.begin_object().key("src").array(p.src).key("dst").array(p.dst);
  w.key("first_token_offset").array(p.first_token_offset);
  w.key("tokens_per_expert").array(p.tokens_per_expert);
  return w.end_object().take();
}

}  // namespace moe::vllm
