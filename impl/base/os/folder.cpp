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
  if (path_kind(path) != PathKind::directory) return io_error(path, "make this folder", ENOTDIR);
  return ok();
}

Result<FolderLock> FolderLock::take(const std::string& folder, const std::string& name) {
  const std::string path = cat(folder, "/", name);
  // Open for writing: NFS locks nothing else exclusively.
  Fd fd(again([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666); }));
  if (fd.get() < 0) return io_error(path, "make its lock", errno);
  if (again([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) == 0) return FolderLock(std::move(fd));
  if (errno != EWOULDBLOCK) return io_error(path, "lock", errno);
  return fail(Code::busy, folder, cat(folder, ": another call or process converts into this folder"));
}

}  // namespace moe
