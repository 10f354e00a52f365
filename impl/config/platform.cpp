// The one platform document (selection.md 2): a member of a configuration, a document of its own, a part
// of an oracle query, and the report of a platform. What is not said is detected where the platform is
// this machine, and is the architecture's baseline where it is another one.
#include <array>

#include "base/index.h"
#include "base/text.h"
#include "config/config.h"
#include "config/field_rows.h"
#include "config/sections.h"

namespace moe::config {
namespace {

using fields::Members;

// The member while it is read, and where it is written: what was given, for the lists that are echoed.
struct PlatformDraft {
  PlatformMember member;
  PlatformUse use = PlatformUse::config;
  const json::Value* given = nullptr;

  bool whole() const { return use != PlatformUse::query; }
};
using Owner = PlatformDraft;

Check read_type(const Members& members, PlatformDraft& o) {
  MOE_TRY(o.member.type, members.word("type", kDeviceNames, DeviceType::automatic));
  if (o.whole() || members.has("type")) return ok();
  return fields::missing(members.at("type"), fields::join(kDeviceNames));
}
void write_type(const PlatformDraft& o, json::Object& out) {
  out.emplace_back("type", word_value(kDeviceNames, o.member.type));
}

Check read_arch(const Members& members, PlatformDraft& o) {
  return fields::put(members.word("arch", kArchNames, Arch::automatic), o.member.arch);
}
void write_arch(const PlatformDraft& o, json::Object& out) {
  out.emplace_back("arch", word_value(kArchNames, o.member.arch));
}

Check read_features(const Members& members, PlatformDraft& o) {
  const json::Value* v = members.get("features");
  if (v == nullptr) return ok();
  const std::string pointer = members.at("features");
  if (v->array() == nullptr) return fields::unexpected(pointer, *v, "an array of CPU features");
  FeatureSet set;
  for (std::size_t i = 0; i < v->array()->size(); ++i) {
    const json::Value& element = (*v->array())[i];
    const std::string at = cat(pointer, "/", i);
    const std::optional<Feature> f = element.string() == nullptr ? std::nullopt : feature_from_name(*element.string());
    if (!f) return fields::unexpected(at, element, fields::join(kFeatureNames));
    if (has(set, *f))
      return fields::fault(at, cat("found ", fields::brief(element), " twice, expected each feature once"));
    set.set(usize(*f));
  }
  o.member.features = set;
  return ok();
}
void write_features(const PlatformDraft& o, json::Object& out) {
  const json::Value* given = o.given == nullptr ? nullptr : o.given->find("features");
  out.emplace_back("features", given == nullptr ? json::Value() : *given);
}

Check read_capability(const Members& members, PlatformDraft& o) {
  const json::Value* v = members.get("capability");
  if (v == nullptr) {
    if (!o.whole() || o.member.type != DeviceType::cuda) return ok();
    return fields::missing(members.at("capability"), "[major, minor] with type cuda");
  }
  const std::string pointer = members.at("capability");
  if (v->array() == nullptr || v->array()->size() != 2) return fields::unexpected(pointer, *v, "[major, minor]");
  std::array<int, 2> capability{};
  for (std::size_t i = 0; i < capability.size(); ++i) {
    const std::string at = cat(pointer, "/", i);
    MOE_TRY(const std::int64_t n, fields::integer_value((*v->array())[i], at, {0, 255}));
    capability[i] = static_cast<int>(n);
  }
  o.member.facts.capability = capability;
  return ok();
}
void write_capability(const PlatformDraft& o, json::Object& out) {
  if (const auto& c = o.member.facts.capability) out.emplace_back("capability", json::Array{(*c)[0], (*c)[1]});
}

// "gfx" and three to five lower-case hexadecimal digits.
Check read_gfx(const Members& members, PlatformDraft& o) {
  const json::Value* v = members.get("gfx");
  if (v == nullptr) {
    if (!o.whole() || o.member.type != DeviceType::rocm) return ok();
    return fields::missing(members.at("gfx"), "an architecture name such as \"gfx942\" with type rocm");
  }
  const std::string* s = v->string();
  const bool good = s != nullptr && s->size() >= 6 && s->size() <= 8 && s->starts_with("gfx") &&
                    s->find_first_not_of("0123456789abcdef", 3) == std::string::npos;
  if (!good) return fields::unexpected(members.at("gfx"), *v, "an architecture name such as \"gfx942\"");
  o.member.facts.gfx = *s;
  return ok();
}
void write_gfx(const PlatformDraft& o, json::Object& out) {
  if (o.member.facts.gfx) out.emplace_back("gfx", *o.member.facts.gfx);
}

Check read_libs(const Members& members, PlatformDraft& o) {
  const json::Value* v = members.get("libs");
  if (v == nullptr) return ok();
  if (v->object() == nullptr) return fields::unexpected(members.at("libs"), *v, "an object of booleans");
  for (const auto& [name, present] : *v->object()) {
    if (present.boolean() == nullptr) {
      return fields::unexpected(fields::child(members.at("libs"), name), present, "true or false");
    }
    o.member.facts.libs.emplace_back(name, *present.boolean());
  }
  return ok();
}
void write_libs(const PlatformDraft& o, json::Object& out) {
  const json::Value* given = o.given == nullptr ? nullptr : o.given->find("libs");
  if (given != nullptr) out.emplace_back("libs", *given);
}

// clang-format off
constexpr fields::Field<Owner> kFields[] = {
#define MOE_FIELD_PLACE(owner) owner.member.facts
#define MOE_FIELDS_PLATFORM
#include "config/field_rows.inc"
};
// clang-format on

bool is_count(const json::Value& v) { return fields::as_integer(v).value_or(-1) >= 0; }
bool is_text(const json::Value& v) { return v.string() != nullptr; }
bool is_number(const json::Value& v) { return fields::as_number(v).has_value(); }
bool is_bool(const json::Value& v) { return v.boolean() != nullptr; }
// "0-3,8", a number of CPUs, or their numbers.
bool is_cpu_list(const json::Value& v) {
  if (v.array() == nullptr) return is_text(v) || is_count(v);
  for (const json::Value& cpu : *v.array())
    if (!is_count(cpu)) return false;
  return true;
}
bool is_counts(const json::Value& v) { return v.array() != nullptr && is_cpu_list(v); }
bool is_cache(const json::Value& v) {
  if (v.object() == nullptr) return false;
  for (const auto& [level, size] : *v.object())
    if (!is_count(size)) return false;
  return true;
}
bool is_numa(const json::Value& v) {
  if (v.array() == nullptr) return false;
  for (const json::Value& node : *v.array()) {
    if (node.object() == nullptr) return false;
    for (const auto& [key, value] : *node.object())
      if (!(key == "cpus" ? is_cpu_list(value) : is_count(value))) return false;
  }
  return true;
}

struct Reported {
  std::string_view name;
  bool (*good)(const json::Value&);
  const char* expected;
};
constexpr std::array<Reported, 12> kReported = {{{"vendor", is_text, "a string"},
                                                 {"model", is_text, "a string"},
                                                 {"cores", is_count, "a number of cores"},
                                                 {"threads", is_count, "a number of threads"},
                                                 {"allowed_cpus", is_cpu_list, "a list of CPUs"},
                                                 {"quota_cpus", is_number, "a number"},
                                                 {"numa", is_numa, "an array of {\"id\", \"cpus\", \"memory_bytes\"}"},
                                                 {"cache", is_cache, "an object of sizes"},
                                                 {"memory_bytes", is_count, "a number of bytes"},
                                                 {"page_sizes", is_counts, "an array of sizes"},
                                                 {"os", is_text, "a string"},
                                                 {"native", is_bool, "true or false"}}};

// The reported members as JSON text; all but "native", which only detection can say.
Result<std::string> read_report(const Members& members) {
  json::Writer report;
  for (const Reported& r : kReported) {
    const json::Value* v = members.get(r.name);
    if (v == nullptr) continue;
    if (!r.good(*v)) return fields::unexpected(members.at(r.name), *v, r.expected);
    if (r.name != "native") report.member(r.name, *v);
  }
  return report.take();
}

// What every machine of an architecture can do.
FeatureSet baseline(Arch arch) {
  FeatureSet s;
  add(s, Feature::scalar);
  if (arch == Arch::aarch64) add(s, Feature::neon);
  return s;
}

// A described machine with what it leaves open filled in.
Result<Platform> completed(const PlatformMember& m) {
  Platform p = m.facts;
  p.type = m.type == DeviceType::automatic ? DeviceType::cpu : m.type;
  p.arch = m.arch;
  p.native = false;
  if (p.type != DeviceType::cpu) {
    p.features = m.features.value_or(FeatureSet());
    return p;
  }
  if (p.arch == Arch::automatic) p.arch = native_arch();
  if (m.features) {
    p.features = *m.features;
    add(p.features, Feature::scalar);  // portable code runs on every CPU
    return p;
  }
  if (p.arch != native_arch()) {
    p.features = baseline(p.arch);
    return p;
  }
  MOE_TRY(const Platform host, detect_platform());
  p.features = host.features;
  p.native = true;
  if (p.report.empty()) p.report = host.report;
  return p;
}

}  // namespace

Result<PlatformMember> parse_platform(const json::Value& object, std::string_view base, PlatformUse use) {
  std::vector<std::string_view> known = fields::names_of(kFields);
  if (use == PlatformUse::standalone)
    for (const Reported& r : kReported) known.push_back(r.name);
  MOE_TRY(const Members members, Members::open(&object, std::string(base), known));
  PlatformDraft draft{.member = {}, .use = use};
  PlatformMember& m = draft.member;
  MOE_CHECK(fields::read_fields(members, kFields, draft));
  if (use == PlatformUse::standalone) {
    MOE_TRY(m.facts.report, read_report(members));
  }
  m.facts.type = m.type;
  m.facts.arch = m.arch;
  m.facts.features = m.features.value_or(FeatureSet());
  return m;
}

static json::Value platform_value(const PlatformMember& member, const json::Value* given) {
  return fields::write_fields(kFields, PlatformDraft{.member = member, .given = given});
}

Result<Platform> platform_from_text(std::string_view text) {
  MOE_TRY(const json::Value document, json::parse(text));
  MOE_TRY(const PlatformMember member, parse_platform(document, "", PlatformUse::standalone));
  return completed(member);
}

std::string platform_to_json(const Platform& p) {
  json::Writer w;
  w.begin_object().member("type", at(kDeviceNames, p.type));
  w.member("arch", at(kArchNames, p.arch)).key("features").begin_array();
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i)
    if (p.features.test(i)) w.value(kFeatureNames[i]);
  w.end_array().member("num_threads", p.num_threads).member("numa_node", p.numa_node).member("native", p.native);
  if (p.capability) w.key("capability").array(*p.capability);
  if (p.gfx) w.member("gfx", *p.gfx);
  if (p.cuda_version) w.member("cuda_version", *p.cuda_version);
  if (p.multiprocessor_count) w.member("multiprocessor_count", *p.multiprocessor_count);
  if (!p.libs.empty()) {
    w.key("libs").begin_object();
    for (const auto& [name, present] : p.libs) w.member(name, present);
    w.end_object();
  }
  return w.members({p.report}).end_object().take();
}

static PlatformMember platform_member(const Config& config) {
  PlatformMember m;
  m.type = config.platform_type;
  m.arch = config.platform_arch;
  m.features = config.platform_features;
  m.facts = config.platform_facts;
  return m;
}

Check read_platform(const Members& members, Draft& draft) {
  const json::Value* given = members.get("platform");
  if (given == nullptr) return ok();
  MOE_TRY(PlatformMember p, parse_platform(*given, "/platform", PlatformUse::config));
  Config& c = draft.config;
  c.platform_type = p.type;
  c.platform_arch = p.arch;
  c.platform_features = p.features;
  c.platform_facts = std::move(p.facts);
  return ok();
}
void write_platform(const Draft& draft, json::Object& out) {
  out.emplace_back("platform", platform_value(platform_member(draft.config), draft.platform));
}

Result<Platform> effective_platform(const Config& config) {
  if (config.platform_type == DeviceType::automatic && !config.platform_features) {
    MOE_TRY(Platform p, detect_platform());
    p.num_threads = config.platform_facts.num_threads;
    p.numa_node = config.platform_facts.numa_node;
    return p;
  }
  return completed(platform_member(config));
}

}  // namespace moe::config
