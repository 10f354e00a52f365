// The one platform document (selection.md 2): a member of a configuration, a document of its own, a part
// of an oracle query, and the report of a platform. What is not said is detected where the platform is
// this machine, and is the architecture's baseline where it is another one.
#include <array>

#include "config/config.h"
#include "config/fields.h"

namespace moe {
namespace {

using fields::Members;

// clang-format off
constexpr std::array<std::string_view, 10> kMembers = {
    "type", "arch", "features", "num_threads", "numa_node", "capability", "gfx", "cuda_version", "libs", "multiprocessor_count"};
// A document of its own may also hold what platform_to_json reports of a detected machine.
constexpr std::array<std::string_view, 22> kReportedToo = {
    "type", "arch", "features", "num_threads", "numa_node", "capability", "gfx", "cuda_version", "libs", "multiprocessor_count",
    "vendor", "model", "cores", "threads", "allowed_cpus", "quota_cpus", "numa", "cache", "memory_bytes", "page_sizes", "os",
    "native"};
// clang-format on

Result<std::optional<FeatureSet>> read_features(const Members& members) {
  const json::Value* v = members.get("features");
  if (v == nullptr) return std::optional<FeatureSet>();
  const std::string pointer = members.at("features");
  if (v->array() == nullptr) return fields::unexpected(pointer, *v, "an array of CPU features");
  FeatureSet set;
  for (std::size_t i = 0; i < v->array()->size(); ++i) {
    const json::Value& element = (*v->array())[i];
    const std::string at = pointer + "/" + std::to_string(i);
    const std::optional<Feature> f = element.string() == nullptr ? std::nullopt : feature_from_name(*element.string());
    if (!f) return fields::unexpected(at, element, fields::join(kFeatureNames));
    if (has(set, *f))
      return fields::fault(at, "found " + fields::brief(element) + " twice, expected each feature once");
    set.set(static_cast<std::size_t>(*f));
  }
  return std::optional(set);
}

Result<std::optional<std::array<int, 2>>> read_capability(const Members& members) {
  const json::Value* v = members.get("capability");
  if (v == nullptr) return std::optional<std::array<int, 2>>();
  const std::string pointer = members.at("capability");
  if (v->array() == nullptr || v->array()->size() != 2) return fields::unexpected(pointer, *v, "[major, minor]");
  std::array<int, 2> capability{};
  for (std::size_t i = 0; i < capability.size(); ++i) {
    const json::Value& element = (*v->array())[i];
    const std::optional<std::int64_t> n = fields::as_integer(element);
    if (!n || *n < 0 || *n > 255)
      return fields::unexpected(pointer + "/" + std::to_string(i), element, "an integer in [0, 255]");
    capability[i] = static_cast<int>(*n);
  }
  return std::optional(capability);
}

// "gfx" and three to five lower-case hexadecimal digits.
Result<std::optional<std::string>> read_gfx(const Members& members) {
  const json::Value* v = members.get("gfx");
  if (v == nullptr) return std::optional<std::string>();
  const std::string* s = v->string();
  const bool good = s != nullptr && s->size() >= 6 && s->size() <= 8 && s->starts_with("gfx") &&
                    s->find_first_not_of("0123456789abcdef", 3) == std::string::npos;
  if (!good) return fields::unexpected(members.at("gfx"), *v, "an architecture name such as \"gfx942\"");
  return std::optional(*s);
}

Check read_libs(const Members& members, Platform& facts) {
  const json::Value* v = members.get("libs");
  if (v == nullptr) return ok();
  if (v->object() == nullptr) return fields::unexpected(members.at("libs"), *v, "an object of booleans");
  for (const auto& [name, present] : *v->object()) {
    if (present.boolean() == nullptr) {
      return fields::unexpected(members.at("libs") + "/" + json::escape_pointer(name), present, "true or false");
    }
    facts.libs.emplace_back(name, *present.boolean());
  }
  return ok();
}

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
  std::string report;
  for (const Reported& r : kReported) {
    const json::Value* v = members.get(r.name);
    if (v == nullptr) continue;
    if (!r.good(*v)) return fields::unexpected(members.at(r.name), *v, r.expected);
    if (r.name == "native") continue;
    if (!report.empty()) report += ',';
    report += json::quote(r.name) + ":" + json::write(*v);
  }
  return report;
}

// What every machine of an architecture can do.
FeatureSet baseline(Arch arch) {
  FeatureSet s;
  s.set(static_cast<std::size_t>(Feature::scalar));
  if (arch == Arch::aarch64) s.set(static_cast<std::size_t>(Feature::neon));
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
    p.features.set(static_cast<std::size_t>(Feature::scalar));  // portable code runs on every CPU
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
  const fields::Words known = use == PlatformUse::standalone ? fields::Words(kReportedToo) : fields::Words(kMembers);
  MOE_TRY(const Members members, Members::open(&object, std::string(base), known));
  PlatformMember m;
  Platform& f = m.facts;
  MOE_TRY(m.type, members.word("type", kDeviceNames, DeviceType::automatic));
  if (use == PlatformUse::query && !members.has("type"))
    return fields::missing(members.at("type"), fields::join(kDeviceNames));
  MOE_TRY(m.arch, members.word("arch", kArchNames, Arch::automatic));
  MOE_TRY(f.num_threads, members.integer("num_threads", {0, 4096}, 0));
  MOE_TRY(f.numa_node, members.integer("numa_node", {-1, 1023}, -1));
  MOE_TRY(m.features, read_features(members));
  MOE_TRY(f.capability, read_capability(members));
  const bool whole = use != PlatformUse::query;
  if (whole && m.type == DeviceType::cuda && !f.capability) {
    return fields::missing(members.at("capability"), "[major, minor] with type cuda");
  }
  MOE_TRY(f.gfx, read_gfx(members));
  if (whole && m.type == DeviceType::rocm && !f.gfx) {
    return fields::missing(members.at("gfx"), "an architecture name such as \"gfx942\" with type rocm");
  }
  MOE_TRY(f.cuda_version, members.integer("cuda_version", {0, 1000000}));
  MOE_TRY(f.multiprocessor_count, members.integer("multiprocessor_count", {1, 4096}));
  MOE_CHECK(read_libs(members, f));
  if (use == PlatformUse::standalone) {
    MOE_TRY(f.report, read_report(members));
  }
  f.type = m.type;
  f.arch = m.arch;
  f.features = m.features.value_or(FeatureSet());
  return m;
}

Result<Platform> platform_from_text(std::string_view text) {
  MOE_TRY(const json::Value document, json::parse(text));
  MOE_TRY(const PlatformMember member, parse_platform(document, "", PlatformUse::standalone));
  return completed(member);
}

std::string platform_to_json(const Platform& p) {
  json::Array features;
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i)
    if (p.features.test(i)) features.emplace_back(kFeatureNames[i]);
  json::Value v = json::Object{{"type", json::Value(kDeviceNames[static_cast<std::size_t>(p.type)])},
                               {"arch", json::Value(kArchNames[static_cast<std::size_t>(p.arch)])},
                               {"features", json::Value(std::move(features))},
                               {"num_threads", json::Value(p.num_threads)},
                               {"numa_node", json::Value(p.numa_node)},
                               {"native", json::Value(p.native)}};
  if (p.capability) v.set("capability", json::Array{json::Value((*p.capability)[0]), json::Value((*p.capability)[1])});
  if (p.gfx) v.set("gfx", *p.gfx);
  if (p.cuda_version) v.set("cuda_version", *p.cuda_version);
  if (p.multiprocessor_count) v.set("multiprocessor_count", *p.multiprocessor_count);
  if (!p.libs.empty()) {
    json::Object libs;
    for (const auto& [name, present] : p.libs) libs.emplace_back(name, json::Value(present));
    v.set("libs", std::move(libs));
  }
  std::string text = json::write(v);
  if (!p.report.empty()) text.insert(text.size() - 1, "," + p.report);
  return text;
}

Result<Platform> effective_platform(const Config& config) {
  if (config.platform_type == DeviceType::automatic && !config.platform_features) {
    MOE_TRY(Platform p, detect_platform());
    p.num_threads = config.platform_facts.num_threads;
    p.numa_node = config.platform_facts.numa_node;
    return p;
  }
  PlatformMember m;
  m.type = config.platform_type;
  m.arch = config.platform_arch;
  m.features = config.platform_features;
  m.facts = config.platform_facts;
  return completed(m);
}

}  // namespace moe
