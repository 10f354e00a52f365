// moe doctor: the library, the processor, the memory and its speed, limits, and what may make figures wrong.
#include <sys/utsname.h>

#include <cstdlib>

#include "tool/commands.h"
#include "tool/library_check.h"
#include "tool/machine.h"
#include "tool/options.h"

namespace moe_tool {
namespace {

struct DoctorOptions {
  int threads = 0;
  double seconds = 1.0;
};

// What the library's kernels ask for, the best first; of other architectures the platform's own list is shown.
constexpr const char* kX86[] = {"amx_int8", "amx_bf16", "avx512_vnni", "avx512_bf16", "avx_vnni", "avx2"};
constexpr const char* kArm[] = {"i8mm", "dotprod", "bf16", "neon"};

Json isa_of(const moe_platform* platform, const std::string& arch) {
  Json out = Json::object();
  const auto add = [&](auto& names) {
    for (const char* name : names) out[name] = moe_platform_has(platform, name) == 1;
  };
  if (arch == "aarch64") {
    add(kArm);
  } else {
    add(kX86);
  }
  return out;
}

Json environment() {
  Json out = Json::object();
  const Json build = Json::parse(moe_build_info_json());
  for (const Json& row : build.value("environment", Json::array())) {
    const std::string name = row.is_string() ? row.get<std::string>() : row.value("name", "");
    const char* value = std::getenv(name.c_str());
    out[name] = value == nullptr ? Json(nullptr) : Json(printable(value));
  }
  return out;
}

Json examine(const DoctorOptions& options) {
  const ContextHandle context = make_context(options.threads);
  const int threads = threads_of(context.get());
  const auto platform = make<PlatformHandle>(moe_platform_create, nullptr, std::size_t{0});
  const Json machine = document_of(moe_platform_to_json, platform.get());
  const Json build = Json::parse(moe_build_info_json());
  const MemoryState memory = memory_state();
  const std::string busy = busy_warning(threads);  // before our own probe makes load
  const double load = load_average();
  const Bandwidth bandwidth = read_bandwidth(threads, options.seconds);

  Json warnings = Json::array();
  if (!busy.empty()) warnings.push_back(busy);
  if (bandwidth.spread > 0.25)
    warnings.push_back(fmt::format("passes of the probe differ by {:.0f} %: this machine is shared or throttled",
                                   100 * bandwidth.spread));
  if (memory.available < memory.total / 10) warnings.push_back("less than a tenth of the memory is free");
  const std::string arch = machine.value("arch", "");
  const Json isa = isa_of(platform.get(), arch);
  bool any = false;
  for (const auto& [name, has] : isa.items()) any = any || has.get<bool>();
  if (!any) warnings.push_back("no instruction set that has kernels: scalar code will run, slowly");

  const std::string name = processor_name();
  Json out = {{"command", "doctor"}};
  out["library"] = {{"version", moe_version_string()},
                    {"abi", moe_abi_version()},
                    {"commit", build.value("commit", "")},
                    {"path", printable(library_path())}};
  out["cpu"] = {{"name", printable(name.empty() ? machine.value("model", "") : name)},
                {"arch", arch},
                {"cores", machine.value("cores", 0)},
                {"allowed_cpus", machine.value("allowed_cpus", "")},
                {"threads", threads},
                {"quota_cpus", machine.value("quota_cpus", Json(nullptr))},
                {"numa_nodes", machine.value("numa", Json::array()).size()},
                {"l3_bytes", last_level_cache_bytes()},
                {"os", machine.value("os", "")}};
  out["memory"] = {{"total_bytes", memory.total},
                   {"available_bytes", memory.available},
                   {"limit_bytes", memory.limit ? Json(*memory.limit) : Json(nullptr)}};
  out["isa"] = isa;
  out["bandwidth"] = {{"bytes_per_second", bandwidth.bytes_a_second},
                      {"spread", bandwidth.spread},
                      {"threads", bandwidth.threads},
                      {"seconds", options.seconds}};
  out["load"] = load;
  out["environment"] = environment();
  out["warnings"] = warnings;
  return out;
}

void show(const Json& found, const Session& session) {
  const Screen& screen = session.out;
  const auto row = [&](std::string_view name, const std::string& text) {
    std::string_view heading = name;
    for (const std::string& piece :
         wrapped(text, screen.width == 0 ? 0 : static_cast<std::size_t>(std::max(screen.width - 11, 16)))) {
      session.line("{}{}", screen.toned(fmt::format("{:<11}", heading), Tone::kDim), piece);
      heading = "";
    }
  };
  const Json& library = found["library"];
  const Json& cpu = found["cpu"];
  const Json& memory = found["memory"];
  const Json& bandwidth = found["bandwidth"];
  const std::string commit = library.value("commit", "");
  row("libmoe", fmt::format("{} (ABI {}{}{})  {}", library.value("version", ""), library.value("abi", 0),
                            commit.empty() ? "" : ", ", commit, library.value("path", "")));
  std::string processor = fmt::format("{}, {}", cpu.value("name", ""), count_text(cpu.value("cores", 0), "core"));
  processor += fmt::format(", {}", count_text(cpu.value("numa_nodes", 0), "NUMA node"));
  if (cpu.value("l3_bytes", 0.0) > 0) processor += fmt::format(", L3 {}", bytes_text(cpu.value("l3_bytes", 0.0)));
  row("cpu", processor);
  std::string isa;
  for (const auto& [name, has] : found["isa"].items())
    isa += fmt::format("{}{} {}", isa.empty() ? "" : "  ", has.get<bool>() ? screen.yes() : screen.no(), name);
  row("isa", isa);
  row("threads", fmt::format("{} (processors {}{})", cpu.value("threads", 0), cpu.value("allowed_cpus", ""),
                             cpu["quota_cpus"].is_null() ? ""
                                                         : fmt::format(", limited to the time of {} (cgroup)",
                                                                       number_text(cpu.value("quota_cpus", 0.0)))));
  std::string amounts = fmt::format("{}, {} free", bytes_text(memory.value("total_bytes", 0.0)),
                                    bytes_text(memory.value("available_bytes", 0.0)));
  if (!memory["limit_bytes"].is_null())
    amounts += fmt::format(", limited to {} (cgroup)", bytes_text(memory.value("limit_bytes", 0.0)));
  row("memory", amounts);
  row("reads", fmt::format("{} with {} ({:.1f} s measured)", rate_text(bandwidth.value("bytes_per_second", 0.0)),
                           count_text(bandwidth.value("threads", 0), "thread"), bandwidth.value("seconds", 0.0)));
  row("load", fmt::format("{:.2f}", found.value("load", 0.0)));
  std::string variables;
  for (const auto& [name, value] : found["environment"].items())
    if (!value.is_null())
      variables += fmt::format("{}{}={}", variables.empty() ? "" : "  ", name, value.get<std::string>());
  row("env", variables.empty() ? "nothing set that the library reads" : variables);
  if (found["warnings"].empty()) session.line("{} all well", screen.yes());
  std::fflush(stdout);
  for (const Json& warning : found["warnings"]) session.warn(warning.get<std::string>());
  session.next("moe inspect DIR");
}

}  // namespace

void declare_doctor(CLI::App& command, Session& session) {
  const auto options = std::make_shared<DoctorOptions>();
  command.add_option("-t,--threads", options->threads, "Threads that read; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command.add_option("--seconds", options->seconds, "How long the memory is read")
      ->check(seconds_up_to(60))
      ->type_name("S");
  command.callback([options, &session] {
    const Json found = examine(*options);
    session.document(found);
    show(printable_document(found), session);
  });
}

}  // namespace moe_tool
