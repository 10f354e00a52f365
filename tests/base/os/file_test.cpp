// What a failed call on a file is told as: the name of its error where there is one, its number always.
#include "base/os/file.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace moe::test::file_test {
namespace {

TEST(FileErrors, HaveTheNameOfTheirNumber) {
  const struct {
    int number;
    std::string name;
  } rows[] = {{ENOENT, "ENOENT"}, {EACCES, "EACCES"}, {EISDIR, "EISDIR"}, {ELOOP, "ELOOP"}, {EMFILE, "EMFILE"},
              {EIO, "EIO"},       {ENOSPC, "ENOSPC"}, {EDQUOT, "EDQUOT"}, {EFBIG, "EFBIG"}, {EROFS, "EROFS"}};
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

}  // namespace
}  // namespace moe::test::file_test
