// moe_describe("quant_config") and ("ocp_mx_scheme"): a call of a builder with positional and named arguments, and
// what the object it makes says of itself (describe.md 3, 4).
#include <array>
#include <span>

#include "config/fields.h"
#include "vllm/describe.h"
#include "vllm/quant_config_builders.h"

namespace moe {
namespace {

using fields::Members;

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;  // of a shape; answers are products of two

// --- arguments ------------------------------------------------------------------------------------------

Result<QuantType> read_type(const json::Value& v, const std::string& at) {
  if (v.is_null()) return QuantType::none;
  const std::optional<QuantType> t = v.string() == nullptr ? std::nullopt : quant_type_from_name(*v.string());
  if (!t) return fields::unexpected(at, v, "null or one of " + quant_type_names());
  return *t;
}

template <QuantType QuantArguments::*M>
Check type(QuantArguments& a, const json::Value& v, const std::string& at) {
  MOE_TRY(a.*M, read_type(v, at));
  return ok();
}

template <bool QuantArguments::*M>
Check flag(QuantArguments& a, const json::Value& v, const std::string& at) {
  if (v.boolean() == nullptr) return fields::unexpected(at, v, "true or false");
  a.*M = *v.boolean();
  return ok();
}

// Any tensor, or none.
template <bool QuantArguments::*M>
Check tensor(QuantArguments& a, const json::Value& v, const std::string& at) {
  if (!v.is_null() && (v.string() == nullptr || *v.string() != "tensor"))
    return fields::unexpected(at, v, "\"tensor\" or null");
  a.*M = !v.is_null();
  return ok();
}

template <std::optional<double> QuantArguments::*M>
Check number(QuantArguments& a, const json::Value& v, const std::string& at) {
  if (!v.is_null() && !fields::as_number(v)) return fields::unexpected(at, v, "a number or null");
  a.*M = fields::as_number(v);
  return ok();
}

Check weight_bits(QuantArguments& a, const json::Value& v, const std::string& at) {
  const std::optional<std::int64_t> i = fields::as_integer(v);
  if (!i) return fields::unexpected(at, v, "an integer");
  a.weight_bits = *i;  // the builder says which
  return ok();
}

Check group_size(QuantArguments& a, const json::Value& v, const std::string& at) {
  const std::optional<std::int64_t> i = fields::as_integer(v);
  if (!i || *i < -1 || *i == 0 || *i > kMaxSize) return fields::unexpected(at, v, "-1 or a positive integer");
  a.group_size = *i;
  return ok();
}

// [row, col]; rows 0 are vLLM's for WNA16.
Check block_shape(QuantArguments& a, const json::Value& v, const std::string& at) {
  if (v.is_null()) return ok();
  const json::Array* list = v.array();
  if (list == nullptr || list->size() != 2) return fields::unexpected(at, v, "[rows, columns] or null");
  std::array<std::int64_t, 2> shape{};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::optional<std::int64_t> n = fields::as_integer((*list)[i]);
    if (!n || *n < -1 || *n > kMaxSize || (i == 1 && *n == 0))
      return fields::unexpected(at + "/" + std::to_string(i), (*list)[i], "-1 or a positive integer");
    shape[i] = *n;
  }
  a.block_shape = GroupShape{shape[0], shape[1]};
  return ok();
}

struct Reader {
  std::string_view name;
  Check (*read)(QuantArguments& a, const json::Value& v, const std::string& at);
};
using Args = QuantArguments;
constexpr std::array kReaders = {
    Reader{"quant_dtype", type<&Args::quant_dtype>},
    Reader{"weight_dtype", type<&Args::weight_dtype>},
    Reader{"per_act_token_quant", flag<&Args::per_act_token_quant>},
    Reader{"per_out_ch_quant", flag<&Args::per_out_ch_quant>},
    Reader{"block_shape", block_shape},
    Reader{"w1_scale", tensor<&Args::w1_scale>},
    Reader{"w2_scale", tensor<&Args::w2_scale>},
    Reader{"a1_scale", tensor<&Args::a1_scale>},
    Reader{"a2_scale", tensor<&Args::a2_scale>},
    Reader{"g1_alphas", tensor<&Args::g1_alphas>},
    Reader{"g2_alphas", tensor<&Args::g2_alphas>},
    Reader{"a1_gscale", tensor<&Args::a1_gscale>},
    Reader{"a2_gscale", tensor<&Args::a2_gscale>},
    Reader{"w1_bias", tensor<&Args::w1_bias>},
    Reader{"w2_bias", tensor<&Args::w2_bias>},
    Reader{"w1_zp", tensor<&Args::w1_zp>},
    Reader{"w2_zp", tensor<&Args::w2_zp>},
    Reader{"weight_bits", weight_bits},
    Reader{"num_bits", weight_bits},
    Reader{"group_size", group_size},
    Reader{"is_scale_swizzled", flag<&Args::is_scale_swizzled>},
    Reader{"gemm1_alpha", number<&Args::gemm1_alpha>},
    Reader{"gemm1_beta", number<&Args::gemm1_beta>},
    Reader{"gemm1_clamp_limit", number<&Args::gemm1_clamp_limit>},
};

Check read_argument(QuantArguments& a, std::string_view name, const json::Value& v, const std::string& at) {
  for (const Reader& r : kReaders)
    if (r.name == name) return r.read(a, v, at);
  return fields::fault(at, "no reader for argument " + std::string(name));
}

Check read_positional(const QuantBuilder& b, const json::Array& given, QuantArguments& a) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string at = "/args/" + std::to_string(i);
    if (i >= b.positional.size())
      return fields::fault(at, "builder " + std::string(b.name) + " takes " + std::to_string(b.positional.size()) +
                                   " arguments by position");
    MOE_CHECK(read_argument(a, b.positional[i], given[i], at));
  }
  return ok();
}

Check read_named(const QuantBuilder& b, const json::Object& given, std::size_t positional, QuantArguments& a) {
  for (const auto& [name, value] : given) {
    const std::string at = fields::child("/kwargs", name);
    const std::optional<std::size_t> place = fields::index_of(b.positional, name);
    if (place && *place < positional)
      return fields::fault(at, "argument " + name + " is given by position too, as /args/" + std::to_string(*place));
    if (!place && !fields::index_of(b.by_name, name))
      return fields::fault(at, "builder " + std::string(b.name) + " has no argument " + fields::brief(name));
    MOE_CHECK(read_argument(a, name, value, at));
  }
  return ok();
}

Result<QuantConfig> built(const Members& query) {
  const json::Value* word = query.get("builder");
  std::string names;
  for (const QuantBuilder& b : quant_builders()) names += (names.empty() ? "" : ", ") + std::string(b.name);
  if (word == nullptr) return fields::missing("/builder", "one of " + names);
  const QuantBuilder* builder = word->string() == nullptr ? nullptr : find_quant_builder(*word->string());
  if (builder == nullptr) return fields::unexpected("/builder", *word, "one of " + names);

  QuantArguments a;
  MOE_TRY(const std::optional<std::size_t> profile, query.word("profile", kQuantProfileNames));
  if (profile && kQuantProfileNames[*profile] == "2026-05") a.profile = QuantProfile::may_2026;
  static constexpr std::array<std::string_view, 2> kFp8 = {"fp8_e4m3fn", "fp8_e4m3fnuz"};
  MOE_TRY(const std::optional<std::size_t> fp8, query.word("platform_fp8", kFp8));
  if (fp8.value_or(0) == 1) a.platform_fp8 = QuantType::fp8_e4m3fnuz;
  const json::Value none_given = json::Array(), none_named = json::Object();
  const json::Value& args = query.has("args") ? *query.get("args") : none_given;
  const json::Value& kwargs = query.has("kwargs") ? *query.get("kwargs") : none_named;
  if (args.array() == nullptr) return fields::unexpected("/args", args, "an array");
  if (kwargs.object() == nullptr) return fields::unexpected("/kwargs", kwargs, "an object");
  MOE_CHECK(read_positional(*builder, *args.array(), a));
  MOE_CHECK(read_named(*builder, *kwargs.object(), args.array()->size(), a));
  for (std::size_t i = args.array()->size(); i < builder->required; ++i)
    if (kwargs.find(builder->positional[i]) == nullptr)
      return fields::missing(fields::child("/kwargs", builder->positional[i]),
                             "the argument that builder " + std::string(builder->name) + " requires");
  return builder->build(a);
}

// --- the answer -----------------------------------------------------------------------------------------

json::Value type_value(QuantType t) { return t == QuantType::none ? json::Value() : json::Value(quant_type_name(t)); }
json::Value name_value(std::string_view name) { return name.empty() ? json::Value() : json::Value(name); }
json::Value shape_value(const std::optional<GroupShape>& s) {
  return s ? json::Value(json::Array{s->row, s->col}) : json::Value();
}
json::Value real_value(const std::optional<double>& d) { return d ? json::Value(*d) : json::Value(); }

json::Value desc_value(const QuantDesc& d) {
  return json::Object{{"dtype", type_value(d.dtype)},
                      {"shape", shape_value(d.shape)},
                      {"scale", d.scale},
                      {"alpha_or_gscale", d.alpha_or_gscale},
                      {"zp", d.zp},
                      {"bias", d.bias}};
}

json::Value predicates_value(const QuantConfig& q) {
  return json::Object{{"quant_dtype", type_value(q.a1.dtype)},
                      {"weight_quant_dtype", type_value(q.w1.dtype)},
                      {"is_quantized", q.is_quantized()},
                      {"per_act_token_quant", q.per_act_token_quant()},
                      {"per_out_ch_quant", q.per_out_ch_quant()},
                      {"is_per_tensor", q.is_per_tensor()},
                      {"block_shape", shape_value(q.block_shape())},
                      {"is_block_quantized", q.is_block_quantized()},
                      {"use_fp8_w8a8", q.use_fp8_w8a8()},
                      {"use_int8_w8a8", q.use_int8_w8a8()},
                      {"use_int8_w8a16", q.use_int8_w8a16()},
                      {"use_fp8_w8a16", q.use_fp8_w8a16()},
                      {"use_int4_w4a16", q.use_int4_w4a16()},
                      {"use_nvfp4_w4a16", q.use_nvfp4_w4a16()},
                      {"ocp_mx_scheme", name_value(q.ocp_mx_scheme())},
                      {"use_mxfp4_w4a16", q.use_mxfp4_w4a16()},
                      {"use_mxfp4_w4a4", q.use_mxfp4_w4a4()},
                      {"use_nvfp4_w4a4", q.use_nvfp4_w4a4()},
                      {"use_mxfp4_w4a8", q.use_mxfp4_w4a8()}};
}

struct ScaleQuestion {
  std::int64_t max_tokens, hidden_dim, num_experts;
};

Result<std::vector<ScaleQuestion>> read_shapes(const Members& query) {
  static constexpr std::array<std::string_view, 3> kMembers = {"max_tokens", "hidden_dim", "num_experts"};
  const json::Value* v = query.get("shapes");
  if (v == nullptr) return std::vector<ScaleQuestion>{{1, 7, 5}, {33, 7168, 5}, {256, 200, 5}};
  if (v->array() == nullptr)
    return fields::unexpected("/shapes", *v, "an array of {\"max_tokens\", \"hidden_dim\", \"num_experts\"}");
  std::vector<ScaleQuestion> questions;
  for (const json::Value& entry : *v->array()) {
    MOE_TRY(const Members members, Members::open(&entry, "/shapes/" + std::to_string(questions.size()), kMembers));
    std::array<std::int64_t, 3> n{};
    for (std::size_t i = 0; i < n.size(); ++i) {
      if (!members.has(kMembers[i])) return fields::missing(members.at(kMembers[i]), "a positive integer");
      MOE_TRY(n[i], members.integer(kMembers[i], {1, kMaxSize}, 1));
    }
    questions.push_back({n[0], n[1], n[2]});
  }
  return questions;
}

template <std::size_t n>
json::Value array_value(const std::optional<std::array<std::int64_t, n>>& shape) {
  if (!shape) return {};
  return json::Array(shape->begin(), shape->end());
}

}  // namespace

json::Value quant_config_value(const QuantConfig& q) {
  const json::Object descs = {
      {"a1", desc_value(q.a1)}, {"a2", desc_value(q.a2)}, {"w1", desc_value(q.w1)}, {"w2", desc_value(q.w2)}};
  const json::Object names = {{"fp32", name_value(q.config_name(QuantType::fp32))},
                              {"bf16", name_value(q.config_name(QuantType::bf16))}};
  const json::Object suffixes = {{"fp32", q.tuning_suffix(QuantType::fp32)},
                                 {"bf16", q.tuning_suffix(QuantType::bf16)}};
  return json::Object{{"descs", descs},
                      {"predicates", predicates_value(q)},
                      {"config_name", names},
                      {"tuning_suffix", suffixes},
                      {"is_scale_swizzled", q.is_scale_swizzled},
                      {"gemm1_alpha", real_value(q.gemm1_alpha)},
                      {"gemm1_beta", real_value(q.gemm1_beta)},
                      {"gemm1_clamp_limit", real_value(q.gemm1_clamp_limit)}};
}

Result<std::string> describe_quant_config(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 6> kMembers = {"builder", "args",         "kwargs",
                                                               "profile", "platform_fp8", "shapes"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  MOE_TRY(const QuantConfig q, built(query));
  MOE_TRY(const std::vector<ScaleQuestion> questions, read_shapes(query));
  json::Array shapes;
  for (const ScaleQuestion& s : questions)
    shapes.emplace_back(
        json::Object{{"max_tokens", s.max_tokens},
                     {"hidden_dim", s.hidden_dim},
                     {"num_experts", s.num_experts},
                     {"shape", array_value(q.scale_shape(s.max_tokens, s.hidden_dim))},
                     {"batched", array_value(q.batched_scale_shape(s.num_experts, s.max_tokens, s.hidden_dim))}});
  json::Value answer = quant_config_value(q);
  answer.set("scale_shape", std::move(shapes));
  return json::write(answer);
}

Result<std::string> describe_ocp_mx_scheme(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 2> kMembers = {"act", "weight"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  for (const std::string_view name : kMembers)
    if (!query.has(name)) return fields::missing(query.at(name), "null or one of " + quant_type_names());
  MOE_TRY(const QuantType act, read_type(*query.get("act"), "/act"));
  MOE_TRY(const QuantType weight, read_type(*query.get("weight"), "/weight"));
  const OcpMxScheme s = ocp_mx_scheme(act, weight);
  json::Value answer = json::Object{{"scheme", name_value(s.name)}};
  if (s.unknown_mx_pair) answer.set("warning", "unknown_mx_pair");
  return json::write(answer);
}

}  // namespace moe
