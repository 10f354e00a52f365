// The library survives fork: one layer used on by parent and child, and a layer made in the child of a
// process whose other thread was inside moe_apply. A child that hangs is ended by its alarm.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/sanitizers.h"

#if !MOE_TSAN  // TSan ends processes that start threads after a fork of threads
namespace moe::test::fork_test {
namespace {

constexpr int kRounds = 20;
constexpr unsigned kSeconds = 5;

Model fork_model() {
  Model m;
  m.H = 128, m.I = 160, m.T = 24;  // enough items for all threads
  return random_model(std::move(m), 5);
}

// Runs `body` in a child.
template <class F>
pid_t start_child(F body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kSeconds);
    _exit(body() ? 0 : 1);
  }
  return pid;
}

std::string end_of(pid_t pid) {
  int status = -1;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return "no child";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

// The same call again and again; allocates nothing, because a sanitizer's allocator does not survive a fork while it is
// in use.
class Repeated {
 public:
  explicit Repeated(const Model& m) : call_(m) {}
  bool gives(const moe_layer* layer, const std::vector<std::byte>& want) {
    std::fill(call_.out.begin(), call_.out.end(), std::byte{0xa5});
    return moe_apply(layer, &call_.args, nullptr) == MOE_OK && call_.out == want;
  }

 private:
  Call call_;
};

std::vector<std::byte> first_result(const Model& m, const moe_layer* layer) {
  Call call(m);
  EXPECT_EQ(moe_apply(layer, &call.args, nullptr), MOE_OK);
  return call.out;
}

TEST(Fork, ParentAndChildUseTheLayerOn) {
  const Model m = fork_model();
  const Steps s = four_steps(m, "{\"threads\":3}");
  const auto want = first_result(m, s.layer.get());
  Repeated call(m);
  for (int round = 0; round < kRounds; ++round) {
    const pid_t child = start_child([&] {
      for (int i = 0; i < 5; ++i)
        if (!call.gives(s.layer.get(), want)) return false;
      // a grandchild of a child whose pool has threads of its own
      return end_of(start_child([&] { return call.gives(s.layer.get(), want); })) == "exit 0";
    });
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(call.gives(s.layer.get(), want)) << "round " << round;
    ASSERT_EQ(end_of(child), "exit 0") << "round " << round;
  }
}

TEST(Fork, AChildEndsWhatItInherited) {
  const Model m = fork_model();
  for (const bool uses : {false, true}) {
    Steps s = four_steps(m, "{\"threads\":3}");
    const auto want = first_result(m, s.layer.get());
    EXPECT_EQ(end_of(start_child([&] {
                Repeated call(m);
                const bool right = !uses || call.gives(s.layer.get(), want);
                s = Steps{};
                return right;
              })),
              "exit 0");
    EXPECT_EQ(first_result(m, s.layer.get()), want);
  }
}

TEST(Fork, AChildMakesItsOwnLayerWhileTheParentsThreadApplies) {
  const Model m = fork_model();
  const Steps s = four_steps(m, "{\"threads\":3}");
  const auto want = first_result(m, s.layer.get());
  Repeated call(m);
  std::atomic<bool> done{false}, right{true};
  std::atomic<int> calls{0};
  std::thread busy([&] {
    while (!done.load()) {
      if (!call.gives(s.layer.get(), want)) right = false;
      ++calls;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    for (const int before = calls.load(); calls.load() == before;) std::this_thread::yield();  // it is at it
    const bool same_context = round % 2 == 0;
    const pid_t child = start_child([&] {
      if (!same_context) {
        const Steps own = four_steps(m, "{\"threads\":3}");
        return Repeated(m).gives(own.layer.get(), want);
      }
      moe_layer* layer = nullptr;
      if (moe_layer_create(s.context.get(), s.selection.get(), s.packed.get(), nullptr, &layer, nullptr) != MOE_OK)
        return false;
      const bool equal = Repeated(m).gives(layer, want);
      moe_layer_destroy(layer);
      return equal;
    });
    EXPECT_EQ(end_of(child), "exit 0") << "round " << round;
  }
  done = true;
  busy.join();
  EXPECT_TRUE(right);
}

}  // namespace
}  // namespace moe::test::fork_test
#endif
