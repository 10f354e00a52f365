// moe_packed_save and what is under its path: rights, links, special files, names; and the signals of the host.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include <csignal>
#include <filesystem>

#include "support/rooms.h"
#include "support/saves.h"

namespace moe::test::save_test {
namespace {

constexpr uid_t kStranger = 54321;

struct Rights {
  unsigned mode;
  uid_t owner;
  gid_t group;
  bool operator==(const Rights&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Rights& r) {
  return out << std::oct << r.mode << std::dec << " of " << r.owner << ":" << r.group;
}
Rights rights_of(const std::string& at) {
  struct stat st {};
  EXPECT_EQ(::lstat(at.c_str(), &st), 0) << at;
  return {st.st_mode & 07777, st.st_uid, st.st_gid};
}

class Save : public Saves {};

TEST_F(Save, TheModeStaysAndIsNeverWider) {
  for (const unsigned mode : {0600u, 0640u, 0666u, 0755u, 0444u, 0400u, 0200u, 04755u, 02640u}) {
    ASSERT_EQ(save(a, path).status, MOE_OK);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    int seen = 0;
    const Ask look = [&](std::uint64_t, std::uint64_t) {
      for (const std::string& t : temporaries()) {
        ++seen;
        EXPECT_EQ(mode_of(dir.file(t)) & ~mode, 0u) << std::oct << mode;
      }
      return MOE_OK;
    };
    ASSERT_EQ(save(b, path, asking(look).get()).status, MOE_OK);
    EXPECT_GT(seen, 0);
    EXPECT_EQ(mode_of(path), mode & 0777);
    ::chmod(path.c_str(), 0600);
    EXPECT_EQ(held(path), "b");
    ASSERT_EQ(::unlink(path.c_str()), 0);
  }
}

TEST_F(Save, ANewFileObeysTheUmask) {
  for (const mode_t mask : {0022u, 0077u, 0u}) {
    const mode_t before = ::umask(mask);
    EXPECT_EQ(save(a, path).status, MOE_OK);
    EXPECT_EQ(::umask(before), mask);
    EXPECT_EQ(mode_of(path), 0666 & ~mask);
    ASSERT_EQ(::unlink(path.c_str()), 0);
  }
}

TEST_F(Save, OwnerAndGroup) {
  if (::geteuid() != 0) {
    std::puts("not root: one user only");
    ASSERT_EQ(save(a, path).status, MOE_OK);
    const Rights before = rights_of(path);
    ASSERT_EQ(save(b, path).status, MOE_OK);
    EXPECT_EQ(rights_of(path), before);
    return;
  }
  // Root keeps both; a user who may not give files away keeps the group if it is one of theirs, else no user gains
  // rights.
  struct Case {
    bool root;
    Rights old, wanted;
  };
  for (const Case& c : {Case{true, {0640, kStranger, kStranger + 1}, {0640, kStranger, kStranger + 1}},
                        {false, {0640, 0, kStranger}, {0640, kStranger, kStranger}},
                        {false, {0660, 0, 0}, {0600, kStranger, kStranger}},
                        {false, {0664, 0, 0}, {0644, kStranger, kStranger}},
                        {false, {0604, 0, 0}, {0600, kStranger, kStranger}}}) {
    ASSERT_EQ(save(a, path).status, MOE_OK);
    ASSERT_EQ(::chown(dir.path().c_str(), c.root ? 0 : kStranger, c.root ? 0 : kStranger), 0);
    ASSERT_EQ(::chown(path.c_str(), c.old.owner, c.old.group), 0);
    ASSERT_EQ(::chmod(path.c_str(), c.old.mode), 0);
    const int status = in_child([&] {
      if (!c.root && (::setgid(kStranger) != 0 || ::setuid(kStranger) != 0)) return 99;
      return static_cast<int>(save(b, path).status);
    });
    ASSERT_EQ(status, MOE_OK);
    EXPECT_EQ(rights_of(path), c.wanted) << "old " << c.old;
    EXPECT_EQ(held(path), "b");
    ASSERT_EQ(::unlink(path.c_str()), 0);
  }
}

// Version 2, then (tag, rights, id) each; user_obj 1, user 2, group_obj 4, mask 16, other 32.
std::string access_list(char of_stranger) {
  std::string text("\2\0\0\0", 4);
  const auto entry = [&](char tag, char rights, std::uint32_t id) {
    text.append({tag, 0, rights, 0});
    for (int i = 0; i < 4; ++i) text.push_back(static_cast<char>(id >> 8 * i));
  };
  entry(1, 6, ~0u), entry(2, of_stranger, kStranger), entry(4, 0, ~0u), entry(16, 6, ~0u), entry(32, 0, ~0u);
  return text;
}

TEST_F(Save, AccessListsStayAndAreNotInherited) {
  const auto set = [](const std::string& at, const char* name, const std::string& list) {
    return ::setxattr(at.c_str(), name, list.data(), list.size(), 0) == 0;
  };
  const auto get = [](const std::string& at) {
    std::string list(1000, '\0');
    const ssize_t n = ::getxattr(at.c_str(), "system.posix_acl_access", list.data(), list.size());
    return n < 0 ? "none" : list.substr(0, static_cast<std::size_t>(n));
  };
  ASSERT_EQ(save(a, path).status, MOE_OK);
  if (!set(path, "system.posix_acl_access", access_list(4))) {
    ASSERT_EQ(errno, EOPNOTSUPP);
    std::puts("no access lists on this file system");
    return;
  }
  ASSERT_EQ(save(b, path).status, MOE_OK);
  EXPECT_EQ(get(path), access_list(4));
  EXPECT_EQ(mode_of(path), 0660u);  // the group's bits are the list's mask
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(save(a, path).status, MOE_OK);
  ASSERT_EQ(::chmod(path.c_str(), 0660), 0);
  ASSERT_TRUE(set(dir.path(), "system.posix_acl_default", access_list(6)));
  ASSERT_EQ(save(b, path).status, MOE_OK);
  EXPECT_EQ(get(path), "none");
  EXPECT_EQ(mode_of(path), 0660u);
}

TEST_F(Save, LinksAreFollowed) {
  const std::string other = dir.file("other"), folder_link = dir.file("folder_link");
  std::filesystem::create_directory(other);
  ASSERT_EQ(::symlink("other", folder_link.c_str()), 0);
  struct Link {
    std::string text, target;
  };
  for (const Link& l : {Link{"layer.moe", path},
                        {path, path},
                        {"other/x", other + "/x"},
                        {"folder_link/y", other + "/y"},
                        {"./folder_link/../z", dir.file("z")}})
    for (const bool dangling : {true, false}) {
      const std::string link = dir.file("link"), second = other + "/second";
      if (!dangling) {
        ASSERT_EQ(save(a, l.target).status, MOE_OK);
        ASSERT_EQ(::chmod(l.target.c_str(), 0640), 0);
      }
      ASSERT_EQ(::symlink(l.text.c_str(), link.c_str()), 0);
      ASSERT_EQ(::symlink("../link", second.c_str()), 0);
      EXPECT_EQ(save(b, second).status, MOE_OK) << l.text;
      EXPECT_EQ(std::filesystem::read_symlink(link), l.text);
      EXPECT_EQ(std::filesystem::read_symlink(second), "../link");
      EXPECT_EQ(held(l.target), "b") << l.text;
      if (!dangling) {
        EXPECT_EQ(mode_of(l.target), 0640u);
      }
      for (const std::string& name : {link, second, l.target}) ASSERT_EQ(::unlink(name.c_str()), 0);
    }
  ASSERT_EQ(save(a, path).status, MOE_OK);
  ASSERT_EQ(::link(path.c_str(), dir.file("hard").c_str()), 0);
  ASSERT_EQ(save(b, path).status, MOE_OK);
  EXPECT_EQ(held(path), "b");
  EXPECT_EQ(held(dir.file("hard")), "a");
}

TEST_F(Save, LinksThatLeadNowhere) {
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  const auto link = [&](const char* to) {
    (void)::unlink(path.c_str());
    ASSERT_EQ(::symlink(to, path.c_str()), 0);
  };
  for (const auto& [to, error] : {std::pair{"layer.moe", ELOOP},
                                  {"absent/x", ENOENT},
                                  {"x/", EISDIR},
                                  {".", EISDIR},
                                  {"fifo", EINVAL},
                                  {"fifo/x", ENOTDIR}}) {
    link(to);
    EXPECT_EQ(error_number(save(a, path)), error) << to;
    EXPECT_EQ(std::filesystem::read_symlink(path), to);
  }
  ASSERT_EQ(::unlink(dir.file("fifo").c_str()), 0);
  const int fd = ::open(dir.path().c_str(), O_TMPFILE | O_RDWR, 0600);  // /proc calls it ".. (deleted)"
  if (fd < 0) std::puts("no files without a name here");
  if (fd >= 0) {
    EXPECT_EQ(error_number(save(a, "/proc/self/fd/" + std::to_string(fd))), ENOENT);
  }
  if (fd >= 0) ::close(fd);
  EXPECT_EQ(dir.names(), std::vector<std::string>{"layer.moe"});
}

TEST_F(Save, LinksOfStrangersInOpenFolders) {
  std::ifstream setting("/proc/sys/fs/protected_symlinks");
  char on = '0';
  if (::geteuid() != 0 || !(setting >> on) || on != '1') {
    std::puts("not root, or such links are not protected here");
    return;
  }
  const std::string open = dir.file("open");
  std::filesystem::create_directory(open);
  ASSERT_EQ(::chmod(open.c_str(), 01777), 0);
  ASSERT_EQ(save(a, path).status, MOE_OK);
  ASSERT_EQ(::symlink(path.c_str(), (open + "/link").c_str()), 0);
  ASSERT_EQ(::lchown((open + "/link").c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(error_number(save(b, open + "/link")), EACCES);
  EXPECT_EQ(held(path), "a");
}

TEST_F(Save, SpecialFilesAreLeftAlone) {
  const std::string fifo = dir.file("fifo"), bound = dir.file("socket"), folder = dir.file("folder");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_directory(folder);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  bound.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  std::vector<std::string> paths{fifo, bound, folder, folder + "/."};
  const std::string device = dir.file("device");  // not one of /dev: a library that is wrong would replace it
  if (::mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) paths.push_back(device);
  ASSERT_EQ(::symlink("fifo", dir.file("link").c_str()), 0);
  paths.push_back(dir.file("link"));
  std::vector<std::string> names = dir.names();
  for (const std::string& at : paths) {
    struct stat before {
    }, after{};
    ASSERT_EQ(::lstat(at.c_str(), &before), 0);
    const Failure f = save(a, at);
    EXPECT_EQ(f.status, MOE_ERR_IO) << at;
    EXPECT_NE(error_number(f), -1) << at;
    EXPECT_NE(f.message.find("not a regular file"), std::string::npos) << f.message;
    ASSERT_EQ(::lstat(at.c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino) << at;
    EXPECT_EQ(before.st_mode, after.st_mode) << at;
    EXPECT_EQ(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec) << at;
  }
  EXPECT_EQ(dir.names(), names);
}

TEST_F(Save, PathsThatCannotBe) {
  ASSERT_EQ(save(a, path).status, MOE_OK);
  const std::string reserved = ".moe-save-123.tmp";
  for (const auto& [at, error] : {std::pair{std::string(), ENOENT},
                                  {path + "/", EISDIR},
                                  {path + "/x", ENOTDIR},
                                  {dir.file("absent/x"), ENOENT},
                                  {dir.file(std::string(256, 'x')), ENAMETOOLONG},
                                  {dir.file(std::string(5000, 'x')), ENAMETOOLONG},
                                  {dir.path() + std::string(5000, '/') + "x", ENAMETOOLONG},
                                  {dir.file(reserved), EINVAL}})
    EXPECT_EQ(error_number(save(a, at)), error) << at.substr(0, 100);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0555), 0);
  const int refused = in_child([&] {
    if (::geteuid() == 0 && (::setgid(kStranger) != 0 || ::setuid(kStranger) != 0)) return 99;
    return error_number(save(b, path));
  });
  EXPECT_EQ(refused, EACCES);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
  EXPECT_EQ(dir.names(), std::vector<std::string>{"layer.moe"});
  EXPECT_EQ(held(path), "a");
  for (const std::string& name :
       {std::string(255, 'x'), std::string(".moe-save-.tmp"), std::string(".moe-save-1x.tmp")})
    EXPECT_EQ(save(b, dir.file(name)).status, MOE_OK) << name;  // as long as can be; like a temporary one
  EXPECT_EQ(save(a, path).status, MOE_OK);
  EXPECT_EQ(dir.names().size(), 4U);
}

TEST_F(Save, OverTheFileItIsMappedFrom) {
  ASSERT_EQ(save(b, path).status, MOE_OK);
  const PackedPtr mapped = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load(nullptr, path.c_str(), MOE_LOAD_MMAP, nullptr, o, e);
  });
  ASSERT_EQ(save(mapped.get(), path).status, MOE_OK);
  EXPECT_EQ(held(path), "b");
}

// The mask and the waiting signals of this thread.
std::string signal_state() {
  sigset_t blocked, waiting;
  EXPECT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &blocked), 0);
  EXPECT_EQ(::sigpending(&waiting), 0);
  std::string text;
  for (int s = 1; s < NSIG; ++s)
    if (sigismember(&blocked, s) == 1 || sigismember(&waiting, s) == 1)
      text += " " + std::to_string(s) + (sigismember(&waiting, s) == 1 ? " waits" : " blocked");
  return text;
}

int handled = 0;
void count_signal(int) { ++handled; }

// Beyond the limit on file sizes, with the signal in each state that a host may have it in.
TEST_F(Save, BeyondTheLimitOnFileSizes) {
  ASSERT_EQ(save(a, path).status, MOE_OK);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit half{block(b).second / 2, limit.rlim_max};
  sigset_t only, mask;
  sigemptyset(&only);
  sigaddset(&only, SIGXFSZ);
  for (void (*const handler)(int) : {SIG_DFL, SIG_IGN, &count_signal})
    for (const char* const host : {"open", "blocked", "waiting"}) {
      SCOPED_TRACE(host);
      const bool blocked = host[0] != 'o', waiting = host[0] == 'w';
      handled = 0;
      const auto before = std::signal(SIGXFSZ, handler);
      ASSERT_EQ(::pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &only, &mask), 0);
      if (waiting) {
        ASSERT_EQ(::raise(SIGXFSZ), 0);
      }
      const std::string state = signal_state();
      const Ask look = [&](std::uint64_t, std::uint64_t) {
        EXPECT_EQ(signal_state(), state) << "in the callback";
        return MOE_OK;
      };
      const ControlPtr control = asking(look);
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &half), 0);
      const Failure f = save(b, path, control.get());
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
      EXPECT_EQ(error_number(f), EFBIG) << f.message;
      EXPECT_EQ(signal_state(), state);
      const timespec at_once{};
      if (waiting) {
        EXPECT_EQ(::sigtimedwait(&only, nullptr, &at_once), SIGXFSZ);  // once
      }
      EXPECT_EQ(signal_state().find("waits"), std::string::npos);
      ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &mask, nullptr), 0);
      EXPECT_EQ(handled, 0);
      EXPECT_EQ(std::signal(SIGXFSZ, before), handler);
      EXPECT_EQ(dir.names(), std::vector<std::string>{"layer.moe"});
      EXPECT_EQ(held(path), "a");
    }
}

TEST_F(Save, TheCallbackSeesTheCallersSignals) {
  const std::string state = signal_state();
  int seen = 0;
  const Ask look = [&](std::uint64_t, std::uint64_t) {
    EXPECT_EQ(signal_state(), state);
    ++seen;
    return MOE_OK;
  };
  ASSERT_EQ(save(b, path, asking(look).get()).status, MOE_OK);
  EXPECT_GE(seen, 2);
}

}  // namespace
}  // namespace moe::test::save_test
