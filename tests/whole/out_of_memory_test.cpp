// Each allocation of each step fails in turn: the status is MOE_ERR_OUT_OF_MEMORY (or the step did without),
// nothing is leaked, outputs are untouched, what was handed over is released once, and a clean run works.
#include <gtest/gtest.h>

#include <functional>

#include "support/alloc_fault.h"
#include "support/capi.h"
#include "support/model_dir.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/temp_dir.h"
#include "support/wna16_targets.h"

namespace moe::test::out_of_memory_test {
namespace {

constexpr std::int64_t kNone = INT64_MAX;

// One step: gives its status, ends what it made.
using Step = std::function<moe_status(moe_error** err)>;

struct Outcome {
  moe_status status = MOE_OK;
  bool fired = false;
  std::int64_t seen = 0, leaked = 0;
};

Outcome run(const Step& step, std::int64_t n, FaultMode mode) {
  Outcome o;
  moe_error* err = nullptr;
  const std::int64_t before = AllocFault::live();
  AllocFault::start(n, mode);
  o.status = step(&err);
  AllocFault::stop();
  if ((o.status == MOE_OK) != (err == nullptr) || moe_error_status(err) != o.status) {
    ADD_FAILURE() << "status and error object differ";
  }
  moe_error_destroy(err);
  o.fired = AllocFault::fired();
  o.seen = AllocFault::seen();
  o.leaked = AllocFault::live() - before;
  return o;
}

// Of steps with many allocations, or slow ones, every `of`-th allocation.
void sweep(const char* what, const Step& step, const std::function<void(moe_status)>& after = {},
           std::uint32_t of = 1) {
  SCOPED_TRACE(what);
  const std::int64_t stride = share() == 1 ? of : test::stride(of);
  const Outcome clean = run(step, kNone, FaultMode::once);  // also makes what is made once per process
  ASSERT_EQ(clean.status, MOE_OK);
  if (after) after(MOE_OK);
  std::int64_t failures = 0;
  for (const FaultMode mode : {FaultMode::once, FaultMode::from_then_on}) {
    for (std::int64_t n = 0;; n += stride) {
      const Outcome o = run(step, n, mode);
      ASSERT_EQ(o.leaked, 0) << "allocation " << n;
      if (after && !o.fired) after(o.status);
      if (!o.fired) break;
      ASSERT_TRUE(o.status == MOE_OK || o.status == MOE_ERR_OUT_OF_MEMORY)
          << "allocation " << n << ": " << moe_status_name(o.status);
      failures += o.status != MOE_OK;
      if (after) after(o.status);
      ASSERT_LT(n, 20000);
    }
  }
  EXPECT_GT(failures, 0) << clean.seen << " allocations";
  ASSERT_EQ(run(step, kNone, FaultMode::once).status, MOE_OK);
}

class OutOfMemory : public testing::Test {
 protected:
  static Model small() {
    Model tiny;
    tiny.E = 2, tiny.H = 32, tiny.I = 32, tiny.T = 2;
    return tiny;
  }
  Model m = random_model(small());
  std::string text = m.config_text();
  Steps s = four_steps(m, "{\"threads\":1,\"log_level\":\"off\"}");  // a ring would keep what it is told
};

TEST_F(OutOfMemory, CreateConfig) {
  sweep("config", [&](moe_error** e) {
    moe_config* out = nullptr;
    const moe_status r = moe_config_create(text.data(), text.size(), &out, e);
    moe_config_destroy(out);
    return r;
  });
}

TEST_F(OutOfMemory, CreateContext) {
  int ended = 0, calls = 0;
  sweep(
      "context",
      [&](moe_error** e) {
        moe_context_callbacks callbacks{};
        callbacks.struct_size = sizeof callbacks;
        callbacks.log_destroy = count_release;
        callbacks.log_user = &ended;
        moe_context* out = nullptr;
        ++calls;
        const moe_status r = moe_context_create("{\"threads\":1}", MOE_NUL_TERMINATED, &callbacks, &out, e);
        moe_context_destroy(out);
        return r;
      },
      [&](moe_status) { EXPECT_EQ(ended, calls); });
}

TEST_F(OutOfMemory, CreateControlAndPlatform) {
  int ended = 0, calls = 0;
  sweep(
      "control",
      [&](moe_error** e) {
        moe_control* out = nullptr;
        ++calls;
        const moe_status r = moe_control_create(nullptr, &ended, count_release, &out, e);
        moe_control_destroy(out);
        return r;
      },
      [&](moe_status) { EXPECT_EQ(ended, calls); });
  sweep("platform", [&](moe_error** e) {
    moe_platform* out = nullptr;
    const moe_status r = moe_platform_create(nullptr, 0, &out, e);
    moe_platform_destroy(out);
    return r;
  });
}

TEST_F(OutOfMemory, Select) {
  sweep("select", [&](moe_error** e) {
    moe_selection* out = nullptr;
    const moe_status r = moe_select_backend(s.context.get(), s.config.get(), nullptr, 0, &out, e);
    moe_selection_destroy(out);
    return r;
  });
}

TEST_F(OutOfMemory, SetWeights) {
  const std::vector<StackedTensor> tensors = stacked(m);
  int released = 0, calls = 0;
  sweep(
      "weights",
      [&](moe_error** e) {
        moe_weights* w = nullptr;
        moe_status r = moe_weights_create(s.config.get(), &w, e);
        for (std::size_t i = 0; i < tensors.size() && r == MOE_OK; ++i) {
          ++calls;
          r = moe_weights_set(w, tensors[i].role, &tensors[i].tensor, count_release, &released, e);
        }
        moe_weights_destroy(w);
        return r;
      },
      [&](moe_status) { EXPECT_EQ(released, calls); });
}

TEST_F(OutOfMemory, Convert) {
  int released = 0, calls = 0;
  sweep(
      "convert",
      [&](moe_error** e) {
        moe_convert_options o{};
        o.struct_size = sizeof o;
        o.dst_release = count_release;
        o.dst_user = &released;
        moe_packed* out = nullptr;
        ++calls;
        const moe_status r = moe_convert_weights(s.context.get(), s.selection.get(), s.weights.get(), &o, &out, e);
        moe_packed_destroy(out);
        return r;
      },
      [&](moe_status) { EXPECT_EQ(released, calls); });
}

TEST_F(OutOfMemory, LoadMemory) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  ASSERT_EQ(moe_packed_data(s.packed.get(), &data, &size, nullptr), MOE_OK);
  int released = 0, calls = 0;
  sweep(
      "load_memory",
      [&](moe_error** e) {
        moe_packed* out = nullptr;
        ++calls;
        const moe_status r =
            moe_packed_load_memory(nullptr, data, size, MOE_LOAD_VERIFY, count_release, &released, &out, e);
        moe_packed_destroy(out);
        return r;
      },
      [&](moe_status) { EXPECT_EQ(released, calls); });
}

TEST_F(OutOfMemory, Save) {
  const TempDir dir;
  const std::string path = dir.write("layer.moe", "old");
  sweep(
      "save", [&](moe_error** e) { return moe_packed_save(s.packed.get(), path.c_str(), 0, nullptr, e); },
      [&](moe_status status) {
        ASSERT_EQ(dir.names(), std::vector<std::string>{"layer.moe"});
        ASSERT_EQ(std::filesystem::file_size(path) == 3, status != MOE_OK);
        dir.write("layer.moe", "old");
      });
}

TEST_F(OutOfMemory, CreateLayerAndApply) {
  Call call(m);
  sweep(
      "layer and first apply",
      [&](moe_error** e) {
        moe_layer* layer = nullptr;
        moe_status r = moe_layer_create(s.context.get(), s.selection.get(), s.packed.get(), nullptr, &layer, e);
        if (r == MOE_OK) r = moe_apply(layer, &call.args, e);
        moe_layer_destroy(layer);
        return r;
      },
      [&](moe_status r) {
        if (r != MOE_OK) {
          EXPECT_TRUE(call.untouched());
        }
        std::fill(call.out.begin(), call.out.end(), std::byte{0xa5});
      });
}

// Decode, prefill, and batches large enough to be sorted in parallel, in all threads; both modes.
TEST_F(OutOfMemory, LaterCallsAllocateNothing) {
  for (const char* threads : {"{\"threads\":1}", "{\"threads\":3}"})
    for (const std::int64_t tokens : {1, 5, 40, 2100}) {
      Model sized;
      sized.E = 8, sized.T = tokens;
      sized = random_model(sized);
      const Steps steps = four_steps(sized, threads);
      Call topk(sized), logits(sized);
      logits.args.mode = MOE_APPLY_ROUTER_LOGITS;
      logits.args.router_logits = &logits.logits;
      logits.args.topk_ids = logits.args.topk_weights = nullptr;
      const auto apply = [&](const Call& c) {
        return run([&](moe_error** e) { return moe_apply(steps.layer.get(), &c.args, e); }, kNone, FaultMode::once);
      };
      EXPECT_GT(apply(logits).seen, 0) << "nothing is counted";  // the first call makes the workspace
      for (const Call* c : {&logits, &topk, &logits, &topk}) {
        const Outcome o = apply(*c);
        EXPECT_EQ(o.status, MOE_OK);
        EXPECT_EQ(o.seen, 0) << threads << " " << tokens << " tokens";
      }
    }
}

// Weights of other engines' layouts: their panels are made in each call, or once before.
TEST_F(OutOfMemory, EmulationOfOtherLayouts) {
  for (const Wna16Target& target : wna16_targets())
    for (const char* way : {"on_the_fly", "dense"})
      for (const int threads : {1, 3}) {
        if (target.name == std::string("ours")) continue;
        SCOPED_TRACE(std::string(target.name) + " " + way);
        Wna16Model w;
        w.E = 2, w.T = 2;
        w.dtype = MOE_DTYPE_F16;
        w.extra = target.members;
        if (target.name == std::string("trtllm")) w.format = "pack-quantized", w.H = w.I = 256;
        w = random_wna16(w, 2);
        Wna16Conversion made(w);
        ASSERT_EQ(made.convert().status, MOE_OK);
        w.extra = {{"moe_backend", "emulation"}, {"emulation_layout", way}};
        const ContextPtr context = make_context("{\"log_level\":\"off\",\"threads\":" + std::to_string(threads) + "}");
        const ConfigPtr config = make_config(w.config_text());
        const SelectionPtr selection = make_selection(config.get(), context.get());
        ASSERT_TRUE(selection);
        const auto create = [&](moe_layer** out, moe_error** e) {
          return moe_layer_create(context.get(), selection.get(), made.packed.get(), nullptr, out, e);
        };
        if (threads == 1)
          sweep("layer", [&](moe_error** e) {
            moe_layer* layer = nullptr;
            const moe_status r = create(&layer, e);
            moe_layer_destroy(layer);
            return r;
          });
        const LayerPtr layer = make<LayerPtr>(create);
        const std::vector<std::byte> x(static_cast<std::size_t>(w.T * w.H) * 2);
        const TopkCall topk({MOE_DTYPE_F16, w.T, w.H, w.K, x.data(), w.ids.data(), w.weights.data()});
        for (int call = 0; call < 3; ++call) {
          const Outcome o =
              run([&](moe_error** e) { return moe_apply(layer.get(), &topk.args, e); }, kNone, FaultMode::once);
          EXPECT_EQ(o.status, MOE_OK);
          if (call > 0) {
            EXPECT_EQ(o.seen, 0);
          }
        }
      }
}

TEST_F(OutOfMemory, ReportsAndDescribe) {
  const auto text_step = [](auto&& call) {
    return [call](moe_error** e) {
      moe_buffer* out = nullptr;
      const moe_status r = call(&out, e);
      moe_buffer_destroy(out);
      return r;
    };
  };
  sweep("config_to_json",
        text_step([&](moe_buffer** o, moe_error** e) { return moe_config_to_json(s.config.get(), o, e); }));
  sweep("selection_to_json",
        text_step([&](moe_buffer** o, moe_error** e) { return moe_selection_to_json(s.selection.get(), o, e); }));
  sweep("weights_to_json",
        text_step([&](moe_buffer** o, moe_error** e) { return moe_weights_to_json(s.weights.get(), o, e); }));
  sweep("packed_to_json",
        text_step([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(s.packed.get(), o, e); }));
  sweep("layer_to_json",
        text_step([&](moe_buffer** o, moe_error** e) { return moe_layer_to_json(s.layer.get(), o, e); }));
  const char* query =
      R"({"oracle":"w4a8_int8","platform":{"type":"cpu","arch":"x86_64"},"moe":{},"weight_key":"kInt4W4A8StaticGroup32Sym"})";
  moe_buffer* out = nullptr;
  const moe_status expected = moe_describe("oracle", query, MOE_NUL_TERMINATED, &out, nullptr);
  moe_buffer_destroy(out);
  if (expected == MOE_OK)
    sweep("describe", text_step([&](moe_buffer** o, moe_error** e) {
            return moe_describe("oracle", query, MOE_NUL_TERMINATED, o, e);
          }));
}

// A failure of another kind while memory is short: its own status, or out of memory; never a leak.
TEST_F(OutOfMemory, MakingAnError) {
  const Step step = [&](moe_error** e) {
    moe_config* out = nullptr;
    return moe_config_create("{\"top_k\":-1}", MOE_NUL_TERMINATED, &out, e);
  };
  for (std::int64_t n = 0;; ++n) {
    const Outcome o = run(step, n, FaultMode::once);
    EXPECT_EQ(o.leaked, 0);
    if (!o.fired) break;
    EXPECT_TRUE(o.status == MOE_ERR_INVALID_CONFIG || o.status == MOE_ERR_OUT_OF_MEMORY) << n;
  }
}

// Files and folders of a whole model. What a failed call leaves in a folder is whole.
TEST(OutOfMemoryOfModels, EveryCall) {
  const TempDir dir;
  ModelDir model;
  model.layers = 1, model.E = 2, model.H = 32, model.I = 32;
  const std::string at = dir.file("model"), to = dir.file("converted");
  model.write(at);
  sweep("open", [&](moe_error** e) {
    moe_checkpoint* out = nullptr;
    const moe_status r = moe_checkpoint_open(nullptr, at.c_str(), nullptr, 0, nullptr, &out, e);
    moe_checkpoint_destroy(out);
    return r;
  });
  const CheckpointPtr c = open_model(at);
  sweep("config", [&](moe_error** e) {
    moe_config* out = nullptr;
    const moe_status r = moe_checkpoint_config(c.get(), 0, "{\"top_k\":1}", MOE_NUL_TERMINATED, &out, e);
    moe_config_destroy(out);
    return r;
  });
  const ConfigPtr config = config_of(c.get(), 0);
  const SelectionPtr selection = make_selection(config.get());
  sweep("load_checkpoint", [&](moe_error** e) {
    moe_weights* out = nullptr;
    moe_status r = moe_weights_create(config.get(), &out, e);
    if (r == MOE_OK) r = moe_weights_load_checkpoint(out, c.get(), e);
    moe_weights_destroy(out);
    return r;
  });
  sweep(
      "packed",
      [&](moe_error** e) {
        moe_packed* out = nullptr;
        const moe_status r = moe_checkpoint_packed(nullptr, c.get(), selection.get(), nullptr, &out, e);
        moe_packed_destroy(out);
        return r;
      },
      {}, 7);
  sweep("to_json", [&](moe_error** e) {
    moe_buffer* out = nullptr;
    const moe_status r = moe_checkpoint_to_json(c.get(), &out, e);
    moe_buffer_destroy(out);
    return r;
  });
  sweep("tensor", [&](moe_error** e) {
    moe_tensor t{};
    t.struct_size = sizeof t;
    moe_buffer* out = nullptr;
    const moe_status r = moe_checkpoint_tensor(c.get(), "model.layers.0.mlp.gate.weight", &t, &out, e);
    moe_buffer_destroy(out);
    return r;
  });
  sweep("fingerprint", [&](moe_error** e) {
    moe_buffer* out = nullptr;
    const moe_status r = moe_checkpoint_fingerprint(nullptr, c.get(), 1, nullptr, &out, e);
    moe_buffer_destroy(out);
    return r;
  });
  sweep("layer", [&](moe_error** e) {
    moe_layer* out = nullptr;
    const moe_status r = moe_checkpoint_layer(nullptr, c.get(), 0, nullptr, &out, e);
    moe_layer_destroy(out);
    return r;
  });
  sweep(
      "convert", [&](moe_error** e) { return moe_checkpoint_convert(nullptr, c.get(), to.c_str(), nullptr, e); },
      [&](moe_status status) {
        if (status == MOE_OK) {
          ASSERT_EQ(info_of(open_model(to).get(), 0).flags, static_cast<std::uint32_t>(MOE_LAYER_IS_CONVERTED));
        }
        std::filesystem::remove_all(to);
      },
      7);
  ASSERT_EQ(moe_checkpoint_convert(nullptr, c.get(), to.c_str(), nullptr, nullptr), MOE_OK);
  moe_checkpoint_options verify{};
  verify.struct_size = sizeof verify;
  verify.load_flags = MOE_LOAD_VERIFY;
  sweep(
      "convert again", [&](moe_error** e) { return moe_checkpoint_convert(nullptr, c.get(), to.c_str(), &verify, e); },
      {}, 7);
  sweep("open a converted one", [&](moe_error** e) {
    moe_checkpoint* out = nullptr;
    const moe_status r = moe_checkpoint_open(nullptr, to.c_str(), nullptr, 0, nullptr, &out, e);
    moe_layer_info info{};  // a failure is the call's, not the layer's
    info.struct_size = sizeof info;
    if (r == MOE_OK && moe_checkpoint_layer_info(out, 0, &info, nullptr) == MOE_OK) {
      EXPECT_STREQ(info.problem, "");
    }
    moe_checkpoint_destroy(out);
    return r;
  });
  const CheckpointPtr converted = open_model(to);
  for (moe_checkpoint_options* options : {static_cast<moe_checkpoint_options*>(nullptr), &verify})
    sweep(
        "layer of a converted one",
        [&](moe_error** e) {
          moe_layer* out = nullptr;
          const moe_status r = moe_checkpoint_layer(nullptr, converted.get(), 0, options, &out, e);
          moe_layer_destroy(out);
          return r;
        },
        {}, 7);
}

}  // namespace
}  // namespace moe::test::out_of_memory_test
