// Reading of a describe query: tables of members, each with its reader (describe.md 2).
#include "oracle/query.h"

#include <algorithm>
#include <array>

#include "base/index.h"
#include "base/text.h"
#include "config/config.h"
#include "config/fields.h"
#include "scheme/activation.h"
#include "vllm/members.h"

namespace moe::oracle {
namespace {

struct OracleName {
  OracleId id;
  std::string_view name;
  bool asked = true;  // by moe_describe
};
constexpr std::array kOracleNames = {
#define MOE_FAMILY(id_) OracleName{OracleId::id_, #id_, true},
#define MOE_OWN_FAMILY(id_) OracleName{OracleId::id_, #id_, false},
#include "oracle/families.inc"
};

// Of oracles with one kind of weights, which are not asked with a key. together: only where neither key is given.
struct DefaultKeys {
  OracleId oracle;
  QuantKey weight;
  std::optional<QuantKey> activation;
  bool together = false;
};
constexpr std::array kDefaultKeys = {
    DefaultKeys{OracleId::int8, key_named("kInt8StaticChannelSym"), key_named("kInt8DynamicTokenSym"), true},
    DefaultKeys{OracleId::mxfp8, key_named("kMxfp8Static"), key_named("kMxfp8Dynamic")},
    DefaultKeys{OracleId::mxfp4, key_named("kMxfp4Static"), std::nullopt},
    DefaultKeys{OracleId::mxfp4_deepseek_v4, key_named("kMxfp4Static"), std::nullopt}};

void fill_keys(Query& q) {
  for (const DefaultKeys& row : kDefaultKeys) {
    if (row.oracle != q.oracle || q.weight_key || (row.together && q.activation_key)) continue;
    q.weight_key = row.weight;
    if (!q.activation_key) q.activation_key = row.activation;
  }
  if (q.oracle == OracleId::mxfp4_deepseek_v4) q.activation_key.reset();  // each backend is asked with its own
  if (q.oracle == OracleId::mxfp4 && !q.activation_key) q.activation_key = q.user_activation;
}

constexpr std::size_t kMaxEnvValue = 64;

template <std::size_t N>
std::string list_of(const std::array<std::string_view, N>& names) {
  std::string s;
  for (const std::string_view n : names) s += cat(s.empty() ? "" : ", ", n);
  return s;
}

// --- parallel -------------------------------------------------------------------------------------------

Check batched_format(ParallelQuery& p, const json::Value& v, const std::string& at) {
  const bool* b = v.boolean();
  if (b == nullptr) return bad_member(at, "true or false");
  p.use_batched_activation_format = *b;
  return ok();
}

constexpr std::array kParallelMembers = {
    MemberRow<ParallelQuery>{"tp_size", read_integer<&ParallelQuery::tp_size, 1>},
    MemberRow<ParallelQuery>{"dp_size", read_integer<&ParallelQuery::dp_size, 1>},
    MemberRow<ParallelQuery>{"pcp_size", read_integer<&ParallelQuery::pcp_size, 1>},
    MemberRow<ParallelQuery>{"ep_size", read_integer<&ParallelQuery::ep_size, 1>},
    MemberRow<ParallelQuery>{"sp_size", read_integer<&ParallelQuery::sp_size, 1>},
    MemberRow<ParallelQuery>{"use_ep", read_bool<&ParallelQuery::use_ep>},
    MemberRow<ParallelQuery>{"enable_eplb", read_bool<&ParallelQuery::enable_eplb>},
    MemberRow<ParallelQuery>{"all2all_backend", read_string<&ParallelQuery::all2all_backend>},
    MemberRow<ParallelQuery>{"use_batched_activation_format", batched_format},
};

// --- moe ------------------------------------------------------------------------------------------------

Check activation(MoeQuery& m, const json::Value& v, const std::string& at) {
  const std::string* name = v.string();
  const std::optional<Activation> a = name == nullptr ? std::nullopt : activation_from_name(*name);
  if (!a) return bad_member(at, "one of " + activation_words());
  m.activation = *a;
  return ok();
}

Check routing_method(MoeQuery& m, const json::Value& v, const std::string& at) {
  if (const std::string* s = v.string())
    if (const auto method = routing_method_from_name(*s)) {
      m.routing_method = *method;
      return ok();
    }
  return bad_member(at, "the name of a routing method (Default, Renormalize, DeepSeekV3, ...)");
}

Check parallel(MoeQuery& m, const json::Value& v, const std::string& at) {
  return read_members<ParallelQuery>(v, at, kParallelMembers, m.parallel);
}

constexpr std::array kMoeMembers = {
    MemberRow<MoeQuery>{"moe_backend", read_string<&MoeQuery::moe_backend>},
    MemberRow<MoeQuery>{"activation", activation},
    MemberRow<MoeQuery>{"is_act_and_mul", read_bool<&MoeQuery::is_act_and_mul>},
    MemberRow<MoeQuery>{"routing_method", routing_method},
    MemberRow<MoeQuery>{"router_logits_dtype", read_string<&MoeQuery::router_logits_dtype>},
    MemberRow<MoeQuery>{"in_dtype", read_string<&MoeQuery::in_dtype>},
    MemberRow<MoeQuery>{"hidden_dim", read_integer<&MoeQuery::hidden_dim, 0>},
    MemberRow<MoeQuery>{"num_experts", read_integer<&MoeQuery::num_experts, 0>},
    MemberRow<MoeQuery>{"experts_per_token", read_integer<&MoeQuery::experts_per_token, 0>},
    MemberRow<MoeQuery>{"intermediate_size_per_partition", read_integer<&MoeQuery::intermediate_size_per_partition, 0>},
    MemberRow<MoeQuery>{"num_local_experts", read_integer<&MoeQuery::num_local_experts, 0>},
    MemberRow<MoeQuery>{"has_bias", read_bool<&MoeQuery::has_bias>},
    MemberRow<MoeQuery>{"is_lora_enabled", read_bool<&MoeQuery::is_lora_enabled>},
    MemberRow<MoeQuery>{"batch_invariant", read_bool<&MoeQuery::batch_invariant>},
    MemberRow<MoeQuery>{"has_hash_routing", read_bool<&MoeQuery::has_hash_routing>},
    MemberRow<MoeQuery>{"parallel", parallel},
};

// --- the query ------------------------------------------------------------------------------------------

Check oracle(Query& q, const json::Value& v, const std::string& at) {
  if (const std::string* s = v.string())
    if (const auto id = oracle_from_name(*s)) {
      q.oracle = *id;
      return ok();
    }
  std::string names;
  for (const OracleName& row : kOracleNames)
    if (row.asked) names += cat(names.empty() ? "" : ", ", row.name);
  return bad_member(at, cat("one of ", names));
}

Check platform(Query& q, const json::Value& v, const std::string& at) {
  if (v.object() == nullptr) return bad_member(at, "an object");
  if (v.find("type") == nullptr) return fail(Code::invalid_config, at + "/type", "the query's platform lacks \"type\"");
  MOE_TRY(PlatformMember member, parse_platform(v, at, PlatformUse::query));
  if (member.type == DeviceType::automatic)
    return bad_member(at + "/type", "a device (cpu, cuda, rocm, xpu, tpu, oot): a question reads no machine");
  q.platform = std::move(member.facts);
  q.platform.type = member.type;
  q.platform.arch = member.arch;
  q.platform.features = member.features.value_or(FeatureSet());
  return ok();
}

Check moe_members(Query& q, const json::Value& v, const std::string& at) {
  return read_members<MoeQuery>(v, at, kMoeMembers, q.moe);
}

template <std::optional<QuantKey> Query::*M>
Check key(Query& q, const json::Value& v, const std::string& at) {
  MOE_TRY(q.*M, parse_key(v, at));
  return ok();
}

Check user_activation(Query& q, const json::Value& v, const std::string& at) {
  if (!v.is_null() && v.string() == nullptr) return bad_member(at, "the name of a quantization key or null");
  return key<&Query::user_activation>(q, v, at);
}

Check env(Query& q, const json::Value& v, const std::string& at) {
  const json::Object* object = v.object();
  if (object == nullptr) return bad_member(at, "an object of strings");
  for (const auto& [name, value] : *object) {
    const std::string pointer = fields::child(at, name);
    if (std::find(kVllmEnvNames.begin(), kVllmEnvNames.end(), name) == kVllmEnvNames.end())
      return fail(Code::invalid_config, pointer,
                  cat(in_quotes(name), " is no switch of vLLM's oracles; known: ", list_of(kVllmEnvNames)));
    const std::string* s = value.string();
    if (s == nullptr || s->size() > kMaxEnvValue) return bad_member(pointer, "a string of at most 64 bytes");
    q.env.emplace_back(name, *s);
  }
  return ok();
}

Check profile(Query& q, const json::Value& v, const std::string& at) {
  const std::string* word = v.string();
  const auto found =
      word == nullptr ? kProfileNames.end() : std::find(kProfileNames.begin(), kProfileNames.end(), *word);
  if (found == kProfileNames.end()) return bad_member(at, "one of " + list_of(kProfileNames));
  q.profile = vllm::profile_at(usize(found - kProfileNames.begin()));
  return ok();
}

constexpr std::array kQueryMembers = {
    MemberRow<Query>{"oracle", oracle, true},
    MemberRow<Query>{"profile", profile},
    MemberRow<Query>{"platform", platform, true},
    MemberRow<Query>{"moe", moe_members},
    MemberRow<Query>{"weight_key", key<&Query::weight_key>},
    MemberRow<Query>{"activation_key", key<&Query::activation_key>},
    MemberRow<Query>{"env", env},
    MemberRow<Query>{"user_activation", user_activation},
    MemberRow<Query>{"allow_vllm_cutlass", read_bool<&Query::allow_vllm_cutlass>},
};

}  // namespace

std::string_view Query::env_value(std::string_view name) const {
  for (const auto& [key, value] : env)
    if (key == name) return value;
  return "";
}

bool Query::env_has(std::string_view name) const {
  return std::any_of(env.begin(), env.end(), [&](const auto& entry) { return entry.first == name; });
}

bool Query::env_flag(std::string_view name, bool when_unset) const {
  if (!env_has(name)) return when_unset;
  std::string_view value = env_value(name);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  while (!value.empty() && value.back() == ' ') value.remove_suffix(1);
  const std::string word = fields::lower_ascii(value);
  return word == "1" || word == "true";
}

std::optional<OracleId> oracle_from_name(std::string_view name) {
  for (const OracleName& row : kOracleNames)
    if (row.name == name && row.asked) return row.id;
  return std::nullopt;
}

std::string_view oracle_name(OracleId id) {
  for (const OracleName& row : kOracleNames)
    if (row.id == id) return row.name;
  return "none";
}

Result<Query> parse_query(const json::Value& value) {
  Query q;
  MOE_CHECK(read_members<Query>(value, "", kQueryMembers, q));
  q.moe.parallel.any_split = q.profile == Profile::november_2026;
  fill_keys(q);
  return q;
}

}  // namespace moe::oracle
