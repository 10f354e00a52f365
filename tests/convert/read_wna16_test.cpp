// Every WNA16 vector to the plain form: codes, scales, zero points and groups exactly; stacks and per-expert tensors
// alike; layouts and hostile tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "convert/random_layer.h"
#include "convert/random_wna16.h"
#include "convert/source_matrix.h"
#include "layouts/dequantize.h"
#include "support/rooms.h"
#include "support/wna16_stack.h"

namespace moe::test::read_wna16_test {
namespace {

// The layout says only what the matrices hold.
Layout geometry(std::int64_t e, std::int64_t h, std::int64_t i, int bits, bool zeros, bool order, bool bias) {
  return p16_layout(bits == 4 ? LayoutKind::p16_w4 : LayoutKind::p16_w8, {.experts = e,
                                                                          .hidden = h,
                                                                          .intermediate = i,
                                                                          .groups = {},
                                                                          .gated = true,
                                                                          .has_bias = bias,
                                                                          .has_zeros = zeros,
                                                                          .has_order = order});
}

Format format_of(const VecFile& f) {
  const std::string& name = f.meta.at("format");
  return name == "gptq" ? Format::gptq : name == "awq" ? Format::awq : Format::pack_quantized;
}

TensorView swapped(TensorView v) {
  std::swap(v.shape[1], v.shape[2]);
  std::swap(v.strides[1], v.strides[2]);
  return v;
}

// The stacked tensors `prefix` + w13, w13_scale, ... of a file. Stacks of compressed-tensors are K-first where
// `k_first`.
World world_of(const VecFile& f, const std::string& prefix, bool k_first) {
  World w;
  const std::int64_t e = std::stoll(f.meta.at("E")), h = std::stoll(f.meta.at("H")), i = std::stoll(f.meta.at("I"));
  const int bits = std::stoi(f.meta.at("bits"));
  const bool zeros = f.has(prefix + "w13_qzeros");
  bool order = false;
  if (f.has(prefix + "w13_g_idx")) {
    const auto g = f.at(prefix + "w13_g_idx").as<std::int32_t>();
    order = !std::is_sorted(g.begin(), g.begin() + h);
  }
  w.job.set = set_of(format_of(f));
  w.job.layout = geometry(e, h, i, bits, zeros, order, f.has(prefix + "w13_bias"));
  w.job.symmetric = !zeros;
  w.job.act_order = order;
  w.job.zero_points = f.meta.count("backend") && f.meta.at("backend") == "CPU" && w.job.set->format == Format::gptq
                          ? ZeroPoints::plus_one
                          : ZeroPoints::as_stored;
  const bool swap = w.job.set->format == Format::pack_quantized && k_first;
  for (const char* matrix : {"w13", "w2"})
    for (const char* suffix : {"", "_scale", "_qzeros", "_g_idx", "_bias"}) {
      const std::string name = std::string(matrix) + suffix;
      if (!f.has(prefix + name)) continue;
      const TensorView v = view_of(f.at(prefix + name));
      w.source.set_stacked(*role_from_name(name), swap && v.ndim == 3 ? swapped(v) : v);
    }
  const auto groups = [&](const char* name) {
    return f.at(prefix + name).shape[w.job.set->format != Format::pack_quantized || k_first ? 1 : 2];
  };
  w.job.layout.w13.groups = Groups::of_size(h / groups("w13_scale"), h);
  w.job.layout.w2.groups = Groups::of_size(i / groups("w2_scale"), i);
  w.job.experts.resize(static_cast<std::size_t>(e));
  std::iota(w.job.experts.begin(), w.job.experts.end(), 0);
  return w;
}

CanonicalRows whole_matrix(const World& w, std::int64_t e, bool w13) {
  const auto leased = lease_matrix(w.job, w.source, e, w13);
  EXPECT_TRUE(leased) << (leased ? "" : leased.error().message);
  CanonicalRows rows;
  const Matrix& m = w13 ? w.job.layout.w13 : w.job.layout.w2;
  rows.shape(m.rows(), m);
  if (!leased) return rows;
  const Check read = read_matrix(leased->source, rows);
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  return rows;
}

// The stored codes of a stack, by wna16.md 2.1. What does not depend on the place is looked up once: this also runs
// under an emulator.
class StoredCodes {
 public:
  StoredCodes(const VecFile& f, const std::string& name, const Matrix& m)
      : t_(f.at(name)),
        bits_(m.element == Element::int4 ? 4 : 8),
        awq_(format_of(f) == Format::awq),
        rows_first_(f.meta.at("backend") == "FLASHINFER_TRTLLM") {}

  int at(std::int64_t e, std::int64_t n, std::int64_t k) const {
    constexpr int kInv4[] = {0, 4, 1, 5, 2, 6, 3, 7}, kInv8[] = {0, 2, 1, 3};
    const int per_word = 32 / bits_;
    if (awq_) return field(word(e, k, n / per_word), bits_ == 4 ? kInv4[n % 8] : kInv8[n % 4]);
    const std::size_t w = rows_first_ ? word(e, n, k / per_word) : word(e, k / per_word, n);
    return field(w, static_cast<int>(k % per_word));
  }

 private:
  std::size_t word(std::int64_t e, std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>((e * t_.shape[1] + i) * t_.shape[2] + j);
  }
  int field(std::size_t word, int j) const {
    std::uint32_t v;
    std::memcpy(&v, t_.data.data() + word * 4, 4);
    return static_cast<int>(v >> (bits_ * j) & ((1u << bits_) - 1));
  }

  const VecTensor& t_;
  int bits_;
  bool awq_, rows_first_;
};

std::vector<std::int16_t> integers(const VecTensor& t) {
  if (t.dtype != DType::i8) return t.as<std::int16_t>();
  const auto bytes = t.as<std::int8_t>();
  return {bytes.begin(), bytes.end()};
}

void compare(const VecFile& f, const World& w, std::int64_t e, const std::string& name) {
  const Matrix& m = name == "w13" ? w.job.layout.w13 : w.job.layout.w2;
  const CanonicalRows rows = whole_matrix(w, e, name == "w13");
  if (::testing::Test::HasFailure()) return;
  const int bias = code_bias(m.element);
  const auto scales = f.at("in." + name + "_scale").floats();
  const bool dense = f.has("dense." + name + "_int");
  const auto ints = dense ? integers(dense_integers(f, name)) : std::vector<std::int16_t>();
  const auto groups = dense ? f.at("dense." + name + "_group").as<std::int32_t>() : std::vector<std::int32_t>();
  const StoredCodes stored(f, "in." + name, m);
  const auto dense_scales = dense ? f.at("dense." + name + "_scale").floats() : std::vector<float>();
  for (std::int64_t n = 0; n < m.rows(); ++n)
    for (std::int64_t k = 0; k < m.k; ++k) {
      const int code = rows.row(n)[k];
      ASSERT_EQ(code + bias, stored.at(e, n, k)) << name << " " << n << " " << k;
      const std::int64_t g = rows.g_idx.empty() ? k / m.group() : rows.g_idx[static_cast<std::size_t>(k)];
      const int zero = rows.zeros.empty() ? bias : rows.zeros[static_cast<std::size_t>(n * rows.groups + g)];
      if (!dense) continue;
      const auto at = static_cast<std::size_t>((e * m.rows() + n) * m.k + k);
      ASSERT_EQ(code + bias - zero, ints[at]) << name << " " << n << " " << k;
      ASSERT_EQ(g, groups[static_cast<std::size_t>(e * m.k + k)]);
      ASSERT_EQ(rows.row_scales(n)[g],
                dense_scales[static_cast<std::size_t>((e * m.rows() + n) * m.group_count() + g)]);
    }
  if (m.has_bias) {
    const auto want = f.at("in." + name + "_bias").floats();
    for (std::int64_t n = 0; n < m.rows(); ++n)
      ASSERT_EQ(rows.bias[static_cast<std::size_t>(n)], want[static_cast<std::size_t>(e * m.rows() + n)]);
  }
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(vector_path("wna16")))
    if (entry.path().extension() == ".safetensors") names.push_back("wna16/" + entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ReadWna16, VectorsGiveTheirNumbers) {
  int conversions = 0, with_dense = 0;
  for (const std::string& name : files()) {
    SCOPED_TRACE(name);
    const VecFile f = load_vectors(name);
    if (!f.has("in.w13")) continue;
    ++conversions;
    with_dense += f.has("dense.w13_int") ? 1 : 0;
    const World w = world_of(f, "in.", f.meta.at("backend") != "FLASHINFER_TRTLLM");
    for (const std::int64_t e : w.job.experts) {
      compare(f, w, e, "w13");
      compare(f, w, e, "w2");
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(conversions, 53);
  EXPECT_EQ(with_dense, 48);
}

void expect_equal(const CanonicalRows& a, const CanonicalRows& b) {
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.scales, b.scales);
  EXPECT_EQ(a.zeros, b.zeros);
  EXPECT_EQ(a.g_idx, b.g_idx);
}

// Tensors of gate, up and down as checkpoints have them.
TEST(ReadWna16, PerExpertTensorsAreTheStacks) {
  const std::map<std::string, std::string> roles = {{"qweight", "weight"},
                                                    {"scales", "scale"},
                                                    {"qzeros", "zero_point"},
                                                    {"g_idx", "g_idx"},
                                                    {"weight_packed", "weight"},
                                                    {"weight_scale", "scale"},
                                                    {"weight_zero_point", "zero_point"},
                                                    {"weight_g_idx", "g_idx"}};
  int stacks = 0;
  for (const std::string& name : files()) {
    SCOPED_TRACE(name);
    const VecFile f = load_vectors(name);
    if (!f.has("stack.w13")) continue;
    ++stacks;
    const World stacked = world_of(f, "stack.", true);
    World single{stacked.job, {}};
    for (const auto& [tensor, value] : f.tensors)
      for (const std::int64_t e : stacked.job.experts)
        for (const char* p : {"gate", "up", "down"}) {
          const std::string prefix = "ckpt." + std::to_string(e) + "." + p + ".";
          const auto role = tensor.starts_with(prefix) ? roles.find(tensor.substr(prefix.size())) : roles.end();
          if (role == roles.end()) continue;
          const std::string what = std::string(*p == 'd' ? "w2_" : "w13_") + role->second;
          single.source.set(*role_from_name(what), e, view_of(value),
                            *p == 'd'   ? Half::whole
                            : *p == 'g' ? Half::w1
                                        : Half::w3);
        }
    for (const std::int64_t e : stacked.job.experts)
      for (const bool w13 : {true, false}) {
        expect_equal(whole_matrix(single, e, w13), whole_matrix(stacked, e, w13));
        if (!f.has("stack_rows.w13") || !stacked.job.symmetric) continue;
        expect_equal(whole_matrix(world_of(f, "stack_rows.", false), e, w13), whole_matrix(stacked, e, w13));
      }
  }
  EXPECT_EQ(stacks, 4);
}

// --- random layers -------------------------------------------------------------------------------------------

constexpr Format kFormats[] = {Format::gptq, Format::awq, Format::pack_quantized};

// Packed into our layout and read back: the same numbers, in the checkpoint's order.
TEST(ReadWna16, RoundTripsOfRandomLayers) {
  struct Size {
    std::int64_t h, i, g;
  };
  const Size sizes[] = {{64, 32, 32}, {128, 96, 32}, {96, 96, 96}, {256, 64, 64},
                        {72, 24, -1}, {40, 8, -1},   {66, 10, -1}};
  unsigned seed = 1;
  for (const Format f : kFormats)
    for (const int bits : {4, 8})
      for (const Size& s : sizes)
        for (const bool zeros : {false, true})
          for (const bool order : {false, true}) {
            if (order && (f == Format::awq || s.g == -1)) continue;
            SCOPED_TRACE(std::string(kFormatNames[static_cast<std::size_t>(f)]) + " " + std::to_string(bits) + " H " +
                         std::to_string(s.h) + " I " + std::to_string(s.i) + (zeros ? " zeros" : "") +
                         (order ? " order" : ""));
            const RandomWna16 layer(f, bits, s.h, s.i, s.g, zeros, order, seed++);
            const int more = zeros && seed % 2 == 0 ? 1 : 0;
            const World w = layer.world(more == 1 ? ZeroPoints::plus_one : ZeroPoints::as_stored);
            const Bytes packed = convert(w.job, w.source);
            ASSERT_FALSE(HasFailure());
            for (const Which which : {Which::w13, Which::w2}) {
              const RandomWna16::Matrix& m = which == Which::w13 ? layer.w13 : layer.w2;
              std::vector<float> dense(static_cast<std::size_t>(m.n * m.k));
              const Check done =
                  dequantize(w.job.layout, packed.data(), 0, which, row_major(DType::f32, {m.n, m.k}, dense.data()));
              ASSERT_TRUE(done) << done.error().message;
              for (std::int64_t n = 0; n < m.n; ++n)
                for (std::int64_t k = 0; k < m.k; ++k)
                  ASSERT_EQ(dense[static_cast<std::size_t>(n * m.k + k)], layer.value(m, n, k, more)) << n << " " << k;
            }
          }
}

struct Narrow {
  Format format;
  int bits;
};
constexpr Narrow kNarrow[] = {{Format::pack_quantized_w2, 2},
                              {Format::pack_quantized_w3, 3},
                              {Format::pack_quantized_w5, 5},
                              {Format::pack_quantized_w6, 6},
                              {Format::pack_quantized_w7, 7}};

// Codes that may begin in one word and end in the next become those of four or eight bits: the same numbers.
TEST(ReadWna16, NarrowCodesAreTheSameNumbers) {
  struct Size {
    std::int64_t h, i, g;
  };
  const Size sizes[] = {{64, 32, 32}, {128, 96, 32}, {96, 96, 96}, {256, 64, 64}, {160, 32, -1}, {32, 32, 16}};
  unsigned seed = 1;
  for (const Narrow& n : kNarrow)
    for (const Size& s : sizes)
      for (const bool zeros : {false, true})
        for (const W13Layout order : {W13Layout::gate_up, W13Layout::up_gate, W13Layout::interleaved}) {
          SCOPED_TRACE("bits " + std::to_string(n.bits) + " H " + std::to_string(s.h) + " I " + std::to_string(s.i) +
                       (zeros ? " zeros" : ""));
          const RandomWna16 layer(n.format, n.bits, s.h, s.i, s.g, zeros, false, seed++);
          const int more = zeros && seed % 2 == 0 ? 1 : 0;
          World w = layer.world(more == 1 ? ZeroPoints::plus_one : ZeroPoints::as_stored);
          w.job.w13_layout = order;
          const Bytes packed = convert(w.job, w.source);
          ASSERT_FALSE(HasFailure());
          for (const Which which : {Which::w13, Which::w2}) {
            const RandomWna16::Matrix& m = which == Which::w13 ? layer.w13 : layer.w2;
            std::vector<float> dense(static_cast<std::size_t>(m.n * m.k));
            ASSERT_TRUE(
                dequantize(w.job.layout, packed.data(), 0, which, row_major(DType::f32, {m.n, m.k}, dense.data())));
            for (std::int64_t r = 0; r < m.n; ++r) {
              const std::int64_t half = r / s.i, in_half = r % s.i;
              const std::int64_t from = which == Which::w2 || order == W13Layout::gate_up ? r
                                        : order == W13Layout::interleaved                 ? 2 * in_half + half
                                                                                          : (1 - half) * s.i + in_half;
              for (std::int64_t k = 0; k < m.k; ++k)
                ASSERT_EQ(dense[static_cast<std::size_t>(r * m.k + k)], layer.value(m, from, k, more)) << r << " " << k;
            }
          }
        }
}

// A caller's words may be any distance apart.
TEST(ReadWna16, NarrowWordsApart) {
  for (const Narrow& n : kNarrow) {
    const RandomWna16 layer(n.format, n.bits, 96, 64, 32, false, false, 5);
    const Bytes want = convert(layer.world().job, layer.world().source);
    World w = layer.world();
    const std::int64_t words = layer.w2.k_words;
    std::vector<std::uint32_t> wide(static_cast<std::size_t>(layer.w2.n * words * 3), 0xdeadbeef);
    for (std::size_t j = 0; j < layer.w2.words.size(); ++j) wide[3 * j] = layer.w2.words[j];
    TensorView v = row_major(DType::i32, {layer.w2.n, words}, wide.data());
    v.strides[0] *= 3;
    v.strides[1] *= 3;
    v.nbytes = wide.size() * 4;
    w.source.set(Role::w2_weight, 0, v);
    EXPECT_EQ(convert(w.job, w.source), want) << n.bits;
  }
}

// Gate and up by the order of the stacked rows, also where they share words.
TEST(ReadWna16, RowOrdersOfGateAndUp) {
  for (const Format f : kFormats)
    for (const W13Layout order : {W13Layout::gate_up, W13Layout::up_gate, W13Layout::interleaved}) {
      const RandomWna16 layer(f, 4, 64, 36, -1, true, false, 17);  // a word of 4 rows of gate and 4 of up
      World w = layer.world();
      w.job.w13_layout = order;
      const Bytes packed = convert(w.job, w.source);
      std::vector<float> dense(static_cast<std::size_t>(72 * 64));
      ASSERT_TRUE(
          dequantize(w.job.layout, packed.data(), 0, Which::w13, row_major(DType::f32, {72, 64}, dense.data())));
      for (std::int64_t n = 0; n < 72; ++n) {
        const std::int64_t half = n / 36, r = n % 36;
        const std::int64_t from = order == W13Layout::gate_up       ? n
                                  : order == W13Layout::interleaved ? 2 * r + half
                                                                    : (1 - half) * 36 + r;
        for (std::int64_t k = 0; k < 64; ++k)
          ASSERT_EQ(dense[static_cast<std::size_t>(n * 64 + k)], layer.value(layer.w13, from, k, 0)) << n << " " << k;
      }
    }
}

// --- faults ----------------------------------------------------------------------------------------------------

TEST(ReadWna16Faults, GroupsOfColumns) {
  for (const bool order : {false, true}) {
    for (const std::int32_t bad : {-1, 2, 1 << 30, INT32_MIN}) {
      RandomWna16 layer(Format::gptq, 4, 64, 32, 32, false, order, 3);
      layer.order = true;  // the tensors are there
      layer.w13.g_idx[37] = bad;
      World w = layer.world();
      w.job.act_order = order;
      const Error e = convert_error(w.job, w.source);
      EXPECT_EQ(e.code, Code::invalid_argument);
      EXPECT_EQ(e.subject, "w13_g_idx[0,37]");
      EXPECT_THAT(e.message, testing::HasSubstr(std::to_string(bad)));
    }
  }
  RandomWna16 plain(Format::gptq, 4, 64, 64, 32, false, false, 3);
  plain.order = true;
  std::swap(plain.w2.g_idx[31], plain.w2.g_idx[32]);  // not monotone without activation order
  World w = plain.world();
  w.job.act_order = false;
  w.job.layout.w13.has_order = w.job.layout.w2.has_order = false;
  EXPECT_EQ(convert_error(w.job, w.source).subject, "w2_g_idx[0,31]");
}

TEST(ReadWna16Faults, GateAndUpMustAgree) {
  const RandomWna16 layer(Format::gptq, 4, 64, 32, 32, false, true, 5);
  std::vector<std::int32_t> other = layer.w13.g_idx;
  const auto at = static_cast<std::size_t>(std::find(other.begin() + 9, other.end(), 1) - other.begin());
  other[at] = 0;
  World w = layer.world();
  MemorySource halves;
  for (const Role r : {Role::w13_weight, Role::w13_scale, Role::w2_weight, Role::w2_scale, Role::w2_g_idx})
    halves.set(r, 0, w.source.get({r, 0})->view);
  halves.set(Role::w13_g_idx, 0, row_major(DType::i32, {64}, layer.w13.g_idx.data()), Half::w1);
  halves.set(Role::w13_g_idx, 0, row_major(DType::i32, {64}, other.data()), Half::w3);
  const Error e = convert_error(w.job, halves);
  EXPECT_EQ(e.subject, "w13_g_idx[0," + std::to_string(at) + "]");
  EXPECT_THAT(e.message, testing::HasSubstr("gate"));
  halves.set(Role::w13_g_idx, 0, row_major(DType::i32, {64}, layer.w13.g_idx.data()), Half::w3);
  EXPECT_EQ(convert(w.job, halves), convert(w.job, w.source));
}

TEST(ReadWna16Faults, UnevenGroupsAndMissingTensors) {
  RandomWna16 layer(Format::gptq, 4, 64, 64, 32, false, true, 7);
  *std::find(layer.w2.g_idx.begin(), layer.w2.g_idx.end(), 0) = 1;
  const World uneven = layer.world();
  const Error e = convert_error(uneven.job, uneven.source);
  EXPECT_EQ(e.code, Code::unsupported);
  EXPECT_EQ(e.subject, "w2_g_idx[0]");
  EXPECT_THAT(e.message, testing::HasSubstr("33 columns"));
  for (const bool zeros : {false, true}) {
    World w = RandomWna16(Format::gptq, 4, 64, 32, 32, false, false, 7).world();
    const RandomWna16 kept(Format::gptq, 4, 64, 32, 32, false, false, 7);
    w = kept.world();
    (zeros ? w.job.symmetric : w.job.act_order) = !zeros;
    w.job.layout.w13.has_order = w.job.layout.w2.has_order = !zeros;
    EXPECT_EQ(convert_error(w.job, w.source).code, Code::missing_weight);
  }
}

TEST(ReadWna16Faults, ZeroPoints) {
  RandomWna16 layer(Format::gptq, 8, 64, 32, 32, true, false, 9);
  layer.w13.zero_words[1] |= 0xff00u;  // row 5 of group 0
  const World w = layer.world(ZeroPoints::plus_one);
  const Error e = convert_error(w.job, w.source);
  EXPECT_EQ(e.subject, "w13_zero_point[0,0,5]");
  EXPECT_THAT(e.message, testing::HasSubstr("256"));
  const World kept = layer.world();
  (void)convert(kept.job, kept.source);
  // Symmetric files carry constants that say nothing.
  for (const std::uint32_t word : {0x77777777u, 0x88888888u, 0x87878787u, 0x77767777u}) {
    RandomWna16 symmetric(Format::gptq, 4, 64, 32, 32, true, false, 9);
    std::fill(symmetric.w13.zero_words.begin(), symmetric.w13.zero_words.end(), word);
    std::fill(symmetric.w2.zero_words.begin(), symmetric.w2.zero_words.end(), 0x77777777u);
    World s = symmetric.world();
    s.job.symmetric = true;
    s.job.layout.w13.has_zeros = s.job.layout.w2.has_zeros = false;
    if (word == 0x77767777u)
      EXPECT_EQ(convert_error(s.job, s.source).subject, "w13_zero_point[0,0,4]");
    else
      (void)convert(s.job, s.source);
  }
}

TEST(ReadWna16Faults, ScalesAndShapesInTheOrderOfTheFormat) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {-kInf, kInf, std::nanf("")}) {
    RandomWna16 layer(Format::awq, 4, 64, 32, 32, false, false, 11);
    layer.w2.scale_tensor[40] = bad;  // [1, 64]
    const World w = layer.world();
    const Error e = convert_error(w.job, w.source);
    EXPECT_EQ(e.code, Code::invalid_argument);
    EXPECT_EQ(e.subject, "w2_scale[0,0,40]");
    EXPECT_THAT(e.message, testing::EndsWith("is not a finite number"));
  }
  const RandomWna16 layer(Format::gptq, 4, 64, 32, 32, false, false, 11);
  World w = layer.world();
  w.source.set(Role::w13_weight, 0, row_major(DType::i32, {64, 8}, layer.w13.words.data()));  // another packing factor
  EXPECT_EQ(convert_error(w.job, w.source).code, Code::shape);
  EXPECT_EQ(convert_error(w.job, w.source).subject, "w13_weight[0]");
  RandomWna16 tail(Format::gptq, 4, 66, 10, -1, false, false, 13);
  tail.w13.words[static_cast<std::size_t>(8 * 20 + 3)] |= 0x500u;  // column 66 of row 3
  const World t = tail.world();
  EXPECT_EQ(convert_error(t.job, t.source).subject, "w13_weight[0,66,3]");
}

}  // namespace
}  // namespace moe::test::read_wna16_test
