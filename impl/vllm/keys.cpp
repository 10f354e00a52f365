// Spellings of quantization keys. See keys.h; the two JSON forms are those of config.md 9.
#include "vllm/keys.h"

#include <span>
#include <utility>

#include "base/text.h"
#include "vllm/members.h"

namespace moe::vllm {
namespace {

struct TypeName {
  KeyType type;
  std::string_view name;  // as written in answers
  std::string_view alias;
};

constexpr std::array kTypeNames = {
    TypeName{KeyType::fp8, "fp8", ""},
    TypeName{KeyType::u8x2_fp4, "u8x2_fp4", "fp4x2"},
    TypeName{KeyType::uint4b8, "uint4b8", ""},
    TypeName{KeyType::uint8b128, "uint8b128", ""},
    TypeName{KeyType::uint4, "uint4", ""},
    TypeName{KeyType::int4, "int4", ""},
    TypeName{KeyType::uint8, "u8", "uint8"},
    TypeName{KeyType::int8, "int8", ""},
    TypeName{KeyType::fp32, "fp32", "float32"},
    TypeName{KeyType::fp16, "fp16", "float16"},
    TypeName{KeyType::bf16, "bf16", "bfloat16"},
    TypeName{KeyType::float8_e4m3fn, "float8_e4m3fn", ""},
    TypeName{KeyType::float8_e4m3fnuz, "float8_e4m3fnuz", ""},
    TypeName{KeyType::float8_e5m2, "float8_e5m2", ""},
    TypeName{KeyType::float8_e8m0fnu, "float8_e8m0fnu", ""},
    TypeName{KeyType::float6_e3m2f, "float6_e3m2f", ""},
    TypeName{KeyType::float6_e2m3f, "float6_e2m3f", ""},
    TypeName{KeyType::float4_e2m1f, "float4_e2m1f", ""},
};

std::string_view type_name(KeyType t) {
  for (const TypeName& row : kTypeNames)
    if (row.type == t) return row.name;
  return "unknown";
}

std::string_view name_of(const QuantKey& key) {
  for (const NamedKey& row : kQuantKeys)
    if (row.key == key) return row.name;
  return "";
}

std::string scale_text(const ScaleDesc& s) {
  return cat(type_name(s.dtype), s.is_static ? " static [" : " dynamic [", s.group.row, ", ", s.group.col, "]");
}

json::Value scale_json(const ScaleDesc& s) {
  json::Value v;
  v.set("dtype", type_name(s.dtype));
  v.set("static", s.is_static);
  v.set("group_shape", json::Array{s.group.row, s.group.col});
  return v;
}

json::Value members_json(const QuantKey& key) {
  json::Value v;
  v.set("dtype", type_name(key.dtype));
  v.set("scale", scale_json(key.scale));
  v.set("scale2", key.scale2 ? scale_json(*key.scale2) : json::Value());
  v.set("symmetric", key.symmetric);
  return v;
}

Result<KeyType> read_type(const json::Value& v, const std::string& at) {
  if (const std::string* s = v.string())
    if (const auto t = key_type_from_name(*s)) return *t;
  return bad_member(at, "the name of a stored type (int8, uint4b8, bfloat16, ...)");
}

Result<GroupShape> read_group(const json::Value& v, const std::string& at) {
  const json::Array* a = v.array();
  if (a == nullptr || a->size() != 2) return bad_member(at, "two integers, rows and columns");
  std::array<std::int64_t, 2> group{};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto n = as_integer((*a)[i]);
    if (!n || (*n < 1 && *n != -1)) return bad_member(cat(at, "/", i), "-1 or a positive integer");
    group[i] = *n;
  }
  return GroupShape{group[0], group[1]};
}

Check scale_dtype(ScaleDesc& s, const json::Value& v, const std::string& at) {
  MOE_TRY(s.dtype, read_type(v, at));
  return ok();
}
Check scale_group(ScaleDesc& s, const json::Value& v, const std::string& at) {
  MOE_TRY(s.group, read_group(v, at));
  return ok();
}

constexpr std::array kScaleMembers = {
    MemberRow<ScaleDesc>{"dtype", scale_dtype, true},
    MemberRow<ScaleDesc>{"static", read_bool<&ScaleDesc::is_static>, true},
    MemberRow<ScaleDesc>{"group_shape", scale_group, true},
};

Check key_dtype(QuantKey& k, const json::Value& v, const std::string& at) {
  MOE_TRY(k.dtype, read_type(v, at));
  return ok();
}
Check key_scale(QuantKey& k, const json::Value& v, const std::string& at) {
  return read_members<ScaleDesc>(v, at, kScaleMembers, k.scale);
}
Check key_scale2(QuantKey& k, const json::Value& v, const std::string& at) {
  if (v.is_null()) return ok();
  k.scale2.emplace();
  return read_members<ScaleDesc>(v, at, kScaleMembers, *k.scale2);
}
Check key_static(QuantKey& k, const json::Value& v, const std::string& at) {
  return read_bool<&ScaleDesc::is_static>(k.scale, v, at);
}
Check key_scale_dtype(QuantKey& k, const json::Value& v, const std::string& at) { return scale_dtype(k.scale, v, at); }
Check key_group(QuantKey& k, const json::Value& v, const std::string& at) { return scale_group(k.scale, v, at); }

constexpr std::array kLongForm = {
    MemberRow<QuantKey>{"dtype", key_dtype, true},
    MemberRow<QuantKey>{"scale", key_scale, true},
    MemberRow<QuantKey>{"scale2", key_scale2},
    MemberRow<QuantKey>{"symmetric", read_bool<&QuantKey::symmetric>},
};
constexpr std::array kShortForm = {
    MemberRow<QuantKey>{"dtype", key_dtype, true},
    MemberRow<QuantKey>{"scale_dtype", key_scale_dtype, true},
    MemberRow<QuantKey>{"static", key_static, true},
    MemberRow<QuantKey>{"group", key_group, true},
    MemberRow<QuantKey>{"symmetric", read_bool<&QuantKey::symmetric>},
};

struct NameQuery {
  std::optional<std::string> name;
};
Check name_member(NameQuery& q, const json::Value& v, const std::string& at) {
  if (v.string() == nullptr) return bad_member(at, "the name of a quantization key");
  q.name = *v.string();
  return ok();
}
constexpr std::array kNameMembers = {MemberRow<NameQuery>{"name", name_member}};

}  // namespace

std::optional<KeyType> key_type_from_name(std::string_view name) {
  for (const TypeName& row : kTypeNames)
    if (row.name == name || (!row.alias.empty() && row.alias == name)) return row.type;
  return std::nullopt;
}

std::string key_text(const std::optional<QuantKey>& key) {
  if (!key) return "none";
  if (const std::string_view name = name_of(*key); !name.empty()) return std::string(name);
  std::string s = cat(type_name(key->dtype), " with scales ", scale_text(key->scale));
  if (key->scale2) s += " and " + scale_text(*key->scale2);
  return s + (key->symmetric ? "" : ", asymmetric");
}

json::Value key_to_json(const std::optional<QuantKey>& key) {
  if (!key) return {};
  if (const std::string_view name = name_of(*key); !name.empty()) return name;
  return members_json(*key);
}

Result<std::optional<QuantKey>> parse_key(const json::Value& value, const std::string& at) {
  if (value.is_null()) return std::optional<QuantKey>();
  if (const std::string* name = value.string()) {
    const QuantKey* key = find_key(*name);
    if (key == nullptr)
      return fail(Code::invalid_config, at, in_quotes(*name) + " is no quantization key of the catalogue");
    return std::optional<QuantKey>(*key);
  }
  if (value.object() == nullptr) return bad_member(at, "the name of a quantization key, an object or null");
  QuantKey key;
  if (value.find("scale") != nullptr || value.find("scale2") != nullptr)
    MOE_CHECK(read_members<QuantKey>(value, at, kLongForm, key));
  else
    MOE_CHECK(read_members<QuantKey>(value, at, kShortForm, key));
  return std::optional<QuantKey>(key);
}

Result<std::string> describe_quant_key(const json::Value& query) {
  NameQuery q;
  MOE_CHECK(read_members<NameQuery>(query, "", kNameMembers, q));
  json::Array names;
  for (const NamedKey& row : kQuantKeys) {
    if (q.name == row.name) return json::write(members_json(row.key));
    names.emplace_back(row.name);
  }
  if (q.name)
    return fail(Code::invalid_config, "/name",
                cat(in_quotes(*q.name), " is no quantization key; known are ", json::write(names)));
  return json::Writer().begin_object().key("names").array(names).end_object().take();
}

}  // namespace moe::vllm
