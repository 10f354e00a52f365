// Packed blocks as files: written beside their final name and renamed when complete; read into memory or
// mapped. A mapped file is read lazily: only its header is touched unless more is asked for.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "io/file.h"
#include "io/packed.h"
#include "io/packed_format.h"

namespace moe {
namespace {

constexpr std::size_t kPiece = std::size_t{8} << 20;  // between two looks at the control

// A new file beside `path` that disappears again unless it is renamed.
class TempFile {
 public:
  static Result<TempFile> create(const std::string& path) {
    for (int n = 0; n < 1000; ++n) {
      std::string name = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(n);
      const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd >= 0) return TempFile(Fd(fd), std::move(name));
      if (errno != EEXIST) return io_error(path, "create a file beside it", errno);
    }
    return io_error(path, "create a file beside it", EEXIST);
  }
  TempFile(TempFile&& o) noexcept : fd_(std::move(o.fd_)), name_(std::exchange(o.name_, {})) {}
  TempFile& operator=(TempFile&&) = delete;
  ~TempFile() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  Check write(std::span<const std::byte> bytes, const std::string& path) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return io_error(path, "write", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return ok();
  }
  Check rename_to(const std::string& path) {
    if (::fsync(fd_.get()) != 0) return io_error(path, "write", errno);
    if (::close(fd_.release()) != 0) return io_error(path, "write", errno);
    if (std::rename(name_.c_str(), path.c_str()) != 0) return io_error(path, "rename to it", errno);
    name_.clear();
    return ok();
  }

 private:
  TempFile(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  Fd fd_;
  std::string name_;
};

// So that the new name survives a power cut. The file is there already: a failure is no error.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) (void)::fsync(fd.get());
}

struct Mapping {
  void* data;
  std::size_t size;
  Mapping(void* d, std::size_t n) : data(d), size(n) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(data, size); }
};

struct Block {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;
};

Result<Block> map_file(const File& file, bool prefault) {
  const auto size = static_cast<std::size_t>(file.size());
  void* p = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | (prefault ? MAP_POPULATE : 0), file.fd(), 0);
  if (p == MAP_FAILED) return io_error(file.path(), "map", errno);
  std::shared_ptr<const void> keep;
  try {
    keep = std::make_shared<const Mapping>(p, size);
  } catch (...) {
    ::munmap(p, size);
    throw;
  }
  return Block{{static_cast<const std::byte*>(p), size}, std::move(keep)};
}

Result<Block> read_file(const File& file, const Allocator& allocator, std::shared_ptr<const void> allocator_keep,
                        Control* control) {
  const auto size = static_cast<std::size_t>(file.size());
  MOE_TRY(Buffer buffer, Buffer::create(size, kPackedAlignment, allocator, std::move(allocator_keep)));
  for (std::size_t at = 0; at < size; at += kPiece) {
    MOE_CHECK(report(control, at, size));
    MOE_CHECK(file.read(at, buffer.bytes().subspan(at, std::min(kPiece, size - at))));
  }
  MOE_CHECK(report(control, size, size));
  auto owner = std::make_shared<const Buffer>(std::move(buffer));
  return Block{owner->bytes(), owner};
}

}  // namespace

Check save_packed(const Packed& packed, const char* path, Control* control) {
  const std::string name(path);
  const std::size_t size = packed.block.size();
  MOE_CHECK(report(control, 0, size));
  MOE_TRY(TempFile file, TempFile::create(name));
  for (std::size_t at = 0; at < size; at += kPiece) {
    MOE_CHECK(file.write(packed.block.subspan(at, std::min(kPiece, size - at)), name));
    MOE_CHECK(report(control, std::min(at + kPiece, size), size));
  }
  MOE_CHECK(file.rename_to(name));
  sync_folder_of(name);
  return ok();
}

Result<Packed> load_packed(const char* path, LoadFlags flags, const Allocator& allocator,
                           std::shared_ptr<const void> allocator_keep, const Parallel& parallel, Control* control) {
  MOE_TRY(const File file, File::open(path));
  // The fixed part first: nothing is mapped or allocated for a file that is not ours.
  std::array<std::byte, sizeof(PackedHead)> first{};
  const auto known = static_cast<std::size_t>(std::min<std::uint64_t>(first.size(), file.size()));
  MOE_CHECK(file.read(0, std::span(first).first(known)));
  MOE_CHECK(read_head(std::span(first).first(known), file.size(), file.path()));
  MOE_CHECK(report(control, 0, file.size()));

  auto got =
      flags.mmap ? map_file(file, flags.prefault) : read_file(file, allocator, std::move(allocator_keep), control);
  if (!got) return std::move(got.error());
  auto packed = open_packed(got->bytes, flags, flags.mmap ? "mmap" : "owned", got->keep, parallel);
  if (!packed) {  // say which file
    Error& e = packed.error();
    e.subject = file.path();
    e.message = file.path() + ": " + e.message;
    return std::move(e);
  }
  return packed;
}

}  // namespace moe
