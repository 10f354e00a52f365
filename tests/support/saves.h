// Two layers that can be told apart, and a folder to save them into.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test {

class Saves : public testing::Test {
 protected:
  static constexpr std::string_view kTemporary = ".moe-save-";

  Steps small = four_steps(of(2, 64, 64, 1)), large = four_steps(of(8, 128, 256, 2));  // 400 KB
  const moe_packed *a = small.packed.get(), *b = large.packed.get();
  TempDir dir;
  std::string path = dir.file("layer.moe");

  static Model of(std::int64_t experts, std::int64_t hidden, std::int64_t intermediate, std::uint32_t seed) {
    Model m;
    m.E = experts, m.H = hidden, m.I = intermediate;
    return random_model(std::move(m), seed);
  }
  static std::pair<const void*, std::uint64_t> block(const moe_packed* p) {
    const void* data = nullptr;
    std::uint64_t size = 0;
    EXPECT_EQ(moe_packed_data(p, &data, &size, nullptr), MOE_OK);
    return {data, size};
  }
  static Failure save(const moe_packed* p, const std::string& to, moe_control* control = nullptr) {
    return failure([&](moe_error** e) { return moe_packed_save(p, to.c_str(), 0, control, e); });
  }
  static int error_number(const Failure& f) {
    return f.status == MOE_ERR_IO && f.details.contains("errno") ? f.details["errno"].get<int>() : -1;
  }
  // Of a file: "a", "b", or why it is neither.
  std::string held(const std::string& at) const {
    moe_packed* out = nullptr;
    const Failure f =
        failure([&](moe_error** e) { return moe_packed_load(nullptr, at.c_str(), MOE_LOAD_VERIFY, nullptr, &out, e); });
    const PackedPtr p(out);
    if (f.status != MOE_OK) return f.message;
    const auto [data, size] = block(out);
    for (const auto& [packed, name] : {std::pair{a, "a"}, {b, "b"}}) {
      const auto [want, want_size] = block(packed);
      if (size == want_size && std::memcmp(data, want, size) == 0) return name;
    }
    return "another layer";
  }
  std::vector<std::string> temporaries() const {
    std::vector<std::string> found = dir.names();
    std::erase_if(found, [](const std::string& n) { return !n.starts_with(kTemporary); });
    return found;
  }
  static unsigned mode_of(const std::string& at) {
    struct stat st {};
    return ::lstat(at.c_str(), &st) == 0 ? st.st_mode & 07777 : 0xffff;
  }

  // A control whose callback is `ask`; what it answers ends the save.
  using Ask = std::function<moe_status(std::uint64_t done, std::uint64_t total)>;
  static ControlPtr asking(const Ask& ask) {
    return make<ControlPtr>([&](moe_control** o, moe_error** e) {
      return moe_control_create([](void* user, std::uint64_t done,
                                   std::uint64_t total) { return (*static_cast<const Ask*>(user))(done, total); },
                                const_cast<Ask*>(&ask), nullptr, o, e);
    });
  }
  // Gives what `body` gives in a process of its own, or minus the signal that ended it.
  static int in_child(const std::function<int()>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      _exit(body());
    }
    return end_of(pid);
  }
  static int end_of(pid_t pid) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
};

}  // namespace moe::test
