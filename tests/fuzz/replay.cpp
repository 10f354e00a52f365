// Runs a fuzz target over files: every build without libFuzzer has it, so that the corpora are tests everywhere.
//   fuzz_replay TARGET FILE|FOLDER...
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

using Target = int(const std::uint8_t* data, std::size_t size);

#define FUZZ_TARGET(name_) extern "C" Target fuzz_##name_;
#include "targets.inc"  // a line for each source, written by CMake
#undef FUZZ_TARGET

namespace {

struct Named {
  std::string_view name;
  Target* run;
};
#define FUZZ_TARGET(name_) Named{#name_, fuzz_##name_},
constexpr Named kTargets[] = {
#include "targets.inc"
};
#undef FUZZ_TARGET

void run_file(Target* target, const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

std::size_t run_all(Target* target, const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return run_file(target, path), 1;
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
    if (entry.is_regular_file()) run_file(target, entry.path()), ++count;
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  for (const Named& target : kTargets) {
    if (argc < 2 || target.name != argv[1]) continue;
    std::size_t count = 0;
    for (int i = 2; i < argc; ++i) count += run_all(target.run, argv[i]);
    std::printf("%zu inputs\n", count);
    return count > 0 ? 0 : 1;  // a corpus that is not there is a failure
  }
  std::fprintf(stderr, "the targets are:");
  for (const Named& target : kTargets) std::fprintf(stderr, " %s", target.name.data());
  std::fprintf(stderr, "\n");
  return 2;
}
