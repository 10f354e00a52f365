// Every row of the registry that this machine can run, in whole layers: the same bits for every number of threads, a
// caller's parallel_for, tokens alone, in a batch or shuffled, and for any number of NUMA nodes; exact rows give those
// of their scalar row.
#include "run/engine/engine.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "run/engine/engine_run.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/tiny_layer.h"

namespace moe::test::engine_test {
namespace {

using Bytes = std::vector<std::byte>;

// Shapes of one family: rows of panels and of units that do not come out even where the family allows it.
std::vector<LayerShape> shapes_of(LayoutKind layout, ActFormat act) {
  const LayerShape odd{.experts = 3,
                       .hidden = 72,
                       .intermediate = 50,
                       .group = -1,
                       .bias = true,
                       .dtype = DType::f32,
                       .layout = layout,
                       .act = act};
  if (odd.is_float()) {
    LayerShape half = odd;
    half.experts = 8, half.top_k = 4, half.hidden = 130, half.intermediate = 64, half.bias = false;
    half.dtype = layout == LayoutKind::p16_f16 ? DType::f16 : DType::bf16;
    half.activation = Activation::gelu_no_mul;
    return {odd, half};
  }
  const bool zeros =
      !odd.is_small() && layout != LayoutKind::p16_int4 && act != ActFormat::tok8 && act != ActFormat::blk8;
  return {odd,
          {.experts = 8,
           .top_k = 4,
           .hidden = 128,
           .intermediate = 192,
           .group = 64,
           .layout = layout,
           .act = act,
           .zeros = zeros},
          {.experts = 4,
           .top_k = 3,
           .hidden = 160,
           .intermediate = 96,
           .group = 32,
           .bias = true,
           .dtype = DType::f16,
           .activation = Activation::swigluoai_uninterleave,
           .layout = layout,
           .act = act},
          {.experts = 5,
           .hidden = 192,
           .intermediate = 96,
           .group = 96,
           .activation = Activation::relu2_no_mul,
           .layout = layout,
           .act = act,
           .zeros = zeros}};
}

Bytes run(const Layer& layer, Batch& b) {
  b.out.assign(b.out.size(), std::byte{0x5a});
  const Check r = layer.apply(b.args());
  EXPECT_TRUE(r) << r.error().message;
  return b.out;
}

// Rows of `from` in the order of `tokens`.
Batch pick(const Batch& from, const std::vector<std::int64_t>& tokens) {
  Batch b = from;
  b.tokens = std::ssize(tokens);
  b.x.clear(), b.ids.clear(), b.weights.clear();
  const auto append = [](auto& to, const auto& all, std::int64_t t, std::int64_t n) {
    to.insert(to.end(), all.begin() + t * n, all.begin() + (t + 1) * n);
  };
  for (const std::int64_t t : tokens) {
    append(b.x, from.x, t, static_cast<std::int64_t>(from.row_bytes()));
    append(b.ids, from.ids, t, from.top_k);
    append(b.weights, from.weights, t, from.top_k);
  }
  b.out.resize(b.x.size());
  return b;
}

Bytes rows_of(const Batch& b, const Bytes& out, const std::vector<std::int64_t>& tokens) {
  Bytes rows;
  const auto n = static_cast<std::ptrdiff_t>(b.row_bytes());
  for (const std::int64_t t : tokens) rows.insert(rows.end(), out.begin() + t * n, out.begin() + (t + 1) * n);
  return rows;
}

// A caller's own threads: four new ones for each run, every fourth task to each, from the last task to the first.
std::shared_ptr<Context> host_threads() {
  constexpr std::size_t kThreads = 4;
  ContextHooks hooks;
  hooks.threads = std::make_shared<HostThreads>(
      HostParallel{kThreads, nullptr, [](void*, std::size_t count, TaskFn task, void* arg) {
                     std::vector<std::thread> team;
                     for (std::size_t n = 0; n < kThreads; ++n)
                       team.emplace_back([=] {
                         for (std::size_t i = count; i-- > 0;)
                           if (i % kThreads == n) task(arg, i);
                       });
                     for (std::thread& t : team) t.join();
                   }});
  return *Context::create("", hooks);
}

// A caller's parallel_for on the calling thread that cancels before a task of the call: `until` counts down to it.
struct CancelsBefore {
  Control* control = nullptr;
  int until = -1, runs = 0, tasks = 0;
  int in_run = 0;  // the run of the task

  std::shared_ptr<Context> context() {
    ContextHooks hooks;
    hooks.threads =
        std::make_shared<HostThreads>(HostParallel{4, this, [](void* self, std::size_t count, TaskFn task, void* arg) {
                                                     auto& s = *static_cast<CancelsBefore*>(self);
                                                     ++s.runs;
                                                     for (std::size_t i = 0; i < count; ++i, ++s.tasks) {
                                                       if (s.until-- == 0) s.control->cancel(), s.in_run = s.runs;
                                                       task(arg, i);
                                                     }
                                                   }});
    return *Context::create("", hooks);
  }
};

// So many tokens that phase 2 sums in its items; with fewer it keeps what every slot gets (EngineRows).
constexpr LayerShape kNarrow{.experts = 4, .top_k = 3, .hidden = 272, .intermediate = 48, .group = -1};
constexpr std::int64_t kManyTokens = 1300, kFewTokens = 45;
static_assert(kManyTokens * kNarrow.top_k * kNarrow.hidden > kKeptFloats);
static_assert(kFewTokens * kNarrow.top_k * kNarrow.hidden <= kKeptFloats && kNarrow.hidden % kPanelRows == 0);

TEST(EngineCalls, SameBitsWithManyTokens) {
  const auto packed = pack_layer(kNarrow, random_weights(kNarrow, 1));
  const auto layer = [&](std::shared_ptr<Context> context, std::optional<NodeMap> nodes = {}) {
    return make_layer(tiny_config(kNarrow), packed, *kernels_for(kNarrow).front(), std::move(context), {},
                      std::move(nodes));
  };
  Batch b = random_batch(kNarrow, kManyTokens, 7);
  const auto one = layer(threads(1)), seven = layer(threads(7));
  const Bytes want = run(*one, b);
  EXPECT_EQ(run(*seven, b), want) << "7 threads";
  EXPECT_EQ(run(*layer(host_threads()), b), want) << "a caller's parallel_for";
  EXPECT_EQ(run(*layer(threads(3), NodeMap{2, std::vector<std::uint16_t>(64, 1)}), b), want) << "2 nodes";
  Batch few = pick(b, {1299, 0, 17, 3, 9});
  EXPECT_EQ(run(*seven, few), rows_of(b, want, {1299, 0, 17, 3, 9})) << "five tokens";
}

// One expert whose tiles exceed the L2, so that a gemm call has more panels: with 4096 tokens those of both matrices,
// with 1600 those of w2 alone, whose results are kept.
TEST(EngineCalls, SameBitsInLargeGemmCalls) {
  constexpr LayerShape kSquare{.experts = 1, .top_k = 1, .hidden = 448, .intermediate = 448, .group = -1};
  constexpr LayerShape kDeep{.experts = 1, .top_k = 1, .hidden = 64, .intermediate = 1024, .group = -1};
  constexpr std::int64_t kLong = kChunkTokens, kShort = 1600, kBytes = static_cast<std::int64_t>(kTilesBytes);
  static_assert(kLong * kSquare.hidden > kBytes && kLong / 4 * 3 * kSquare.hidden < kBytes);
  static_assert(kShort * kDeep.intermediate > kBytes && kShort * kDeep.hidden <= kKeptFloats);
  for (const auto& [shape, tokens] : {std::pair{kSquare, kLong}, std::pair{kDeep, kShort}}) {
    const auto packed = pack_layer(shape, random_weights(shape, 1));
    const auto layer = make_layer(tiny_config(shape), packed, *kernels_for(shape).front(), threads(2));
    Batch b = random_batch(shape, tokens, 7);
    const Bytes want = run(*layer, b);
    for (std::int64_t begin = 0; begin < tokens; begin += tokens / 4) {
      std::vector<std::int64_t> quarter(static_cast<std::size_t>(tokens / 4));
      std::iota(quarter.begin(), quarter.end(), begin);
      Batch some = pick(b, quarter);
      EXPECT_EQ(run(*layer, some), rows_of(b, want, quarter)) << tokens << " tokens, from " << begin;
    }
  }
}

// A batch of three chunks against pieces whose edges are elsewhere.
TEST(EngineCalls, SameBitsInChunks) {
  constexpr LayerShape kSmall{.experts = 4, .top_k = 2, .hidden = 64, .intermediate = 32, .group = -1};
  constexpr std::int64_t kLong = 2 * kChunkTokens + 1;
  static_assert(kLong / 3 < kChunkTokens);
  auto config = tiny_config(kSmall);
  config->routing.num_zero_experts = 2;
  const auto layer =
      make_layer(config, pack_layer(kSmall, random_weights(kSmall, 1)), *kernels_for(kSmall).front(), threads(2));
  Batch b = random_batch(kSmall, kLong, 7);
  const Batch logits = random_batch({.hidden = kSmall.experts + 2}, kLong, 8);
  for (std::size_t i = 0; i < b.ids.size(); i += 7)
    b.ids[i] = static_cast<std::int32_t>(kSmall.experts) + static_cast<std::int32_t>(i % 2);  // zero experts
  for (const ApplyMode mode : {ApplyMode::topk, ApplyMode::router_logits})
    for (const bool accumulate : {false, true}) {
      const auto run = [&](std::int64_t begin, std::int64_t count, std::int64_t workspace_tokens) {
        Batch whole = b, routed = logits;
        std::copy(b.x.begin(), b.x.end(), whole.out.begin());
        std::vector<std::byte> memory(layer->workspace_bytes(mode, workspace_tokens) + 64);
        std::byte* aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
        ApplyArgs a = whole.args();
        a.mode = mode;
        a.accumulate = accumulate;
        a.num_tokens = count;
        a.hidden = rows(a.hidden, begin, count), a.out = rows(a.out, begin, count);
        a.topk_ids = rows(a.topk_ids, begin, count), a.topk_weights = rows(a.topk_weights, begin, count);
        a.router_logits = rows(routed.args().hidden, begin, count);
        a.workspace = {aligned, memory.size() - 64};
        const Check r = layer->apply(a);
        EXPECT_TRUE(r) << r.error().message;
        const auto at = [&](std::int64_t t) { return whole.out.begin() + t * std::ssize(b.out) / kLong; };
        return Bytes(at(begin), at(begin + count));
      };
      Bytes pieces;
      for (const std::int64_t begin : {std::int64_t{0}, kChunkTokens, 2 * kChunkTokens}) {
        const Bytes piece = run(begin, std::min(kChunkTokens, kLong - begin), kChunkTokens);
        pieces.insert(pieces.end(), piece.begin(), piece.end());
      }
      EXPECT_EQ(run(0, kLong, kLong), pieces) << "accumulate " << accumulate;
    }
}

// Which copy of an expert a slot takes depends on its row in the call, not in the chunk: ranks that cut a batch in
// other places would else compute a slot twice or never.
TEST(EngineCalls, CopiesOfExpertsGoByTheRowOfTheCall) {
  constexpr LayerShape kSix{.experts = 6, .top_k = 2, .hidden = 64, .intermediate = 32, .group = -1};
  auto config = tiny_config(kSix);
  config->num_experts = 4;
  config->parallel.num_redundant_experts = 2;
  const ExpertCopies copies = expert_copies(*config);
  ASSERT_EQ(copies.physical, 6);
  const auto layer = make_layer(config, pack_layer(kSix, random_weights(kSix, 1)), *kernels_for(kSix).front());
  LayerShape logical = kSix;
  logical.experts = 4;
  Batch b = random_batch(logical, 2 * kChunkTokens + 1, 7);
  run(*layer, b);
  std::vector<std::uint64_t> counts(6), want(6);
  layer->expert_counts(counts, false);
  for (std::size_t i = 0; i < b.ids.size(); ++i)
    ++want[static_cast<std::size_t>(copies.copy_for_row(static_cast<std::int64_t>(i) / b.top_k, b.ids[i]))];
  EXPECT_EQ(counts, want);
}

// A workspace for the most tokens does for fewer; that of many tokens grows with what routing needs alone.
TEST(EngineCalls, WorkspaceStaysAsLargeAsForOneChunk) {
  const auto layer = make_layer(tiny_config(kNarrow), pack_layer(kNarrow, random_weights(kNarrow, 1)),
                                *kernels_for(kNarrow).front(), threads(2));
  const auto bytes = [&](std::int64_t tokens) { return layer->workspace_bytes(ApplyMode::topk, tokens); };
  for (std::int64_t tokens = 1; tokens < kChunkTokens; tokens += 1 + tokens / 8)
    EXPECT_LE(bytes(tokens), bytes(tokens + 1));
  EXPECT_EQ(bytes(kChunkTokens + 1), bytes(kChunkTokens));
  EXPECT_EQ(bytes(100 * kChunkTokens), bytes(kChunkTokens));
}

class CancelledCalls : public testing::TestWithParam<std::int64_t> {};

TEST_P(CancelledCalls, StopAnywhereAndTheNextOneIsWhole) {
  CancelsBefore host;
  const auto layer = make_layer(tiny_config(kNarrow), pack_layer(kNarrow, random_weights(kNarrow, 1)),
                                *kernels_for(kNarrow).front(), host.context());
  Batch b = random_batch(kNarrow, GetParam(), 7);
  const Bytes want = run(*layer, b);
  const int tasks = host.tasks, runs = host.runs;
  ASSERT_GE(runs, 3);
  int in_the_middle = 0;
  for (int task = 0; task < tasks; ++task) {
    Control control(nullptr, nullptr, nullptr);
    host = {.control = &control, .until = task};
    b.out.assign(b.out.size(), std::byte{0x5a});
    ApplyArgs args = b.args();
    args.control = &control;
    const Check r = layer->apply(args);
    ASSERT_FALSE(r) << "task " << task;
    EXPECT_EQ(r.error().code, Code::cancelled);
    const Bytes untouched(b.out.size(), std::byte{0x5a});
    if (host.in_run < runs) {
      EXPECT_EQ(b.out, untouched) << "task " << task;
    }
    EXPECT_NE(b.out, want) << "task " << task;
    in_the_middle += b.out != untouched ? 1 : 0;
    host.until = -1;
    EXPECT_EQ(run(*layer, b), want) << "after task " << task;
  }
  EXPECT_GE(in_the_middle, 1);
}

INSTANTIATE_TEST_SUITE_P(Tokens, CancelledCalls, testing::Values(kFewTokens, kManyTokens));

class EngineRows : public testing::TestWithParam<const Kernel*> {};

TEST_P(EngineRows, SameBitsHoweverACallIsCutUp) {
  const Kernel& kernel = *GetParam();
  std::vector<LayerShape> shapes = shapes_of(kernel.id->layout, kernel.id->act);
  std::erase_if(shapes, [&](const LayerShape& s) { return !kernel.id->takes(Groups::of_size(s.group)); });
  for (LayerShape& s : shapes) s.zeros = s.zeros && kernel.id->takes_zeros();
  ASSERT_GE(shapes.size(), 2u);
  for (const LayerShape& s : some_of(shapes, static_cast<std::uint32_t>(*kernel_index(kernel.id->name)))) {
    SCOPED_TRACE("H " + std::to_string(s.hidden) + " I " + std::to_string(s.intermediate));
    const auto config = tiny_config(s);
    const auto packed = pack_layer(s, random_weights(s, 1));
    const auto layer = [&](std::shared_ptr<Context> context, std::optional<NodeMap> nodes = {}) {
      return make_layer(config, packed, kernel, std::move(context), {}, std::move(nodes));
    };
    Batch b = random_batch(s, 45, 7);
    const auto one = layer(threads(1)), seven = layer(threads(7)), hosted = layer(host_threads());
    const Bytes want = run(*one, b);
    EXPECT_EQ(run(*seven, b), want) << "7 threads";
    EXPECT_EQ(run(*hosted, b), want) << "a caller's parallel_for";
    if (kernel.exact) {
      EXPECT_EQ(run(*make_layer(config, packed, scalar_of(kernel), threads(2)), b), want) << "scalar row";
    }
    for (const int nodes : {2, 3})
      for (const int n : {1, 3}) {
        NodeMap map{nodes, {}};  // this thread's CPU belongs to the last node; the others have other threads or none
        for (int cpu = 0; cpu < 64; ++cpu) map.of_cpu.push_back(static_cast<std::uint16_t>((cpu + nodes - 1) % nodes));
        EXPECT_EQ(run(*layer(threads(n), map), b), want) << nodes << " nodes, " << n << " threads";
      }
    std::vector<std::int64_t> order(static_cast<std::size_t>(b.tokens));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    Batch shuffled = pick(b, order);
    EXPECT_EQ(run(*seven, shuffled), rows_of(b, want, order)) << "shuffled";
    for (std::int64_t t = 0; t < b.tokens; t += 4) {
      Batch alone = pick(b, {t});
      EXPECT_EQ(run(t % 8 == 0 ? *one : *seven, alone), rows_of(b, want, {t})) << "token " << t << " alone";
    }
    Batch few = pick(b, {44, 0, 17, 3, 9});
    EXPECT_EQ(run(*seven, few), rows_of(b, want, {44, 0, 17, 3, 9})) << "five tokens";
  }
}

std::vector<const Kernel*> all_rows() {
  std::vector<const Kernel*> rows;
  for (const ActFormat act :
       {ActFormat::tok8, ActFormat::blk8, ActFormat::blk16, ActFormat::bf16, ActFormat::f16, ActFormat::f32})
    for (const Kernel* k : runnable_kernels(act)) rows.push_back(k);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, EngineRows, testing::ValuesIn(all_rows()),
                         [](const auto& row) { return std::string(row.param->id->name); });

}  // namespace
}  // namespace moe::test::engine_test
