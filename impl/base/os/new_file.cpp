// Files that appear when they are complete. See new_file.h.
//
// Each writer locks its temporary file (flock), so one whose lock can be taken belongs to no living process: the thread
// that saves into the folder next removes it. Names are random, so none is ever removed or renamed for another's.
#include "base/os/new_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string_view>
#include <vector>

#include "base/index.h"
#include "base/json.h"

namespace moe {
namespace {

constexpr std::string_view kBefore = ".moe-save-", kAfter = ".tmp";  // around a decimal number

bool is_temporary(std::string_view name) {
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter) || name.size() <= kBefore.size() + kAfter.size())
    return false;
  name.remove_prefix(kBefore.size());
  name.remove_suffix(kAfter.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

struct NameInFolder {
  Fd folder;
  std::string name;
  std::optional<struct stat> old;  // what is there
};

Error not_regular(const std::string& path, mode_t mode) {
  return fail(Code::io, path, path + ": not a regular file", json::members("errno", S_ISDIR(mode) ? EISDIR : EINVAL));
}

// `text`: seen from the folder `from`.
Result<NameInFolder> split(int from, const std::string& text, const std::string& path) {
  const std::size_t name = text.rfind('/') + 1;  // 0 without a slash
  if (name == text.size()) return io_error(path, "save under this name", text.empty() ? ENOENT : EISDIR);
  const std::string folder = name == 0 ? "." : text.substr(0, name);
  Fd fd(again([&] { return ::openat(from, folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (fd.get() < 0) return io_error(path, "open its folder", errno);
  return NameInFolder{std::move(fd), text.substr(name), {}};
}

// Where the link at `link` leads to; `exists`: there is a file.
Result<NameInFolder> follow(const NameInFolder& link, bool* exists, const std::string& path) {
  std::string text(PATH_MAX, '\0');
  const ssize_t n = ::readlinkat(link.folder.get(), link.name.c_str(), text.data(), text.size());
  if (n < 0) return io_error(path, "read its link", errno);
  text.resize(usize(n));
  // The kernel has its say: it knows loops, and forbids links of strangers in folders like /tmp.
  struct stat behind {};
  *exists = ::fstatat(link.folder.get(), link.name.c_str(), &behind, 0) == 0;
  if (*exists && !S_ISREG(behind.st_mode)) return not_regular(path, behind.st_mode);
  if (!*exists && errno != ENOENT) return io_error(path, "follow its link", errno);
  return split(link.folder.get(), text, path);
}

Result<NameInFolder> find_place(const FileName& file) {
  constexpr int kMostLinks = 40;  // as the kernel
  const std::string& path = file.path();
  MOE_TRY(NameInFolder place, split(file.folder(), file.name(), path));
  bool exists = false;
  for (int links = 0; links <= kMostLinks; ++links) {
    struct stat st {};
    if (::fstatat(place.folder.get(), place.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      // `exists`: a link of /proc to a file that has no name any more
      if (errno != ENOENT || exists) return io_error(path, "examine", errno);
      return place;
    }
    if (S_ISREG(st.st_mode)) {
      place.old = st;
      return place;
    }
    if (!S_ISLNK(st.st_mode)) return not_regular(path, st.st_mode);
    MOE_TRY(place, follow(place, &exists, path));
  }
  return io_error(path, "follow its links", ELOOP);
}

// A folder, for reading its names and for fsync; may fail where it can be written.
Fd open_to_read(int folder) {
  return Fd(again([&] { return ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
}

void remove_if_dead(int folder, const char* name) {
  struct stat st {};
  if (::fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) return;
  for (const int way : {O_WRONLY, O_RDONLY}) {  // NFS locks what is open for writing; the mode may allow reading only
    const Fd fd(again([&] { return ::openat(folder, name, way | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); }));
    if (fd.get() < 0) continue;
    if (again([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) == 0) (void)::unlinkat(folder, name, 0);
    return;
  }
}

void remove_dead_files(int folder) {
  Fd fd = open_to_read(folder);
  DIR* names = fd.get() < 0 ? nullptr : ::fdopendir(fd.get());
  if (names == nullptr) return;
  (void)fd.release();
  while (const dirent* entry = ::readdir(names))
    if (is_temporary(entry->d_name)) remove_if_dead(folder, entry->d_name);
  ::closedir(names);
}

// The old file's access list (ACL), or none: else the folder's own would count. False: it has one that was not kept.
bool keep_access_list(int fd, bool wanted, const std::string& path) {
  constexpr const char* kList = "system.posix_acl_access";
  std::vector<char> list(XATTR_SIZE_MAX);
  const ssize_t n = ::getxattr(path.c_str(), kList, list.data(), list.size());
  if (n >= 0) return wanted && ::fsetxattr(fd, kList, list.data(), usize(n), 0) == 0;
  const bool has_none = errno == ENODATA || errno == EOPNOTSUPP;
  (void)::fremovexattr(fd, kList);
  return has_none;
}

// The rights of the old file for one that is still empty; never more.
Check keep_rights(int fd, const struct stat& old, const std::string& path) {
  struct stat now {};
  if (::fstat(fd, &now) != 0) return io_error(path, "examine", errno);
  mode_t mode = old.st_mode & 0777;  // weights are no program
  const bool same_group = (now.st_uid == old.st_uid && now.st_gid == old.st_gid) ||
                          ::fchown(fd, old.st_uid, old.st_gid) == 0 || ::fchown(fd, now.st_uid, old.st_gid) == 0;
  if (!same_group) {  // both groups may do what the old one and all others could
    const mode_t both = mode & (mode >> 3) & 7;
    mode = (mode & 0700) | both << 3 | both;
  }
  if (!keep_access_list(fd, same_group, path)) mode &= 0700;
  // A file system with one mode for all has no fchmod.
  if ((now.st_mode & 0777) != mode && ::fchmod(fd, mode) != 0) return io_error(path, "keep its mode", errno);
  return ok();
}

// A write at the process's limit (RLIMIT_FSIZE) sends its thread a SIGXFSZ, which would end the host. While this lives
// the signal waits, to be taken back; one that was waiting before stays.
class HeldSigxfsz {
 public:
  HeldSigxfsz() {
    sigset_t waiting;
    ::sigemptyset(&only_);
    ::sigaddset(&only_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &only_, &before_);
    was_waiting_ = ::sigpending(&waiting) == 0 && ::sigismember(&waiting, SIGXFSZ) == 1;
  }
  HeldSigxfsz(const HeldSigxfsz&) = delete;
  HeldSigxfsz& operator=(const HeldSigxfsz&) = delete;
  ~HeldSigxfsz() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  void take_back() const {
    const timespec at_once{};
    if (!was_waiting_) (void)::sigtimedwait(&only_, nullptr, &at_once);
  }

 private:
  sigset_t only_{}, before_{};
  bool was_waiting_ = false;
};

}  // namespace

Result<NewFile> NewFile::create(const FileName& name) {
  const std::string& path = name.path();
  MOE_TRY(NameInFolder place, find_place(name));
  if (is_temporary(place.name)) return io_error(path, "save under a name of temporary files", EINVAL);
  NewFile file(path, std::move(place.folder), std::move(place.name));
  remove_dead_files(file.folder_.get());
  MOE_CHECK(file.open_temporary(place.old ? place.old->st_mode & 0600 : 0666));
  if (place.old) MOE_CHECK(keep_rights(file.fd_.get(), *place.old, path));
  return file;
}

NewFile::~NewFile() { remove(); }

void NewFile::remove() {
  if (fd_.get() >= 0 && !temporary_.empty()) (void)::unlinkat(folder_.get(), temporary_.c_str(), 0);
}

Check NewFile::open_temporary(unsigned mode) {
  constexpr int kMostTries = 1000;
  for (int tries = 0; tries < kMostTries; ++tries) {
    std::uint64_t number = 0;
    if (again([&] { return ::getrandom(&number, sizeof number, 0); }) < 0)
      return io_error(path_, "draw a number for a temporary name", errno);
    std::string name = cat(kBefore, number, kAfter);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    Fd fd(again([&] { return ::openat(folder_.get(), name.c_str(), kFlags, mode); }));
    if (fd.get() < 0 && errno == EEXIST) continue;
    if (fd.get() < 0) return io_error(path_, "create a file beside it", errno);
    // Another process that removes dead files may be faster than the lock. Without locks (ENOLCK) none removes it.
    struct stat st {};
    const bool lost = (again([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK) ||
                      (::fstatat(folder_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT);
    temporary_ = std::move(name);
    fd_ = std::move(fd);
    if (!lost) return ok();
    remove();
  }
  return io_error(path_, "create a file beside it", EEXIST);
}

Check NewFile::write(std::span<const std::byte> bytes) {
  const HeldSigxfsz held;
  while (!bytes.empty()) {
    const ssize_t n = again([&] { return ::write(fd_.get(), bytes.data(), bytes.size()); });
    if (n <= 0) {
      const int error = n < 0 ? errno : EIO;
      if (error == EFBIG) held.take_back();
      return io_error(path_, "write", error);
    }
    bytes = bytes.subspan(usize(n));
  }
  return ok();
}

Check NewFile::commit() {
  if (again([&] { return ::fsync(fd_.get()); }) != 0) return io_error(path_, "write", errno);
  if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0)
    return io_error(path_, "rename to it", errno);
  temporary_.clear();
  // So that the name survives a power cut. The file is there already: a failure is no error.
  const Fd folder = open_to_read(folder_.get());
  if (folder.get() >= 0) (void)again([&] { return ::fsync(folder.get()); });
  return ok();
}

}  // namespace moe
