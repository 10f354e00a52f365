// The mark of a process: constant within, different in children and grandchildren, agreed on by threads.
#include "base/os/process_mark.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>
#include <vector>

#include "support/rooms.h"
#include "support/sanitizers.h"

namespace moe::test::process_mark_test {
namespace {

int child(bool (*body)(const ProcessMark&, std::uint64_t), const ProcessMark& mark, std::uint64_t parent) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(10);
    _exit(body(mark, parent) ? 0 : 1);
  }
  int status = -1;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool differs(const ProcessMark& mark, std::uint64_t parent) {
  return mark.value() != 0 && mark.value() != parent && mark.value() == mark.value();
}

TEST(ProcessMark, ChangesInEveryChildOnly) {
  const ProcessMark mark;
  const std::uint64_t here = mark.value();
  EXPECT_NE(here, 0u);
  EXPECT_EQ(child(differs, mark, here), 0);
  EXPECT_EQ(
      child([](const ProcessMark& m, std::uint64_t p) { return differs(m, p) && child(differs, m, m.value()) == 0; },
            mark, here),
      0);
  EXPECT_EQ(mark.value(), here);
}

#if !MOE_TSAN  // TSan ends processes that start threads after a fork of threads
TEST(ProcessMark, ThreadsOfAChildAgree) {
  const ProcessMark mark;
  const auto agree = [](const ProcessMark& m, std::uint64_t parent) {
    std::vector<std::uint64_t> seen(8);
    std::vector<std::thread> threads;
    for (auto& s : seen) threads.emplace_back([&m, &s] { s = m.value(); });
    for (auto& t : threads) t.join();
    return std::set(seen.begin(), seen.end()).size() == 1 && seen[0] != parent;
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(child(agree, mark, mark.value()), 0);
}
#endif

}  // namespace
}  // namespace moe::test::process_mark_test
