// Options that several commands take: lists of numbers, machines, and the words for what was not understood.
#include "tool/options.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <numeric>
#include <sstream>

namespace moe_tool {
namespace {

// Machines that have a name, each with all features that its kernels ask for.
struct NamedTarget {
  const char* name;
  const char* arch;
  std::vector<const char*> features;
};
const std::vector<NamedTarget> kTargets = {
    {"scalar", "x86_64", {"scalar"}},
    {"avx2", "x86_64", {"scalar", "avx2", "fma", "f16c"}},
    {"avxvnni", "x86_64", {"scalar", "avx2", "fma", "f16c", "avx_vnni"}},
    {"avx512", "x86_64", {"scalar", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"}},
    {"avx512bf16",
     "x86_64",
     {"scalar", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16"}},
    {"amx",
     "x86_64",
     {"scalar", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile",
      "amx_int8", "amx_bf16"}},
    {"arm", "aarch64", {"scalar", "neon", "dotprod", "i8mm", "bf16", "fp16"}},
};

// Devices with a number behind the colon: cuda:9.0. Another word before the colon is a backend on such a CUDA device.
constexpr const char* kDevices = "cuda:MAJOR.MINOR, rocm:GFX, xpu, BACKEND:MAJOR.MINOR such as marlin:9.0";

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t k = 0; k < b.size(); ++k) {
      const std::size_t best = std::min({row[k] + 1, row[k + 1] + 1, diagonal + (a[i] == b[k] ? 0 : 1)});
      diagonal = std::exchange(row[k + 1], best);
    }
  }
  return row.back();
}

std::vector<std::string> words_of(const CLI::App& app, bool options) {
  std::vector<std::string> out;
  if (options) {
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
      for (const std::string& name : option->get_snames()) out.push_back("-" + name);
    }
  } else {
    for (const CLI::App* command : app.get_subcommands(nullptr)) out.push_back(command->get_name());
  }
  return out;
}

Json platform_document(const std::string& name, std::string& backend) {
  for (const NamedTarget& row : kTargets)
    if (name == row.name) return {{"type", "cpu"}, {"arch", row.arch}, {"features", row.features}};
  const std::size_t colon = name.find(':');
  const std::string device = name.substr(0, colon);
  const std::string detail = colon == std::string::npos ? "" : name.substr(colon + 1);
  if (device == "xpu" && detail.empty()) return {{"type", "xpu"}};
  if (device == "rocm" && !detail.empty()) return {{"type", "rocm"}, {"gfx", detail}};
  int major = 0;
  int minor = 0;
  const char* end = detail.data() + detail.size();
  const auto first = std::from_chars(detail.data(), end, major);
  if (first.ec == std::errc{} && first.ptr != end && *first.ptr == '.') {
    const auto second = std::from_chars(first.ptr + 1, end, minor);
    if (second.ec == std::errc{} && second.ptr == end) {
      if (device != "cuda") backend = device;
      return {{"type", "cuda"}, {"capability", {major, minor}}};
    }
  }
  return nullptr;
}

// A file with a platform's document. It may be anything: what has no end (a device, a pipe) is not read, and of a large
// file no more than the library needs to refuse it.
std::string platform_file(const std::string& name) {
  constexpr std::size_t kMost = (std::size_t{1} << 20U) + 1;
  const auto refuse = [&](std::string_view what) {
    throw Failure(kUsage, fmt::format("--for '{}': {}", printable(name), what));
  };
  const int file = open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (file < 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat kind = {};
  const bool regular = fstat(file, &kind) == 0 && S_ISREG(kind.st_mode);
  std::string text(regular ? kMost : 0, '\0');
  std::size_t size = 0;
  ssize_t got = 0;
  while (size < text.size() && (got = read(file, text.data() + size, text.size() - size)) > 0)
    size += static_cast<std::size_t>(got);
  const int fault = errno;
  close(file);
  if (!regular) refuse("neither a machine's name nor a regular file");
  if (got < 0) refuse(fmt::format("cannot be read: {}", std::strerror(fault)));
  text.resize(size);
  return text;
}

// Only the library knows the names of backends: it is asked with a layer of no model.
void check_backend(const std::string& name, const std::string& backend) {
  const std::string text = Json{
      {"num_experts", 8},      {"top_k", 2}, {"hidden_dim", 256}, {"intermediate_size", 256}, {"in_dtype", "bfloat16"},
      {"moe_backend", backend}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  try {
    make<ConfigHandle>(moe_config_create, text.data(), text.size());
  } catch (const Failure& failure) {
    throw Failure(kUsage, fmt::format("--for '{}': {}", printable(name), printable(failure.what())));
  }
}

// Whether layers for a platform run on this machine: if it has all that kernels may use.
void describe(TargetMachine& target) {
  const Json wanted = document_of(moe_platform_to_json, target.platform.get());
  const auto host = make<PlatformHandle>(moe_platform_create, nullptr, std::size_t{0});
  const Json mine = document_of(moe_platform_to_json, host.get());
  target.here = wanted.value("type", "") == "cpu" && wanted.value("arch", "") == mine.value("arch", "");
  for (const Json& feature : wanted.value("features", Json::array()))
    target.here = target.here && moe_platform_has(host.get(), feature.get<std::string>().c_str()) == 1;
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& words) {
  std::string best;
  std::size_t least = std::max<std::size_t>(word.size() / 2, 2) + 1;  // farther ones are other words
  for (const std::string& candidate : words) {
    const std::size_t d = candidate.starts_with(word) && word.size() > 1 ? 0 : distance(word, candidate);
    if (d < least) {
      least = d;
      best = candidate;
    }
  }
  return best;
}

std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  for (const CLI::App* used : app.get_subcommands()) command = used;
  const std::string help = command == &app ? "moe --help" : fmt::format("moe {} --help", command->get_name());
  std::vector<std::string> left = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || (command == &app && !left.empty())) {
    const std::string word = left.empty() ? "" : left.front();
    const bool option = word.starts_with('-');
    const std::string near = nearest_word(word.substr(0, word.find('=')), words_of(*command, option));
    if (option && near == word)  // one of the command's, in front of it
      return fmt::format("'{}' goes behind the command: moe {} {}; see {}", word, command->get_name(), word, help);
    const char* kind = option ? "option" : command == &app ? "command" : "argument";
    return fmt::format("there is no {} '{}'{}; see {}", kind, printable(word),
                       near.empty() || (!option && command != &app) ? "" : fmt::format(", did you mean '{}'?", near),
                       help);
  }
  if (command == &app && app.get_subcommands().empty()) {
    std::string names;
    for (const Command& row : kCommands) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
    return fmt::format("a command is needed: {}; see {}", names, help);
  }
  return fmt::format("{}; see {}", printable(error.what()), help);
}

CLI::Validator seconds_up_to(double most) {
  return CLI::Validator(
      [most](const std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value >= 0 && value <= most
                   ? std::string()
                   : fmt::format("{} is not a number of seconds from 0 to {:.0f}", printable(text), most);
      },
      CLI::Range(0.0, most).get_description());
}

CLI::Validator not_empty() {
  return CLI::Validator([](const std::string& text) { return text.empty() ? "must not be empty" : std::string(); }, "");
}

CLI::Validator whole_number() {
  return CLI::Validator(
      [](const std::string& text) {
        std::int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        return parsed.ec == std::errc{} && parsed.ptr == end && value >= 0
                   ? std::string()
                   : printable(text) + " is not a whole number from 0";
      },
      "");
}

void add_directory(CLI::App& command, std::string& directory, const char* name, const char* what) {
  command.add_option(name, directory, what)->required()->type_name("");
}

std::vector<std::int64_t> number_list(const std::string& text, std::int64_t largest, const char* option) {
  std::vector<std::int64_t> out;
  const auto refuse = [&](std::string_view what) {
    throw Failure(kUsage,
                  fmt::format("{} '{}': {}; write numbers and ranges such as 0-3,7", option, printable(text), what));
  };
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    std::int64_t first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc{} || first < 0) refuse("is not understood");
    std::int64_t last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc{} || last < first) refuse("a range goes from a smaller to a larger number");
    }
    if (last > largest) refuse(fmt::format("{} is past the last one, {}", last, largest));
    for (std::int64_t i = first; i <= last; ++i) out.push_back(i);
    at = parsed.ptr;
    if (at != end && (*at != ',' || ++at == end)) refuse("is not understood");
  }
  if (out.empty()) refuse("is empty");
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void add_target(CLI::App& command, std::string& name) {
  std::string names;
  for (const NamedTarget& row : kTargets) names += fmt::format(", {}", row.name);
  command
      .add_option("--for", name,
                  fmt::format("The machine: this{}, {}, or a file with a platform's JSON", names, kDevices))
      ->type_name("MACHINE");
}

TargetMachine target_of(const std::string& name) {
  TargetMachine out;
  out.name = name;
  if (name == "this") return out;
  std::string backend;
  Json document = platform_document(name, backend);
  // The library refuses a backend that does not exist, also one that is not UTF-8.
  std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (document.is_null()) {
    if (struct stat there = {}; stat(name.c_str(), &there) != 0) {
      std::vector<std::string> names = {"this", "xpu"};
      for (const NamedTarget& row : kTargets) names.emplace_back(row.name);
      const std::string near = nearest_word(name, names);
      throw Failure(
          kUsage, fmt::format("--for '{}': neither a machine's name nor a file that can be read{}; see moe why --help",
                              printable(name), near.empty() ? "" : fmt::format(", did you mean '{}'?", near)));
    }
    text = platform_file(name);
  }
  if (!backend.empty()) {
    check_backend(name, backend);
    out.patch = Json{{"moe_backend", backend}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  try {
    out.platform = make<PlatformHandle>(moe_platform_create, text.data(), text.size());
  } catch (const Failure& failure) {
    throw failure.within(fmt::format("--for '{}'", printable(name)));
  }
  describe(out);
  return out;
}

std::string for_text(const std::string& name) { return name == "this" ? "" : " --for " + shell_word(name); }

TargetMachine target_of_folder(const std::string& platform) {
  std::istringstream words(platform);
  std::string device, detail;
  words >> device >> detail;
  const auto host = make<PlatformHandle>(moe_platform_create, nullptr, std::size_t{0});
  if (device == "cpu" && document_of(moe_platform_to_json, host.get()).value("arch", "") == detail)
    return target_of("this");
  std::string backend;
  Json document = device == "cpu" ? platform_document(detail == "aarch64" ? "arm" : "avx2", backend)
                                  : platform_document(detail.empty() ? device : device + ":" + detail, backend);
  if (document.is_null())
    throw Failure(kNo, fmt::format("a folder for the platform {} cannot be compared", printable(platform)));
  for (std::string word; words >> word;) {
    if (word == "cuda_version") {
      std::int64_t version = 0;
      words >> version;
      document[word] = version;
    } else {
      document["libs"][word] = true;
    }
  }
  TargetMachine out;
  out.name = platform;
  const std::string text = document.dump();
  out.platform = make<PlatformHandle>(moe_platform_create, text.data(), text.size());
  describe(out);
  return out;
}

}  // namespace moe_tool
