// Files of compressed-tensors whose codes have 2, 3, 5, 6 or 7 bits, and MXFP6: the numbers of the file in every rank's
// layer, cuts, shapes of other packings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "config/config.h"
#include "convert/convert.h"
#include "layouts/dequantize.h"
#include "layouts/p16/p16_layout.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "weights/weight_fixture.h"

namespace moe::test::narrow_codes_test {
namespace {

using ::testing::HasSubstr;

struct Spec {
  int bits;
  bool zeros = false;
  std::int64_t group = 32;  // -1: channel-wise
  std::int64_t hidden = 96, inter = 64, experts = 3;

  bool is_float() const { return bits == 0; }  // MXFP6
  std::string hf() const {
    const std::string weights =
        is_float() ? R"("num_bits":6,"type":"float","strategy":"group","group_size":32,"scale_dtype":"torch.uint8")"
                   : R"("num_bits":)" + std::to_string(bits) + R"(,"type":"int","symmetric":)" +
                         (zeros ? "false" : "true") + R"(,"group_size":)" + std::to_string(group);
    return R"({"quant_method":"compressed-tensors","format":")" +
           std::string(is_float() ? "mxfp6-pack-quantized" : "pack-quantized") +
           R"(","config_groups":{"group_0":{"targets":["Linear"],"weights":{)" + weights + "}}}}";
  }
  Result<Config> parse(const std::string& more = "") const {
    return parse_config(R"({"name":"experts","num_experts":)" + std::to_string(experts) +
                        R"(,"top_k":1,"hidden_dim":)" + std::to_string(hidden) + R"(,"intermediate_size":)" +
                        std::to_string(inter) + R"(,"hf_quantization_config":)" + hf() + more + "}");
  }
  std::shared_ptr<const Config> config(const std::string& more = "") const {
    auto c = parse(more);
    EXPECT_TRUE(c) << (c ? "" : c.error().message);
    return c ? std::make_shared<const Config>(*std::move(c)) : nullptr;
  }
};

// One projection: its codes, the numbers that they mean, and its tensors.
struct Projection {
  std::int64_t n = 0, k = 0;
  std::vector<float> numbers;
  std::vector<std::uint32_t> packed, zeros;
  std::vector<float> scales;
  std::vector<std::uint8_t> powers;
  std::vector<std::int64_t> packed_shape, scale_shape, zero_shape, shape;
};

// Codes one after the other, the first in the lowest bits; places of words by `at`.
void put(std::vector<std::uint32_t>& words, std::int64_t code_number, int bits, unsigned code,
         const std::function<std::int64_t(std::int64_t)>& at) {
  for (std::int64_t b = 0; b < bits; ++b) {
    const std::int64_t bit = code_number * bits + b;
    words[static_cast<std::size_t>(at(bit / 32))] |= (code >> b & 1u) << bit % 32;
  }
}

Projection random_projection(const Spec& s, std::int64_t n, std::int64_t k, std::mt19937& rng) {
  const int bits = s.is_float() ? 6 : s.bits;
  const std::int64_t groups = s.group == -1 ? 1 : k / s.group, words = k * bits / 32, zero_words = n * bits / 32;
  Projection p;
  p.n = n;
  p.k = k;
  p.numbers.resize(static_cast<std::size_t>(n * k));
  p.packed.resize(static_cast<std::size_t>(n * words));
  p.zeros.resize(static_cast<std::size_t>(zero_words * groups));
  const int middle = 1 << (bits - 1);
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto zero = s.zeros ? static_cast<unsigned>(rng() % (2u << (bits - 1))) : static_cast<unsigned>(middle);
      put(p.zeros, r, bits, zero, [&](std::int64_t w) { return w * groups + g; });
      p.scales.push_back(static_cast<float>(1 + rng() % 128) / 1024.0f);
      p.powers.push_back(static_cast<std::uint8_t>(120 + rng() % 8));
      const float scale = s.is_float() ? std::ldexp(1.0f, p.powers.back() - 127) : p.scales.back();
      for (std::int64_t c = g * (k / groups); c < (g + 1) * (k / groups); ++c) {
        const auto code = static_cast<unsigned>(rng() % (2u << (bits - 1)));
        put(p.packed, c, bits, code, [&](std::int64_t w) { return r * words + w; });
        p.numbers[static_cast<std::size_t>(r * k + c)] =
            scale * (s.is_float() ? small_to_f32(kE2m3, code)
                                  : static_cast<float>(static_cast<int>(code) - static_cast<int>(zero)));
      }
    }
  p.packed_shape = s.is_float() ? std::vector{n, k * 3 / 4} : std::vector{n, words};
  p.scale_shape = {n, groups};
  p.zero_shape = {zero_words, groups};
  p.shape = {n, k};
  return p;
}

// `change` may give an expert's projection other tensors.
struct File {
  TempDir dir;
  std::vector<Projection> all;  // gate, up and down of each expert

  explicit File(const Spec& s, const std::function<void(std::size_t, Projection&)>& change = nullptr) {
    std::mt19937 rng(static_cast<unsigned>(s.bits) + 40);
    SafetensorsWriter writer;
    for (std::int64_t e = 0; e < s.experts; ++e)
      for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
        const bool down = name == "down_proj";
        Projection p = random_projection(s, down ? s.hidden : s.inter, down ? s.inter : s.hidden, rng);
        if (change) change(all.size(), p);
        const std::string prefix = "experts." + std::to_string(e) + "." + name + ".";
        writer.add(prefix + "weight_packed", s.is_float() ? "U8" : "I32", p.packed_shape, p.packed.data(),
                   p.packed.size() * 4);
        if (s.is_float())
          writer.add(prefix + "weight_scale", "U8", p.scale_shape, p.powers.data(), p.powers.size());
        else
          writer.add(prefix + "weight_scale", "F32", p.scale_shape, p.scales.data(), p.scales.size() * 4);
        if (!s.is_float()) writer.add(prefix + "weight_shape", "I64", {2}, p.shape.data(), 16);
        if (s.zeros) writer.add(prefix + "weight_zero_point", "I32", p.zero_shape, p.zeros.data(), p.zeros.size() * 4);
        all.push_back(std::move(p));
      }
    dir.write("model.safetensors", writer.bytes());
  }
};

Layout layout_for(const Config& c) {
  const bool floats = c.quantization.weights->type == NumType::floating;
  const LayoutKind kind = floats                                  ? LayoutKind::p16_mxfp8
                          : c.quantization.weights->num_bits == 4 ? LayoutKind::p16_w4
                                                                  : LayoutKind::p16_w8;
  LayoutShape shape{.experts = static_cast<std::int64_t>(local_experts(c).size()),
                    .hidden = c.hidden_dim,
                    .intermediate = c.intermediate_size_per_partition,
                    .groups = c.weight_groups(),
                    .gated = true,
                    .has_bias = false,
                    .has_zeros = !c.quantization.weights->symmetric};
  return p16_layout(kind, shape);
}

// The rank's layer against the numbers of the file.
void expect_numbers(const Spec& s, const File& file, const std::string& more = "") {
  const auto config = s.config(more);
  ASSERT_NE(config, nullptr);
  WeightSet set(config);
  const auto loaded = set.load_safetensors(file.dir.path().c_str(), nullptr);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Config& c = *config;
  ConvertJob job;
  job.layout = layout_for(c);
  job.set = tensor_set(c.quantization);
  job.groups = c.weight_groups();
  job.symmetric = c.quantization.weights->symmetric;
  job.experts = local_experts(c);
  Bytes payload(job.layout.payload_bytes(), std::byte{0xA5});
  const auto done = convert_experts(job, set, payload, {}, nullptr);
  ASSERT_TRUE(done) << done.error().message;
  const std::int64_t part = c.intermediate_size_per_partition, first = c.parallel.tp_rank * part;
  for (std::size_t local = 0; local < job.experts.size(); ++local) {
    const std::size_t e = static_cast<std::size_t>(job.experts[local]) * 3;
    std::vector<float> w13(static_cast<std::size_t>(2 * part * s.hidden)), w2(w13.size() / 2);
    const auto expert = static_cast<std::int64_t>(local);
    ASSERT_TRUE(dequantize(job.layout, payload.data(), expert, Which::w13,
                           row_major(DType::f32, {2 * part, s.hidden}, w13.data())));
    ASSERT_TRUE(
        dequantize(job.layout, payload.data(), expert, Which::w2, row_major(DType::f32, {s.hidden, part}, w2.data())));
    for (std::int64_t r = 0; r < 2 * part; ++r)
      for (std::int64_t k = 0; k < s.hidden; ++k)
        ASSERT_EQ(w13[static_cast<std::size_t>(r * s.hidden + k)],
                  file.all[e + (r < part ? 0 : 1)].numbers[static_cast<std::size_t>((first + r % part) * s.hidden + k)])
            << s.bits << " w13 " << r << " " << k;
    for (std::int64_t r = 0; r < s.hidden; ++r)
      for (std::int64_t k = 0; k < part; ++k)
        ASSERT_EQ(w2[static_cast<std::size_t>(r * part + k)],
                  file.all[e + 2].numbers[static_cast<std::size_t>(r * s.inter + first + k)])
            << s.bits << " w2 " << r << " " << k;
  }
}

std::vector<Spec> all_specs() {
  std::vector<Spec> specs = {{.bits = 0}};
  for (const int bits : {2, 3, 5, 6, 7})
    for (const bool zeros : {false, true})
      for (const std::int64_t group : {32, -1}) specs.push_back({.bits = bits, .zeros = zeros, .group = group});
  return specs;
}

TEST(NarrowCodes, AreTheNumbersOfTheFile) {
  for (const Spec& s : all_specs()) expect_numbers(s, File(s));
}

TEST(NarrowCodes, OfEveryRank) {
  for (const Spec& s : all_specs()) {
    const File file(s);
    for (const char* rank : {"0", "1"}) {
      expect_numbers(s, file, std::string(R"(,"parallel":{"tp_size":2,"tp_rank":)") + rank + "}");
      expect_numbers(s, file,
                     std::string(R"(,"parallel":{"tp_size":3,"enable_expert_parallel":true,"tp_rank":)") + rank + "}");
    }
  }
}

// A rank's columns begin at a word, or the config is refused: never inside of a code.
TEST(NarrowCodes, WordsAreNotCut) {
  struct Case {
    int bits;
    std::int64_t inter;
    const char* tp;
    std::int64_t multiple;  // 0: it is whole
  };
  for (const Case& c :
       {Case{2, 64, "4", 0}, Case{2, 48, "2", 16}, Case{3, 64, "2", 0}, Case{3, 64, "4", 32}, Case{5, 64, "4", 32},
        Case{6, 64, "4", 0}, Case{6, 48, "2", 16}, Case{7, 96, "2", 32}, Case{7, 48, "1", 32}}) {
    const Spec s{.bits = c.bits, .group = -1, .inter = c.inter};
    const auto got = s.parse(std::string(R"(,"parallel":{"tp_size":)") + c.tp + "}");
    EXPECT_EQ(static_cast<bool>(got), c.multiple == 0) << c.bits << " " << c.inter << " " << c.tp;
    if (got) continue;
    EXPECT_EQ(got.error().code, Code::invalid_config);
    EXPECT_EQ(got.error().subject, "/hf_quantization_config");
    EXPECT_THAT(got.error().message, HasSubstr("of whole words, " + std::to_string(c.multiple)));
  }
  const Spec odd{.bits = 3, .group = -1, .hidden = 80};
  ASSERT_FALSE(odd.parse());
  EXPECT_THAT(odd.parse().error().message, HasSubstr("hidden_dim is 80"));
}

// compressed-tensors 0.17 had ten 3-bit codes in a word; other sizes and types.
TEST(NarrowCodes, OtherShapesAreRefused) {
  const auto fault = [](const Spec& s, const std::function<void(std::size_t, Projection&)>& change) {
    const File file(s, change);
    WeightSet set(s.config());
    const Check loaded = set.load_safetensors(file.dir.path().c_str(), nullptr);
    EXPECT_FALSE(loaded) << s.bits;
    return loaded ? Error() : loaded.error();
  };
  for (const int bits : {3, 5, 6, 7}) {
    const Error e = fault({.bits = bits}, [&](std::size_t i, Projection& p) {
      if (i != 4) return;
      p.packed_shape[1] = (p.k + 32 / bits - 1) / (32 / bits);
      p.packed.resize(static_cast<std::size_t>(p.n * p.packed_shape[1]));
    });
    EXPECT_EQ(e.code, Code::shape);
    EXPECT_EQ(e.subject, "experts.1.up_proj.weight_packed");
    EXPECT_THAT(e.message, HasSubstr("before 0.18"));
  }
  const Error zeros = fault({.bits = 3, .zeros = true}, [](std::size_t i, Projection& p) {
    if (i != 2) return;
    p.zero_shape[0] += 1;
    p.zeros.resize(static_cast<std::size_t>(p.zero_shape[0] * p.zero_shape[1]));
  });
  EXPECT_EQ(zeros.code, Code::shape);
  EXPECT_EQ(zeros.subject, "experts.0.down_proj.weight_zero_point");
  const Error shape = fault({.bits = 5}, [](std::size_t i, Projection& p) {
    if (i == 3) p.shape = {p.k, p.n};
  });
  EXPECT_EQ(shape.code, Code::shape);
  EXPECT_EQ(shape.subject, "experts.1.gate_proj.weight_shape");
  const Error floats = fault({.bits = 0}, [](std::size_t, Projection& p) {
    p.packed_shape[1] = p.k;  // a byte each
    p.packed.resize(static_cast<std::size_t>(p.n * p.k / 4));
  });
  EXPECT_EQ(floats.code, Code::shape);
  const Error none = fault({.bits = 2}, [](std::size_t, Projection& p) {
    p.packed_shape[1] = 0;
    p.packed.clear();
  });
  EXPECT_EQ(none.code, Code::shape);
}

// 255 is no power of two.
TEST(NarrowCodes, AScaleThatIsNoNumber) {
  const Spec s{.bits = 0};
  const File file(s, [](std::size_t i, Projection& p) {
    if (i == 3) p.powers[7] = 255;
  });
  WeightSet set(s.config());
  ASSERT_TRUE(set.load_safetensors(file.dir.path().c_str(), nullptr));
  ConvertJob job;
  job.layout = layout_for(*s.config());
  job.set = tensor_set(s.config()->quantization);
  job.groups = s.config()->weight_groups();
  job.experts = {0, 1, 2};
  Bytes payload(job.layout.payload_bytes());
  const auto done = convert_experts(job, set, payload, {}, nullptr);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::invalid_argument);
  EXPECT_EQ(done.error().subject, "w13_scale[1,2,1]");
}

// A symmetric file has no place for zero points.
TEST(NarrowCodes, ZeroPointsOfSymmetricWeights) {
  const Spec asymmetric{.bits = 3, .zeros = true}, symmetric{.bits = 3};
  const File file(asymmetric);
  WeightSet set(symmetric.config());
  const Check loaded = set.load_safetensors(file.dir.path().c_str(), nullptr);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::unexpected_weight);
  EXPECT_THAT(loaded.error().message, HasSubstr("no zero points"));
}

}  // namespace
}  // namespace moe::test::narrow_codes_test
