// Reading of files and directories. See file.h.
#include "base/os/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <string_view>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe {
namespace {

struct ErrnoName {
  int number;
  std::string_view name, words = "";
};

// What calls on files fail with, and what the usual ones mean. Not strerror: no locale, no shared buffer.
// (strerrorname_np needs glibc 2.32.)
constexpr ErrnoName kErrnoNames[] = {
    {EPERM, "EPERM", "not permitted"},
    {ENOENT, "ENOENT", "no such file or directory"},
    {EINTR, "EINTR"},
    {EIO, "EIO", "the device failed"},
    {ENXIO, "ENXIO"},
    {EBADF, "EBADF"},
    {EAGAIN, "EAGAIN"},
    {ENOMEM, "ENOMEM", "out of memory"},
    {EACCES, "EACCES", "permission denied"},
    {EFAULT, "EFAULT"},
    {EBUSY, "EBUSY"},
    {EEXIST, "EEXIST", "it exists"},
    {EXDEV, "EXDEV"},
    {ENODEV, "ENODEV"},
    {ENOTDIR, "ENOTDIR", "not a directory"},
    {EISDIR, "EISDIR", "a directory"},
    {EINVAL, "EINVAL"},
    {ENFILE, "ENFILE", "the system has too many open files"},
    {EMFILE, "EMFILE", "too many open files, ulimit -n is the limit"},
    {ETXTBSY, "ETXTBSY"},
    {EFBIG, "EFBIG", "the file is too large, ulimit -f or the file system is the limit"},
    {ENOSPC, "ENOSPC", "no space left on the device"},
    {ESPIPE, "ESPIPE"},
    {EROFS, "EROFS", "a read-only file system"},
    {EMLINK, "EMLINK"},
    {EPIPE, "EPIPE"},
    {EDEADLK, "EDEADLK"},
    {ENAMETOOLONG, "ENAMETOOLONG", "the name is too long"},
    {ENOLCK, "ENOLCK"},
    {ENOSYS, "ENOSYS"},
    {ELOOP, "ELOOP", "too many symbolic links"},
    {ENOTEMPTY, "ENOTEMPTY"},
    {EOVERFLOW, "EOVERFLOW"},
    {EOPNOTSUPP, "EOPNOTSUPP"},
    {ESTALE, "ESTALE"},
    {EDQUOT, "EDQUOT", "the disk quota is used up"},
    {ETIMEDOUT, "ETIMEDOUT"},
    {EREMOTEIO, "EREMOTEIO"},
};

// "no such file or directory (ENOENT)", "EINTR", "4711"
std::string errno_text(int number) {
  for (const ErrnoName& e : kErrnoNames)
    if (e.number == number) return e.words.empty() ? std::string(e.name) : cat(e.words, " (", e.name, ")");
  return cat(number);
}

}  // namespace

Error io_error(const std::string& path, const std::string& what, int error_number) {
  return fail(Code::io, path, cat(path, ": cannot ", what, ": ", errno_text(error_number)),
              json::members("errno", error_number));
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

FileName::FileName(std::string path) : path_(std::move(path)), folder_(AT_FDCWD) {}

FileName::FileName(const Folder& folder, std::string_view name)
    : path_(cat(folder.path(), "/", name)), begin_(folder.path().size() + 1), folder_(folder.fd()) {}

Result<Folder> Folder::open(std::string path) {
  Folder f;
  f.path_ = std::move(path);
  f.fd_ = Fd(again([&] { return ::open(f.path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (f.fd_.get() < 0) return io_error(f.path_, "open as a directory", errno);
  return f;
}

namespace {

Result<std::vector<std::string>> names_in(int folder, const char* name, const std::string& path) {
  Fd fd(again([&] { return ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (fd.get() < 0) return io_error(path, "list", errno);
  DIR* dir = ::fdopendir(fd.get());
  if (dir == nullptr && errno == ENOMEM) throw std::bad_alloc();  // fdopendir allocates
  if (dir == nullptr) return io_error(path, "list", errno);
  (void)fd.release();
  const auto close = [](DIR* d) { ::closedir(d); };
  const std::unique_ptr<DIR, decltype(close)> closer(dir, close);
  std::vector<std::string> names;
  errno = 0;  // what tells an error from the end
  while (const dirent* entry = ::readdir(dir)) {
    names.emplace_back(entry->d_name);
    errno = 0;
  }
  if (errno != 0) return io_error(path, "list", errno);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::vector<std::string>> Folder::names() const { return names_in(fd(), ".", path_); }

Result<std::vector<std::string>> directory_names(const std::string& path) {
  return names_in(AT_FDCWD, path.c_str(), path);
}

Result<File> File::open(FileName name) {
  File f;
  f.path_ = name.path();
  // O_NONBLOCK: opening a FIFO without a writer returns at once, and is then refused.
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
  f.fd_ = Fd(again([&] { return ::openat(name.folder(), name.name(), kFlags); }));
  if (f.fd_.get() < 0) return io_error(f.path_, "open", errno);
  struct stat st {};
  if (::fstat(f.fd_.get(), &st) != 0) return io_error(f.path_, "examine", errno);
  if (!S_ISREG(st.st_mode)) return fail(Code::io, f.path_, f.path_ + ": not a regular file");
  f.size_ = static_cast<std::uint64_t>(st.st_size);
  return f;
}

Check File::read(std::uint64_t offset, std::span<std::byte> out) const {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // one call gives 2 GiB at most
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t want = std::min(out.size() - done, kMost);
    const ssize_t got =
        again([&] { return ::pread(fd_.get(), out.data() + done, want, static_cast<off_t>(offset + done)); });
    if (got < 0) return io_error(path_, "read", errno);
    if (got == 0)
      return fail(Code::io, path_,
                  cat(path_, ": ends at byte ", offset + done, ", it had ", size_, " bytes when it was opened"));
    done += usize(got);
  }
  return ok();
}

Result<Mapping> Mapping::create(const File& file, bool prefault) {
  const std::size_t size = usize(file.size());
  void* p = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | (prefault ? MAP_POPULATE : 0), file.fd(), 0);
  if (p == MAP_FAILED) return io_error(file.path(), "map", errno);
  return Mapping({static_cast<const std::byte*>(p), size});
}

Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<PathKind> path_kind(const FileName& name) {
  struct stat st {};
  if (::fstatat(name.folder(), name.name(), &st, 0) == 0)
    return S_ISDIR(st.st_mode) ? PathKind::directory : PathKind::other;
  const int error = errno;
  if (error == ENOTDIR) return PathKind::absent;
  if (error != ENOENT) return io_error(name.path(), "examine", error);
  if (::fstatat(name.folder(), name.name(), &st, AT_SYMLINK_NOFOLLOW) != 0) return PathKind::absent;
  Error e = io_error(name.path(), "follow its link", error);
  e.message += "; what it leads to is not there (an incomplete download?)";
  return e;
}

}  // namespace moe
