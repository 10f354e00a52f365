// The arguments of one operand's quantization, with the member names of compressed-tensors, and the
// rules between them (config.md 13). group_size, block_structure and actorder may be null.
#include <array>

#include "config/fields.h"
#include "config/quantization.h"
#include "config/sections.h"

namespace moe {
namespace {

using fields::Members;

constexpr std::array<std::string_view, 8> kArgs = {"num_bits",        "type",      "strategy", "group_size",
                                                   "block_structure", "symmetric", "dynamic",  "actorder"};

std::string word(Strategy s) { return std::string(kStrategyNames[static_cast<std::size_t>(s)]); }

// Absent and null are the same for group_size, block_structure and actorder.
const json::Value* not_null(const Members& members, std::string_view key) {
  const json::Value* v = members.get(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

Result<Dynamic> read_dynamic(const Members& members) {
  const json::Value* v = members.get("dynamic");
  if (v == nullptr) return Dynamic::no;
  if (const bool* b = v->boolean()) return *b ? Dynamic::yes : Dynamic::no;
  if (v->string() != nullptr && *v->string() == "local") return Dynamic::local;
  return fields::unexpected(members.at("dynamic"), *v, "true, false or \"local\"");
}

Result<std::optional<std::array<std::int64_t, 2>>> read_blocks(const Members& members) {
  const json::Value* v = not_null(members, "block_structure");
  if (v == nullptr) return std::optional<std::array<std::int64_t, 2>>();
  const std::string pointer = members.at("block_structure");
  if (v->array() == nullptr || v->array()->size() != 2) return fields::unexpected(pointer, *v, "[rows, columns]");
  std::array<std::int64_t, 2> block{};
  for (std::size_t i = 0; i < block.size(); ++i) {
    const json::Value& element = (*v->array())[i];
    const std::optional<std::int64_t> n = fields::as_integer(element);
    if (!n || *n < 1 || *n > 65536) {
      return fields::unexpected(pointer + "/" + std::to_string(i), element, "an integer in [1, 65536]");
    }
    block[i] = *n;
  }
  return std::optional(block);
}

Result<ActOrder> read_actorder(const Members& members, Operand operand) {
  static constexpr std::array<std::string_view, 4> kWords = {"group", "weight", "dynamic", "static"};
  static constexpr std::array<ActOrder, 4> kOrders = {ActOrder::group, ActOrder::weight, ActOrder::group,
                                                      ActOrder::weight};
  const json::Value* v = not_null(members, "actorder");
  if (v == nullptr || (v->boolean() != nullptr && !*v->boolean())) return ActOrder::none;
  ActOrder order = ActOrder::group;  // true
  if (v->boolean() == nullptr) {
    MOE_TRY(const std::optional<std::size_t> i, members.word("actorder", kWords));
    order = kOrders[*i];
  }
  if (operand == Operand::activations) {
    return fields::unexpected(members.at("actorder"), *v, "none, activations have no order");
  }
  return order;
}

// The rules between the arguments (config.md 13).
Check check_args(const Members& members, const QuantArgs& a, Operand operand) {
  const auto refuse = [&](std::string_view key, const std::string& why) { return fields::fault(members.at(key), why); };
  const std::string strategy = word(a.strategy);
  const bool weights = operand == Operand::weights;
  if (a.strategy == Strategy::token && a.dynamic == Dynamic::no) {
    return refuse("dynamic", "found false, expected true with strategy token");
  }
  if (a.strategy == Strategy::token && weights) return refuse("strategy", "found token, which is for activations only");
  if ((a.strategy == Strategy::channel || a.strategy == Strategy::block) && !weights) {
    return refuse("strategy", "found " + strategy + ", which is for weights only");
  }
  const bool sized = a.group_size && *a.group_size > 0;
  if (is_grouped(a.strategy) && !sized) {
    return refuse("group_size", (a.group_size ? "found " + std::to_string(*a.group_size) : std::string("missing")) +
                                    ", expected a positive one with strategy " + strategy);
  }
  if (sized && !is_grouped(a.strategy)) {
    return refuse("group_size",
                  "found " + std::to_string(*a.group_size) + ", but strategy " + strategy + " has no groups");
  }
  if (a.strategy == Strategy::block && !a.block_structure) {
    return refuse("block_structure", "missing, expected [rows, columns] with strategy block");
  }
  if (a.block_structure && a.strategy != Strategy::block) {
    return refuse("block_structure", "found " + json::write(*members.get("block_structure")) + ", but strategy " +
                                         strategy + " has no blocks");
  }
  if (a.actorder == ActOrder::group && !is_grouped(a.strategy)) {
    return refuse("actorder", "found " + fields::brief(*members.get("actorder")) + ", but strategy " + strategy +
                                  " has no groups to order");
  }
  if (a.dynamic == Dynamic::local && a.strategy != Strategy::tensor_group) {
    return refuse("dynamic", "found \"local\", expected strategy tensor_group with it, not " + strategy);
  }
  if (weights && a.dynamic != Dynamic::no) {
    return refuse("dynamic",
                  "found " + fields::brief(*members.get("dynamic")) + ", expected false: weights are static");
  }
  return ok();
}

}  // namespace

Result<std::optional<std::int64_t>> read_group_size(const Members& members) {
  if (not_null(members, "group_size") == nullptr) return std::optional<std::int64_t>();
  MOE_TRY(const std::optional<std::int64_t> g, members.integer("group_size", {-1, 65536}));
  if (*g == 0) return fields::fault(members.at("group_size"), "found 0, expected -1 (one group per row) or 1..65536");
  return g;
}

Result<QuantArgs> read_quant_args(const json::Value& object, std::string pointer, Operand operand) {
  MOE_TRY(const Members members, Members::open(&object, std::move(pointer), kArgs));
  QuantArgs a;
  MOE_TRY(const std::int64_t bits, members.integer("num_bits", {1, 8}, 8));
  MOE_TRY(a.type, members.word("type", kNumTypeNames, NumType::integer));
  if (bits != 4 && bits != 8)
    return fields::fault(members.at("num_bits"), "found " + std::to_string(bits) + ", expected 4 or 8");
  a.num_bits = static_cast<int>(bits);
  MOE_TRY(a.group_size, read_group_size(members));
  const Strategy derived = !a.group_size ? Strategy::tensor : *a.group_size == -1 ? Strategy::channel : Strategy::group;
  MOE_TRY(a.strategy, members.word("strategy", kStrategyNames, derived));
  MOE_TRY(a.symmetric, members.boolean("symmetric", true));
  MOE_TRY(a.dynamic, read_dynamic(members));
  MOE_TRY(a.block_structure, read_blocks(members));
  MOE_TRY(a.actorder, read_actorder(members, operand));
  MOE_CHECK(check_args(members, a, operand));
  return a;
}

}  // namespace moe
