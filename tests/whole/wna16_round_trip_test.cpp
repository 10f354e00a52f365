// Random int4 and int8 layers into every layout through the ABI and back to numbers: all checkpoint formats, group
// sizes and options, sizes that are no multiples of words, tiles or 16 rows; what a CPU makes of the bytes; tensors
// at guard pages, which stay as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "support/guard_pages.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/wna16_targets.h"

namespace moe::test::wna16_round_trip_test {
namespace {

struct Size {
  std::int64_t h, i, g;
};

// Scales of few bits and of either sign, so that every layout keeps them; zero points that packed nibbles hold.
Wna16Model plain_numbers(Wna16Model m, std::uint32_t seed) {
  m = random_wna16(m, seed);
  std::mt19937 rng(seed);
  for (auto* matrices : {&m.w13, &m.w2})
    for (Matrix13or2& w : *matrices) {
      for (float& s : w.scales)
        s = std::copysign(static_cast<float>(1 + rng() % 64) / (m.bits == 4 ? 256.0f : 4096.0f), s);
      for (std::uint8_t& z : w.zeros) z = static_cast<std::uint8_t>(std::min<int>(z, (1 << m.bits) - 2));
    }
  return m;
}

bool is(const Wna16Target& t, std::string_view name) { return t.name == name; }
bool starts(const Wna16Target& t, std::string_view name) { return std::string_view(t.name).starts_with(name); }

std::vector<Size> sizes_of(const Wna16Target& t) {
  if (is(t, "trtllm")) return {{256, 256, 32}, {512, 256, 32}};
  // I == g, I that is no whole tile or group of tiles, a tiny I, one group in w2 and several in w13.
  if (starts(t, "marlin")) return {{128, 64, 64}, {128, 96, 32}, {256, 8, -1}, {128, 128, 128}, {256, 32, 32}};
  if (is(t, "xpu")) return {{128, 64, 32}, {64, 64, 64}, {72, 8, -1}, {40, 24, 8}};
  if (is(t, "vnni")) return {{128, 64, 32}, {64, 64, 64}, {96, 16, 16}, {256, 256, 128}};
  return {{128, 64, 32}, {64, 64, 64}, {96, 96, 96}, {72, 24, -1}, {40, 8, -1}, {256, 32, 32}};
}

// What a target takes (wna16.md 1.5a).
bool takes(const Wna16Target& t, const Wna16Model& m) {
  if (m.awq() && (m.bits == 8 || m.order)) return false;
  if (m.order && m.group < 0) return false;
  if (m.plus_one && (m.format != "gptq" || !m.zeros)) return false;
  if (starts(t, "marlin")) {
    if (m.format == "gptq" && m.zeros) return false;
    if (is(t, "marlin fp8") && m.bits == 8) return false;
    return !m.order || (is(t, "marlin") && m.I % 64 == 0 && m.I != m.group && m.H != m.group);
  }
  if (is(t, "trtllm")) return m.packed() && m.bits == 4 && !m.zeros && !m.order && !m.bias;
  if (is(t, "xpu")) return m.bits == 4 && !m.awq() && !m.zeros && !m.order;
  if (is(t, "vnni")) return m.bits == 4 && !m.order && !m.bias;
  if (is(t, "on_the_fly")) return !m.order && !(m.zeros && m.bits == 8);
  return true;
}

std::vector<Wna16Model> models_of(const Wna16Target& t) {
  std::vector<Wna16Model> models;
  std::uint32_t seed = 1;
  for (const Size& s : sizes_of(t))
    for (const char* format : {"gptq", "awq", "pack-quantized"})
      for (const int bits : {4, 8})
        for (const bool zeros : {false, true})
          for (const bool order : {false, true}) {
            Wna16Model m;
            m.E = 2, m.T = 3, m.H = s.h, m.I = s.i, m.group = s.g;
            m.format = format, m.bits = bits, m.zeros = zeros, m.order = order;
            m.bias = seed / 2 % 2 == 0 && !is(t, "trtllm") && !is(t, "vnni");
            m.plus_one = zeros && m.format == "gptq" && seed % 2 == 0;
            m.transposed = !is(t, "trtllm");
            m.dtype = is(t, "ours") || is(t, "dense") ? MOE_DTYPE_F32 : seed % 3 == 0 ? MOE_DTYPE_BF16 : MOE_DTYPE_F16;
            m.extra = t.members;
            if (takes(t, m)) models.push_back(plain_numbers(m, seed));
            ++seed;
          }
  return models;
}

std::vector<float> numbers_of(const moe_packed* packed, const char* role, std::int64_t e, std::int64_t n,
                              std::int64_t k) {
  std::vector<float> dense(static_cast<std::size_t>(n * k));
  const moe_tensor out = tensor(MOE_DTYPE_F32, {n, k}, dense.data());
  const Failure f = failure([&](moe_error** err) { return moe_packed_dequantize(packed, role, e, &out, err); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return dense;
}

// int8 activations: scales are whole multiples of the largest one of all experts / 4096.
void expect_numbers(const Wna16Model& m, const moe_packed* packed, bool folded) {
  for (std::int64_t e = 0; e < m.E; ++e)
    for (const bool up : {true, false}) {
      const Matrix13or2& w = (up ? m.w13 : m.w2)[static_cast<std::size_t>(e)];
      const std::vector<float> got = numbers_of(packed, up ? "w13_weight" : "w2_weight", e, w.n, w.k);
      const float step = (m.bits == 4 ? 64.0f / 256 : 64.0f / 4096) / 256;  // bf16 has 8 bits of them
      for (std::int64_t n = 0; n < w.n; ++n)
        for (std::int64_t k = 0; k < w.k; ++k) {
          const float want = static_cast<float>(m.weight(w, n, k)), is = got[static_cast<std::size_t>(n * w.k + k)];
          if (folded && w.groups > 1)
            ASSERT_NEAR(is, want, step * static_cast<float>(1 << m.bits)) << n << " " << k;
          else
            ASSERT_EQ(is, want) << (up ? "w13 " : "w2 ") << n << " " << k;
        }
    }
}

// A layer of backend EMULATION on this CPU over packed weights, whatever they were made for.
std::vector<std::byte> emulated(Wna16Model m, const moe_packed* packed, const char* layout, int threads,
                                std::int64_t tokens) {
  m.extra = {{"moe_backend", "emulation"}, {"emulation_layout", layout}};
  m.dtype = MOE_DTYPE_F32;
  Wna16Layer run;
  run.context = make_context("{\"threads\":" + std::to_string(threads) + "}");
  run.config = make_config(m.config_text());
  run.selection = make_selection(run.config.get());
  if (!run.selection) return {};
  run.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(run.context.get(), run.selection.get(), packed, nullptr, o, e);
  });
  return run.layer ? run.run(m, 0, tokens) : std::vector<std::byte>();
}

// Repacked and panel by panel: the same bits, for any number of threads and tokens.
void expect_output(const Wna16Model& m, const moe_packed* packed, double bound) {
  const std::vector<std::byte> repacked = emulated(m, packed, "dense", 1, m.T);
  Wna16Model in_floats = m;  // as it runs
  in_floats.dtype = MOE_DTYPE_F32;
  EXPECT_LE(relative_rms(floats_of(repacked, MOE_DTYPE_F32), plain_layer(in_floats)), bound);
  if (m.order || (m.zeros && m.bits == 8)) return;  // not on the fly
  const std::vector<std::byte> one = emulated(m, packed, "on_the_fly", 1, 1);
  EXPECT_EQ(emulated(m, packed, "on_the_fly", 1, m.T), repacked);
  EXPECT_EQ(emulated(m, packed, "on_the_fly", 3, m.T), repacked);
  EXPECT_EQ(one, std::vector<std::byte>(repacked.begin(), repacked.begin() + m.H * 4));
}

// All named outputs behind each other.
std::vector<std::byte> outputs_of(const moe_packed* packed) {
  std::vector<std::byte> all;
  const nlohmann::json about = json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(packed, o, e); });
  for (const auto& output : about["outputs"]) {
    moe_tensor t{};
    t.struct_size = sizeof t;
    const std::string name = output["name"];
    EXPECT_EQ(moe_packed_get(packed, name.c_str(), -1, &t, nullptr), MOE_OK) << name;
    const auto* bytes = static_cast<const std::byte*>(t.data);
    all.insert(all.end(), bytes, bytes + t.nbytes);
  }
  EXPECT_FALSE(all.empty());
  return all;
}

TEST(Wna16RoundTrips, EveryLayoutSaysTheNumbersOfTheCheckpoint) {
  int converted = 0, executed = 0;
  for (const Wna16Target& t : wna16_targets())
    for (const Wna16Model& m : some_of(models_of(t), 1)) {
      SCOPED_TRACE(std::string(t.name) + " " + m.config_text());
      Wna16Conversion c(m);
      ASSERT_TRUE(c.selection);
      const Failure f = c.convert();
      ASSERT_EQ(f.status, MOE_OK) << f.message;
      ++converted;
      const bool folded = is(t, "marlin int8");
      expect_numbers(m, c.packed.get(), folded);
      ASSERT_FALSE(HasFailure());
      if (is(t, "ours") || (m.group != -1 && m.group < 16)) continue;
      ++executed;
      // Biases are numbers of 16 bits in the layouts.
      expect_output(m, c.packed.get(), folded ? 2e-2 : m.bias ? 6e-3 : 1e-5);
      ASSERT_FALSE(HasFailure());
    }
  EXPECT_GT(converted, 100 / share());
  EXPECT_GT(executed, 60 / share() / 2);
}

// Panels are made in the rooms of a layer, which calls share.
TEST(Wna16RoundTrips, CallsAtTheSameTime) {
  Wna16Model m = models_of(wna16_targets()[1])[0];
  Wna16Conversion c(m);
  ASSERT_EQ(c.convert().status, MOE_OK);
  m.extra = {{"moe_backend", "emulation"}};
  m.dtype = MOE_DTYPE_F32;
  for (const char* threads : {"{\"threads\":1}", "{\"threads\":2}"}) {
    Wna16Layer run;
    run.context = make_context(threads);
    run.config = make_config(m.config_text());
    run.selection = make_selection(run.config.get());
    run.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(run.context.get(), run.selection.get(), c.packed.get(), nullptr, o, e);
    });
    ASSERT_TRUE(run.layer);
    const std::vector<std::byte> want = run.run(m, 0, m.T);
    std::vector<std::thread> callers;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 4; ++i)
      callers.emplace_back([&] {
        for (int call = 0; call < 20; ++call) wrong += run.run(m, 0, m.T) != want;
      });
    for (std::thread& t : callers) t.join();
    EXPECT_EQ(wrong, 0);
  }
}

// vLLM's bytes are read by vLLM's rules: they, too, say the checkpoint's numbers, but where its zero points are wrong
// (stored ones with one added, and no zero points in its CPU layout).
TEST(Wna16RoundTrips, VllmsBytesSayTheSame) {
  int converted = 0;
  for (const Wna16Target& t : wna16_targets())
    for (Wna16Model m : some_of(models_of(t), 2)) {
      const bool shifted = is(t, "vnni") ? (m.awq() ? !m.zeros : m.zeros && !m.plus_one) : m.plus_one;
      if (is(t, "ours") || shifted || (is(t, "dense") && m.bits == 8 && m.zeros)) continue;
      m.extra["bit_compat"] = "vllm";
      SCOPED_TRACE(std::string(t.name) + " " + m.config_text());
      Wna16Conversion c(m);
      ASSERT_TRUE(c.selection);
      const Failure f = c.convert();
      ASSERT_EQ(f.status, MOE_OK) << f.message;
      ++converted;
      expect_numbers(m, c.packed.get(), is(t, "marlin int8"));
      ASSERT_FALSE(HasFailure());
    }
  EXPECT_GT(converted, 80 / share());
}

// Each tensor of each expert between pages that nobody may touch, at addresses that are multiples of its elements
// alone, and not to be written to: the bytes are those of stacks.
TEST(Wna16RoundTrips, GuardedTensors) {
  for (const Wna16Target& t : wna16_targets()) {
    const std::vector<Wna16Model> models = some_of(models_of(t), 3);
    for (std::size_t i = 0; i < models.size(); i += 3)
      for (const Flush flush : kFlushes) {
        const Wna16Model& m = models[i];
        SCOPED_TRACE(std::string(t.name) + " " + m.config_text());
        Wna16Conversion c(m);
        ASSERT_TRUE(c.selection);
        ASSERT_EQ(c.convert().status, MOE_OK);
        const std::vector<std::byte> want = outputs_of(c.packed.get());
        std::vector<Guarded> memory;
        c.weights =
            make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(c.config.get(), o, e); });
        for (std::int64_t e = 0; e < m.E; ++e)
          for (const bool up : {true, false}) {
            const Matrix13or2& w = (up ? m.w13 : m.w2)[static_cast<std::size_t>(e)];
            for (const Wna16Part& p : parts_of(m, w, 0, w.n)) {
              memory.emplace_back(p.bytes.data(), p.bytes.size(), flush, 4);
              const moe_tensor guarded =
                  tensor(p.dtype == "I32" ? MOE_DTYPE_I32 : MOE_DTYPE_F32, p.shape, memory.back().data());
              const std::string role = std::string(up ? "w13_" : "w2_") + p.role;
              const Failure set = failure([&](moe_error** err) {
                return moe_weights_set_expert(c.weights.get(), role.c_str(), e, nullptr, &guarded, nullptr, nullptr,
                                              err);
              });
              ASSERT_EQ(set.status, MOE_OK) << set.message;
            }
          }
        const Failure f = c.convert();
        ASSERT_EQ(f.status, MOE_OK) << f.message;
        EXPECT_EQ(outputs_of(c.packed.get()), want);
      }
  }
}

}  // namespace
}  // namespace moe::test::wna16_round_trip_test
