// Where converted layers are written to and read from: folders of others, one writer, and folders that are moved,
// removed or read-only meanwhile.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "support/converting.h"
#include "support/rooms.h"

namespace moe::test::folder_place_test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

using FolderPlace = Converting;

TEST_F(FolderPlace, OfOthersIsRefusedAndStaysAsItWas) {
  dir.write("config/config.json", "{}");
  dir.write("manifest/manifest.json", R"({"name":"a web app"})");
  dir.write("strange/manifest.json", "no JSON");
  const struct {
    std::string folder;
    moe_status status;
  } rows[] = {{at, MOE_ERR_INVALID_ARGUMENT},  // the source itself
              {dir.file("config"), MOE_ERR_CONFIG_MISMATCH},
              {dir.file("manifest"), MOE_ERR_CONFIG_MISMATCH},
              {dir.file("strange"), MOE_ERR_FORMAT}};
  for (const auto& r : rows) {
    const auto before = content(r.folder);
    const Failure f = convert(r.folder);
    EXPECT_EQ(f.status, r.status) << f.message;
    EXPECT_EQ(content(r.folder), before);
    EXPECT_FALSE(std::filesystem::exists(r.folder + "/.moe-convert.lock"));
  }
  EXPECT_EQ(open_failure(dir.file("strange")).status, MOE_ERR_FORMAT);
  // Another program's manifest.json says nothing of a model.
  dir.write("model/manifest.json", R"({"name":"x"})");
  EXPECT_EQ(open_failure(at).status, MOE_OK);
}

TEST_F(FolderPlace, HasOneWriter) {
  std::filesystem::create_directories(out);
  const int fd = ::open((out + "/.moe-convert.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(convert(out).status, MOE_ERR_BUSY);
  ::close(fd);
  EXPECT_EQ(convert(out).status, MOE_OK);
}

TEST_F(FolderPlace, TwoCallsAtOnceMakeOneFolder) {
  ASSERT_EQ(convert(dir.file("whole")).status, MOE_OK);
  for (int round = 0; round < 4; ++round) {
    std::filesystem::remove_all(out);
    moe_status first = MOE_OK, second = MOE_OK;
    {
      const std::jthread other([&] { second = convert(out).status; });
      first = convert(out).status;
    }
    EXPECT_THAT(first, AnyOf(MOE_OK, MOE_ERR_BUSY));
    EXPECT_THAT(second, AnyOf(MOE_OK, MOE_ERR_BUSY));
    EXPECT_TRUE(first == MOE_OK || second == MOE_OK);
    EXPECT_EQ(content(out), content(dir.file("whole")));
  }
}

// The lock is the call's: a child that the host forks meanwhile does not keep it, and does not end it either.
TEST_F(FolderPlace, IsFreeAfterTheCallWhateverChildrenDo) {
  pid_t child = -1;
  const Asking asking([&](const moe_progress&) {
    if (child >= 0) return MOE_OK;
    child = ::fork();
    if (child == 0) {
      ::alarm(60);
      ::pause();
      ::_exit(0);
    }
    return MOE_OK;
  });
  options.control = asking.control.get();
  ASSERT_EQ(convert(out).status, MOE_OK);
  options.control = nullptr;
  EXPECT_EQ(convert(out).status, MOE_OK);
  ASSERT_GT(child, 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(FolderPlace, ThatIsRemovedMeanwhileIsAnError) {
  const CheckpointPtr again = open_model(at);
  for (const bool whole : {true, false}) {
    std::filesystem::remove_all(out);
    const std::int64_t last = 3;
    const Asking asking([&](const moe_progress& p) {
      if (p.layer != 2 || p.phase != MOE_PHASE_CONVERT || p.done != p.total) return MOE_OK;
      if (!whole) {
        std::filesystem::remove(out + "/.moe-convert.lock");
        return MOE_OK;
      }
      std::filesystem::remove_all(out);
      moe_checkpoint_options others{};
      others.struct_size = sizeof others;
      others.layers = &last;
      others.num_layers = 1;
      EXPECT_EQ(moe_checkpoint_convert(nullptr, again.get(), out.c_str(), &others, nullptr), MOE_OK);
      return MOE_OK;
    });
    options.control = asking.control.get();
    const Failure f = convert(out);
    options.control = nullptr;
    EXPECT_EQ(f.status, MOE_ERR_IO) << f.message;
    EXPECT_EQ(load(open_model(out), whole ? 3 : 0).status, MOE_OK);
    ASSERT_EQ(convert(out).status, MOE_OK);
  }
}

// Only in a child: the directory is the process's.
TEST_F(FolderPlace, IsFoundAfterAChdirAndARename) {
  ASSERT_EQ(convert(out).status, MOE_OK);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    if (::chdir(dir.path().c_str()) != 0) ::_exit(1);
    const CheckpointPtr c = open_model("converted");
    if (::chdir("/") != 0 || load(c, 0).status != MOE_OK) ::_exit(2);
    std::filesystem::rename(out, dir.file("renamed"));
    ::_exit(load(c, 2).status == MOE_OK ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

// A folder that is complete has nothing to be written.
TEST_F(FolderPlace, MayBeReadOnlyWhenItIsComplete) {
  ASSERT_EQ(convert(out).status, MOE_OK);
  std::filesystem::create_directories(dir.file("some"));
  const std::int64_t one = 0;
  options.layers = &one;
  options.num_layers = 1;
  ASSERT_EQ(convert(dir.file("some")).status, MOE_OK);
  options.layers = nullptr;
  options.num_layers = 0;
  constexpr int kNoMounts = 77;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    const char* path = dir.path().c_str();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || ::mount(path, path, nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      ::_exit(kNoMounts);
    if (convert(out).status != MOE_OK) ::_exit(1);
    ::_exit(convert(dir.file("some")).status == MOE_ERR_IO ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoMounts) GTEST_SKIP() << "no mounts in a namespace here";
  EXPECT_EQ(status, 0);
}

TEST_F(FolderPlace, MayHaveANameThatIsNoText) {
  const std::string strange = dir.file("v\xff");
  model.write(dir.file("u\xff"));
  ASSERT_EQ(convert(strange, open_model(dir.file("u\xff")).get()).status, MOE_OK);
  std::filesystem::resize_file(strange + "/layer-00002.moe", 4000);
  const CheckpointPtr c = open_model(strange);
  EXPECT_THAT(info_of(c.get(), 2).problem, HasSubstr("v\\xff/layer-00002.moe"));
  EXPECT_EQ(describe(c.get())["layers"][2]["problem"], info_of(c.get(), 2).problem);
}

}  // namespace
}  // namespace moe::test::folder_place_test
