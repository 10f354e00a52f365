// System calls of one thread that fail on demand (seccomp user notification, Linux 5.5): a supervisor is asked before
// each of them. Other threads of the process are not concerned.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "support/rooms.h"

namespace moe::test {

// A filter on this thread; gives the descriptor of its supervisor, or -1.
inline int ask_before(const std::vector<int>& calls) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

// UBSan's runtime learns what can be read by writing it into a pipe. (TSan would take libc's fstat for a use of the
// descriptor that races with the other thread's close.)
inline bool is_own_write(const seccomp_data& call) {
  struct stat st {};
  return call.nr == SYS_write && syscall(SYS_fstat, static_cast<int>(call.args[0]), &st) == 0 && S_ISFIFO(st.st_mode);
}

// Runs `body` on a thread of its own. `error_of(n)`: what the n-th of these calls fails with, 0: it is made. Gives how
// many there were, -1 where there are no such filters.
inline int with_call_faults(const std::vector<int>& calls, const std::function<int(int n)>& error_of,
                            const std::function<void()>& body) {
  constexpr int kNotYet = -2;
  std::atomic<int> made{kNotYet};
  std::atomic<bool> ended{false};
  std::thread thread([&] {
    const int fd = ask_before(calls);
    made = fd;
    if (fd >= 0) body();
    ended = true;
  });
  while (made == kNotYet) std::this_thread::yield();
  const int fd = made;
  int seen = fd < 0 ? -1 : 0;
  while (fd >= 0 && !ended) {
    pollfd waiting{fd, POLLIN, 0};
    if (poll(&waiting, 1, 1) <= 0) continue;
    seccomp_notif call{};
    if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
    seccomp_notif_resp answer{};
    answer.id = call.id;
    answer.error = is_own_write(call.data) ? 0 : -error_of(seen++);
    if (answer.error == 0) answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    (void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
  if (fd >= 0) close(fd);  // calls that still come are refused
  thread.join();
  return seen;
}

}  // namespace moe::test
