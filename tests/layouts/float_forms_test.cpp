// The float layouts as writers and readers of the plain form: every row of the table gives the numbers back, from any
// shape that it takes; steps that no config shows alone against the vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>

#include "layouts/families.h"
#include "layouts/floats/float_layout.h"
#include "layouts/floats/float_scales.h"
#include "layouts/floats/requantize.h"
#include "layouts/p16/p16_numbers.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::float_forms_test {
namespace {

struct Sizes {
  std::int64_t experts, hidden, intermediate;
  bool gated = true, bias = false;
};

Layout layout_of(const FloatForm& f, const Sizes& s, FloatTraits traits = {}, Element number = Element::bf16) {
  LayoutShape shape{
      .experts = s.experts, .hidden = s.hidden, .intermediate = s.intermediate, .gated = s.gated, .has_bias = s.bias};
  shape.element = f.grain == Grain::values ? number : f.grain == Grain::int4 ? Element::int4 : Element::e4m3;
  if (f.grain == Grain::tensor) shape.scale_rows = kAllRows;
  if (f.grain == Grain::block) shape.scale_rows = kBlockSize;
  if (f.grain == Grain::block || f.grain == Grain::int4) shape.groups = Groups::even(kBlockSize);
  if (f.grain == Grain::mx || f.grain == Grain::mxfp4) shape.groups = Groups::even(32);
  if (f.grain == Grain::nvfp4) shape.groups = Groups::even(16);
  if (f.grain == Grain::mxfp4 || f.grain == Grain::nvfp4) shape.element = Element::e2m1;
  traits.mx = f.grain == Grain::mx || f.grain == Grain::mxfp4;
  traits.powers_of_two = f.scales == ScalePlace::packed;
  return make_float_layout(f.kind, shape, traits);
}

// A matrix of numbers that the layout holds: scales are powers of two, so that no type rounds them.
CanonicalRows random_rows(const Layout& l, Which which, std::mt19937& rng) {
  const Matrix& m = l.matrix(which);
  const FloatForm& f = *float_form(l);
  CanonicalRows rows;
  rows.shape(m.rows(), m);
  rows.has_power_scales = true;
  const int lowest = f.grain == Grain::nvfp4 ? -2 : -10;  // Marlin's have no smaller ones
  const auto power = [&] { return power_of_two(static_cast<int>(rng() % 5) + lowest); };
  if (f.grain == Grain::nvfp4) std::fill(rows.tensor_scales.begin(), rows.tensor_scales.end(), 0.375f);
  const float one = power();
  const std::int64_t block = f.grain == Grain::block ? kBlockSize : 1;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t first = r / m.half_rows * m.half_rows + r % m.half_rows / block * block;
    for (std::int64_t g = 0; g < rows.groups; ++g) {
      float& s = rows.scales[static_cast<std::size_t>(r * rows.groups + g)];
      s = f.grain == Grain::tensor ? one : power();
      // The largest of int4 groups fills a row's number, and the others stay 8-bit floats, of either sign.
      if (f.grain == Grain::int4) s = power_of_two(-8 - static_cast<int>(g % 2)) * (rng() % 2 == 0 ? 448.0f : -448.0f);
      if (first != r) s = rows.scales[static_cast<std::size_t>(first * rows.groups + g)];
    }
    for (std::int64_t k = 0; k < rows.k; ++k) {
      if (!rows.values.empty()) {
        rows.values[static_cast<std::size_t>(r * rows.stride + k)] =
            static_cast<float>(static_cast<int>(rng() % 255) - 127) / 64.0f;
        continue;
      }
      auto code = static_cast<unsigned>(rng() & 0xff);
      if (!kE4m3.is_finite(code)) code = 0x41;
      rows.codes[static_cast<std::size_t>(r * rows.stride + k)] =
          m.element == Element::e2m1 ? static_cast<std::int8_t>(code % 16)
          : f.grain == Grain::int4   ? static_cast<std::int8_t>(static_cast<int>(code % 16) - 8)
                                     : static_cast<std::int8_t>(code);
    }
    if (m.has_bias) rows.bias[static_cast<std::size_t>(r)] = static_cast<float>(rng() % 256) / 32.0f;
  }
  return rows;
}

// What the rows say, as numbers.
std::vector<float> numbers(const CanonicalRows& rows, const Matrix& m) {
  std::vector<float> out;
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t k = 0; k < rows.k; ++k) {
      if (!rows.values.empty()) {
        out.push_back(rows.row_values(r)[k]);
        continue;
      }
      float scale = rows.row_scales(r)[k / m.groups.size_in(m.k)];
      if (!rows.tensor_scales.empty()) scale *= rows.tensor_scales[static_cast<std::size_t>(r)];
      const std::int8_t code = rows.row(r)[k];
      if (m.element == Element::e2m1) {
        out.push_back(scale * small_to_f32(kE2m1, static_cast<std::uint8_t>(code)));
        continue;
      }
      out.push_back(scale * (m.element == Element::int4 ? static_cast<float>(code)
                                                        : small_to_f32(kE4m3, static_cast<std::uint8_t>(code))));
    }
  return out;
}

// All experts through the writer and back.
void expect_round_trip(const Layout& l, unsigned seed) {
  SCOPED_TRACE(l.id() + " H " + std::to_string(l.w13.k) + " I " + std::to_string(l.w2.k));
  ASSERT_TRUE(layout_family(l.kind)->valid(l));
  std::mt19937 rng(seed);
  std::vector<std::byte> payload(l.payload_bytes(), std::byte{0xAA});
  const LayoutFamily& form = *layout_family(l.kind);
  std::vector<ExpertFacts> facts(static_cast<std::size_t>(l.experts));
  for (std::size_t e = 0; e < facts.size(); ++e) facts[e].input_scale = {0.5f + static_cast<float>(e), 0.25f};
  std::vector<std::vector<float>> want, bias;
  for (std::int64_t e = 0; e < l.experts; ++e)
    for (const Which which : {Which::w13, Which::w2}) {
      CanonicalRows rows = random_rows(l, which, rng);
      want.push_back(numbers(rows, l.matrix(which)));
      bias.push_back(rows.bias);
      const Check written = form.write(rows, which, {l, payload.data(), e});
      ASSERT_TRUE(written) << written.error().message;
    }
  std::uint64_t rounded = 0;
  ASSERT_TRUE(form.finish(l, facts, payload.data(), rounded));
  EXPECT_EQ(rounded, 0u);
  for (std::int64_t e = 0; e < l.experts; ++e)
    for (const Which which : {Which::w13, Which::w2}) {
      const auto i = static_cast<std::size_t>(2 * e + (which == Which::w2 ? 1 : 0));
      CanonicalRows back;
      back.shape(l.matrix(which).rows(), l.matrix(which));
      ASSERT_TRUE(form.read({l, payload.data(), e}, which, back));
      ASSERT_EQ(numbers(back, l.matrix(which)), want[i]) << static_cast<int>(which);
      EXPECT_EQ(back.bias, bias[i]);
    }
}

Sizes fitting(const FloatForm& f, Sizes s) {
  s.hidden = round_up(s.hidden, f.hidden_step);
  s.intermediate = round_up(s.intermediate, std::max(f.intermediate_step, f.w13_rows_step));
  if (f.grain == Grain::mx || f.grain == Grain::mxfp4 || f.grain == Grain::nvfp4)
    s.hidden = round_up<std::int64_t>(s.hidden, 32), s.intermediate = round_up<std::int64_t>(s.intermediate, 32);
  return s;
}

TEST(FloatForms, EveryFormRoundTrips) {
  std::set<std::string> ids;
  unsigned seed = 0;
  for (const FloatForm& f : float_forms())
    for (const Sizes& s : {Sizes{2, 128, 64}, Sizes{1, 256, 128, true, true}, Sizes{2, 384, 192}, Sizes{1, 96, 40},
                           Sizes{1, 160, 176, false, true}, Sizes{3, 128, 384, false}}) {
      const Layout l = layout_of(f, fitting(f, s));
      EXPECT_EQ(float_form(l), &f) << f.id;
      ids.insert(l.id());
      expect_round_trip(l, ++seed);
      if (f.grain == Grain::values)
        for (const Element e : {Element::f16, Element::f32})
          expect_round_trip(layout_of(f, fitting(f, s), {}, e), ++seed);
      if (f.grain == Grain::tensor) {
        expect_round_trip(layout_of(f, fitting(f, s), {.static_activations = true, .bit_compat_vllm = true}), ++seed);
        if (f.scales == ScalePlace::one && f.kind != LayoutKind::float_xpu && !f.up_first)
          expect_round_trip(layout_of(f, fitting(f, s), {.static_activations = true, .fnuz = true}), ++seed);
      }
      if (!f.up_first && !f.apart && s.gated && f.grain != Grain::block)
        expect_round_trip(layout_of(f, fitting(f, s), {.gate_up_pairs = true}), ++seed);
      if (f.scales == ScalePlace::marlin)
        expect_round_trip(layout_of(f, fitting(f, s), {.activations = DType::f16}), ++seed);
    }
  EXPECT_EQ(ids.size(), 2 * float_forms().size());  // with and without a bias
}

// What a packed file may not say.
TEST(FloatForms, LayoutsThatCannotBe) {
  const auto expect_invalid = [](Layout l, auto change) {
    change(l);
    EXPECT_FALSE(layout_family(l.kind)->valid(l)) << l.id();
    place_tensors(l);  // of whatever a file says
  };
  const Sizes s{1, 256, 256};
  for (const FloatForm& f : float_forms()) {
    const Layout l = layout_of(f, s);
    ASSERT_TRUE(layout_family(l.kind)->valid(l)) << f.id;
    for (Matrix Layout::*m : {&Layout::w13, &Layout::w2}) {
      expect_invalid(l, [&](Layout& x) { (x.*m).has_zeros = true; });
      expect_invalid(l, [&](Layout& x) { (x.*m).has_order = true; });
      expect_invalid(l, [&](Layout& x) { (x.*m).has_bias = true; });
      expect_invalid(l, [&](Layout& x) { (x.*m).scale_rows = 48; });
      expect_invalid(l, [&](Layout& x) { (x.*m).groups = Groups::even(8); });
    }
    expect_invalid(l, [](Layout& x) { x.w13.element = x.w2.element = Element::e2m3; });
    if (f.grain != Grain::mxfp4 && f.grain != Grain::nvfp4 && f.grain != Grain::mx)
      expect_invalid(l, [](Layout& x) { x.w13.element = x.w2.element = Element::e2m1; });
    expect_invalid(l, [](Layout& x) { x.w13.element = Element::e2m1, x.w2.element = Element::e4m3; });
    expect_invalid(l, [](Layout& x) { x.w13.scales = x.w2.scales = Scales::w4a8; });
    expect_invalid(l, [](Layout& x) { x.variant.input = MarlinInput::int8; });
    expect_invalid(l, [](Layout& x) { x.variant.multiprocessors = 1; });
    expect_invalid(l, [](Layout& x) { x.variant.bias = DType::bf16; });
    expect_invalid(l, [](Layout& x) { x.variant.number = DType::f32; });
    const bool as_vllm = f.grain == Grain::tensor || f.grain == Grain::nvfp4 || f.scales == ScalePlace::floats;
    if (!as_vllm) expect_invalid(l, [](Layout& x) { x.variant.bit_compat_vllm = true; });
    if (f.scales != ScalePlace::one)
      expect_invalid(l, [](Layout& x) { x.variant.input_scales = !x.variant.input_scales; });
    if (f.up_first || f.apart) expect_invalid(l, [](Layout& x) { x.variant.gate_up_pairs = true; });
    if (f.hidden_step > 1 && f.hidden_padding == 1)
      expect_invalid(l, [](Layout& x) {
        x.w13.k = x.w2.half_rows = 24;
        x.w13.groups = x.w13.groups.in(24);
      });
  }
}

// --- vectors -----------------------------------------------------------------------------------------------------

const FloatForm& form_called(std::string_view id) {
  for (const FloatForm& f : float_forms())
    if (f.id == id) return f;
  throw std::runtime_error(std::string(id));
}

CanonicalRows rows_of(const Matrix& m, const std::byte* codes) {
  CanonicalRows rows;
  rows.shape(m.rows(), m);
  for (std::int64_t r = 0; r < rows.count; ++r)
    std::memcpy(rows.codes.data() + r * rows.stride, codes + r * rows.k, static_cast<std::size_t>(rows.k));
  return rows;
}

// AMD's 8-bit floats: each half of w13 as a layer of its own, so that nothing is requantized.
TEST(FloatForms, Fnuz) {
  const VecFile f = load_vectors("float/fp8_tensor.safetensors");
  const VecTensor &in = f.at("fnuz_in"), &want = f.at("fnuz_w13");
  const std::int64_t E = in.shape[0], half = in.shape[1] / 2, K = in.shape[2];
  const std::vector<float> scale = f.at("w13_scale").as<float>(), scaled = f.at("fnuz_scale").as<float>();
  const Layout l =
      layout_of(form_called("aiter/fp8-tensor"), {2 * E, K, half, false}, {.static_activations = true, .fnuz = true});
  const Layout plain =
      layout_of(form_called("plain/fp8-tensor"), {2 * E, K, half, false}, {.static_activations = true, .fnuz = true});
  EXPECT_EQ(l.id(), "aiter/fp8-tensor-fnuz/1");
  EXPECT_EQ(plain.tensors[0].dtype, DType::f8_e4m3fnuz);
  std::vector<std::byte> payload(plain.payload_bytes());
  std::vector<ExpertFacts> facts;
  for (std::int64_t i = 0; i < 2 * E; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CanonicalRows rows = rows_of(plain.w13, in.data.data() + i * half * K);
    std::fill(rows.scales.begin(), rows.scales.end(), scale[at]);
    const ExpertTensors<std::byte> out{plain, payload.data(), i};
    ASSERT_TRUE(layout_family(plain.kind)->write(rows, Which::w13, out));
    EXPECT_EQ(
        std::memcmp(out["w13_weight"].data(), want.data.data() + i * half * K, static_cast<std::size_t>(half * K)), 0);
    EXPECT_EQ(load<float>(out["w13_scale"].data()), scaled[at]);
  }
  for (const char* matrix : {"w13_input_scale", "w2_input_scale"}) (void)f.at(matrix);
  const std::vector<float> given = f.at("w13_input_scale").as<float>(), doubled = f.at("fnuz_input_scale").as<float>();
  for (std::size_t e = 0; e < given.size(); ++e) {
    std::uint64_t rounded = 0;
    ASSERT_TRUE(layout_family(plain.kind)
                    ->finish(plain, std::vector<ExpertFacts>{{{given[e], given[e]}}}, payload.data(), rounded));
    EXPECT_EQ(load<float>(ExpertTensors<std::byte>{plain, payload.data(), 0}["w13_input_scale"].data()), doubled[e]);
  }
}

// The step before DeepGEMM's packing.
// Marlin's scales are rounded to the type of the activations first, as a loader would, and then multiplied: a scale
// below the normal numbers of f16 loses its bits there.
TEST(FloatForms, MarlinScalesAreRoundedBeforeTheyAreMultiplied) {
  for (const FloatForm& f : float_forms()) {
    if (f.scales != ScalePlace::marlin) continue;
    const Layout l = layout_of(f, fitting(f, {1, 128, 128}), {.activations = DType::f16});
    ASSERT_TRUE(layout_family(l.kind)->valid(l)) << l.id();
    std::mt19937 rng(3);
    CanonicalRows rows = random_rows(l, Which::w2, rng);
    rows.has_power_scales = false;
    const float scale = std::ldexp(1.0f + 0x1p-9f, -17);  // f16 has 7 bits behind its first there, and 10 above 2^-14
    std::fill(rows.scales.begin(), rows.scales.end(), scale);
    std::vector<std::byte> payload(l.payload_bytes());
    const LayoutFamily& form = *layout_family(l.kind);
    ASSERT_TRUE(form.write(rows, Which::w2, {l, payload.data(), 0}));
    EXPECT_GT(rows.scales_rounded, 0u);
    CanonicalRows back;
    back.shape(l.w2.rows(), l.w2);
    ASSERT_TRUE(form.read({l, payload.data(), 0}, Which::w2, back));
    for (const float s : back.scales) ASSERT_EQ(s, std::ldexp(1.0f, -17)) << l.id();
  }
}

TEST(FloatForms, PowerScales) {
  const VecFile f = load_vectors("float/fp8_block.safetensors");
  const Layout l = layout_of(form_called("deepgemm/fp8-ue8m0"), {1, f.at("w13").shape[2], f.at("w13").shape[1] / 2});
  CanonicalRows rows = rows_of(l.w13, f.at("w13").data.data());
  const std::vector<float> scales = f.at("w13_scale_inv").as<float>(), want = f.at("ue8m0_w13_scale").as<float>();
  const auto block = [&](std::int64_t r, std::int64_t g) {
    return static_cast<std::size_t>(r / kBlockSize * rows.groups + g);
  };
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t g = 0; g < rows.groups; ++g)
      rows.scales[static_cast<std::size_t>(r * rows.groups + g)] = scales[block(r, g)];
  use_power_scales(rows);
  EXPECT_TRUE(rows.requantized);
  EXPECT_EQ(difference(f.expected("ue8m0_w13"), std::as_bytes(std::span(rows.codes))), "");
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t g = 0; g < rows.groups; ++g) EXPECT_EQ(rows.row_scales(r)[g], want[block(r, g)]);
}

// Activations have the same layout of scales.
TEST(FloatForms, PackedPowerScales) {
  const VecFile f = load_vectors("float/act_quant.safetensors");
  const std::vector<float> scales = f.at("fp8_group_ue8m0_s").as<float>();
  const std::int64_t n = f.at("fp8_group_ue8m0_s").shape[0], groups = f.at("fp8_group_ue8m0_s").shape[1];
  FloatMatrix m{.form = &form_called("deepgemm/fp8-ue8m0")};
  m.source = {.element = Element::e4m3,
              .scales = Scales::e8m0,
              .half_rows = n,
              .halves = 1,
              .k = groups * kBlockSize,
              .groups = Groups::even(kBlockSize),
              .scale_rows = kBlockSize};
  m.padded_half_rows = n;
  m.padded_k = m.source.k;
  CanonicalRows rows;
  rows.shape(n, m.source);
  rows.scales = scales;
  rows.has_power_scales = true;
  std::vector<std::byte> out(f.at("fp8_group_ue8m0_packed").data.size());
  ASSERT_TRUE(float_scales(ScalePlace::packed).write(m, rows, out.data()));
  EXPECT_EQ(out, f.at("fp8_group_ue8m0_packed").data);
}

// int4 before CUTLASS's encoding, in two's complement: what reading gives.
TEST(FloatForms, EncodedInt4) {
  const VecFile f = load_vectors("float/w4a8_fp8.safetensors");
  const VecTensor& encoded = f.at("w13_encoded");
  const std::int64_t rows = encoded.shape[1], k = 2 * encoded.shape[2];
  const Layout l = layout_of(form_called("cutlass/w4a8_fp8-encoded"), {encoded.shape[0], k, rows / 2});
  std::vector<std::byte> payload(l.payload_bytes()), int4;
  for (std::int64_t e = 0; e < l.experts; ++e) {
    const auto out = ExpertTensors<std::byte>{l, payload.data(), e}["w13_weight"];
    const std::byte* from = encoded.data.data() + e * rows * k / 2;
    std::copy_n(from, out.size(), out.begin());
    CanonicalRows back;
    back.shape(rows, l.w13);
    ASSERT_TRUE(layout_family(l.kind)->read({l, payload.data(), e}, Which::w13, back));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < k; c += 2) {
        const auto low = static_cast<unsigned>(back.row(r)[c]), high = static_cast<unsigned>(back.row(r)[c + 1]);
        int4.push_back(static_cast<std::byte>((low & 15u) | (high & 15u) << 4));
      }
  }
  EXPECT_EQ(difference(f.expected("w13_int4"), int4), "");
}

// The scale of largest magnitude fills its row's number, which is positive; codes have the signs.
TEST(FloatForms, SplitScalesHaveSigns) {
  CanonicalRows rows;
  rows.count = 4, rows.groups = 3;
  rows.scales = {-448.0f, 224.0f, -0.0f, -7.0f, -14.0f, -28.0f, 56.0f, -112.0f, 56.0f, 0.0f, -0.0f, 0.0f};
  const std::vector<float> want = rows.scales;
  const SplitScales split = split_scales(rows);
  EXPECT_EQ(split.rows, (std::vector<float>{8.0f, 0.5f, 2.0f, 8.0f / (448.0f * 512.0f)}));
  EXPECT_EQ(rows.scales, want);
  EXPECT_EQ(rows.scales_rounded, 0u);
  const std::uint8_t sign = 0x80;
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ((split.codes[i] & sign) != 0, std::signbit(want[i])) << i;
}

// --- requantization ------------------------------------------------------------------------------------------------

CanonicalRows two_rows(float gate, float up) {
  CanonicalRows rows;
  Matrix m{
      .element = Element::e4m3, .scales = Scales::f32, .half_rows = 1, .halves = 2, .k = 256, .scale_rows = kAllRows};
  rows.shape(2, m);
  for (std::int64_t i = 0; i < 512; ++i) {
    const auto code = static_cast<unsigned>(i % 256);
    rows.codes[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(kE4m3.is_finite(code) ? code : 0);
  }
  rows.scales = {gate, up};
  return rows;
}

TEST(Requantize, EqualScalesKeepTheirCodes) {
  const CanonicalRows before = two_rows(1e-7f, 1e-7f);
  CanonicalRows rows = before;
  EXPECT_TRUE(share_scale(rows, false, false));
  EXPECT_EQ(rows.codes, before.codes);
  EXPECT_FALSE(rows.requantized);
  EXPECT_TRUE(share_scale(rows, true, false));  // vLLM's numbers: 246 of 254 codes change at 1e-7
  int changed = 0;
  for (std::size_t i = 0; i < 256; ++i) changed += rows.codes[i] != before.codes[i];
  EXPECT_EQ(changed, 246);
  EXPECT_TRUE(rows.requantized);
}

TEST(Requantize, TheLargerScaleKeepsItsCodes) {
  const CanonicalRows before = two_rows(0.25f, 1.0f);
  CanonicalRows rows = before;
  EXPECT_TRUE(share_scale(rows, false, false));
  EXPECT_TRUE(rows.requantized);
  EXPECT_EQ(rows.scales, (std::vector<float>{1.0f, 1.0f}));
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(rows.codes[256 + i], before.codes[256 + i]);
    const float value = small_to_f32(kE4m3, static_cast<std::uint8_t>(before.codes[i])) * 0.25f;
    EXPECT_EQ(static_cast<unsigned>(static_cast<std::uint8_t>(rows.codes[i])), f32_to_small(kE4m3, value));
  }
}

TEST(FloatForms, NamesOfParts) {
  const FamilyParts& parts = layout_families::floats.parts;
  for (const char* weight : {"w13", "w13_weight"}) EXPECT_EQ(parts.name_of(weight), "w13_weight");
  EXPECT_EQ(parts.name_of("s2"), "w2_scale");
  EXPECT_EQ(parts.name_of("g13"), "w13_scale_2");
  EXPECT_EQ(parts.name_of("g2_alphas"), "w2_alpha");
  for (const char* other : {"", "w1", "w13_", "w13_qweight", "w2_scales", "w13_g_idx", "workspace"})
    EXPECT_EQ(parts.name_of(other), "") << other;
  EXPECT_EQ(layout_families::kai.parts.name_of("w13"), "");
}

TEST(Requantize, ScalesOfZero) {
  for (const bool through_f16 : {false, true}) {
    CanonicalRows none = two_rows(0.0f, 0.0f);
    EXPECT_TRUE(share_scale(none, through_f16, false));
    EXPECT_EQ(none.codes, two_rows(0, 0).codes);
    CanonicalRows one = two_rows(0.0f, 1.0f);
    EXPECT_TRUE(share_scale(one, through_f16, false));
    for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(one.codes[i] & 0x7f, 0);
  }
}

}  // namespace
}  // namespace moe::test::float_forms_test
