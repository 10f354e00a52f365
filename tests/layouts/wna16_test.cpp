// The layouts of int4 and int8 weights for other engines' kernels, byte for byte against the golden files and back.
#include "layouts/wna16/wna16.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "layouts/wna16_world.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::wna16_test {
namespace {

using ::testing::HasSubstr;

// The spec's names of the vectors' tensors.
std::string api_name(std::string name) {
  for (const auto& [from, to] : {std::pair{"qweight", "weight"}, {"scales", "scale"}, {"qzeros", "zero_point"}})
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, std::string(from).size(), to);
  return name;
}

std::vector<std::string> conversions() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(vector_path("wna16"))) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".safetensors" && name != "primitives" && name.rfind("stack_", 0) != 0)
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Wna16File : public ::testing::TestWithParam<std::string> {
 protected:
  VecFile file = load_vectors("wna16/" + GetParam() + ".safetensors");

  // `prefix` tensors; every one of the layout's must be among `out.` ones or these.
  void expect_tensors(const NamedBytes& got, const std::string& prefix) const {
    for (const auto& [name, want] : file.tensors) {
      if (name.rfind(prefix, 0) != 0) continue;
      const std::string api = api_name(name.substr(prefix.size()));
      ASSERT_TRUE(got.count(api)) << api;
      EXPECT_EQ(difference(want, got.at(api)), "") << name;
    }
  }
};

TEST(Wna16Files, AreAllThere) { EXPECT_EQ(conversions().size(), 53u); }

TEST_P(Wna16File, UpstreamBytes) {
  const PlainLayer plain = plain_layer(file, true);
  const NamedBytes got = write_layer(plain);
  expect_tensors(got, "out.");
  for (const LayoutTensor& t : plain.layout.tensors) {
    std::vector<std::int64_t> shape = t.shape;
    if (!t.shared) shape.insert(shape.begin(), plain.layout.experts);
    const bool known = std::any_of(file.tensors.begin(), file.tensors.end(), [&](const auto& entry) {
      return entry.first.rfind("out.", 0) == 0 && api_name(entry.first.substr(4)) == t.name &&
             entry.second.shape == shape;
    });
    EXPECT_TRUE(known) << t.name << " is not in the file, or with another shape";
  }
  std::string absent;
  for (const std::string_view name : wna16_absent(plain.layout)) absent.append(",").append(name);
  std::string none;
  std::stringstream list(file.meta.at("none"));
  for (std::string name; std::getline(list, name, ',');) none += "," + api_name(name);
  EXPECT_EQ(absent, none);
}

// The corrected bytes: `alt.` where there are any, else the same, but for zero points that vLLM gets wrong.
TEST_P(Wna16File, CorrectBytes) {
  const PlainLayer plain = plain_layer(file, false);
  const NamedBytes got = write_layer(plain);
  expect_tensors(got, "alt.");
  if (zero_shift_of_file(file, spec_of_file(file, false)) != 0) return;
  for (const auto& [name, want] : file.tensors) {
    if (name.rfind("out.", 0) != 0 || file.has("alt." + name.substr(4))) continue;
    EXPECT_EQ(difference(want, got.at(api_name(name.substr(4)))), "") << name;
  }
}

float dense_value(const CanonicalRows& rows, int bits, std::int64_t n, std::int64_t k) {
  const std::int64_t g = rows.g_idx.empty() ? k / (rows.k / rows.groups) : rows.g_idx[static_cast<std::size_t>(k)];
  const int bias = bits == 4 ? 8 : 128;
  const int zero = rows.zeros.empty() ? bias : rows.zeros[static_cast<std::size_t>(n * rows.groups + g)];
  return static_cast<float>(rows.row(n)[k] + bias - zero) * rows.row_scales(n)[g];
}

// Values of a tensor of int8 or int16.
std::vector<int> integers(const VecTensor& t) {
  std::vector<int> v;
  if (t.dtype == DType::i8)
    for (const std::int8_t x : t.as<std::int8_t>()) v.push_back(x);
  else
    for (const std::int16_t x : t.as<std::int16_t>()) v.push_back(x);
  return v;
}

// What the layout says, against the numbers of the file: both rules write bytes that read back to them.
TEST_P(Wna16File, ReadsBack) {
  for (const bool vllm : {true, false}) {
    const PlainLayer plain = plain_layer(file, vllm);
    const NamedBytes tensors = write_layer(plain);
    // The files' numbers are those of the zero points as stored.
    const bool other_zeros = !vllm && plain.layout.w13.has_zeros && file.meta.at("format") == "gptq" &&
                             plain.layout.kind != LayoutKind::wna16_vnni;
    if (!file.has("dense.w13_int") || plain.layout.variant.input == MarlinInput::int8 || other_zeros) continue;
    for (const Which which : kBoth) {
      const std::string name = which == Which::w13 ? "dense.w13" : "dense.w2";
      const Wna16Matrix m = wna16_matrix(plain.layout, which);
      const std::vector<int> ints = integers(dense_integers(file, which == Which::w13 ? "w13" : "w2"));
      const std::vector<float> scales = file.at(name + "_scale").floats();
      const auto groups = file.at(name + "_group").as<std::int32_t>();
      for (std::int64_t e = 0; e < plain.layout.experts; ++e) {
        CanonicalRows rows;
        ASSERT_TRUE(read_expert(plain.layout, tensors, which, e, rows));
        for (std::int64_t n = 0; n < m.rows(); ++n)
          for (std::int64_t k = 0; k < m.k; ++k) {
            const std::int64_t row = e * m.rows() + n, g = groups[static_cast<std::size_t>(e * m.k + k)];
            const float want = static_cast<float>(ints[static_cast<std::size_t>(row * m.k + k)]) *
                               scales[static_cast<std::size_t>(row * m.groups + g)];
            ASSERT_EQ(dense_value(rows, m.bits, n, k), want) << name << " " << e << " " << n << " " << k;
          }
      }
    }
  }
}

// int8 activations: the scales that are left after the fold.
TEST_P(Wna16File, ReadsFoldedScales) {
  if (!file.has("readback.w13")) return;
  const PlainLayer plain = plain_layer(file, false);
  const NamedBytes tensors = write_layer(plain);
  for (const Which which : kBoth) {
    const VecTensor& want = file.at(which == Which::w13 ? "readback.w13" : "readback.w2");
    const std::vector<float> numbers = want.floats();
    CanonicalRows rows;
    ASSERT_TRUE(read_expert(plain.layout, tensors, which, 0, rows));
    for (std::int64_t n = 0; n < want.shape[1]; ++n)
      for (std::int64_t k = 0; k < want.shape[2]; ++k)
        ASSERT_EQ(dense_value(rows, wna16_matrix(plain.layout, which).bits, n, k),
                  numbers[static_cast<std::size_t>(n * want.shape[2] + k)]);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Wna16File, ::testing::ValuesIn(conversions()),
                         [](const auto& parameter) { return parameter.param; });

// --- single matrices ----------------------------------------------------------------------------------

const VecFile& primitives() {
  static const VecFile file = load_vectors("wna16/primitives.safetensors");
  return file;
}

struct Primitive {
  int bits;
  std::int64_t k, n;
  std::string name(const char* part) const {
    return "b" + std::to_string(bits) + "_k" + std::to_string(k) + "_n" + std::to_string(n) + "." + part;
  }
  Wna16Matrix matrix(MarlinInput input) const {
    return {.which = Which::w2,
            .bits = bits,
            .half_rows = n,
            .padded_half_rows = n,
            .k = k,
            .padded_k = k,
            .groups = 1,
            .padded_groups = 1,
            .input = input};
  }
};

class Wna16Primitive : public ::testing::TestWithParam<Primitive> {
 protected:
  const Primitive& p = GetParam();

  bool has(const char* part) const { return primitives().has(p.name(part)); }
  const VecTensor& golden(const char* part) const { return primitives().at(p.name(part)); }

  // The codes of [K, N] unsigned numbers.
  CanonicalRows plain(const Wna16Matrix& m, const std::vector<std::uint8_t>& q) const {
    CanonicalRows rows;
    shape_plain(m, rows);
    for (std::int64_t n = 0; n < p.n; ++n)
      for (std::int64_t k = 0; k < p.k; ++k)
        rows.codes[static_cast<std::size_t>(n * rows.stride + k)] =
            static_cast<std::int8_t>(q[static_cast<std::size_t>(k * p.n + n)] - (p.bits == 4 ? 8 : 128));
    return rows;
  }
  NamedBytes write(const Wna16Matrix& m, const CanonicalRows& rows) const {
    Layout layout;
    layout.kind = LayoutKind::wna16_marlin;
    layout.experts = 1;
    const auto add = [&](LayoutPart part, std::int64_t bytes) {
      if (bytes != 0)
        layout.tensors.push_back({.name = part_name(Which::w2, part),
                                  .shape = {bytes},
                                  .offset = layout.payload_bytes(),
                                  .bytes = static_cast<std::size_t>(bytes)});
    };
    add(LayoutPart::weight, p.k * p.n * p.bits / 8);
    add(LayoutPart::scale, m.groups * p.n * 2);
    add(LayoutPart::zero_point, m.has_zeros ? m.groups * p.n * p.bits / 8 : 0);
    add(LayoutPart::g_idx, m.act_order ? p.k * 4 : 0);
    add(LayoutPart::g_idx_sort_indices, m.act_order ? p.k * 4 : 0);
    std::vector<std::byte> payload(layout.payload_bytes());
    write_wna16(m, rows, {layout, payload.data(), 0});
    NamedBytes out;
    for (auto& [name, bytes] : split(layout, payload)) out[name.substr(3)] = bytes;
    return out;
  }
  // Fields of words [K/pf, N] (along K) or [K, N/pf] in AWQ's order.
  std::vector<std::uint8_t> fields(const char* part, bool awq) const {
    VecFile one;
    one.meta["bits"] = std::to_string(p.bits);
    VecTensor t = golden(part);
    t.shape.insert(t.shape.begin(), 1);
    one.tensors["in.x"] = t;
    const Stack stack(one, "x");
    std::vector<std::uint8_t> q;
    for (std::int64_t k = 0; k < p.k; ++k)
      for (std::int64_t n = 0; n < p.n; ++n)
        q.push_back(static_cast<std::uint8_t>(awq ? stack.awq(0, k, n) : stack.plain(0, k, n, true)));
    return q;
  }
};

TEST_P(Wna16Primitive, Tiles) {
  const auto q = golden("q").as<std::uint8_t>();
  EXPECT_EQ(fields("gptq", false), q);
  EXPECT_EQ(fields("awq", true), q);
  const Wna16Matrix m = p.matrix(MarlinInput::none);
  EXPECT_EQ(write(m, plain(m, q)).at("weight"), golden("marlin").data);
  if (!has("marlin_a8")) return;
  const Wna16Matrix a8 = p.matrix(MarlinInput::int8);
  EXPECT_EQ(write(a8, plain(a8, q)).at("weight"), golden("marlin_a8").data);
}

TEST_P(Wna16Primitive, TilesInTheOrderOfTheGroups) {
  Wna16Matrix m = p.matrix(MarlinInput::none);
  m.act_order = true;
  m.groups = m.padded_groups = p.k;  // one k each: any permutation is an order of groups
  const auto perm = golden("perm").as<std::int32_t>();
  CanonicalRows rows = plain(m, golden("q").as<std::uint8_t>());
  rows.g_idx.resize(perm.size());
  for (std::size_t k = 0; k < perm.size(); ++k)
    rows.g_idx[static_cast<std::size_t>(perm[k])] = static_cast<std::int32_t>(k);
  const NamedBytes got = write(m, rows);
  EXPECT_EQ(got.at("weight"), golden("marlin_perm").data);
  EXPECT_EQ(got.at("g_idx_sort_indices"), golden("perm").data);
}

TEST_P(Wna16Primitive, Scales) {
  const VecTensor& scales = golden("scale_bits");
  Wna16Matrix m = p.matrix(MarlinInput::none);
  m.scale = DType::bf16;
  m.groups = m.padded_groups = scales.shape[0];
  CanonicalRows rows = plain(m, golden("q").as<std::uint8_t>());
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t g = 0; g < m.groups; ++g)
      rows.scales[static_cast<std::size_t>(n * m.groups + g)] =
          bf16_to_f32(scales.as<std::uint16_t>()[static_cast<std::size_t>(g * p.n + n)]);
  for (const bool grouped : {false, true}) {
    m.grouped_scales = grouped;
    std::vector<std::uint16_t> want = golden(grouped ? "scale_grouped" : "scale_single").as<std::uint16_t>();
    for (std::uint16_t& s : want) s = f32_to_bf16(bf16_to_f32(s));  // the file has NaN, too, which no reader lets pass
    std::vector<std::uint16_t> got(want.size());
    const std::vector<std::byte> bytes = write(m, rows).at("scale");
    ASSERT_EQ(bytes.size(), 2 * got.size());
    std::memcpy(got.data(), bytes.data(), bytes.size());
    EXPECT_EQ(got, want);
  }
}

// The rows of q as zero points of K groups.
TEST_P(Wna16Primitive, ZeroPoints) {
  for (const MarlinInput input : {MarlinInput::none, MarlinInput::int8}) {
    if (input == MarlinInput::int8 && p.k % 32 != 0) continue;
    Wna16Matrix m = p.matrix(input);
    m.has_zeros = true;
    m.groups = m.padded_groups = p.k;
    const auto q = golden("q").as<std::uint8_t>();
    CanonicalRows rows = plain(m, q);
    for (std::int64_t n = 0; n < p.n; ++n)
      for (std::int64_t g = 0; g < p.k; ++g)
        rows.zeros[static_cast<std::size_t>(n * p.k + g)] = q[static_cast<std::size_t>(g * p.n + n)];
    EXPECT_EQ(write(m, rows).at("zero_point"), golden(input == MarlinInput::none ? "zp_marlin" : "zp_marlin_a8").data);
  }
}

// fp8 is int8's tiles of the rewritten nibbles, against 8 and against AWQ's zero points.
TEST_P(Wna16Primitive, NibblesForFp8) {
  if (!has("fp8_gptq") || p.k % 32 != 0) return;
  const auto q = golden("q").as<std::uint8_t>();
  const Wna16Matrix plain_tiles = p.matrix(MarlinInput::int8);
  Wna16Matrix m = p.matrix(MarlinInput::fp8);
  EXPECT_EQ(write(m, plain(m, q)).at("weight"),
            write(plain_tiles, plain(plain_tiles, fields("fp8_gptq", false))).at("weight"));
  const VecTensor& words = golden("awq_zeros");
  VecFile one;
  one.meta["bits"] = "4";
  one.tensors["in.x"] = words;
  one.tensors["in.x"].shape.insert(one.tensors["in.x"].shape.begin(), 1);
  const Stack zeros(one, "x");
  m.has_zeros = m.zeros_in_nibbles = true;
  m.groups = m.padded_groups = words.shape[0];
  CanonicalRows rows = plain(m, q);
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t g = 0; g < m.groups; ++g)
      rows.zeros[static_cast<std::size_t>(n * m.groups + g)] = static_cast<std::uint8_t>(zeros.awq(0, g, n));
  EXPECT_EQ(write(m, rows).at("weight"), write(plain_tiles, plain(plain_tiles, fields("fp8_awq", true))).at("weight"));
}

INSTANTIATE_TEST_SUITE_P(Golden, Wna16Primitive,
                         ::testing::Values(Primitive{4, 16, 64}, Primitive{4, 64, 128}, Primitive{4, 96, 64},
                                           Primitive{8, 16, 64}, Primitive{8, 64, 128}, Primitive{8, 96, 64}),
                         [](const auto& parameter) {
                           const std::string name = parameter.param.name("");
                           return name.substr(0, name.size() - 1);
                         });

TEST(FoldMarlinScales, Golden) {
  for (const auto& [tag, dtype] : {std::pair{"fp16", DType::f16}, {"bf16", DType::bf16}}) {
    const std::string name = std::string("int8scale_") + tag;
    std::vector<std::byte> scales = primitives().at(name + ".in").data, global(4);
    ASSERT_TRUE(fold_marlin_scales(dtype, scales, "w13_scale", global.data()));
    EXPECT_EQ(scales, primitives().at(name + ".out").data) << tag;
    EXPECT_EQ(global, primitives().at(name + ".global").data) << tag;
  }
}

// The largest magnitude becomes 4096, whatever its sign.
TEST(FoldMarlinScales, Signs) {
  struct Case {
    std::vector<float> scales;
    float global;
    std::vector<std::int16_t> whole;
  };
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Case& c :
         {Case{{0.5f, -2.0f, -0.0f, 1.0f}, 2.0f / 4096, {1024, -4096, 0, 2048}},
          Case{{-0.25f, -0.0625f, -0.125f}, 0.25f / 4096, {-4096, -1024, -2048}},
          Case{{-1.0f, 1.0f}, 1.0f / 4096, {-4096, 4096}}, Case{{-0.0f, -0.0f, 0.5f}, 0.5f / 4096, {0, 0, 4096}}}) {
      std::vector<std::byte> scales(2 * c.scales.size()), global(4);
      for (std::size_t i = 0; i < c.scales.size(); ++i) store_float(dtype, c.scales[i], scales.data() + 2 * i);
      ASSERT_TRUE(fold_marlin_scales(dtype, scales, "w13_scale", global.data()));
      EXPECT_EQ(load_float(DType::f32, global.data()), c.global);
      for (std::size_t i = 0; i < c.scales.size(); ++i) {
        std::int16_t whole = 0;
        std::memcpy(&whole, scales.data() + 2 * i, 2);
        EXPECT_EQ(whole, c.whole[i]) << i;
      }
    }
}

TEST(FoldMarlinScales, RefusesZeros) {
  std::vector<std::byte> scales(64), global(4);
  scales[3] = std::byte{0x80};  // -0
  const Check check = fold_marlin_scales(DType::f16, scales, "w2_scale", global.data());
  ASSERT_FALSE(check);
  EXPECT_EQ(check.error().code, Code::invalid_argument);
  EXPECT_EQ(check.error().subject, "w2_scale");
  EXPECT_THAT(check.error().message, HasSubstr("all scales are 0"));
  EXPECT_TRUE(fold_marlin_scales(DType::f16, {}, "w2_scale", global.data()));  // no experts
}

// --- there and back -----------------------------------------------------------------------------------

// Of sizes that the layout takes.
Wna16Spec random_spec(LayoutKind kind, std::mt19937& random) {
  const auto pick = [&](std::initializer_list<std::int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  const bool marlin = kind == LayoutKind::wna16_marlin, on_the_fly = kind == LayoutKind::wna16_on_the_fly;
  Wna16Spec s{.kind = kind};
  s.experts = pick({1, 2, 3});
  s.gated = random() % 4 != 0;
  s.has_bias = random() % 2 != 0 && kind != LayoutKind::wna16_trtllm;
  s.scale = random() % 2 != 0 ? Scales::f16 : Scales::bf16;
  s.variant.bias = std::array{DType::f16, DType::bf16, DType::f32}[random() % 3];
  s.variant.bit_compat_vllm = random() % 2 != 0;
  s.bits = marlin || on_the_fly ? static_cast<int>(pick({4, 8})) : 4;
  s.hidden = pick({64, 128, 192, 320});
  s.groups = Groups::of_size(pick({-1, 32, 64}));
  s.intermediate = s.groups == Groups::even(64) ? pick({64, 128, 192}) : pick({32, 96, 64, 160});
  s.has_zeros = random() % 2 != 0 && (marlin || (on_the_fly && s.bits == 4));
  if (marlin) {
    s.variant.awq = s.has_zeros && random() % 2 != 0;
    s.variant.input = static_cast<MarlinInput>(random() % (s.bits == 4 ? 3 : 2));
    if (s.groups.is_even() && !s.has_zeros && random() % 2 != 0) {
      s.act_order = true;
      s.variant.input = MarlinInput::none;
      s.intermediate = pick({64, 128});
    }
  }
  if (kind == LayoutKind::wna16_trtllm) {
    s.scale = Scales::bf16;
    s.groups = Groups::even(32);
    s.hidden = pick({256, 512});
    s.intermediate = pick({256, 512});
    s.gated = true;
  }
  if (kind == LayoutKind::wna16_vnni) {
    s.has_zeros = random() % 2 != 0;
    s.intermediate = s.groups.is_whole() ? s.hidden = pick({64, 128, 256}) : pick({64, 128, 192});
  }
  if (s.variant.bit_compat_vllm) s.has_bias = s.has_bias && !on_the_fly;
  return s;
}

void expect_same(const CanonicalRows& got, const CanonicalRows& want, const Layout& l) {
  EXPECT_EQ(got.codes, want.codes);
  EXPECT_EQ(got.bias, want.bias);
  EXPECT_EQ(got.g_idx, want.g_idx);
  if (!want.zeros.empty()) {
    EXPECT_EQ(got.zeros, want.zeros);
  }
  ASSERT_EQ(got.scales.size(), want.scales.size());
  if (l.variant.input != MarlinInput::int8) {
    EXPECT_EQ(got.scales, want.scales);
    return;
  }
  float most = 0.0f;  // of one expert: less than of all
  for (const float s : want.scales) most = std::max(most, std::fabs(s));
  for (std::size_t i = 0; i < want.scales.size(); ++i) EXPECT_NEAR(got.scales[i], want.scales[i], most / 100);
}

TEST(Wna16, RandomLayersComeBack) {
  std::mt19937 random(20);
  for (int round = 0; round < rounds(120); ++round) {
    constexpr std::array kKinds = {LayoutKind::wna16_marlin, LayoutKind::wna16_trtllm, LayoutKind::wna16_xpu,
                                   LayoutKind::wna16_vnni, LayoutKind::wna16_on_the_fly};
    const Layout l = random_spec(kKinds[static_cast<std::size_t>(round) % kKinds.size()], random).layout();
    const PlainLayer plain = random_plain(l, random);
    SCOPED_TRACE(l.id() + " H " + std::to_string(l.w13.k) + " I " + std::to_string(l.w2.k));
    EXPECT_TRUE(layout_family(l.kind)->valid(l));
    const NamedBytes tensors = write_layer(plain);
    for (std::int64_t e = 0; e < l.experts; ++e)
      for (const Which which : kBoth) {
        CanonicalRows rows;
        ASSERT_TRUE(read_expert(l, tensors, which, e, rows));
        expect_same(rows, plain.of(which)[static_cast<std::size_t>(e)], l);
      }
    if (HasFailure()) return;
  }
}

TEST(Wna16, DenseAppliesOrderAndZeroPoints) {
  std::mt19937 random(21);
  const Layout l = Wna16Spec{.kind = LayoutKind::wna16_dense,
                             .bits = 8,
                             .experts = 2,
                             .hidden = 64,
                             .intermediate = 96,
                             .groups = Groups::even(32),
                             .act_order = true,
                             .has_zeros = true,
                             .has_bias = true,
                             .scale = Scales::f32,
                             .variant = {.bias = DType::f32, .number = DType::f32}}
                       .layout();
  const PlainLayer plain = random_plain(l, random);
  const NamedBytes tensors = write_layer(plain);
  for (const Which which : kBoth) {
    CanonicalRows rows;
    ASSERT_TRUE(read_expert(l, tensors, which, 1, rows));
    const CanonicalRows& want = plain.of(which)[1];
    EXPECT_EQ(rows.bias, want.bias);
    for (std::int64_t n = 0; n < want.count; ++n)
      for (std::int64_t k = 0; k < want.k; ++k) ASSERT_EQ(rows.row_values(n)[k], dense_value(want, 8, n, k));
  }
}

// A packed file may say anything.
TEST(Wna16, OrdersAreChecked) {
  std::mt19937 random(22);
  const Layout l =
      Wna16Spec{.experts = 1, .hidden = 64, .intermediate = 64, .groups = Groups::even(32), .act_order = true}.layout();
  const PlainLayer plain = random_plain(l, random);
  const NamedBytes good = write_layer(plain);
  struct Fault {
    const char* tensor;
    std::size_t at;
    std::int32_t value;
    const char* message;
  };
  std::int32_t second = 0;
  std::memcpy(&second, good.at("w13_g_idx_sort_indices").data() + 4, 4);
  for (const Fault& fault : {Fault{"w13_g_idx_sort_indices", 0, second, "w13_g_idx_sort_indices[0,1]: "},
                             Fault{"w13_g_idx_sort_indices", 5, 64, "[0,5]: 64, expected a column of 64 that was not"},
                             Fault{"w13_g_idx_sort_indices", 63, -1, "w13_g_idx_sort_indices[0,63]: -1"},
                             Fault{"w13_g_idx", 63, 2, "w13_g_idx[0,63]: 2, expected ascending groups below 2"},
                             Fault{"w13_g_idx", 0, -1, "w13_g_idx[0,0]: -1, expected ascending"},
                             Fault{"w13_g_idx", 63, 0, "w13_g_idx[0,63]: 0, expected ascending"}}) {
    NamedBytes tensors = good;
    std::memcpy(tensors.at(fault.tensor).data() + 4 * fault.at, &fault.value, 4);
    CanonicalRows rows;
    const Check check = read_expert(l, tensors, Which::w13, 0, rows);
    ASSERT_FALSE(check) << fault.tensor << fault.at;
    EXPECT_EQ(check.error().code, Code::format);
    EXPECT_THAT(check.error().message, HasSubstr(fault.message));
  }
}

TEST(Wna16Forms, OtherKindsHaveNone) {
  EXPECT_NE(wna16_form(LayoutKind::wna16_dense), nullptr);
  for (const LayoutKind kind : {LayoutKind::none, LayoutKind::foreign, LayoutKind::p16_w4, LayoutKind::kai,
                                LayoutKind::float_plain, static_cast<LayoutKind>(255)})
    EXPECT_EQ(wna16_form(kind), nullptr);
}

TEST(Wna16, NoExperts) {
  Wna16Spec spec{.experts = 0, .hidden = 64, .intermediate = 64};
  spec.variant.input = MarlinInput::int8;
  const Layout l = spec.layout();
  std::mt19937 random(1);
  for (const LayoutTensor& t : l.tensors) {
    EXPECT_TRUE(t.shared || size_of(l, t) == 0) << t.name;
  }
  EXPECT_TRUE(write_layer(random_plain(l, random)).count("w13_weight"));
}

}  // namespace
}  // namespace moe::test::wna16_test
