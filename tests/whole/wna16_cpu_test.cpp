// WNA16 checkpoints of all formats on the CPU row, through the ABI: GPTQ, AWQ and compressed-tensors, stacked either
// way and per expert in files; zero points, activation order, bias. Against a plain float64 layer, the same for every
// batch, thread count and instruction set; packed files; ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/rooms.h"
#include "support/share.h"
#include "support/wna16_model.h"

namespace moe::test::wna16_cpu_test {
namespace {

std::vector<Wna16Model> all_models() {
  std::vector<Wna16Model> models;
  struct Size {
    std::int64_t h, i, g;
  };
  const Size sizes[] = {{128, 64, 32}, {64, 64, 64}, {96, 192, 96}, {72, 24, -1}, {96, 48, 48}, {384, 128, 128}};
  std::uint32_t seed = 1;
  for (const char* format : {"gptq", "awq", "pack-quantized"})
    for (const int bits : {4, 8})
      for (const Size& s : sizes)
        for (const bool zeros : {false, true})
          for (const bool order : {false, true}) {
            Wna16Model m;
            m.format = format;
            if ((m.awq() && (bits == 8 || order)) || (order && s.g < 0)) continue;
            m.bits = bits, m.H = s.h, m.I = s.i, m.group = s.g, m.zeros = zeros, m.order = order;
            m.transposed = seed % 2 == 0;
            m.bias = seed % 3 == 0;
            m.plus_one = zeros && seed % 5 < 2;
            m.dtype = seed % 4 == 1 ? MOE_DTYPE_BF16 : seed % 4 == 3 ? MOE_DTYPE_F16 : MOE_DTYPE_F32;
            models.push_back(random_wna16(m, seed++));
          }
  return models;
}

TEST(Wna16Cpu, AgainstAPlainLayer) {
  const std::vector<PlatformPtr> platforms = capped_platforms(kWna16Isas);
  for (const Wna16Model& m : some_of(all_models(), 1)) {
    SCOPED_TRACE(m.config_text());
    const std::vector<double> want = plain_layer(m);
    std::vector<std::byte> first;
    for (const PlatformPtr& p : platforms) {
      const Wna16Layer layer(m, "{\"threads\":3}", p.get());
      ASSERT_TRUE(layer.layer);
      EXPECT_EQ(layer.kernel.find(m.dtype == MOE_DTYPE_F32 ? "a16_f32_p16" : "a16_blk16_p16"), 2u) << layer.kernel;
      const std::vector<std::byte> out = layer.run(m, 0, m.T);
      EXPECT_LE(relative_rms(floats_of(out, m.dtype), want), bound_of(m)) << layer.kernel;
      if (first.empty()) first = out;
      EXPECT_EQ(out, first) << layer.kernel;  // the same on every instruction set
      const auto row = std::ssize(out) / m.T;
      for (std::int64_t t = 0; t < m.T; ++t)  // alone as in the batch
        EXPECT_EQ(layer.run(m, t, 1), std::vector<std::byte>(out.begin() + t * row, out.begin() + (t + 1) * row));
    }
    EXPECT_EQ(Wna16Layer(m).run(m, 0, m.T), Wna16Layer(m, "{\"threads\":4}").run(m, 0, m.T));
    ASSERT_FALSE(HasFailure());
  }
}

// Slots without an expert, also whole tokens of them; more slots than the first phase has items, which then cut tokens
// apart where each slot has a row of its own (activation order).
TEST(Wna16Cpu, SlotsWithoutAnExpert) {
  for (const bool order : {false, true})
    for (const std::int64_t tokens : {1, 5, 45}) {
      Wna16Model m;
      m.order = order, m.dtype = MOE_DTYPE_BF16, m.E = 5, m.K = 4, m.T = tokens;
      m = random_wna16(m, 23);
      for (std::size_t slot = 0; slot < m.ids.size(); ++slot)
        if (slot % 7 == 0 || slot % 5 == 2 || slot / 4 == 3) m.ids[slot] = -1;
      SCOPED_TRACE(m.config_text() + " tokens " + std::to_string(tokens));
      const std::vector<double> want = plain_layer(m);
      std::vector<std::byte> first;
      for (const char* threads : {"{\"threads\":1}", "{\"threads\":2}", "{\"threads\":7}"}) {
        const std::vector<std::byte> out = Wna16Layer(m, threads).run(m, 0, m.T);
        EXPECT_LE(relative_rms(floats_of(out, m.dtype), want), bound_of(m)) << threads;
        if (first.empty()) first = out;
        EXPECT_EQ(out, first) << threads;
      }
    }
}

// Runs a layer on each instruction set: the same bits, each of them checked.
template <class Check>
void same_on_each_isa(const Wna16Model& m, Check check) {
  std::vector<std::byte> first;
  for (const PlatformPtr& p : capped_platforms(kWna16Isas)) {
    const Wna16Layer layer(m, "{\"threads\":1}", p.get());
    ASSERT_TRUE(layer.layer);
    const std::vector<std::byte> out = layer.run(m, 0, m.T);
    if (first.empty()) first = out;
    EXPECT_EQ(out, first) << layer.kernel;
    check(layer, out);
  }
}

// A token with a value that is no number has no numbers in its result, on every instruction set; the others keep
// theirs. Values far apart: a block keeps what is 2^-14 of its largest, and no block moves another.
TEST(Wna16Cpu, UnusualInput) {
  for (const int bits : {4, 8})
    for (const bool zeros : {false, true})
      for (const moe_dtype dtype : {MOE_DTYPE_BF16, MOE_DTYPE_F16}) {
        Wna16Model m;
        m.bits = bits, m.zeros = zeros, m.dtype = dtype, m.H = 256, m.group = 64;
        m = random_wna16(m, 17);
        const auto row = [&](std::int64_t t) { return m.x.begin() + t * m.H; };
        row(1)[70] = std::numeric_limits<float>::infinity();
        row(2)[255] = std::numeric_limits<float>::quiet_NaN();
        for (std::int64_t k = 0; k < m.H; ++k) row(3)[k] *= k < 64 ? 0x1p-12f : k < 192 ? 1.0f : 0.0f;
        row(3)[100] = 32.0f;
        std::fill_n(row(4), m.H, 0.0f);
        SCOPED_TRACE(m.config_text());
        const std::vector<double> want = plain_layer(m);
        same_on_each_isa(m, [&](const Wna16Layer&, const std::vector<std::byte>& out) {
          const std::vector<float> y = floats_of(out, m.dtype);
          for (std::int64_t t = 0; t < m.T; ++t) {
            const std::vector<float> of(y.begin() + t * m.H, y.begin() + (t + 1) * m.H);
            if (t == 1 || t == 2)
              EXPECT_TRUE(std::all_of(of.begin(), of.end(), [](float v) { return std::isnan(v); })) << t;
            else if (t == 4)
              EXPECT_EQ(of, std::vector<float>(of.size(), 0.0f));
            else
              EXPECT_LE(relative_rms(of, std::vector<double>(want.begin() + t * m.H, want.begin() + (t + 1) * m.H)),
                        2 * bound_of(m))  // of one token
                  << t;
          }
        });
      }
}

// "compute": "a16" multiplies in float32: a value far above its block moves nothing, not even where its weight is 0.
TEST(Wna16Cpu, FloatProductsWhenAskedFor) {
  for (const int bits : {4, 8})
    for (const moe_dtype dtype : {MOE_DTYPE_BF16, MOE_DTYPE_F16}) {
      Wna16Model m;
      m.bits = bits, m.dtype = dtype, m.H = 256, m.group = 64;
      m = random_wna16(m, 23);
      constexpr std::int64_t kColumn = 100;
      for (Matrix13or2& w : m.w13)
        for (std::int64_t n = 0; n < w.n; ++n)
          w.codes[static_cast<std::size_t>(n * w.k + kColumn)] = static_cast<std::uint8_t>(1 << (bits - 1));
      for (std::int64_t t = 0; t < m.T; ++t) m.x[static_cast<std::size_t>(t * m.H + kColumn)] = 32768.0f;
      const std::vector<double> want = plain_layer(m);
      for (const bool asked : {false, true}) {
        if (asked) m.extra = {{"compute", "a16"}};
        SCOPED_TRACE(m.config_text());
        same_on_each_isa(m, [&](const Wna16Layer& layer, const std::vector<std::byte>& out) {
          EXPECT_EQ(layer.kernel.find(asked ? "a16_f32_p16" : "a16_blk16_p16"), 2u) << layer.kernel;
          const double distance = relative_rms(floats_of(out, m.dtype), want);
          if (asked)
            EXPECT_LE(distance, bound_of(m)) << layer.kernel;
          else
            EXPECT_GT(distance, bound_of(m)) << layer.kernel;  // what README says of 16-bit codes
        });
      }
    }
}

// More slots than phase 0 takes in one task, and the weight on the input.
TEST(Wna16Cpu, ActivationOrderInLargeBatches) {
  for (const bool on_input : {false, true}) {
    Wna16Model m;
    m.order = true;
    m.T = 70;
    if (on_input) {
      m.K = 1;
      m.extra = {{"apply_router_weight_on_input", true}};
    }
    m = random_wna16(m, 99);
    const Wna16Layer layer(m, "{\"threads\":3}");
    ASSERT_TRUE(layer.layer);
    const std::vector<std::byte> out = layer.run(m, 0, m.T);
    for (std::int64_t t = 0; t < m.T; t += 7)
      EXPECT_EQ(layer.run(m, t, 1), std::vector<std::byte>(out.begin() + t * m.H * 4, out.begin() + (t + 1) * m.H * 4));
    if (!on_input) {
      EXPECT_LE(relative_rms(floats_of(out, m.dtype), plain_layer(m)), 1e-5);
    }
  }
}

// "compute": "a8": int4 weights on the W4A8 rows, int8 on the W8A8 rows; the row of activations takes the order.
TEST(Wna16Cpu, Int8Activations) {
  for (const int bits : {4, 8})
    for (const bool order : {false, true})
      for (const bool per_token : {false, true}) {
        Wna16Model m;
        m.bits = bits;
        m.order = order;
        m.T = 9;
        m.extra = {{"compute", "a8"}, {"activation_quant", per_token ? "per_token" : "auto"}};
        m = random_wna16(m, 5);
        SCOPED_TRACE(m.config_text());
        const std::vector<double> want = plain_layer(m);
        same_on_each_isa(m, [&](const Wna16Layer& layer, const std::vector<std::byte>& out) {
          const std::string family = (bits == 4 ? "w4a8_" : "w8a8_") + std::string(per_token ? "tok8_p16" : "blk8_p16");
          EXPECT_EQ(layer.kernel.rfind(family, 0), 0u) << layer.kernel;
          EXPECT_LE(relative_rms(floats_of(out, m.dtype), want), per_token ? 3e-2 : 2e-2);
        });
      }
}

// The same with zero points, subtracted in the integer sums: every format, channel-wise and in groups, also filled
// ones.
TEST(Wna16Cpu, Int8ActivationsWithZeroPoints) {
  for (const Wna16Model& each : some_of(all_models(), 4)) {
    if (!each.zeros) continue;
    Wna16Model m = each;
    m.extra = {{"compute", "a8"}};
    SCOPED_TRACE(m.config_text());
    const std::vector<double> want = plain_layer(m);
    std::vector<std::byte> first;
    for (const PlatformPtr& p : capped_platforms(kWna16Isas)) {
      const Wna16Layer layer(m, "{\"threads\":3}", p.get());
      ASSERT_TRUE(layer.layer);
      EXPECT_EQ(layer.kernel.rfind(m.bits == 4 ? "w4a8_blk8_p16" : "w8a8_blk8_p16", 0), 0u) << layer.kernel;
      EXPECT_EQ(layer.kernel.ends_with("_zp"), m.bits == 4) << layer.kernel;
      const std::vector<std::byte> out = layer.run(m, 0, m.T);
      EXPECT_LE(relative_rms(floats_of(out, m.dtype), want), 2e-2) << layer.kernel;
      if (first.empty()) first = out;
      EXPECT_EQ(out, first) << layer.kernel;  // the same on every instruction set
      const auto row = std::ssize(out) / m.T;
      for (std::int64_t t = 0; t < m.T; ++t)  // alone as in the batch
        EXPECT_EQ(layer.run(m, t, 1), std::vector<std::byte>(out.begin() + t * row, out.begin() + (t + 1) * row));
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(Wna16Cpu, ZeroPointsWantActivationsPerBlock) {
  for (const int bits : {4, 8}) {
    Wna16Model m;
    m.bits = bits;
    m.zeros = true;
    m.extra = {{"compute", "a8"}, {"activation_quant", "per_token"}};
    const ConfigPtr config = make_config(m.config_text());
    const Failure f = failure([&](moe_error** e) {
      moe_selection* s = nullptr;
      return moe_select_backend(nullptr, config.get(), nullptr, 0, &s, e);
    });
    EXPECT_EQ(f.status, MOE_ERR_NO_BACKEND);
    EXPECT_THAT(f.message, testing::HasSubstr("activation_quant block32 (or auto) for weights with zero points"));
  }
}

TEST(Wna16Cpu, NumbersAndTensorsComeBack) {
  for (const Wna16Model& m : some_of(all_models(), 2)) {
    SCOPED_TRACE(m.config_text());
    const Wna16Layer layer(m);
    ASSERT_TRUE(layer.packed);
    for (const bool up : {true, false}) {
      const Matrix13or2& w = up ? m.w13[1] : m.w2[1];
      std::vector<float> dense(static_cast<std::size_t>(w.n * w.k));
      moe_tensor t = tensor(MOE_DTYPE_F32, {w.n, w.k}, dense.data());
      ASSERT_EQ(moe_packed_dequantize(layer.packed.get(), up ? "w13_weight" : "w2_weight", 1, &t, nullptr), MOE_OK);
      for (std::int64_t n = 0; n < w.n; ++n)
        for (std::int64_t k = 0; k < w.k; ++k)
          ASSERT_EQ(dense[static_cast<std::size_t>(n * w.k + k)], static_cast<float>(m.weight(w, n, k)));
    }
  }
}

// A checkpoint's files and a packed file give the layer of the stacks.
TEST(Wna16Cpu, Files) {
  for (const Wna16Model& m : some_of(all_models(), 3)) {
    SCOPED_TRACE(m.config_text());
    Wna16Layer layer(m);
    ASSERT_TRUE(layer.layer);
    expect_same_from_files(layer, m);
  }
}

// Two tensor-parallel ranks: their sum is the whole layer's. With activation order: wna16_groups_test.cpp.
TEST(Wna16Cpu, TensorParallelRanks) {
  for (const char* format : {"gptq", "awq", "pack-quantized"})
    for (const bool zeros : {false, true}) {
      Wna16Model m;
      m.format = format;
      m.zeros = zeros;
      m = random_wna16(m, 21);
      SCOPED_TRACE(m.config_text());
      const TempDir dir;
      dir.write("model.safetensors", checkpoint_file(m));
      std::vector<float> sum(static_cast<std::size_t>(m.T * m.H), 0.0f);
      for (int rank = 0; rank < 2; ++rank) {
        m.extra["parallel"] = {{"tp_size", 2}, {"tp_rank", rank}};
        Wna16Layer layer;
        layer.config = make_config(m.config_text());
        layer.selection = make_selection(layer.config.get());
        layer.load(dir.path());
        const std::vector<float> part = floats_of(layer.run(m, 0, m.T), m.dtype);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      EXPECT_LE(relative_rms(sum, plain_layer(m)), 1e-5);
    }
}

}  // namespace
}  // namespace moe::test::wna16_cpu_test
