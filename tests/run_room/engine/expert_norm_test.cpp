// The norm of each expert's output, on every row of the registry that this machine can run: against a float64 norm of
// what the same layer gives without it, slot by slot; the same bits however a call is cut up; accumulation, tokens
// without experts, cancelled calls, layers whose norm nobody gave or two did.
#include <gtest/gtest.h>

#include <string>

#include "run/engine/engine.h"
#include "support/rooms.h"
#include "support/tiny_layer.h"

namespace moe::test::expert_norm_test {
namespace {

using Floats = std::vector<float>;

std::vector<float> random_norm(std::int64_t hidden) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0.0f, 0.5f);
  Floats w(static_cast<std::size_t>(hidden));
  for (float& v : w) v = normal(rng);
  return w;
}

// A shape's layers, with a norm and without, of float32 output.
struct Layers {
  LayerShape s;
  const Kernel& kernel;
  std::shared_ptr<const Packed> packed;
  std::shared_ptr<Config> plain, normed;

  Layers(const LayerShape& shape, const Kernel& k)
      : s(shape), kernel(k), packed(pack_layer(shape, random_weights(shape, 1))), plain(tiny_config(shape)) {
    plain->out_dtype = DType::f32;
    normed = std::make_shared<Config>(*plain);
    normed->expert_norm.values = random_norm(s.hidden);
    normed->expert_norm_eps = 1e-3;
  }

  Floats run(const Config& config, Batch& b, int n, Floats out = {}) const {
    const bool accumulate = !out.empty();
    out.resize(static_cast<std::size_t>(b.tokens * s.hidden), kUntouched);
    ApplyArgs a = b.args();
    a.out = row_major(DType::f32, {b.tokens, s.hidden}, out.data());
    a.accumulate = accumulate;
    const Check r = make_layer(std::make_shared<Config>(config), packed, kernel, threads(n))->apply(a);
    EXPECT_TRUE(r) << r.error().message;
    return out;
  }

  // What each slot gets without a norm: a call with that slot alone, of weight 1.
  std::vector<Floats> results(const Batch& b) const {
    std::vector<Floats> all;
    for (std::int64_t j = 0; j < b.top_k; ++j) {
      Batch one = b;
      for (std::size_t i = 0; i < one.ids.size(); ++i) {
        if (static_cast<std::int64_t>(i) % b.top_k != j) one.ids[i] = -1;
        one.weights[i] = 1.0f;
      }
      all.push_back(run(*plain, one, 1));
    }
    return all;
  }

  std::vector<double> expected(const Batch& b) const {
    const std::vector<Floats> y = results(b);
    const auto width = static_cast<std::size_t>(s.hidden), k = static_cast<std::size_t>(b.top_k);
    std::vector<double> out(static_cast<std::size_t>(b.tokens) * width, 0.0);
    for (std::size_t t = 0; t < static_cast<std::size_t>(b.tokens); ++t)
      for (std::size_t j = 0; j < k; ++j) {
        if (b.ids[t * k + j] < 0) continue;
        std::vector<double> v(width);
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) {
          v[i] = static_cast<double>(y[j][t * width + i]) * (1 + static_cast<double>(normed->expert_norm.values[i]));
          squares += v[i] * v[i];
        }
        const double scale =
            static_cast<double>(b.weights[t * k + j]) / std::sqrt(squares / static_cast<double>(width) + 1e-3);
        for (std::size_t i = 0; i < width; ++i) out[t * width + i] += v[i] * scale;
      }
    return out;
  }

  static constexpr float kUntouched = 1234.5f;
};

// Rows of a batch.
Batch pick(const Batch& from, std::int64_t first, std::int64_t tokens) {
  Batch b = from;
  b.tokens = tokens;
  const auto cut = [&](auto& v, std::int64_t n) {
    v = std::decay_t<decltype(v)>(v.begin() + first * n, v.begin() + (first + tokens) * n);
  };
  cut(b.x, static_cast<std::int64_t>(b.row_bytes())), cut(b.ids, b.top_k), cut(b.weights, b.top_k);
  b.out.resize(b.x.size());
  return b;
}

// Panels of 16 rows and units of 64 columns that do not come out even, where the row allows it.
LayerShape shape_for(const Kernel& kernel) {
  LayerShape s{.experts = 5,
               .top_k = 3,
               .hidden = 72,
               .intermediate = 50,
               .group = -1,
               .bias = true,
               .dtype = DType::f32,
               .layout = kernel.id->layout,
               .act = kernel.id->act};
  if (!kernel.id->takes(Groups::of_size(-1))) s.hidden = 160, s.intermediate = 96, s.group = 32;
  return s;
}

class ExpertNorm : public testing::TestWithParam<const Kernel*> {};

TEST_P(ExpertNorm, IsThePlainOneHoweverACallIsCutUp) {
  const Layers l(shape_for(*GetParam()), *GetParam());
  constexpr std::int64_t kTokens = 37;
  Batch b = random_batch(l.s, kTokens, 7);
  b.ids[0] = b.ids[1] = b.ids[2] = -1;  // a token of nobody
  b.ids[3] = -1;
  b.ids[6] = b.ids[7];  // an expert twice
  const Floats got = l.run(*l.normed, b, 1);
  const std::vector<double> want = l.expected(b);
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], 2e-6 * (1 + std::abs(want[i]))) << "value " << i;
  EXPECT_NE(got, l.run(*l.plain, b, 1));
  for (const int n : {2, 5}) EXPECT_EQ(l.run(*l.normed, b, n), got) << n << " threads";
  const auto row = [&](std::int64_t t) {
    const auto begin = got.begin() + t * l.s.hidden;
    return Floats(begin, begin + l.s.hidden);
  };
  for (std::int64_t t = 0; t < kTokens; t += 5) {
    Batch alone = pick(b, t, 1);
    EXPECT_EQ(l.run(*l.normed, alone, t % 2 == 0 ? 1 : 5), row(t)) << "token " << t << " alone";
  }
  Batch few = pick(b, 8, 4);
  const Floats of_few = l.run(*l.normed, few, 2);
  EXPECT_EQ(of_few, Floats(got.begin() + 8 * l.s.hidden, got.begin() + 12 * l.s.hidden));

  const Floats before(got.size(), 0.75f), summed = l.run(*l.normed, b, 2, before);
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(static_cast<double>(summed[i]), want[i] + 0.75, 2e-6 * (2 + std::abs(want[i]))) << "value " << i;

  if (GetParam()->exact) {
    const Layers scalar(l.s, scalar_of(*GetParam()));
    EXPECT_EQ(scalar.run(*scalar.normed, b, 2), got) << "scalar row";
  }
}

std::vector<const Kernel*> all_rows() {
  std::vector<const Kernel*> rows;
  for (const ActFormat act :
       {ActFormat::tok8, ActFormat::blk8, ActFormat::blk16, ActFormat::bf16, ActFormat::f16, ActFormat::f32})
    for (const Kernel* k : runnable_kernels(act)) rows.push_back(k);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, ExpertNorm, testing::ValuesIn(all_rows()),
                         [](const auto& row) { return std::string(row.param->id->name); });

// With so many tokens a layer without a norm keeps no results.
TEST(ExpertNormCalls, ManyTokens) {
  const LayerShape s{.experts = 4, .top_k = 3, .hidden = 272, .intermediate = 32, .group = -1};
  constexpr std::int64_t kTokens = 1300;
  static_assert(kTokens * 3 * 272 > kKeptFloats);
  const Layers l(s, *kernels_for(s).front());
  Batch b = random_batch(s, kTokens, 3);
  const Floats got = l.run(*l.normed, b, 1);
  EXPECT_EQ(l.run(*l.normed, b, 5), got);
  const std::vector<double> want = l.expected(b);
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], 2e-6 * (1 + std::abs(want[i]))) << "value " << i;
  Batch last = pick(b, kTokens - 1, 1);
  EXPECT_EQ(l.run(*l.normed, last, 2), Floats(got.end() - s.hidden, got.end()));
  const auto bytes = [&](const std::shared_ptr<Config>& c) {
    return make_layer(c, l.packed, l.kernel)->workspace_bytes(ApplyMode::topk, kTokens);
  };
  EXPECT_GT(bytes(l.normed), bytes(l.plain));
}

// A factor of the output and zero experts come after the norm; a result of zeros stays one.
TEST(ExpertNormCalls, WhatComesAfter) {
  const LayerShape s{.experts = 4, .top_k = 2, .hidden = 64, .intermediate = 96, .dtype = DType::f32};
  const Layers l(s, *kernels_for(s).front());
  Batch b = random_batch(s, 6, 3);
  const Floats got = l.run(*l.normed, b, 1);
  Config twice = *l.normed;
  twice.routing.routed_scaling_factor = 2.0;
  twice.routing.apply_routed_scale_to_output = true;
  const Floats doubled = l.run(twice, b, 2);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(doubled[i], 2 * got[i]);

  Config zero = *l.normed, nothing = zero;
  zero.routing.num_zero_experts = nothing.routing.num_zero_experts = 1;
  nothing.routing.zero_experts = ZeroExperts::nothing;
  Batch with = b, without = b;
  for (std::size_t i = 1; i < b.ids.size(); i += 2) with.ids[i] = 4, without.ids[i] = -1;
  const Floats base = l.run(*l.normed, without, 1), identity = l.run(zero, with, 2);
  EXPECT_EQ(l.run(nothing, with, 2), base);
  const Floats x = b.values(b.x);
  for (std::size_t i = 0; i < base.size(); ++i)
    EXPECT_EQ(identity[i], std::fma(b.weights[i / 64 * 2 + 1], x[i], base[i]));

  std::fill(b.x.begin(), b.x.end(), std::byte{0});
  EXPECT_EQ(l.run(*l.normed, b, 2), Floats(got.size(), 0.0f));
}

TEST(ExpertNormCalls, NoTokensAndCancelledCalls) {
  const LayerShape s{};
  const Layers l(s, *kernels_for(s).front());
  const auto layer = make_layer(l.normed, l.packed, l.kernel, threads(2));
  Batch none = random_batch(s, 0, 1);
  EXPECT_TRUE(layer->apply(none.args()));
  EXPECT_EQ(layer->workspace_bytes(ApplyMode::topk, 0), 0u);
  Batch b = random_batch(s, 6, 3);
  Floats out(static_cast<std::size_t>(6 * s.hidden));
  ApplyArgs a = b.args();
  a.out = row_major(DType::f32, {6, s.hidden}, out.data());
  Control control(nullptr, nullptr, nullptr);
  control.cancel();
  a.control = &control;
  EXPECT_EQ(layer->apply(a).error().code, Code::cancelled);
  Batch foreign = b;
  std::fill(foreign.ids.begin(), foreign.ids.end(), -1);
  EXPECT_EQ(l.run(*l.normed, foreign, 2), Floats(static_cast<std::size_t>(6 * s.hidden), 0.0f));
}

// Before each task of a call, on the calling thread: no task that follows does anything, and the next call is whole.
TEST(ExpertNormCalls, CancelledAnywhere) {
  struct Host {
    Control* control = nullptr;
    int until = -1, tasks = 0;
  } host;
  ContextHooks hooks;
  hooks.threads =
      std::make_shared<HostThreads>(HostParallel{4, &host, [](void* self, std::size_t count, TaskFn task, void* arg) {
                                                   auto& h = *static_cast<Host*>(self);
                                                   for (std::size_t i = 0; i < count; ++i, ++h.tasks) {
                                                     if (h.until-- == 0) h.control->cancel();
                                                     task(arg, i);
                                                   }
                                                 }});
  const LayerShape s{.hidden = 272, .intermediate = 48, .group = -1};
  auto config = tiny_config(s);
  config->expert_norm.values = random_norm(s.hidden);
  const auto layer =
      make_layer(config, pack_layer(s, random_weights(s, 1)), *kernels_for(s).front(), *Context::create("", hooks));
  Batch b = random_batch(s, 20, 3);
  ASSERT_TRUE(layer->apply(b.args()));
  const std::vector<std::byte> want = b.out;
  for (int task = 0, tasks = host.tasks; task < tasks; ++task) {
    Control control(nullptr, nullptr, nullptr);
    host = {.control = &control, .until = task};
    b.out.assign(b.out.size(), std::byte{0x5a});
    ApplyArgs a = b.args();
    a.control = &control;
    EXPECT_EQ(layer->apply(a).error().code, Code::cancelled) << task;
    EXPECT_NE(b.out, want) << task;
    host.until = -1;
    ASSERT_TRUE(layer->apply(b.args()));
    EXPECT_EQ(b.out, want) << task;
  }
}

TEST(ExpertNormLayers, HaveOneSource) {
  const LayerShape s{};
  const auto packed = pack_layer(s, random_weights(s, 1));
  const Floats norm = random_norm(s.hidden);
  auto loaded = std::make_shared<Packed>();
  loaded->info = packed->info, loaded->info.expert_norm = norm;
  loaded->block = packed->block, loaded->payload = packed->payload, loaded->keep = packed->keep;
  const auto names = tiny_config(s), holds = tiny_config(s), plain = tiny_config(s);
  names->expert_norm.name = "norm.weight", holds->expert_norm.values = norm;
  const auto create = [&](const std::shared_ptr<Config>& c, const std::shared_ptr<const Packed>& p) {
    return Layer::create({c, p, nullptr, kernels_for(s).front(), "CPU_INT4", "", {}, {}});
  };
  const auto code = [&](const auto& c, const auto& p) {
    const auto r = create(c, p);
    if (!r) {
      EXPECT_EQ(r.error().subject, "expert_norm");
    }
    return r ? Code::ok : r.error().code;
  };
  const std::shared_ptr<const Packed> with = loaded;
  EXPECT_EQ(code(plain, packed), Code::ok);
  EXPECT_EQ(code(names, packed), Code::config_mismatch);
  EXPECT_EQ(code(holds, with), Code::unexpected_weight);
  EXPECT_EQ(code(plain, with), Code::unexpected_weight);
  Batch a = random_batch(s, 5, 2), b = a;
  ASSERT_TRUE((*create(names, with))->apply(a.args()));
  ASSERT_TRUE((*create(holds, packed))->apply(b.args()));
  EXPECT_EQ(a.out, b.out);
}

}  // namespace
}  // namespace moe::test::expert_norm_test
