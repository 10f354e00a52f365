// A host's parallel_for that errs, in each of its runs in each call that uses it: items twice are as once, items left
// out or beyond all are MOE_ERR_CALLBACK, items that come late do nothing. Handles stay usable: the next call is right.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/temp_dir.h"
#include "support/wna16_targets.h"

namespace moe::test::parallel_for_test {
namespace {

struct Items {
  std::size_t count;
  moe_task_fn task;
  void* arg;
  void run(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) task(arg, i);
  }
  void all() const { run(0, count); }
};

// A context on threads of the test: one run of a call errs, all others are in order.
struct Host {
  using Error = void (*)(Host& host, const Items& items);
  Error error = nullptr;
  int errs_in = -1, runs = 0;
  std::vector<Items> late;
  std::vector<std::thread> helpers;
  std::function<void()> nested;
  moe_parallel_ops ops{sizeof ops, 4, this, run, nullptr};
  moe_context_callbacks callbacks{sizeof callbacks, 0, nullptr, nullptr, nullptr, &ops, nullptr};
  ContextPtr context = make<ContextPtr>(
      [&](moe_context** o, moe_error** e) { return moe_context_create(nullptr, 0, &callbacks, o, e); });

  Host() = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() { join(); }
  static void run(void* user, std::size_t count, moe_task_fn task, void* arg) {
    Host& h = *static_cast<Host*>(user);
    const Items items{count, task, arg};
    if (h.runs++ == h.errs_in)
      h.error(h, items);
    else
      items.all();
  }
  void join() {
    for (std::thread& t : helpers) t.join();
    helpers.clear();
  }
  void run_late() {
    for (const Items& items : late) {
      items.all();
      items.task(items.arg, items.count);
    }
  }
};

struct Misdeed {
  const char* name;
  moe_status status;
  Host::Error error;
};

// clang-format off
const Misdeed kMisdeeds[] = {
    {"backwards", MOE_OK, [](Host&, const Items& t) { for (std::size_t i = t.count; i-- > 0;) t.run(i, i + 1); }},
    {"each twice", MOE_OK, [](Host&, const Items& t) { for (std::size_t i = 0; i < t.count; ++i) t.run(i, i + 1), t.run(i, i + 1); }},
    {"all twice", MOE_OK, [](Host&, const Items& t) { t.all(), t.all(); }},
    {"twice at the same time", MOE_OK, [](Host& h, const Items& t) {
       h.helpers.emplace_back([t] { t.all(); });
       t.all();
       h.join();
     }},
    {"in the middle of another call", MOE_OK, [](Host& h, const Items& t) {
       t.run(0, t.count / 2);
       h.nested();
       t.run(t.count / 2, t.count);
     }},
    {"not the first", MOE_ERR_CALLBACK, [](Host&, const Items& t) { t.run(1, t.count); }},
    {"not the last", MOE_ERR_CALLBACK, [](Host&, const Items& t) { t.run(0, t.count - 1); }},
    {"none", MOE_ERR_CALLBACK, [](Host&, const Items&) {}},
    {"one more", MOE_ERR_CALLBACK, [](Host&, const Items& t) { t.run(0, t.count + 1); }},
    {"SIZE_MAX", MOE_ERR_CALLBACK, [](Host&, const Items& t) { t.task(t.arg, SIZE_MAX), t.all(); }},
    {"none until the call is over", MOE_ERR_CALLBACK, [](Host& h, const Items& t) { h.late.push_back(t); }},
};
// clang-format on

// What a call is to do again and again: its status, and the bytes that it made.
struct Job {
  const char* name;
  std::function<moe_status(std::vector<std::byte>& made, moe_error** err)> call;
  int least_runs;
};

// Each misdeed in each run of the call.
void expect_safe(Host& host, const Job& job) {
  SCOPED_TRACE(job.name);
  const auto call = [&](std::vector<std::byte>& made) {
    host.runs = 0;
    return failure([&](moe_error** e) { return job.call(made, e); });
  };
  std::vector<std::byte> want;
  host.errs_in = -1;
  ASSERT_EQ(call(want).status, MOE_OK);
  ASSERT_FALSE(want.empty());
  const int runs = host.runs;
  ASSERT_GE(runs, job.least_runs);
  for (const Misdeed& m : kMisdeeds)
    for (int run = 0; run < runs; ++run) {
      SCOPED_TRACE(std::string(m.name) + ", run " + std::to_string(run));
      host.error = m.error;
      host.errs_in = run;
      std::vector<std::byte> made;
      const Failure f = call(made);
      ASSERT_EQ(f.status, m.status) << f.message;
      if (m.status == MOE_OK) {
        ASSERT_EQ(made, want);
        continue;
      }
      EXPECT_NE(f.message.find("it r"), std::string::npos) << f.message;
      host.run_late();
      host.errs_in = -1;
      ASSERT_EQ(call(made).status, MOE_OK);
      ASSERT_EQ(made, want);
      host.run_late();
      host.late.clear();
    }
}

std::vector<std::byte> block_of(const moe_packed* packed) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(packed, &data, &size, nullptr), MOE_OK);
  const auto* at = static_cast<const std::byte*>(data);
  return {at, at + size};
}

// Enough tokens for several parts of a batch, of routing and of phases; narrow, so that they cost little.
Model many_tokens() {
  Model m;
  m.E = 16, m.T = 2100, m.H = 64, m.I = 32;
  return random_model(m);
}

class ParallelFor : public testing::Test {
 protected:
  Host host;
  Model m = many_tokens();
  Steps s;

  void SetUp() override {
    s.config = make_config(m.config_text());
    s.selection = make_selection(s.config.get());
    s.weights = make_weights(s.config.get(), m);
    s.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, s.selection.get(), s.weights.get(), nullptr, o, e);
    });
    s.layer = layer_on(host.context.get());
    host.nested = [this] {
      Call inner(m);
      EXPECT_EQ(moe_apply(s.layer.get(), &inner.args, nullptr), MOE_OK);
    };
  }
  LayerPtr layer_on(moe_context* context) const {
    return make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(context, s.selection.get(), s.packed.get(), nullptr, o, e);
    });
  }
  Job apply() {
    return {"apply",
            [this](std::vector<std::byte>& made, moe_error** e) {
              Call call(m);
              const moe_status r = moe_apply(s.layer.get(), &call.args, e);
              made = call.out;
              return r;
            },
            6};
  }
};

TEST_F(ParallelFor, Apply) { expect_safe(host, apply()); }

TEST_F(ParallelFor, ApplyWithRouting) {
  expect_safe(host, {"apply, router_logits",
                     [this](std::vector<std::byte>& made, moe_error** e) {
                       Call call(m);
                       std::vector<std::int32_t> ids(static_cast<std::size_t>(m.T * m.K));
                       std::vector<float> weights(ids.size());
                       const moe_tensor out_ids = tensor(MOE_DTYPE_I32, {m.T, m.K}, ids.data()),
                                        out_weights = tensor(MOE_DTYPE_F32, {m.T, m.K}, weights.data());
                       call.args.mode = MOE_APPLY_ROUTER_LOGITS;
                       call.args.router_logits = &call.logits;
                       call.args.topk_ids = call.args.topk_weights = nullptr;
                       call.args.out_topk_ids = &out_ids;
                       call.args.out_topk_weights = &out_weights;
                       const moe_status r = moe_apply(s.layer.get(), &call.args, e);
                       made = call.out;
                       for (const auto& more : {bytes_of(ids), bytes_of(weights)})
                         made.insert(made.end(), more.begin(), more.end());
                       return r;
                     },
                     8});
}

TEST_F(ParallelFor, ApplyFlat) {
  expect_safe(host, {"apply_flat",
                     [this](std::vector<std::byte>& made, moe_error** e) {
                       made.assign(m.io_bytes(), std::byte{0xa5});
                       return moe_apply_flat(s.layer.get(), m.T, m.io_type(), m.x.data(), MOE_DTYPE_F32, nullptr,
                                             m.ids.data(), m.weights.data(), m.io_type(), made.data(), e);
                     },
                     6});
}

TEST_F(ParallelFor, Route) {
  expect_safe(host, {"route",
                     [this](std::vector<std::byte>& made, moe_error** e) {
                       const Call call(m);
                       std::vector<std::int32_t> ids(static_cast<std::size_t>(m.T * m.K), -7);
                       std::vector<float> weights(ids.size(), -7);
                       const auto untouched = ids;
                       const moe_tensor out_ids = tensor(MOE_DTYPE_I32, {m.T, m.K}, ids.data()),
                                        out_weights = tensor(MOE_DTYPE_F32, {m.T, m.K}, weights.data());
                       moe_route_args a{};
                       a.struct_size = sizeof a;
                       a.router_logits = &call.logits;
                       a.out_topk_ids = &out_ids;
                       a.out_topk_weights = &out_weights;
                       const moe_status r = moe_route(host.context.get(), s.config.get(), &a, e);
                       EXPECT_EQ(ids == untouched, r != MOE_OK);
                       made = bytes_of(ids);
                       const auto more = bytes_of(weights);
                       made.insert(made.end(), more.begin(), more.end());
                       return r;
                     },
                     1});
}

// Weights of more than one chunk of hashes.
TEST_F(ParallelFor, ConvertAndVerify) {
  Model big;
  big.E = 8, big.H = 768, big.I = 512;
  big = random_model(big);
  const ConfigPtr config = make_config(big.config_text());
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr weights = make_weights(config.get(), big);
  std::vector<std::byte> block;
  const auto take = [](moe_packed* packed, std::vector<std::byte>& made) {
    const PackedPtr owned(packed);
    if (packed != nullptr) made = block_of(packed);
  };
  expect_safe(host, {"convert",
                     [&](std::vector<std::byte>& made, moe_error** e) {
                       moe_packed* out = nullptr;
                       const moe_status r =
                           moe_convert_weights(host.context.get(), selection.get(), weights.get(), nullptr, &out, e);
                       EXPECT_EQ(out != nullptr, r == MOE_OK);
                       take(out, made);
                       if (out != nullptr) block = made;
                       return r;
                     },
                     2});
  // what was not wholly written cannot be loaded
  std::vector<std::byte> place(block.size() + 64);
  auto* aligned = place.data() + (64 - reinterpret_cast<std::uintptr_t>(place.data()) % 64) % 64;
  for (int run = 0; run < 2; ++run) {
    moe_convert_options o{};
    o.struct_size = sizeof o;
    o.dst = aligned;
    o.dst_size = block.size();
    host.runs = 0, host.errs_in = run;
    host.error = [](Host&, const Items& t) { t.run(0, t.count - 1); };
    moe_packed* out = nullptr;
    EXPECT_EQ(moe_convert_weights(host.context.get(), selection.get(), weights.get(), &o, &out, nullptr),
              MOE_ERR_CALLBACK);
    EXPECT_EQ(moe_packed_load_memory(nullptr, aligned, block.size(), 0, nullptr, nullptr, &out, nullptr),
              MOE_ERR_FORMAT);
  }
  host.errs_in = -1;

  const TempDir dir;
  const std::string path = dir.file("layer.moe");
  const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load_memory(nullptr, block.data(), block.size(), 0, nullptr, nullptr, o, e);
  });
  ASSERT_EQ(moe_packed_save(packed.get(), path.c_str(), 0, nullptr, nullptr), MOE_OK);
  expect_safe(host, {"load",
                     [&](std::vector<std::byte>& made, moe_error** e) {
                       moe_packed* out = nullptr;
                       const moe_status r =
                           moe_packed_load(host.context.get(), path.c_str(), MOE_LOAD_VERIFY, nullptr, &out, e);
                       take(out, made);
                       return r;
                     },
                     1});
}

TEST_F(ParallelFor, LayerOfAnotherEnginesWeights) {
  Wna16Model w;
  w.E = 4, w.I = 128, w.dtype = MOE_DTYPE_BF16;
  w = random_wna16(w, 1);
  for (const Wna16Target& t : wna16_targets())
    if (std::string_view(t.name) == "marlin") w.extra = t.members;
  Wna16Conversion there(w);
  ASSERT_EQ(there.convert().status, MOE_OK);
  w.extra = {{"moe_backend", "emulation"}, {"emulation_layout", "dense"}};
  const ConfigPtr config = make_config(w.config_text());
  const SelectionPtr selection = make_selection(config.get());
  expect_safe(host, {"layer",
                     [&](std::vector<std::byte>& made, moe_error** e) {
                       moe_layer* out = nullptr;
                       const moe_status r =
                           moe_layer_create(host.context.get(), selection.get(), there.packed.get(), nullptr, &out, e);
                       const LayerPtr owned(out);
                       const int runs = host.runs, errs_in = std::exchange(host.errs_in, -1);
                       if (out != nullptr) {
                         made.resize(w.x.size() * 2);
                         const std::vector<std::byte> x = in_dtype(w.x, w.dtype);
                         EXPECT_EQ(moe_apply_flat(out, w.T, w.dtype, x.data(), MOE_DTYPE_F32, nullptr, w.ids.data(),
                                                  w.weights.data(), w.dtype, made.data(), nullptr),
                                   MOE_OK);
                       }
                       host.runs = runs, host.errs_in = errs_in;
                       return r;
                     },
                     1});
}

// The function returns while its threads are in the middle of the items, again and again; they may go on to the end.
TEST_F(ParallelFor, ReturnsWhileItsThreadsGoOn) {
  std::vector<std::byte> want, made;
  ASSERT_EQ(apply().call(want, nullptr), MOE_OK);
  const int runs = std::exchange(host.runs, 0);
  host.error = [](Host& h, const Items& t) {
    for (int i = 0; i < 2; ++i) h.helpers.emplace_back([t] { t.all(); });
  };
  int failed = 0;
  for (int turn = 0; turn < 5 * runs; ++turn) {
    host.runs = 0, host.errs_in = turn % runs;
    const moe_status r = apply().call(made, nullptr);
    ASSERT_TRUE(r == MOE_OK || r == MOE_ERR_CALLBACK);
    failed += r != MOE_OK;
    if (r == MOE_OK) {
      ASSERT_EQ(made, want);
    }
    host.errs_in = -1;
    ASSERT_EQ(apply().call(made, nullptr), MOE_OK);  // while they are still there
    ASSERT_EQ(made, want);
    host.join();
  }
  EXPECT_GT(failed, 0);
}

// Items whose layer is gone, and items of a context that is gone, until the host is told to end its threads.
TEST_F(ParallelFor, ItemsThatOutliveTheirLayer) {
  host.ops.destroy = [](void* user) { static_cast<Host*>(user)->run_late(); };
  ContextPtr context = make<ContextPtr>(
      [&](moe_context** o, moe_error** e) { return moe_context_create(nullptr, 0, &host.callbacks, o, e); });
  LayerPtr layer = layer_on(context.get());
  host.error = [](Host& h, const Items& t) { h.late.push_back(t); };
  for (int run = 0; run < 6; ++run) {
    Call call(m);
    host.runs = 0, host.errs_in = run;
    ASSERT_EQ(moe_apply(layer.get(), &call.args, nullptr), MOE_ERR_CALLBACK);
  }
  ASSERT_EQ(host.late.size(), 6U);
  layer.reset();
  host.run_late();
  context.reset();  // calls destroy, which runs them once more
  host.late.clear();
}

}  // namespace
}  // namespace moe::test::parallel_for_test
