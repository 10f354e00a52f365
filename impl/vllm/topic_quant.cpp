// moe_describe("quant_config") and ("ocp_mx_scheme"): a call of a builder with positional and named arguments, and
// what the object it makes says of itself (describe.md 3, 4).
#include <array>
#include <span>

#include "base/text.h"
#include "config/fields.h"
#include "vllm/quant_config_builders.h"
#include "vllm/topics.h"

namespace moe::vllm {
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

template <QuantType BuilderArgs::*M>
Check type(BuilderArgs& a, const json::Value& v, const std::string& at) {
  MOE_TRY(a.*M, read_type(v, at));
  return ok();
}

template <bool BuilderArgs::*M>
Check flag(BuilderArgs& a, const json::Value& v, const std::string& at) {
  if (v.boolean() == nullptr) return fields::unexpected(at, v, "true or false");
  a.*M = *v.boolean();
  return ok();
}

// Any tensor, or none.
template <bool BuilderArgs::*M>
Check tensor(BuilderArgs& a, const json::Value& v, const std::string& at) {
  if (!v.is_null() && (v.string() == nullptr || *v.string() != "tensor"))
    return fields::unexpected(at, v, "\"tensor\" or null");
  a.*M = !v.is_null();
  return ok();
}

template <std::optional<double> BuilderArgs::*M>
Check number(BuilderArgs& a, const json::Value& v, const std::string& at) {
  if (!v.is_null() && !fields::as_number(v)) return fields::unexpected(at, v, "a number or null");
  a.*M = fields::as_number(v);
  return ok();
}

Check weight_bits(BuilderArgs& a, const json::Value& v, const std::string& at) {
  const std::optional<std::int64_t> i = fields::as_integer(v);
  if (!i) return fields::unexpected(at, v, "an integer");
  a.weight_bits = *i;  // the builder says which
  return ok();
}

Check group_size(BuilderArgs& a, const json::Value& v, const std::string& at) {
  const std::optional<std::int64_t> i = fields::as_integer(v);
  if (!i || *i < -1 || *i == 0 || *i > kMaxSize) return fields::unexpected(at, v, "-1 or a positive integer");
  a.group_size = *i;
  return ok();
}

// [row, col]; rows 0 are vLLM's for WNA16.
Check block_shape(BuilderArgs& a, const json::Value& v, const std::string& at) {
  if (v.is_null()) return ok();
  const json::Array* list = v.array();
  if (list == nullptr || list->size() != 2) return fields::unexpected(at, v, "[rows, columns] or null");
  std::array<std::int64_t, 2> shape{};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::optional<std::int64_t> n = fields::as_integer((*list)[i]);
    if (!n || *n < -1 || *n > kMaxSize || (i == 1 && *n == 0))
      return fields::unexpected(cat(at, "/", i), (*list)[i], "-1 or a positive integer");
    shape[i] = *n;
  }
  a.block_shape = GroupShape{shape[0], shape[1]};
  return ok();
}

struct Reader {
  std::string_view name;
  Check (*read)(BuilderArgs& a, const json::Value& v, const std::string& at);
};
using Args = BuilderArgs;
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

Check read_argument(BuilderArgs& a, std::string_view name, const json::Value& v, const std::string& at) {
  for (const Reader& r : kReaders)
    if (r.name == name) return r.read(a, v, at);
  return fields::fault(at, cat("no reader for argument ", name));
}

Check read_positional(const QuantBuilder& b, const json::Array& given, BuilderArgs& a) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string at = cat("/args/", i);
    if (i >= b.positional.size())
      return fields::fault(at, cat("builder ", b.name, " takes ", b.positional.size(), " arguments by position"));
    MOE_CHECK(read_argument(a, b.positional[i], given[i], at));
  }
  return ok();
}

Check read_named(const QuantBuilder& b, const json::Object& given, std::size_t positional, BuilderArgs& a) {
  for (const auto& [name, value] : given) {
    const std::string at = fields::child("/kwargs", name);
    const std::optional<std::size_t> place = fields::index_of(b.positional, name);
    if (place && *place < positional)
      return fields::fault(at, cat("argument ", name, " is given by position too, as /args/", *place));
    if (!place && !fields::index_of(b.by_name, name))
      return fields::fault(at, cat("builder ", b.name, " has no argument ", fields::brief(name)));
    MOE_CHECK(read_argument(a, name, value, at));
  }
  return ok();
}

Result<QuantConfig> built(const Members& query) {
  const json::Value* word = query.get("builder");
  std::string names;
  for (const QuantBuilder& b : quant_builders()) names += cat(names.empty() ? "" : ", ", b.name);
  if (word == nullptr) return fields::missing("/builder", "one of " + names);
  const QuantBuilder* builder = word->string() == nullptr ? nullptr : find_quant_builder(*word->string());
  if (builder == nullptr) return fields::unexpected("/builder", *word, "one of " + names);

  BuilderArgs a;
  MOE_TRY(const std::optional<std::size_t> profile, query.word("profile", kProfileNames));
  if (profile) a.profile = profile_at(*profile);
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
                             cat("the argument that builder ", builder->name, " requires"));
  return builder->build(a);
}

// --- the answer -----------------------------------------------------------------------------------------

std::optional<std::string_view> word_of(std::string_view name) {
  return name.empty() ? std::nullopt : std::optional(name);
}
std::optional<std::string_view> word_of(QuantType t) { return word_of(quant_type_name(t)); }

std::optional<std::array<std::int64_t, 2>> numbers_of(const std::optional<GroupShape>& s) {
  return s ? std::optional(std::array{s->row, s->col}) : std::nullopt;
}

void write_desc(json::Writer& w, const QuantDesc& d) {
  w.begin_object().member("dtype", word_of(d.dtype)).key("shape").array(numbers_of(d.shape));
  w.member("scale", d.scale).member("alpha_or_gscale", d.alpha_or_gscale);
  w.member("zp", d.zp).member("bias", d.bias).end_object();
}

void write_predicates(json::Writer& w, const QuantConfig& q) {
  w.begin_object();
  w.member("quant_dtype", word_of(q.a1.dtype));
  w.member("weight_quant_dtype", word_of(q.w1.dtype));
  w.member("is_quantized", q.is_quantized());
  w.member("per_act_token_quant", q.per_act_token_quant());
  w.member("per_out_ch_quant", q.per_out_ch_quant());
  w.member("is_per_tensor", q.is_per_tensor());
  w.key("block_shape").array(numbers_of(q.block_shape()));
  w.member("is_block_quantized", q.is_block_quantized());
  w.member("use_fp8_w8a8", q.use_fp8_w8a8());
  w.member("use_int8_w8a8", q.use_int8_w8a8());
  w.member("use_int8_w8a16", q.use_int8_w8a16());
  w.member("use_fp8_w8a16", q.use_fp8_w8a16());
  w.member("use_int4_w4a16", q.use_int4_w4a16());
  w.member("use_nvfp4_w4a16", q.use_nvfp4_w4a16());
  w.member("ocp_mx_scheme", word_of(q.ocp_mx_scheme()));
  w.member("use_mxfp4_w4a16", q.use_mxfp4_w4a16());
  w.member("use_mxfp4_w4a4", q.use_mxfp4_w4a4());
  w.member("use_nvfp4_w4a4", q.use_nvfp4_w4a4());
  w.member("use_mxfp4_w4a8", q.use_mxfp4_w4a8());
  w.end_object();
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
    MOE_TRY(const Members members, Members::open(&entry, cat("/shapes/", questions.size()), kMembers));
    std::array<std::int64_t, 3> n{};
    for (std::size_t i = 0; i < n.size(); ++i) {
      if (!members.has(kMembers[i])) return fields::missing(members.at(kMembers[i]), "a positive integer");
      MOE_TRY(n[i], members.integer(kMembers[i], {1, kMaxSize}, 1));
    }
    questions.push_back({n[0], n[1], n[2]});
  }
  return questions;
}

}  // namespace

void write_members(json::Writer& w, const QuantConfig& q) {
  w.key("descs").begin_object();
  write_desc(w.key("a1"), q.a1);
  write_desc(w.key("a2"), q.a2);
  write_desc(w.key("w1"), q.w1);
  write_desc(w.key("w2"), q.w2);
  write_predicates(w.end_object().key("predicates"), q);
  w.key("config_name").begin_object().member("fp32", word_of(q.config_name(QuantType::fp32)));
  w.member("bf16", word_of(q.config_name(QuantType::bf16))).end_object();
  w.key("tuning_suffix").begin_object().member("fp32", q.tuning_suffix(QuantType::fp32));
  w.member("bf16", q.tuning_suffix(QuantType::bf16)).end_object();
  w.member("is_scale_swizzled", q.is_scale_swizzled);
  w.member("gemm1_alpha", q.gemm1_alpha).member("gemm1_beta", q.gemm1_beta);
  w.member("gemm1_clamp_limit", q.gemm1_clamp_limit);
}

Result<std::string> describe_quant_config(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 6> kMembers = {"builder", "args",         "kwargs",
                                                               "profile", "platform_fp8", "shapes"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  MOE_TRY(const QuantConfig q, built(query));
  MOE_TRY(const std::vector<ScaleQuestion> questions, read_shapes(query));
  json::Writer w;
  w.begin_object();
  write_members(w, q);
  w.key("scale_shape").begin_array();
  for (const ScaleQuestion& s : questions) {
    w.begin_object().member("max_tokens", s.max_tokens).member("hidden_dim", s.hidden_dim);
    w.member("num_experts", s.num_experts);
    w.key("shape").array(q.scale_shape(s.max_tokens, s.hidden_dim));
    w.key("batched").array(q.batched_scale_shape(s.num_experts, s.max_tokens, s.hidden_dim)).end_object();
  }
  return w.end_array().end_object().take();
}

Result<std::string> describe_ocp_mx_scheme(const json::Value& query_value) {
  static constexpr std::array<std::string_view, 2> kMembers = {"act", "weight"};
  MOE_TRY(const Members query, Members::open(&query_value, "", kMembers));
  for (const std::string_view name : kMembers)
    if (!query.has(name)) return fields::missing(query.at(name), "null or one of " + quant_type_names());
  MOE_TRY(const QuantType act, read_type(*query.get("act"), "/act"));
  MOE_TRY(const QuantType weight, read_type(*query.get("weight"), "/weight"));
  const OcpMxScheme s = ocp_mx_scheme(act, weight);
  json::Writer w;
  w.begin_object().member("scheme", word_of(s.name));
  if (s.unknown_mx_pair) w.member("warning", "unknown_mx_pair");
  return w.end_object().take();
}

}  // namespace moe::vllm
