// Whole layers below the C API: the golden outputs, and the promises that need several runs - equal bits for every
// kernel and thread count (batches and orders: engine_test.cpp); skipped and poisoned tokens; accumulation; failed
// calls.
#include "run/layer.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/rooms.h"
#include "support/share.h"
#include "support/tiny_layer.h"
#include "support/vectors.h"

namespace moe::test::layer_test {
namespace {

const LayerShape kShapes[] = {
    {.group = 32, .bias = true},
    {.experts = 8, .top_k = 4, .hidden = 128, .intermediate = 192, .group = 64, .dtype = DType::f32},
    {.experts = 3, .hidden = 40, .intermediate = 26, .group = -1, .bias = true, .dtype = DType::f32},
    {.experts = 16,
     .top_k = 8,
     .hidden = 256,
     .intermediate = 128,
     .group = 128,
     .bias = true,
     .dtype = DType::f16,
     .activation = Activation::swigluoai_uninterleave},
    {.experts = 4, .top_k = 3, .hidden = 272, .intermediate = 48, .group = -1, .activation = Activation::swiglustep},
    {.experts = 5, .hidden = 192, .intermediate = 96, .group = 96, .dtype = DType::bf16},
    {.experts = 3, .hidden = 96, .intermediate = 34, .group = -1, .bias = true, .activation = Activation::relu2_no_mul},
    {.experts = 4, .hidden = 72, .intermediate = 50, .group = -1, .bias = true, .layout = LayoutKind::p16_bf16},
    {.experts = 6,
     .top_k = 3,
     .hidden = 130,
     .intermediate = 64,
     .group = -1,
     .dtype = DType::f16,
     .activation = Activation::gelu_no_mul,
     .layout = LayoutKind::p16_f16},
    {.hidden = 33, .intermediate = 17, .group = -1, .dtype = DType::f32, .layout = LayoutKind::p16_f32},
};

std::vector<std::byte> run(const Layer& layer, Batch& b) {
  const Check r = layer.apply(b.args());
  EXPECT_TRUE(r) << r.error().message;
  return b.out;
}

TEST(LayerDeterminism, KernelsAndThreadsGiveTheSameBits) {
  Turns turns;
  for (const LayerShape& s : kShapes) {
    const auto config = tiny_config(s);
    const auto packed = pack_layer(s, random_weights(s, 1));
    for (const std::int64_t tokens : {1, 2, 5, 64, 130}) {
      if (!turns.next()) continue;
      Batch b = random_batch(s, tokens, static_cast<std::uint32_t>(tokens));
      const auto want = run(*make_layer(config, packed, scalar_of(*kernels_for(s).front())), b);
      for (const Kernel* k : kernels_for(s))
        for (const int n : {1, 2, 3, 7}) {
          b.out.assign(b.out.size(), std::byte{0x5a});
          EXPECT_EQ(run(*make_layer(config, packed, *k, threads(n)), b), want)
              << k->id->name << " threads " << n << " T " << tokens << " H " << s.hidden;
        }
    }
  }
}

TEST(LayerSlots, SkippedAndRepeatedExperts) {
  const LayerShape s = kShapes[1];
  const auto packed = pack_layer(s, random_weights(s, 3));
  const auto layer = make_layer(tiny_config(s), packed, *kernels_for(s).front());
  Batch b = random_batch(s, 3, 4);
  std::fill_n(b.ids.begin(), 4, -1);                  // token 0: no slot at all
  b.ids[4] = b.ids[5] = 2, b.ids[6] = b.ids[7] = -1;  // token 1: one expert twice
  b.weights[4] = 0.5f, b.weights[5] = 0.25f;
  run(*layer, b);
  EXPECT_EQ(part(b.out, 0, s.hidden * 4), std::vector<std::byte>(static_cast<std::size_t>(s.hidden) * 4, std::byte{0}));
  Batch once = random_batch(s, 3, 4);
  once.ids = b.ids;
  once.ids[5] = -1;
  once.weights = b.weights;
  run(*layer, once);
  const auto twice = b.values(b.out), first = b.values(once.out);
  for (std::size_t i = 0; i < 128; ++i) {  // fma(w2, y, w1 * y) with y = first / w1, w1 a power of two
    const float y = first[128 + i] / 0.5f;
    EXPECT_EQ(twice[128 + i], std::fma(0.25f, y, first[128 + i]));
  }
}

TEST(LayerSlots, AccumulateInAscendingSetsIsOneCall) {
  const LayerShape s = kShapes[1];
  const auto packed = pack_layer(s, random_weights(s, 5));
  const auto config = tiny_config(s);
  Batch b = random_batch(s, 33, 6);
  const auto want = run(*make_layer(config, packed, *kernels_for(s).front()), b);
  std::fill(b.out.begin(), b.out.end(), std::byte{0});
  for (const auto& [lo, hi] : {std::pair{0, 3}, std::pair{3, 4}, std::pair{4, 8}}) {  // ranks of a linear placement
    std::vector<std::int32_t> map(8, -1);
    for (int e = lo; e < hi; ++e) map[static_cast<std::size_t>(e)] = e;
    ApplyArgs a = b.args();
    a.accumulate = true;
    ASSERT_TRUE(make_layer(config, packed, *kernels_for(s).front(), nullptr, map)->apply(a));
  }
  EXPECT_EQ(b.out, want);
}

TEST(LayerPoison, NanAndInfStayWithTheirToken) {
  for (const LayerShape& s : kShapes) {
    const auto packed = pack_layer(s, random_weights(s, 7));
    for (const Kernel* k : kernels_for(s)) {
      const auto layer = make_layer(tiny_config(s), packed, *k, threads(2));
      Batch b = random_batch(s, 9, 8);
      const auto clean = run(*layer, b);
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        Batch p = b;
        ref::narrow(s.dtype, &bad, 1, p.x.data() + 4 * p.row_bytes() + 8);
        run(*layer, p);
        const auto bytes = static_cast<std::int64_t>(p.row_bytes());
        for (std::int64_t t = 0; t < 9; ++t)
          if (t != 4) {
            EXPECT_EQ(part(p.out, t, bytes), part(clean, t, bytes)) << t;
          }
        const auto values = p.values(p.out);
        for (std::int64_t i = 0; i < s.hidden; ++i)
          EXPECT_FALSE(std::isfinite(values[static_cast<std::size_t>(4 * s.hidden + i)]));
      }
    }
  }
}

TEST(LayerCalls, InPlaceOwnWorkspaceAndNoTokens) {
  const LayerShape s = kShapes[0];
  const auto layer = make_layer(tiny_config(s), pack_layer(s, random_weights(s, 1)), *kernels_for(s).front());
  Batch b = random_batch(s, 20, 2);
  const auto want = run(*layer, b);
  std::vector<std::byte> memory(layer->workspace_bytes(ApplyMode::topk, 20) + 64);
  auto* aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  ApplyArgs a = b.args();
  a.out = a.hidden;
  a.workspace = {aligned, layer->workspace_bytes(ApplyMode::topk, 20)};
  ASSERT_TRUE(layer->apply(a));
  EXPECT_EQ(b.x, want);
  a.workspace = {aligned, a.workspace.size() - 1};
  const Check small = layer->apply(a);
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, Code::buffer_too_small);
  Batch none = random_batch(s, 0, 1);
  EXPECT_TRUE(layer->apply(none.args()));
}

TEST(LayerCalls, FailuresLeaveTheOutputAlone) {
  const LayerShape s = kShapes[0];
  const auto layer = make_layer(tiny_config(s), pack_layer(s, random_weights(s, 1)), *kernels_for(s).front());
  for (const std::int32_t bad :
       {-2, 4, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()}) {
    Batch b = random_batch(s, 6, 3);
    b.ids[7] = bad;
    const auto before = b.out;
    const Check r = layer->apply(b.args());
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().code, Code::invalid_argument);
    EXPECT_EQ(r.error().subject, "topk_ids[3,1]");
    EXPECT_NE(r.error().message.find(std::to_string(bad)), std::string::npos);
    EXPECT_EQ(b.out, before);
  }
  Control control(nullptr, nullptr, nullptr);
  control.cancel();
  Batch b = random_batch(s, 6, 3);
  ApplyArgs a = b.args();
  a.control = &control;
  const Error cancelled = layer->apply(a).error();
  EXPECT_EQ(cancelled.code, Code::cancelled);
  EXPECT_EQ(cancelled.subject, "control");
}

TEST(LayerCalls, CountsTokensPerExpert) {
  const LayerShape s = kShapes[1];
  const auto layer = make_layer(tiny_config(s), pack_layer(s, random_weights(s, 1)), *kernels_for(s).front());
  Batch b = random_batch(s, 50, 3);
  std::vector<std::uint64_t> want(8, 0), got(8);
  for (const std::int32_t id : b.ids) want[static_cast<std::size_t>(id)] += 2;
  run(*layer, b);
  run(*layer, b);
  layer->expert_counts(got, true);
  EXPECT_EQ(got, want);
  layer->expert_counts(got, false);
  EXPECT_EQ(got, std::vector<std::uint64_t>(8, 0));
}

// Whoever chooses the kernel: a row whose groups are multiples of 64 would read beyond the tiles of groups of 32.
TEST(LayerCreate, RefusesAKernelThatDoesNotTakeTheLayout) {
  for (const LayerShape& s :
       {LayerShape{.group = 32}, LayerShape{.intermediate = 128, .group = 64}, LayerShape{.layout = LayoutKind::p16_w4},
        LayerShape{.layout = LayoutKind::p16_w8, .zeros = true},
        LayerShape{.group = -1, .layout = LayoutKind::p16_bf16}}) {
    const auto config = tiny_config(s);
    const auto packed = pack_layer(s, random_weights(s, 1));
    const Layout& layout = packed->info.layout;
    int made = 0;
    for (const Kernel* k : built_kernels()) {
      const bool takes = k->id->fits(needs_of(layout));
      const auto layer = Layer::create({config, packed, nullptr, k, "CPU_INT4", "", {}, {}});
      ASSERT_EQ(static_cast<bool>(layer), takes) << k->id->name << " " << layout.id();
      made += takes ? 1 : 0;
      if (takes) continue;
      EXPECT_EQ(layer.error().code, Code::internal);
      EXPECT_EQ(layer.error().message,
                "kernel: " + std::string(k->id->name) + " does not take the layout " + layout.id());
    }
    EXPECT_GT(made, 0) << layout.id();
  }
}

// --- against a plain computation -----------------------------------------------------------------------

double plain_activation(const LayerShape& s, double g, double u) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto tanh_form = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  };
  const auto relu = [](double x) { return x > 0 ? x * x : 0; };
  const auto clamp = [](double x) { return std::clamp(x, -7.0, 7.0); };
  switch (s.activation) {
    case Activation::silu:
      return g * sigmoid(g) * u;
    case Activation::gelu:
      return 0.5 * g * std::erfc(-g / std::sqrt(2.0)) * u;
    case Activation::gelu_tanh:
      return tanh_form(g) * u;
    case Activation::relu2:
      return relu(g) * u;
    case Activation::swigluoai:
    case Activation::swigluoai_uninterleave:
      return (clamp(u) + 1) * std::min(g, 7.0) * sigmoid(1.702 * std::min(g, 7.0));
    case Activation::swiglustep:
      return std::min(g * sigmoid(g), 7.0) * clamp(u);
    case Activation::swiglu_softcap:
      return 4 * std::tanh(g / 4) * sigmoid(g) * 25 * std::tanh(u / 25);
    case Activation::situ:
      return 2.5 * std::tanh(g / 2.5) * sigmoid(g) * u;
    case Activation::silu_no_mul:
      return g * sigmoid(g);
    case Activation::gelu_no_mul:
      return 0.5 * g * std::erfc(-g / std::sqrt(2.0));
    case Activation::gelu_tanh_no_mul:
      return tanh_form(g);
    case Activation::relu2_no_mul:
      return relu(g);
  }
  return 0;
}

// The layer in float64, weights as they are stored, activations not quantized.
std::vector<double> plain_layer(const LayerShape& s, const PlainWeights& p, const Batch& b) {
  const auto weight = [&](const auto& codes, const auto& scales, const auto& values, std::int64_t row, std::int64_t k,
                          std::int64_t width) {
    if (s.is_float()) return static_cast<double>(values[static_cast<std::size_t>(row * width + k)]);
    const std::int64_t groups = s.group < 0 ? 1 : width / s.group, g = s.group < 0 ? 0 : k / s.group;
    const float scale = scales[static_cast<std::size_t>(row * groups + g)];
    return static_cast<double>(codes[static_cast<std::size_t>(row * width + k)]) * static_cast<double>(scale);
  };
  const std::vector<float> x = b.values(b.x);
  std::vector<double> out(static_cast<std::size_t>(b.tokens * s.hidden), 0.0);
  for (std::int64_t slot = 0; slot < b.tokens * s.top_k; ++slot) {
    const std::int64_t t = slot / s.top_k, e = b.ids[static_cast<std::size_t>(slot)], rows = s.w13_rows();
    std::vector<double> y13(static_cast<std::size_t>(rows)), act;
    for (std::int64_t n = 0; n < rows; ++n) {
      double& y = y13[static_cast<std::size_t>(n)];
      y = s.bias ? static_cast<double>(p.b13[static_cast<std::size_t>(e * rows + n)]) : 0;
      for (std::int64_t k = 0; k < s.hidden; ++k)
        y += static_cast<double>(x[static_cast<std::size_t>(t * s.hidden + k)]) *
             weight(p.w13, p.s13, p.f13, e * rows + n, k, s.hidden);
    }
    for (std::int64_t i = 0; i < s.intermediate; ++i)
      act.push_back(plain_activation(s, y13[static_cast<std::size_t>(i)],
                                     is_gated(s.activation) ? y13[static_cast<std::size_t>(s.intermediate + i)] : 0));
    for (std::int64_t n = 0; n < s.hidden; ++n) {
      double y = s.bias ? static_cast<double>(p.b2[static_cast<std::size_t>(e * s.hidden + n)]) : 0;
      for (std::int64_t k = 0; k < s.intermediate; ++k)
        y += act[static_cast<std::size_t>(k)] * weight(p.w2, p.s2, p.f2, e * s.hidden + n, k, s.intermediate);
      out[static_cast<std::size_t>(t * s.hidden + n)] +=
          static_cast<double>(b.weights[static_cast<std::size_t>(slot)]) * y;
    }
  }
  return out;
}

// int4 with int8 activations within the error of the scheme, floats within their rounding, for every activation.
TEST(LayerPlain, EveryActivationOfEveryFormat) {
  struct Format {
    LayoutKind layout;
    std::int64_t group;
    DType dtype;
    double bound;  // relative root mean square
  };
  for (const Format& f :
       {Format{LayoutKind::p16_int4, 32, DType::f32, 3e-2}, Format{LayoutKind::p16_int4, -1, DType::bf16, 3e-2},
        Format{LayoutKind::p16_bf16, -1, DType::bf16, 8e-3}, Format{LayoutKind::p16_f16, -1, DType::f16, 1e-3},
        Format{LayoutKind::p16_f32, -1, DType::f32, 1e-6}})
    for (std::size_t a = 0; a < kActivationNames.size(); ++a) {
      const LayerShape s{.hidden = 96,
                         .intermediate = 64,
                         .group = f.group,
                         .bias = true,
                         .dtype = f.dtype,
                         .activation = static_cast<Activation>(a),
                         .layout = f.layout};
      const PlainWeights weights = random_weights(s, 11);
      Batch b = random_batch(s, 24, 12);
      const std::vector<float> got =
          b.values(run(*make_layer(tiny_config(s), pack_layer(s, weights), *kernels_for(s).front()), b));
      const std::vector<double> want = plain_layer(s, weights, b);
      double error = 0, size = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        error += (static_cast<double>(got[i]) - want[i]) * (static_cast<double>(got[i]) - want[i]);
        size += want[i] * want[i];
      }
      EXPECT_LE(std::sqrt(error / size), f.bound) << kActivationNames[a] << " " << kernels_for(s).front()->id->name;
    }
}

// --- golden outputs ---------------------------------------------------------------------------------
struct Golden {
  LayerShape shape;
  PlainWeights weights;
  Batch batch;
  std::vector<float> out;
  bool on_input;
};

Golden load_golden(const std::string& name) {
  const VecFile f = load_vectors("w4a8_int8/" + name);
  Golden g;
  g.shape.experts = f.at("w13_int4").shape[0];
  g.shape.hidden = f.at("w13_int4").shape[2];
  g.shape.intermediate = f.at("w2_int4").shape[2];
  g.shape.top_k = f.at("topk_ids").shape[1];
  g.shape.group = std::stoll(f.meta.at("group_size"));
  g.shape.bias = f.has("w13_bias");
  g.shape.dtype = f.at("x").dtype;
  g.shape.activation = f.meta.at("activation_kind") == "1"   ? Activation::swigluoai_uninterleave
                       : f.meta.at("activation_kind") == "0" ? Activation::swiglustep
                                                             : Activation::silu;
  g.weights = {f.at("w13_int4").as<std::int8_t>(),
               f.at("w2_int4").as<std::int8_t>(),
               f.at("w13_scale").floats(),
               f.at("w2_scale").floats(),
               g.shape.bias ? f.at("w13_bias").floats() : std::vector<float>{},
               g.shape.bias ? f.at("w2_bias").floats() : std::vector<float>{},
               {},
               {}};
  g.batch = {g.shape.dtype,
             f.at("x").shape[0],
             g.shape.top_k,
             g.shape.hidden,
             f.at("x").data,
             f.at("x").data,
             {},
             f.at("topk_weights").floats()};
  for (const std::int64_t id : f.at("topk_ids").as<std::int64_t>())
    g.batch.ids.push_back(static_cast<std::int32_t>(id));
  g.out = f.at("out").floats();
  g.on_input = f.meta.at("apply_router_weight_on_input") == "true";
  return g;
}

void check_golden(const Kernel& kernel, const std::string& name) {
  SCOPED_TRACE(name + " " + std::string(kernel.id->name));
  Golden g = load_golden(name);
  const auto packed = pack_layer(g.shape, g.weights);
  const double bound = g.shape.dtype == DType::f32 ? 1e-6 : g.shape.dtype == DType::f16 ? 0x1p-9 : 0x1p-6;
  double largest = 0;
  for (const float v : g.out) largest = std::max(largest, std::fabs(static_cast<double>(v)));
  for (const Policy compat : {Policy::vllm, Policy::libmoe}) {
    const auto config = tiny_config(g.shape);
    config->bit_compat = compat;
    config->apply_router_weight_on_input = g.on_input;
    // kind 0 is silu without the clamps of swiglustep: by default the config's name for it is silu
    if (compat == Policy::libmoe && g.shape.activation == Activation::swiglustep)
      config->activation = Activation::silu, config->limit.reset();
    const auto got = g.batch.values(run(*make_layer(config, packed, kernel, threads(2)), g.batch));
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(g.out[i])));
    // The vectors' exp is another one: a float32 middle may differ in its last bit, a 16-bit one rounds it away.
    if (compat == Policy::vllm && g.shape.dtype != DType::f32) {
      EXPECT_EQ(got, g.out);
    } else {
      EXPECT_LE(worst, bound * largest) << (compat == Policy::vllm ? "bit_compat vllm" : "default");
    }
  }
}

TEST(LayerGolden, AllMoeVectors) {
  const auto index = load_json("w4a8_int8/index.json");
  int count = 0;
  for (const auto& f : index["files"]) {
    const auto name = f["file"].get<std::string>();
    if (name.rfind("moe_", 0) != 0 && name.rfind("groupeqk_", 0) != 0) continue;
    for (const Kernel* k : kernels_for(load_golden(name).shape)) check_golden(*k, name);
    ++count;
  }
  EXPECT_EQ(count, 16);
}

}  // namespace
}  // namespace moe::test::layer_test
