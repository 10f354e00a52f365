// A conversion of layers of real size, killed (ctest label long): MOE_TEST_MODEL is a checkpoint of eight layers. A
// parent kills its child in each phase of several layers; between a packed file and its manifest it looks for the file.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "support/model_dir.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::killed_conversion {
namespace {

class KilledConversion : public testing::Test {
 protected:
  struct Kill {
    moe_phase phase;  // MOE_PHASE_NONE: when the layer's file has its name, and the manifest does not know it yet
    std::int64_t layer;
  };
  static Failure convert(const std::string& model, const std::string& to, moe_control* control) {
    const ContextPtr context = make_context("{}");
    const CheckpointPtr c = open_model(model, "", context.get());
    moe_checkpoint_options options{};
    options.struct_size = sizeof options;
    options.control = control;
    return failure(
        [&](moe_error** e) { return moe_checkpoint_convert(context.get(), c.get(), to.c_str(), &options, e); });
  }
  // Runs a conversion in a child and kills it there.
  static void killed(const std::string& model, const std::string& to, const Kill& where) {
    const std::string file = to + "/layer-0000" + std::to_string(where.layer) + ".moe";
    const pid_t pid = ::fork();
    if (pid == 0) {
      const Asking asking([&](const moe_progress& p) {
        const bool middle = p.done >= p.total / 2;
        if (p.phase == where.phase && p.layer == where.layer && middle) ::kill(::getpid(), SIGKILL);
        return MOE_OK;
      });
      ::_exit(convert(model, to, asking.control.get()).status);
    }
    if (where.phase == MOE_PHASE_NONE) {
      while (::access(file.c_str(), F_OK) != 0 && ::waitpid(pid, nullptr, WNOHANG) == 0) {
      }
      ::kill(pid, SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  static void expect_equal(const std::string& folder, const std::string& whole) {
    for (const auto& e : std::filesystem::directory_iterator(whole)) {
      const std::string name = e.path().filename().string();
      EXPECT_TRUE(file_text(e.path().string()) == file_text(folder + "/" + name)) << name;
    }
  }
};

TEST_F(KilledConversion, OfLargeLayersGoesOn) {
  const char* model = std::getenv("MOE_TEST_MODEL");
  ASSERT_NE(model, nullptr) << "a checkpoint of eight layers";
  TempDir dir;
  ASSERT_EQ(convert(model, dir.file("whole"), nullptr).status, MOE_OK);
  for (const Kill& where : {Kill{MOE_PHASE_CONVERT, 0},
                            {MOE_PHASE_SAVE, 1},
                            {MOE_PHASE_NONE, 2},
                            {MOE_PHASE_CONVERT, 4},
                            {MOE_PHASE_SAVE, 5},
                            {MOE_PHASE_NONE, 6},
                            {MOE_PHASE_CONVERT, 7},
                            {MOE_PHASE_SAVE, 7}}) {
    SCOPED_TRACE("phase " + std::to_string(where.phase) + ", layer " + std::to_string(where.layer));
    const std::string out = dir.file("out");
    std::filesystem::remove_all(out);
    killed(model, out, where);
    ASSERT_EQ(convert(model, out, nullptr).status, MOE_OK);
    expect_equal(out, dir.file("whole"));
  }
}

}  // namespace
}  // namespace moe::test::killed_conversion
