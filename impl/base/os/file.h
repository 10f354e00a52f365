// Folders, and regular files, opened for reading: read by position, or mapped. Anything else under a path (directory,
// FIFO, device, socket) is refused without blocking. Errors are Code::io with errno in the details.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moe {

// Calls once more what a signal handler of the host interrupted.
template <class F>
auto again(F call) {
  auto answer = call();
  while (answer < 0 && errno == EINTR) answer = call();
  return answer;
}

// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// A folder that is open. Its files are found also when it was renamed, or when the process went to another directory;
// files of another folder that got its name since are not.
class Folder {
 public:
  static Result<Folder> open(std::string path);

  const std::string& path() const { return path_; }  // as it was opened, for messages
  int fd() const { return fd_.get(); }
  // The names in it, sorted; "." and ".." are two of them.
  Result<std::vector<std::string>> names() const;

 private:
  Fd fd_;  // for its names only: needs no right to read (O_PATH)
  std::string path_;
};

// Which file: a path, or a name in a folder, which outlives this.
class FileName {
 public:
  FileName(std::string path);                                  // NOLINT(google-explicit-constructor)
  FileName(const char* path) : FileName(std::string(path)) {}  // NOLINT(google-explicit-constructor)
  FileName(const Folder& folder, std::string_view name);

  const std::string& path() const { return path_; }  // for messages
  // What the calls of the system take: a folder, and a name seen from there.
  int folder() const { return folder_; }
  const char* name() const { return path_.c_str() + begin_; }

 private:
  std::string path_;
  std::size_t begin_ = 0;
  int folder_;
};

class File {
 public:
  static Result<File> open(FileName name);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  int fd() const { return fd_.get(); }
  // All of `out` from `offset`, or an error; safe from several threads.
  Check read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  Fd fd_;
  std::string path_;
  std::uint64_t size_ = 0;
};

// The whole of a file as memory that is only read. A file that shrinks is a SIGBUS where its pages are missing.
class Mapping {
 public:
  // `prefault`: the pages are read before this returns, not when they are touched.
  static Result<Mapping> create(const File& file, bool prefault);
  Mapping(Mapping&& o) noexcept : bytes_(std::exchange(o.bytes_, {})) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit Mapping(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

enum class PathKind { absent, directory, other };
// What is there, links followed. An error where that cannot be known; a link to nothing is one, too.
Result<PathKind> path_kind(const FileName& name);
// Folder::names of a path.
Result<std::vector<std::string>> directory_names(const std::string& path);

// Code::io: "<path>: cannot <what>: no such file or directory (ENOENT)", details "errno":2.
Error io_error(const std::string& path, const std::string& what, int error_number);

}  // namespace moe
