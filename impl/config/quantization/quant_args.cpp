// The arguments of one operand's quantization, with the member names of compressed-tensors, and the
// rules between them (config.md 13). group_size, block_structure and actorder may be null.
#include <array>

#include "base/index.h"
#include "base/text.h"
#include "config/field_rows.h"
#include "config/quantization/quantization.h"
#include "config/sections.h"

namespace moe::config {
namespace {

using fields::Members;

// The arguments while they are read.
struct Args {
  QuantArgs args;
  Operand operand = Operand::weights;
};
using Owner = Args;

std::string word(Strategy s) { return std::string(at(kStrategyNames, s)); }

// Absent and null are the same for group_size, block_structure and actorder.
const json::Value* not_null(const Members& members, std::string_view key) {
  const json::Value* v = members.get(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

Check read_num_bits(const Members& members, Args& o) {
  MOE_TRY(const std::int64_t bits, members.integer("num_bits", {1, 8}, 8));
  o.args.num_bits = static_cast<int>(bits);
  return ok();
}
void write_num_bits(const Args& o, json::Object& out) { out.emplace_back("num_bits", o.args.num_bits); }

Check read_num_type(const Members& members, Args& o) {
  MOE_TRY(o.args.type, members.word("type", kNumTypeNames, NumType::integer));
  if (has_bits(o.args.type, o.args.num_bits)) return ok();
  std::string known;
  for (int bits = 1; bits <= 8; ++bits)
    if (has_bits(o.args.type, bits)) known += cat(known.empty() ? "" : bits == 8 ? " or " : ", ", bits);
  return fields::fault(members.at("num_bits"), cat("found ", o.args.num_bits, ", expected ", known));
}
void write_num_type(const Args& o, json::Object& out) {
  out.emplace_back("type", word_value(kNumTypeNames, o.args.type));
}

Check read_args_group_size(const Members& members, Args& o) {
  return fields::put(read_group_size(members), o.args.group_size);
}
void write_group_size(const Args& o, json::Object& out) { out.emplace_back("group_size", or_null(o.args.group_size)); }

Check read_strategy(const Members& members, Args& o) {
  const std::optional<std::int64_t>& g = o.args.group_size;
  const Strategy derived = !g ? Strategy::tensor : *g == -1 ? Strategy::channel : Strategy::group;
  return fields::put(members.word("strategy", kStrategyNames, derived), o.args.strategy);
}
void write_strategy(const Args& o, json::Object& out) {
  out.emplace_back("strategy", word_value(kStrategyNames, o.args.strategy));
}

Check read_dynamic(const Members& members, Args& o) {
  const json::Value* v = members.get("dynamic");
  if (v == nullptr) return ok();
  if (const bool* b = v->boolean()) {
    o.args.dynamic = *b ? Dynamic::yes : Dynamic::no;
    return ok();
  }
  if (v->string() == nullptr || *v->string() != "local")
    return fields::unexpected(members.at("dynamic"), *v, "true, false or \"local\"");
  o.args.dynamic = Dynamic::local;
  return ok();
}
void write_dynamic(const Args& o, json::Object& out) {
  const Dynamic d = o.args.dynamic;
  out.emplace_back("dynamic", d == Dynamic::local ? json::Value("local") : json::Value(d == Dynamic::yes));
}

Check read_blocks(const Members& members, Args& o) {
  const json::Value* v = not_null(members, "block_structure");
  if (v == nullptr) return ok();
  const std::string pointer = members.at("block_structure");
  if (v->array() == nullptr || v->array()->size() != 2) return fields::unexpected(pointer, *v, "[rows, columns]");
  std::array<std::int64_t, 2> block{};
  for (std::size_t i = 0; i < block.size(); ++i) {
    MOE_TRY(block[i], fields::integer_value((*v->array())[i], cat(pointer, "/", i), {1, 65536}));
  }
  o.args.block_structure = block;
  return ok();
}
void write_blocks(const Args& o, json::Object& out) {
  json::Value block;
  if (const auto& b = o.args.block_structure) block = json::Array{(*b)[0], (*b)[1]};
  out.emplace_back("block_structure", std::move(block));
}

Check read_actorder(const Members& members, Args& o) {
  static constexpr std::array<std::string_view, 4> kWords = {"group", "weight", "dynamic", "static"};
  static constexpr std::array<ActOrder, 4> kOrders = {ActOrder::group, ActOrder::weight, ActOrder::group,
                                                      ActOrder::weight};
  const json::Value* v = not_null(members, "actorder");
  if (v == nullptr || (v->boolean() != nullptr && !*v->boolean())) return ok();
  ActOrder order = ActOrder::group;  // true
  if (v->boolean() == nullptr) {
    MOE_TRY(const std::optional<std::size_t> i, members.word("actorder", kWords));
    order = kOrders[*i];
  }
  if (o.operand == Operand::activations) {
    return fields::unexpected(members.at("actorder"), *v, "none, activations have no order");
  }
  o.args.actorder = order;
  return ok();
}
void write_actorder(const Args& o, json::Object& out) {
  json::Value order;
  if (o.args.actorder != ActOrder::none) order = json::Value(o.args.actorder == ActOrder::group ? "group" : "weight");
  out.emplace_back("actorder", std::move(order));
}

Check read_scale_format(const Members& members, Args& o) {
  MOE_TRY(o.args.scale_format, members.word("scale_format", kScaleFormatNames, ScaleFormat::float32));
  if (o.args.scale_format == ScaleFormat::float32 || o.operand == Operand::activations) return ok();
  return fields::unexpected(members.at("scale_format"), *members.get("scale_format"), "float32 with weights");
}
// Where it says nothing the document stays as it was before this member.
void write_scale_format(const Args& o, json::Object& out) {
  if (o.args.scale_format != ScaleFormat::float32)
    out.emplace_back("scale_format", word_value(kScaleFormatNames, o.args.scale_format));
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
    return refuse("strategy", cat("found ", strategy, ", which is for weights only"));
  }
  const bool sized = a.group_size && *a.group_size > 0;
  if (is_grouped(a.strategy) && !sized) {
    return refuse("group_size", cat(a.group_size ? cat("found ", *a.group_size) : std::string("missing"),
                                    ", expected a positive one with strategy ", strategy));
  }
  if (sized && !is_grouped(a.strategy)) {
    return refuse("group_size", cat("found ", *a.group_size, ", but strategy ", strategy, " has no groups"));
  }
  if (a.strategy == Strategy::block && !a.block_structure) {
    return refuse("block_structure", "missing, expected [rows, columns] with strategy block");
  }
  if (a.block_structure && a.strategy != Strategy::block) {
    return refuse("block_structure", cat("found ", json::write(*members.get("block_structure")), ", but strategy ",
                                         strategy, " has no blocks"));
  }
  if (a.actorder == ActOrder::group && !is_grouped(a.strategy)) {
    return refuse("actorder", cat("found ", fields::brief(*members.get("actorder")), ", but strategy ", strategy,
                                  " has no groups to order"));
  }
  if (a.dynamic == Dynamic::local && a.strategy != Strategy::tensor_group) {
    return refuse("dynamic", "found \"local\", expected strategy tensor_group with it, not " + strategy);
  }
  const bool dynamic_groups =
      a.type == NumType::floating && a.num_bits == 8 && a.strategy == Strategy::group && a.dynamic == Dynamic::yes;
  if (a.scale_format != ScaleFormat::float32 && !dynamic_groups) {
    return refuse("scale_format", cat("found ", fields::brief(*members.get("scale_format")),
                                      ", which dynamic groups of 8-bit floats have, not these"));
  }
  if (weights && a.dynamic != Dynamic::no) {
    return refuse("dynamic",
                  cat("found ", fields::brief(*members.get("dynamic")), ", expected false: weights are static"));
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

// clang-format off
constexpr fields::Field<Owner> kFields[] = {
#define MOE_FIELD_PLACE(owner) owner.args
#define MOE_FIELDS_QUANT_ARGS
#include "config/field_rows.inc"
};
// clang-format on

Result<QuantArgs> read_quant_args(const json::Value& object, std::string pointer, Operand operand) {
  MOE_TRY(const Members members, fields::open_fields(&object, std::move(pointer), kFields));
  Args read{.args = {}, .operand = operand};
  MOE_CHECK(fields::read_fields(members, kFields, read));
  MOE_CHECK(check_args(members, read.args, operand));
  return read.args;
}

json::Value quant_args_value(const std::optional<QuantArgs>& args) {
  if (!args) return {};
  return fields::write_fields(kFields, Args{.args = *args});
}

}  // namespace moe::config
