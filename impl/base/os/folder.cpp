// Making and locking folders. See folder.h.
#include "base/os/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"

namespace moe {

Check make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return ok();
  const int error = errno;
  if (error != EEXIST) return io_error(path, "make this folder", error);
  MOE_TRY(const PathKind kind, path_kind(path));
  if (kind != PathKind::directory) return io_error(path, "make this folder", ENOTDIR);
  return ok();
}

FolderLock::FolderLock(Fd fd) : fd_(std::move(fd)), process_(::getpid()) {}

// A forked child has the same lock, open as long as it lives; and what ends in the child must not end the parent's.
FolderLock::~FolderLock() {
  if (fd_.get() >= 0 && process_ == ::getpid()) (void)::flock(fd_.get(), LOCK_UN);
}

Result<FolderLock> FolderLock::take(const Folder& folder, std::string_view name) {
  const FileName file(folder, name);
  // Open for writing: NFS locks nothing else exclusively.
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Fd fd(again([&] { return ::openat(file.folder(), file.name(), kFlags, 0666); }));
  if (fd.get() < 0 && errno == EROFS) return FolderLock(Fd());
  if (fd.get() < 0) return io_error(file.path(), "make its lock", errno);
  if (again([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) == 0) {
    FolderLock lock(std::move(fd));
    MOE_CHECK(lock.still_there(folder, name));
    return lock;
  }
  if (errno != EWOULDBLOCK) return io_error(file.path(), "lock", errno);
  return fail(Code::busy, folder.path(), cat(folder.path(), ": another call or process converts into this folder"));
}

Check FolderLock::still_there(const Folder& folder, std::string_view name) const {
  if (fd_.get() < 0) return ok();
  const FileName file(folder, name);
  struct stat ours {
  }, there{};
  if (::fstat(fd_.get(), &ours) != 0) return io_error(file.path(), "examine", errno);
  if (::fstatat(file.folder(), file.name(), &there, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_ino == there.st_ino &&
      ours.st_dev == there.st_dev)
    return ok();
  Error e = io_error(file.path(), "keep its lock", ENOENT);
  e.message += "; the folder or this file was removed during the call";
  return e;
}

}  // namespace moe
