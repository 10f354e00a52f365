// moe_packed_save when something goes wrong: every system call fails in turn, the disk is full, the process is killed
// at any moment, others save at the same time. The old file is unharmed, and nothing is left behind.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <thread>

#include "support/call_faults.h"
#include "support/rooms.h"
#include "support/sanitizers.h"
#include "support/saves.h"
#include "support/share.h"

namespace moe::test::save_faults_test {
namespace {

const std::vector<int> kInterruptible = {SYS_openat, SYS_flock, SYS_write, SYS_fsync, SYS_getrandom};
const std::vector<int> kSpace = {SYS_write, SYS_pwrite64, SYS_fallocate, SYS_ftruncate, SYS_fsync, SYS_fdatasync};
std::vector<int> all_calls() {
  std::vector<int> all{SYS_fstat,      SYS_readlinkat, SYS_getdents64, SYS_unlinkat,     SYS_getxattr,
                       SYS_fsetxattr,  SYS_fchown,     SYS_fchmod,     SYS_fremovexattr,
#ifdef SYS_newfstatat
                       SYS_newfstatat,
#endif
#ifdef SYS_renameat
                       SYS_renameat,
#endif
                       SYS_renameat2,  SYS_fdatasync,  SYS_pwrite64,   SYS_fallocate,    SYS_ftruncate};
  all.insert(all.end(), kInterruptible.begin(), kInterruptible.end());
  return all;
}

class SaveFaults : public Saves {
 protected:
  const std::string link = dir.file("link"), dead = ".moe-save-1.tmp";

  // The old file, a link to it, and what a killed process left.
  void SetUp() override {
    ASSERT_EQ(save(a, path).status, MOE_OK);
    ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
    ASSERT_EQ(::symlink("layer.moe", link.c_str()), 0);
    dir.write(dead, "x");
  }
  void check(const Failure& f, const std::string& old) {
    EXPECT_TRUE(f.status == MOE_OK || f.status == MOE_ERR_IO) << f.message;
    EXPECT_EQ(held(path), f.status == MOE_OK ? "b" : old);
    EXPECT_EQ(mode_of(path) & ~0640u, 0u);
    std::vector<std::string> left = temporaries();
    std::erase(left, dead);  // where the call that failed was to find or remove it
    EXPECT_EQ(left, std::vector<std::string>{}) << f.message;
  }
  // A process that ends in the callback behind the last write.
  int killed_while_saving(const moe_packed* p) {
    return in_child([&] {
      const Ask end = [](std::uint64_t done, std::uint64_t total) {
        if (done == total) ::kill(::getpid(), SIGKILL);
        return MOE_OK;
      };
      return static_cast<int>(save(p, path, asking(end).get()).status);
    });
  }
};

TEST_F(SaveFaults, EachSystemCallFailsInTurn) {
  for (const int error : {EIO, ENOSPC, EDQUOT, EACCES}) {
    std::set<moe_status> seen;
    for (int n = 0;; ++n) {
      SCOPED_TRACE("call " + std::to_string(n) + ", error " + std::to_string(error));
      ASSERT_EQ(save(a, path).status, MOE_OK);
      ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
      dir.write(dead, "x");
      Failure f;
      const int calls = with_call_faults(
          all_calls(), [&](int i) { return i == n ? error : 0; }, [&] { f = save(b, link); });
      ASSERT_GE(calls, 0) << "no seccomp user notification here";
      check(f, "a");
      seen.insert(f.status);
      if (f.status != MOE_OK) {
        EXPECT_EQ(error_number(f), error) << f.message;
      }
      if (calls <= n) break;
      ASSERT_LT(n, 1000);
    }
    EXPECT_EQ(seen, (std::set<moe_status>{MOE_OK, MOE_ERR_IO}));
    EXPECT_EQ(mode_of(path), 0640u);
    EXPECT_EQ(temporaries(), std::vector<std::string>{});
  }
}

// From the n-th call on that takes space, every one.
TEST_F(SaveFaults, NoSpaceAndNoQuota) {
  for (const int error : {ENOSPC, EDQUOT})
    for (int n = 0;; ++n) {
      SCOPED_TRACE("call " + std::to_string(n) + ", error " + std::to_string(error));
      ASSERT_EQ(save(a, path).status, MOE_OK);
      Failure f;
      const int calls = with_call_faults(
          kSpace, [&](int i) { return i < n ? 0 : error; }, [&] { f = save(b, path); });
      ASSERT_GE(calls, 0) << "no seccomp user notification here";
      check(f, "a");
      if (n == 0) {
        EXPECT_EQ(error_number(f), error);
      }
      if (calls <= n) break;
    }
}

TEST_F(SaveFaults, InterruptedCallsAreMadeAgain) {
  for (int n = 0;; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    ASSERT_EQ(save(a, path).status, MOE_OK);
    dir.write(dead, "x");
    Failure f;
    const int calls = with_call_faults(
        kInterruptible, [&](int i) { return i == n ? EINTR : 0; }, [&] { f = save(b, link); });
    ASSERT_GE(calls, 0) << "no seccomp user notification here";
    EXPECT_EQ(f.status, MOE_OK) << f.message;
    check(f, "a");
    EXPECT_EQ(temporaries(), std::vector<std::string>{});
    if (calls <= n) break;
  }
}

// In a namespace of its own: as root, or as the root of a namespace of users.
bool may_mount() {
  const std::string user = "0 " + std::to_string(::geteuid()) + " 1", group = "0 " + std::to_string(::getegid()) + " 1";
  if (::geteuid() == 0) return ::unshare(CLONE_NEWNS) == 0;
  if (::unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << user;
  std::ofstream("/proc/self/gid_map") << group;
  return ::geteuid() == 0;
}

// A disk of 64 KiB: the old file fits, the new one does not.
TEST_F(SaveFaults, AFullDisk) {
  enum Outcome { kNoMount = 77, kWrong = 78 };
  const std::string disk = dir.file("disk");
  ASSERT_EQ(::mkdir(disk.c_str(), 0700), 0);
  const int got = in_child([&] {
    if (!may_mount()) return +kNoMount;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return +kNoMount;
    if (::mount("none", disk.c_str(), "tmpfs", 0, "size=64k") != 0) return +kNoMount;
    if (save(a, disk + "/layer").status != MOE_OK) return +kWrong;
    const Failure f = save(b, disk + "/layer");
    const auto files = std::distance(std::filesystem::directory_iterator(disk), {});
    return held(disk + "/layer") == "a" && files == 1 ? error_number(f) : +kWrong;
  });
  if (got == kNoMount) {
    std::puts("mounting is not permitted here; ENOSPC was injected only");
    return;
  }
  EXPECT_EQ(got, ENOSPC);
}

TEST_F(SaveFaults, ACallbackEndsIt) {
  for (const moe_status answer : {MOE_ERR_CANCELLED, MOE_ERR_IO}) {
    const Ask end = [&](std::uint64_t done, std::uint64_t) { return done == 0 ? MOE_OK : answer; };
    EXPECT_EQ(save(b, path, asking(end).get()).status, answer == MOE_ERR_IO ? MOE_ERR_CALLBACK : answer);
    EXPECT_EQ(held(path), "a");
    EXPECT_EQ(temporaries(), std::vector<std::string>{});
  }
}

// The last writes of a killed process are found by the next save, whoever makes it, and nobody else's.
TEST_F(SaveFaults, WhatKilledProcessesLeaveIsRemoved) {
  const std::string alive = dir.file(".moe-save-2.tmp");
  dir.write(".moe-save-2.tmp", "y");
  std::filesystem::create_symlink("layer.moe", dir.file(".moe-save-3.tmp"));
  std::filesystem::create_directory(dir.file(".moe-save-4.tmp"));
  dir.write(".moe-save-5.tmp.x", "z");
  const int fd = ::open(alive.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  for (int i = 0; i < rounds(50); ++i) {
    ASSERT_EQ(killed_while_saving(b), -SIGKILL);
    ASSERT_EQ(held(path), "a");
    ASSERT_EQ(temporaries().size(), 5U);  // the four, and its own
  }
  ASSERT_EQ(save(b, dir.file("another")).status, MOE_OK);
  EXPECT_EQ(temporaries().size(), 4U);
  ::close(fd);
  ASSERT_EQ(save(b, path).status, MOE_OK);
  EXPECT_EQ(temporaries().size(), 3U);
}

TEST_F(SaveFaults, ASaveWithinASave) {
  const Ask again = [&](std::uint64_t, std::uint64_t) {
    EXPECT_EQ(save(a, path).status, MOE_OK);
    EXPECT_EQ(save(a, dir.file("another")).status, MOE_OK);
    return MOE_OK;
  };
  EXPECT_EQ(save(b, path, asking(again).get()).status, MOE_OK);
  EXPECT_EQ(held(path), "b");
  EXPECT_EQ(held(dir.file("another")), "a");
  EXPECT_EQ(temporaries(), std::vector<std::string>{});
}

TEST_F(SaveFaults, KilledAtAnyMoment) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(save(a, path).status, MOE_OK);
  const std::chrono::duration<double, std::micro> one = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(26);
  double longest = 4 * one.count() + 1000;
  constexpr double kAMinute = 6e7;
  int whole[2] = {};
  for (int i = 0; i < rounds(300) || (whole[1] == 0 && longest < kAMinute); ++i) {
    if (i % 50 == 49 && whole[1] == 0) longest *= 2;  // on a machine so busy that none was ever done
    const pid_t pid = fork();
    if (pid == 0) {
      for (int k = i;; ++k)
        if (moe_packed_save(k % 2 ? a : b, path.c_str(), 0, nullptr, nullptr) != MOE_OK) _exit(1);
    }
    ::usleep(static_cast<useconds_t>(std::uniform_real_distribution<double>(0, longest)(random)));
    ::kill(pid, SIGKILL);
    ASSERT_EQ(end_of(pid), -SIGKILL);
    const std::string now = held(path);
    ASSERT_TRUE(now == "a" || now == "b") << now;
    ++whole[now == "b"];
    ASSERT_LE(temporaries().size(), 2U);  // the child's; the first one's if the child had no time to see it
    ASSERT_EQ(mode_of(path), 0640u);
  }
  EXPECT_GT(whole[1], 0);
  ASSERT_EQ(save(b, path).status, MOE_OK);
  EXPECT_EQ(temporaries(), std::vector<std::string>{});
}

#if !MOE_TSAN  // it ends processes that start threads after a fork
TEST_F(SaveFaults, KilledBeforeEachSystemCall) {
  bool ended = false;
  for (int n = 0; !ended; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    ASSERT_EQ(save(a, path).status, MOE_OK);
    const int got = in_child([&] {
      const auto kill_at = [&](int i) { return i == n ? ::kill(::getpid(), SIGKILL) : 0; };
      return with_call_faults(all_calls(), kill_at, [&] { (void)save(b, link); }) < 0 ? 1 : 0;
    });
    ended = got == 0;
    ASSERT_TRUE(ended || got == -SIGKILL) << got << " (1: no seccomp user notification here)";
    const std::string now = held(path);
    EXPECT_TRUE(ended ? now == "b" : now == "a" || now == "b") << now;
    EXPECT_LE(temporaries().size(), 1U);
    EXPECT_EQ(mode_of(path), 0640u);
    ASSERT_LT(n, 1000);
  }
}
#endif

// Threads and processes, these in process id namespaces of their own where that is permitted, save to one path.
TEST_F(SaveFaults, ManyAtOnce) {
  const int times = rounds(60);
  const auto save_often = [&](int first) {
    for (int i = first; i < first + times; ++i)
      if (moe_packed_save(i % 2 ? a : b, path.c_str(), 0, nullptr, nullptr) != MOE_OK) return 1;
    return 0;
  };
  std::vector<pid_t> processes;
  for (int p = 0; p < 2; ++p) {
    processes.push_back(fork());
    if (processes.back() == 0) {
      alarm(300);
      if (::unshare(CLONE_NEWPID) != 0) _exit(save_often(p));
      const pid_t first = fork();  // process 1 there
      _exit(first == 0 ? save_often(p) : end_of(first));
    }
  }
  std::atomic<int> failed{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&, t] { failed += save_often(t); });
  std::thread reader([&] {
    while (!done) {
      const std::string now = held(path);
      if (now != "a" && now != "b") ++failed;
    }
  });
  for (std::thread& t : threads) t.join();
  for (const pid_t p : processes) EXPECT_EQ(end_of(p), 0);
  done = true;
  reader.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(temporaries(), std::vector<std::string>{});
  EXPECT_EQ(mode_of(path), 0640u);
}

}  // namespace
}  // namespace moe::test::save_faults_test
