// What long calls of a checkpoint do with a control, with a context of several threads, and what another thread sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/converting.h"
#include "support/rooms.h"

namespace moe::test::progress_test {
namespace {

using CheckpointProgress = Converting;

// Cancelled before it begins, cancelled by its callback, and with a callback that fails.
TEST_F(CheckpointProgress, EveryLongCallCanBeEnded) {
  using Call = std::function<moe_status(moe_control*)>;
  const auto fingerprint = [&](int full) {
    return [&, full](moe_control* control) {
      moe_buffer* text = nullptr;
      const moe_status status = moe_checkpoint_fingerprint(nullptr, source.get(), full, control, &text, nullptr);
      moe_buffer_destroy(text);
      return status;
    };
  };
  const Call calls[] = {[&](moe_control* control) {
                          moe_checkpoint* c = nullptr;
                          const moe_status status =
                              moe_checkpoint_open(nullptr, at.c_str(), nullptr, 0, control, &c, nullptr);
                          moe_checkpoint_destroy(c);
                          return status;
                        },
                        fingerprint(0), fingerprint(1),
                        [&](moe_control* control) {
                          options.control = control;
                          const moe_status status = convert(out).status;
                          options.control = nullptr;
                          return status;
                        }};
  for (const Call& call : calls) {
    SCOPED_TRACE(&call - calls);
    int reports = 0;
    const Asking counting([&](const moe_progress&) { return ++reports, MOE_OK; });
    ASSERT_EQ(call(counting.control.get()), MOE_OK);
    EXPECT_GT(reports, 0);
    const Asking cancelling([](const moe_progress&) { return MOE_ERR_CANCELLED; });
    EXPECT_EQ(call(cancelling.control.get()), MOE_ERR_CANCELLED);
    const Asking failing([](const moe_progress&) { return MOE_ERR_IO; });
    EXPECT_EQ(call(failing.control.get()), MOE_ERR_CALLBACK);
    const Asking before([](const moe_progress&) { return MOE_OK; });
    moe_control_cancel(before.control.get());
    EXPECT_EQ(call(before.control.get()), MOE_ERR_CANCELLED);
  }
}

// A file may claim tens of thousands of layers: the look at them is asked about, too.
TEST_F(CheckpointProgress, AFileOfManyLayersCanBeCancelled) {
  std::string text = model.config();
  const std::string layers = "\"num_hidden_layers\":4";
  text.replace(text.find(layers), layers.size(), "\"num_hidden_layers\":65536");
  dir.write("model/config.json", text);
  int reports = 0;
  const Asking asking([&](const moe_progress&) { return ++reports < 8 ? MOE_OK : MOE_ERR_CANCELLED; });
  moe_checkpoint* c = nullptr;
  EXPECT_EQ(moe_checkpoint_open(nullptr, at.c_str(), nullptr, 0, asking.control.get(), &c, nullptr), MOE_ERR_CANCELLED);
}

TEST_F(CheckpointProgress, ThreadsChangeNoByte) {
  ASSERT_EQ(convert(out).status, MOE_OK);
  const ContextPtr threads = make_context("{\"threads\":3}");
  const CheckpointPtr c = open_model(at, "", threads.get());
  ASSERT_EQ(convert(dir.file("threads"), c.get(), threads.get()).status, MOE_OK);
  EXPECT_EQ(content(dir.file("threads")), content(out));
  options.load_flags = MOE_LOAD_VERIFY;
  EXPECT_EQ(convert(out, c.get(), threads.get()).status, MOE_OK);
}

TEST_F(CheckpointProgress, AnotherThreadSeesCountersThatNeverGoBack) {
  const ControlPtr control = make<ControlPtr>(
      [&](moe_control** o, moe_error** e) { return moe_control_create(nullptr, nullptr, nullptr, o, e); });
  options.control = control.get();
  const auto state = [&] {
    moe_progress p{};
    p.struct_size = sizeof p;
    EXPECT_EQ(moe_control_state(control.get(), &p, nullptr), MOE_OK);
    return p;
  };
  std::atomic<bool> ended{false};
  std::jthread watch([&] {
    moe_progress last{};
    while (!ended) {
      const moe_progress p = state();
      EXPECT_GE(p.bytes_done, last.bytes_done);
      EXPECT_GE(p.bytes_total, p.bytes_done);
      EXPECT_GE(p.layers_done, last.layers_done);
      last = p;
    }
  });
  EXPECT_EQ(convert(out).status, MOE_OK);
  ended = true;
  watch.join();
  const moe_progress p = state();
  EXPECT_EQ(p.layers_done, 3);
  EXPECT_EQ(p.bytes_done, p.bytes_total);
}

}  // namespace
}  // namespace moe::test::progress_test
