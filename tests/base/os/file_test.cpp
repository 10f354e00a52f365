// Files and directories of the system: what is read, mapped, listed, refused; a failed call is told with the name of
// its error where there is one, its number always.
#include "base/os/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/call_faults.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::file_test {
namespace {

TEST(FileErrors, SayTheirNumberInWords) {
  const struct {
    int number;
    std::string name;
  } rows[] = {{ENOENT, "no such file or directory (ENOENT)"},
              {EACCES, "permission denied (EACCES)"},
              {EISDIR, "a directory (EISDIR)"},
              {ENOTDIR, "not a directory (ENOTDIR)"},
              {EMFILE, "too many open files, ulimit -n is the limit (EMFILE)"},
              {ENOSPC, "no space left on the device (ENOSPC)"},
              {EFBIG, "the file is too large, ulimit -f or the file system is the limit (EFBIG)"},
              {EROFS, "a read-only file system (EROFS)"},
              {EXDEV, "EXDEV"}};
  for (const auto& r : rows) {
    const Error e = io_error("/a/file", "open", r.number);
    EXPECT_EQ(e.code, Code::io);
    EXPECT_EQ(e.subject, "/a/file");
    EXPECT_EQ(e.message, "/a/file: cannot open: " + r.name);
    EXPECT_EQ(e.details, "\"errno\":" + std::to_string(r.number));
  }
  EXPECT_EQ(io_error("f", "write", 99999).message, "f: cannot write: 99999");
  EXPECT_EQ(io_error("f", "write", 0).message, "f: cannot write: 0");
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Files, AreReadByPosition) {
  const TempDir dir;
  const auto file = File::open(dir.write("a", "0123456789"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(file->path(), dir.file("a"));
  std::array<std::byte, 4> some{};
  ASSERT_TRUE(file->read(3, some));
  EXPECT_EQ(text_of(some), "3456");
  const Check beyond = file->read(8, some);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Code::io);
  EXPECT_EQ(beyond.error().message, dir.file("a") + ": ends at byte 10, it had 10 bytes when it was opened");
}

TEST(Files, NothingElseIsOpened) {
  const TempDir dir;
  ASSERT_EQ(mkfifo(dir.file("fifo").c_str(), 0600), 0);
  for (const std::string& path : {dir.path(), dir.file("fifo"), std::string("/dev/null")}) {
    const auto file = File::open(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().message, path + ": not a regular file");
  }
  const auto none = File::open(dir.file("none"));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, dir.file("none") + ": cannot open: no such file or directory (ENOENT)");
}

TEST(Files, AreMapped) {
  const TempDir dir;
  const std::string content(100'000, 'x');
  const auto file = File::open(dir.write("a", content));
  ASSERT_TRUE(file);
  for (const bool prefault : {false, true}) {
    auto first = Mapping::create(*file, prefault);
    ASSERT_TRUE(first);
    const Mapping mapping = *std::move(first);
    EXPECT_TRUE(first->bytes().empty());  // moved from: nothing is unmapped twice
    EXPECT_EQ(text_of(mapping.bytes()), content);
  }
  const auto empty = File::open(dir.write("empty", ""));
  ASSERT_TRUE(empty);
  const auto nothing = Mapping::create(*empty, false);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().message, dir.file("empty") + ": cannot map: EINVAL");
}

TEST(Paths, HaveAKind) {
  const TempDir dir;
  EXPECT_EQ(*path_kind(dir.path()), PathKind::directory);
  EXPECT_EQ(*path_kind(dir.write("a", "")), PathKind::other);
  EXPECT_EQ(*path_kind(dir.file("none")), PathKind::absent);
  EXPECT_EQ(*path_kind(dir.file("a/none")), PathKind::absent);
  std::filesystem::create_symlink(dir.path(), dir.file("link"));
  EXPECT_EQ(*path_kind(dir.file("link")), PathKind::directory);
}

// A name that is there and leads nowhere is no name that is not there.
TEST(Paths, ThatCannotBeExaminedAreErrors) {
  const TempDir dir;
  std::filesystem::create_symlink("nowhere", dir.file("dangling"));
  std::filesystem::create_symlink("loop", dir.file("loop"));
  const auto dangling = path_kind(dir.file("dangling")), loop = path_kind(dir.file("loop"));
  ASSERT_FALSE(dangling);
  EXPECT_EQ(dangling.error().message,
            dir.file("dangling") +
                ": cannot follow its link: no such file or directory (ENOENT); what it leads to is not there (an "
                "incomplete download?)");
  ASSERT_FALSE(loop);
  EXPECT_EQ(loop.error().message, dir.file("loop") + ": cannot examine: too many symbolic links (ELOOP)");
}

TEST(Folders, KeepTheirFilesUnderAnotherName) {
  const TempDir dir;
  dir.write("a/f", "one");
  const auto folder = Folder::open(dir.file("a"));
  ASSERT_TRUE(folder);
  std::filesystem::rename(dir.file("a"), dir.file("b"));
  dir.write("a/f", "another");
  const FileName name(*folder, "f");
  EXPECT_EQ(name.path(), dir.file("a") + "/f");
  EXPECT_EQ(*path_kind(name), PathKind::other);
  const auto file = File::open(name);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 3u);
  EXPECT_EQ(*folder->names(), (std::vector<std::string>{".", "..", "f"}));
  EXPECT_EQ(Folder::open(dir.file("a/f")).error().message,
            dir.file("a/f") + ": cannot open as a directory: not a directory (ENOTDIR)");
}

TEST(Directories, NamesAreSorted) {
  const TempDir dir;
  for (const char* name : {"b", "a/inside", "c", ".d"}) dir.write(name, "");
  const auto names = directory_names(dir.path());
  ASSERT_TRUE(names);
  EXPECT_EQ(*names, (std::vector<std::string>{".", "..", ".d", "a", "b", "c"}));
  const auto none = directory_names(dir.file("b"));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, dir.file("b") + ": cannot list: not a directory (ENOTDIR)");
}

TEST(Directories, ThatBreakOffAreNotShorterOnes) {
  const TempDir dir;
  dir.write("a", "");
  const int calls = with_call_faults(
      {SYS_getdents64}, [](int n) { return n == 1 ? EIO : 0; },
      [&] {
        const auto names = directory_names(dir.path());
        ASSERT_FALSE(names);
        EXPECT_EQ(names.error().message, dir.path() + ": cannot list: the device failed (EIO)");
      });
  if (calls < 0) GTEST_SKIP() << "no seccomp user notification here";
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace moe::test::file_test
