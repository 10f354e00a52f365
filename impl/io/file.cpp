// Reading of regular files. See file.h.
#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace moe {

Error io_error(const std::string& path, const std::string& what, int error_number) {
  const char* name = strerrorname_np(error_number);  // not strerror: no locale, no shared buffer
  const std::string number = std::to_string(error_number);
  std::string message = path;
  message += ": cannot ";
  message += what;
  message += ": ";
  message += name != nullptr ? name : number;
  std::string details = "\"errno\":";
  details += number;
  return fail(Code::io, path, std::move(message), std::move(details));
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<File> File::open(std::string path) {
  File f;
  f.path_ = std::move(path);
  // O_NONBLOCK: opening a FIFO without a writer returns at once, and is then refused.
  f.fd_ = Fd(::open(f.path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
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
    const ssize_t got = ::pread(fd_.get(), out.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path_, "read", errno);
    if (got == 0)
      return fail(Code::io, path_,
                  path_ + ": ends at byte " + std::to_string(offset + done) + ", it had " + std::to_string(size_) +
                      " bytes when it was opened");
    done += static_cast<std::size_t>(got);
  }
  return ok();
}

}  // namespace moe
