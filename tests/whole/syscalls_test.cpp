// After the first call of a size, moe_apply asks the kernel for nothing but futex waits and wakes: a child process
// forbids everything else (seccomp, all threads) and applies on. Heap allocations are counted in
// out_of_memory_test.cpp.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/sanitizers.h"

namespace moe::test::syscalls_test {
namespace {

#if !MOE_ASAN && !MOE_TSAN  // a sanitizer's runtime makes calls of its own

constexpr sock_filter allow(unsigned number, unsigned char more) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, more, 0);
}

// True when from now on every thread of this process may only wait, wake and exit: anything else kills it.
bool forbid_all_but_futex() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      allow(SYS_futex, 1),
      allow(SYS_exit_group, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  program[1].jt = 2;
  program[2].jt = 1;
  const sock_fprog filter = {static_cast<unsigned short>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

// A new thread makes calls of its own until it first sleeps: waits for that.
bool all_others_sleep() {
  for (int tries = 0; tries < 1000; ++tries, usleep(10000)) {
    bool all = true;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      if (task.path().filename() == std::to_string(getpid())) continue;
      std::ifstream stat(task.path() / "stat");
      const std::string text(std::istreambuf_iterator<char>(stat), {});
      const std::size_t name_end = text.rfind(')');
      all &= name_end != std::string::npos && text.compare(name_end, 4, ") S ") == 0;
    }
    if (all) return true;
  }
  return false;
}

enum Outcome { kFine = 0, kWrong = 1, kNoFilter = 2 };

int in_child(const Steps& s, const Model& m, bool forbidden_call) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    Call call(m), warm(m);
    call.args.mode = warm.args.mode = MOE_APPLY_ROUTER_LOGITS;
    call.args.router_logits = &call.logits;
    warm.args.router_logits = &warm.logits;
    for (moe_apply_args* a : {&call.args, &warm.args}) a->topk_ids = a->topk_weights = nullptr;
    if (moe_apply(s.layer.get(), &warm.args, nullptr) != MOE_OK) _exit(kWrong);  // starts the threads of this process
    if (!all_others_sleep()) _exit(kWrong);
    if (!forbid_all_but_futex()) _exit(kNoFilter);
    for (int i = 0; i < 50; ++i)
      if (moe_apply(s.layer.get(), &call.args, nullptr) != MOE_OK) _exit(kWrong);
    if (forbidden_call) (void)getppid();
    _exit(call.out == warm.out ? kFine : kWrong);
  }
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Syscalls, ApplyMakesOnlyFutexCalls) {
  for (const char* threads : {"{\"threads\":1}", "{\"threads\":3}"})
    for (const std::int64_t tokens : {1, 5, 40, 2100}) {  // 4200 slots are sorted in parallel
      Model m;
      m.T = tokens;
      m = random_model(m);
      const Steps s = four_steps(m, threads);
      const int got = in_child(s, m, false);
      EXPECT_EQ(got, kFine) << threads << " " << tokens << " tokens (2: no seccomp here, -31: a forbidden system call)";
      EXPECT_EQ(in_child(s, m, true), -SIGSYS) << "the filter does not bite";
    }
}

#endif

}  // namespace
}  // namespace moe::test::syscalls_test
