// The float layouts of e2m1 as writers of the plain form, against the golden bytes: every layout of the vectors, also
// those that no config of theirs leads to. Scales of gate and up, and what no kernel has room for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "layouts/families.h"
#include "layouts/floats/float_layout.h"
#include "layouts/floats/float_matrix.h"
#include "layouts/floats/requantize.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::float4_forms_test {
namespace {

const FloatForm& form_called(std::string_view id) {
  for (const FloatForm& f : float_forms())
    if (f.id == id) return f;
  throw std::runtime_error(std::string(id));
}

// A checkpoint's matrix [E, N, K/2] as the plain form has it; pairs: rows g0 u0 g1 u1 ...
struct Source {
  std::int64_t experts = 0, rows = 0, k = 0;
  const VecTensor *codes = nullptr, *scales = nullptr, *bias = nullptr;
  bool pairs = false;
  std::vector<float> second = {};  // [E]
};
CanonicalRows rows_of(const Source& s, const Matrix& m, std::int64_t e) {
  CanonicalRows rows;
  rows.shape(s.rows, m);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const std::int64_t from = e * s.rows + (s.pairs ? r % (s.rows / 2) * 2 + r / (s.rows / 2) : r);
    unpack_codes(s.codes->data.data() + from * s.k / 2, s.k, rows.codes.data() + r * rows.stride);
    for (std::int64_t g = 0; g < rows.groups; ++g)
      rows.scales[usize(r * rows.groups + g)] = load_scale(m.scales, s.scales->data.data() + from * rows.groups + g);
    if (s.bias != nullptr) rows.bias[usize(r)] = s.bias->floats()[usize(from)];
    if (!s.second.empty()) rows.tensor_scales[usize(r)] = s.second[usize(e)];
  }
  return rows;
}

void expect_bytes(std::span<const std::byte> got, const VecTensor& want, const std::string& what) {
  EXPECT_EQ(difference(want, got), "") << what;
}
// All experts of a tensor.
std::span<const std::byte> all_of(const Layout& l, std::span<const std::byte> payload, std::string_view name) {
  for (const LayoutTensor& t : l.tensors)
    if (t.name == name) return payload.subspan(t.offset, l.end_of(t) - t.offset);
  return {};
}

// --- NVFP4
// ------------------------------------------------------------------------------------------------------------

struct Nvfp4 {
  VecFile file;
  bool gated;
  Source w13, w2;
  std::vector<float> a13, a2;  // [E], the largest of an expert
  std::int64_t hidden, intermediate;

  explicit Nvfp4(const char* name) : file(load_vectors(std::string("float/") + name + ".safetensors")) {
    gated = file.has("w13_weight_packed");
    const VecTensor &c13 = file.at(gated ? "w13_weight_packed" : "w13"),
                    &c2 = file.at(gated ? "w2_weight_packed" : "w2");
    w13 = {.experts = c13.shape[0], .rows = c13.shape[1], .k = 2 * c13.shape[2], .codes = &c13};
    w2 = {.experts = c2.shape[0], .rows = c2.shape[1], .k = 2 * c2.shape[2], .codes = &c2};
    w13.scales = &file.at(gated ? "w13_weight_scale" : "w13_scale");
    w2.scales = &file.at(gated ? "w2_weight_scale" : "w2_scale");
    w13.second = file.at("w13_scale_2").as<float>(), w2.second = file.at("w2_scale_2").as<float>();
    const std::vector<float> each = file.at("a13_scale").as<float>();
    for (std::size_t e = 0; e < usize(w13.experts); ++e) {
      const std::size_t n = each.size() / usize(w13.experts);
      a13.push_back(*std::max_element(each.begin() + static_cast<std::ptrdiff_t>(e * n),
                                      each.begin() + static_cast<std::ptrdiff_t>((e + 1) * n)));
    }
    a2 = file.at("a2_scale").as<float>();
    hidden = w13.k, intermediate = w2.k;
  }
  std::vector<std::byte> convert(const Layout& l) const {
    std::vector<std::byte> payload(l.payload_bytes(), std::byte{0xaa});
    std::vector<ExpertFacts> facts;
    for (std::int64_t e = 0; e < l.experts; ++e) {
      for (const Which which : {Which::w13, Which::w2}) {
        CanonicalRows rows = rows_of(which == Which::w13 ? w13 : w2, l.matrix(which), e);
        EXPECT_TRUE(layout_family(l.kind)->write(rows, which, {l, payload.data(), e}));
      }
      facts.push_back({{a13[usize(e)], a2[usize(e)]}});
    }
    std::uint64_t rounded = 0;
    EXPECT_TRUE(layout_family(l.kind)->finish(l, facts, payload.data(), rounded));
    EXPECT_EQ(rounded, 0u);
    return payload;
  }
  Layout layout(const FloatForm& f, DType activations = DType::bf16) const {
    LayoutShape shape{.experts = w13.experts,
                      .hidden = hidden,
                      .intermediate = intermediate,
                      .groups = Groups::even(16),
                      .gated = gated,
                      .has_bias = false};
    shape.element = Element::e2m1;
    return make_float_layout(f.kind, shape, {.activations = activations});
  }
};

struct Nvfp4Case {
  const char *backend, *form;
};
constexpr std::array kNvfp4Cases = {Nvfp4Case{"FLASHINFER_CUTLASS", "flashinfer_cutlass/nvfp4"},
                                    Nvfp4Case{"VLLM_CUTLASS", "vllm_cutlass/nvfp4"},
                                    Nvfp4Case{"B12X", "b12x/nvfp4"},
                                    Nvfp4Case{"FLASHINFER_CUTEDSL", "flashinfer_cutedsl/nvfp4"},
                                    Nvfp4Case{"FLASHINFER_TRTLLM", "flashinfer_trtllm/nvfp4"},
                                    Nvfp4Case{"MARLIN", "marlin/nvfp4"},
                                    Nvfp4Case{"EMULATION", "plain/nvfp4"}};

TEST(Float4Forms, Nvfp4Bytes) {
  int compared = 0;
  for (const char* name : {"nvfp4", "nvfp4_nongated"}) {
    const Nvfp4 v(name);
    for (const Nvfp4Case& c : kNvfp4Cases) {
      if (!v.file.has(std::string(c.backend) + ".w13")) continue;
      const Layout l = v.layout(form_called(c.form));
      ASSERT_TRUE(layout_family(l.kind)->valid(l)) << c.form;
      EXPECT_EQ(l.id(), std::string(c.form) + "/1");
      const std::vector<std::byte> payload = v.convert(l);
      for (const PartNames& part : kPartNames)
        for (const bool first : {true, false}) {
          const std::string want = std::string(c.backend) + "." + std::string(first ? part.brief.w13 : part.brief.w2);
          if (!v.file.has(want)) continue;
          expect_bytes(all_of(l, payload, first ? part.tensor.w13 : part.tensor.w2), v.file.expected(want),
                       name + (" " + want));
          ++compared;
        }
      if (v.file.has(std::string(c.backend) + ".hidden")) {
        EXPECT_EQ(padded_hidden(l), v.file.at(std::string(c.backend) + ".hidden").as<std::int32_t>()[0]);
        EXPECT_EQ(padded_intermediate(l), v.file.at(std::string(c.backend) + ".intermediate").as<std::int32_t>()[0]);
        compared += 2;
      }
    }
  }
  EXPECT_EQ(compared, 6 * 8 + 6 + 2 * 4 + 2);
}

// No vector: the rows of VLLM_CUTLASS, the scalars of the FlashInfer family.
TEST(Float4Forms, BatchedCuteDsl) {
  const Nvfp4 v("nvfp4");
  const Layout l = v.layout(form_called("flashinfer_cutedsl_batched/nvfp4"));
  const std::vector<std::byte> payload = v.convert(l);
  for (const char* tensor : {"w13", "s13", "g13", "w2", "s2", "g2"})
    expect_bytes(all_of(l, payload, layout_families::floats.parts.name_of(tensor)),
                 v.file.expected(std::string("VLLM_CUTLASS.") + tensor), tensor);
  for (const char* tensor : {"a13", "a2"})
    expect_bytes(all_of(l, payload, layout_families::floats.parts.name_of(tensor)),
                 v.file.expected(std::string("FLASHINFER_CUTLASS.") + tensor), tensor);
}

// --- MXFP4
// ------------------------------------------------------------------------------------------------------------

struct GptOss {
  VecFile file = load_vectors("float/mxfp4_gptoss.safetensors");
  Source w13, w2;
  explicit GptOss(bool pairs = true) { w13 = source("gate_up_proj", pairs), w2 = source("down_proj", false); }
  Source source(const std::string& name, bool pairs) const {
    const VecTensor& c = file.at(name + "_blocks");
    return {.experts = c.shape[0],
            .rows = c.shape[1],
            .k = 32 * c.shape[2],
            .codes = &c,
            .scales = &file.at(name + "_scales"),
            .bias = &file.at(name + "_bias"),
            .pairs = pairs};
  }
  Layout layout(const FloatForm& f, bool pairs, bool bias = true, bool vllm = false) const {
    LayoutShape shape{.experts = w13.experts,
                      .hidden = w13.k,
                      .intermediate = w2.k,
                      .groups = Groups::even(32),
                      .gated = true,
                      .has_bias = bias};
    shape.element = Element::e2m1;
    return make_float_layout(f.kind, shape, {.mx = true, .gate_up_pairs = pairs, .bit_compat_vllm = vllm});
  }
};

// Tensors of all experts as the layout has them, but for the sizes, which are not padded: what vLLM's conversion
// gets is padded before, and the vectors were made without.
struct Written {
  std::array<std::vector<std::byte>, kLayoutParts> part;
};
Written unpadded(const Source& s, const Layout& l, Which which) {
  FloatForm form = *float_form(l);
  form.hidden_padding = form.intermediate_padding = form.ungated_padding = 1;
  FloatMatrix m = float_matrix(l, which);
  m.form = &form, m.padded_half_rows = m.source.half_rows, m.padded_k = m.source.k;
  Written all;
  for (std::int64_t e = 0; e < l.experts; ++e) {
    CanonicalRows rows = rows_of(s, m.source, e), back;
    Written one;
    one.part[usize(LayoutPart::weight)].resize(usize(m.rows() * m.row_bytes()));
    one.part[usize(LayoutPart::scale)].resize(
        usize(m.rows() * m.groups() * (form.scales == ScalePlace::floats ? 4 : 1)));
    one.part[usize(LayoutPart::bias)].resize(usize(4 * m.rows()));
    FloatBytes<std::byte> out{.bias = DType::f32};
    FloatBytes<const std::byte> in{.bias = DType::f32};
    for (std::size_t p = 0; p < kLayoutParts; ++p) {
      out.part[p] = one.part[p].empty() ? nullptr : one.part[p].data();
      in.part[p] = out.part[p];
    }
    const CanonicalRows before = rows;
    EXPECT_TRUE(write_float_matrix(m, rows, out));
    back.shape(s.rows, m.source);
    read_float_matrix(m, in, back);
    EXPECT_EQ(back.codes, before.codes) << form.id;
    EXPECT_EQ(back.scales, before.scales) << form.id;
    EXPECT_EQ(back.bias, before.bias) << form.id;
    for (std::size_t p = 0; p < kLayoutParts; ++p)
      all.part[p].insert(all.part[p].end(), one.part[p].begin(), one.part[p].end());
  }
  return all;
}

struct MxCase {
  const char *prefix, *form;
  bool pairs;  // of the source
};
constexpr std::array kMxCases = {
    MxCase{"trtllm", "flashinfer_trtllm/mxfp4", true},
    MxCase{"trtllm_split", "flashinfer_trtllm/mxfp4", false},
    MxCase{"ficutlass_mxfp8", "flashinfer_cutlass/mxfp4-mxfp8", true},
    MxCase{"ficutlass_bf16", "flashinfer_cutlass/mxfp4-bf16", true},
    MxCase{"marlin", "marlin/mxfp4", true},
    MxCase{"cpu", "vnni/mxfp4", true},
    MxCase{"deepgemm", "deepgemm/mxfp4", false},
    MxCase{"aiter", "aiter/mxfp4-bf16", true},
};

TEST(Float4Forms, Mxfp4Bytes) {
  int compared = 0;
  for (const MxCase& c : kMxCases) {
    const GptOss v(c.pairs);
    // The source of deepgemm's vector, as that of CPU and Marlin, has rows as they are.
    const Layout l = v.layout(form_called(c.form), c.pairs);
    for (const Which which : {Which::w13, Which::w2}) {
      if (c.prefix == std::string("aiter") && which == Which::w2) continue;  // its 4 groups are no whole lanes
      const Written got = unpadded(which == Which::w13 ? v.w13 : v.w2, l, which);
      for (std::size_t p = 0; p < kLayoutParts; ++p) {
        const std::string_view part = kPartNames[p].brief.of(which);
        const std::string want = std::string(c.prefix) + "." + std::string(part);
        if (!v.file.has(want)) continue;
        expect_bytes(got.part[p], v.file.expected(want), want);
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 5 * 6 + 4 + 1 + 2);
}

// Gate and up apart, before anything else is made of them.
TEST(Float4Forms, GateAndUpApart) {
  const GptOss v;
  const Layout l = v.layout(form_called("plain/mxfp4"), false);
  expect_bytes(unpadded(v.w13, l, Which::w13).part[usize(LayoutPart::weight)], v.file.expected("deint.w13"),
               "deint.w13");
}

// AITER's order of scales does not depend on the rows: those of w2, which has no gate, in vLLM's second form.
TEST(Float4Forms, AiterScalesOfW2) {
  const GptOss v;
  const Layout l = v.layout(form_called("aiter/mxfp4-mxfp4"), true);
  const FloatMatrix m = float_matrix(l, Which::w2);  // padded: 8 groups
  std::vector<std::byte> weight(usize(m.rows() * m.row_bytes())), scale(usize(m.rows() * m.groups()));
  CanonicalRows rows = rows_of(v.w2, m.source, 1);
  FloatBytes<std::byte> out;
  out.part = {weight.data(), scale.data()};
  ASSERT_TRUE(write_float_matrix(m, rows, out));
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t g = 0; g < m.groups(); ++g) {
      // [m/32, 2, 16, n/8, 2, 4] to (0, 3, 5, 2, 4, 1)
      const std::array<std::int64_t, 6> i = {r / 32, r % 32 / 16, r % 16, g / 8, g % 8 / 4, g % 4};
      const std::int64_t at = ((((i[0] * (m.groups() / 8) + i[3]) * 4 + i[5]) * 16 + i[2]) * 2 + i[4]) * 2 + i[1];
      const auto want = g < 4 ? v.w2.scales->data[usize((m.rows() + r) * 4 + g)] : std::byte{0};
      ASSERT_EQ(scale[usize(at)], want) << r << "," << g;
    }
}

// 2^-127 as float32, and vLLM's shift.
TEST(Float4Forms, SmallestPower) {
  const GptOss v;
  for (const bool vllm : {false, true}) {
    const Layout l = v.layout(form_called("deepgemm/mxfp4"), false, false, vllm);
    EXPECT_EQ(l.id(), vllm ? "deepgemm/mxfp4-vllm/1" : "deepgemm/mxfp4/1");
    CanonicalRows rows = rows_of(v.w2, l.w2, 0);
    rows.scales[5] = power_of_two(-126) / 2;
    rows.scales[6] = power_of_two(-126);
    std::vector<std::byte> payload(l.payload_bytes());
    const ExpertTensors<std::byte> out{l, payload.data(), 0};
    ASSERT_TRUE(layout_family(l.kind)->write(rows, Which::w2, out));
    const std::byte* s2 = out["w2_scale"].data() + 4 * 5;
    EXPECT_EQ(load<std::uint32_t>(s2), vllm ? 0u : 0x00400000u);
    EXPECT_EQ(load<std::uint32_t>(s2 + 4), 0x00800000u);
  }
}

// --- scales
// -----------------------------------------------------------------------------------------------------------

CanonicalRows two_rows(float gate, float up) {
  CanonicalRows rows;
  rows.shape(2, {.element = Element::e2m1,
                 .scales = Scales::e4m3,
                 .half_rows = 1,
                 .halves = 2,
                 .k = 127 * 16,
                 .groups = Groups::even(16)});
  for (std::size_t i = 0; i < rows.scales.size(); ++i)
    rows.scales[i] = small_to_f32(kE4m3, static_cast<unsigned>(i % 127));
  rows.tensor_scales = {gate, up};
  return rows;
}

TEST(Float4Scales, GateAndUpComeToHaveOne) {
  for (const bool up_is_larger : {false, true})
    for (const float ratio : {0.5f, 0.7f, 0x1p-12f, 0.0f}) {
      const float large = 0.0123f, small = large * ratio;
      const CanonicalRows before = up_is_larger ? two_rows(small, large) : two_rows(large, small);
      CanonicalRows rows = before;
      share_tensor_scale(rows, false);
      EXPECT_EQ(rows.tensor_scales, (std::vector<float>{large, large}));
      std::uint64_t inexact = 0;
      for (std::size_t i = 0; i < 127; ++i) {
        const std::size_t made = up_is_larger ? i : 127 + i, kept = up_is_larger ? 127 + i : i;
        EXPECT_EQ(rows.scales[kept], before.scales[kept]);
        const float want = small_to_f32(kE4m3, f32_to_small(kE4m3, before.scales[made] * (small / large)));
        EXPECT_EQ(rows.scales[made], want);
        inexact += static_cast<double>(want) * static_cast<double>(large) !=
                   static_cast<double>(before.scales[made]) * static_cast<double>(small);
      }
      EXPECT_EQ(rows.scales_rounded, inexact);
      EXPECT_EQ(rows.scales_rounded > 0, ratio != 0.0f);
    }
}

TEST(Float4Scales, CloseOnesAndUpstreamTakeGates) {
  const auto expect_gates = [](float gate, float up, bool as_vllm) {
    const CanonicalRows before = two_rows(gate, up);
    CanonicalRows rows = before;
    share_tensor_scale(rows, as_vllm);
    EXPECT_EQ(rows.tensor_scales, (std::vector<float>{gate, gate}));
    EXPECT_EQ(rows.scales, before.scales);
    EXPECT_EQ(rows.scales_rounded, 0u);
  };
  expect_gates(0.25f, 0.25f, false);
  expect_gates(0.25f, 0.250002f, false);
  expect_gates(0.25f, 1.0f, true);
  expect_gates(1.0f, 0.25f, true);
}

// All bytes of scales, for each largest one: against the definition with halves.
TEST(Float4Scales, MarlinsFloats) {
  for (const DType type : {DType::bf16, DType::f16})
    for (unsigned most = 0; most <= kE4m3.largest; ++most) {
      std::vector<std::byte> scales, before;
      for (unsigned b = 0; b <= most; ++b) scales.push_back(static_cast<std::byte>(b));
      before = scales;
      const float top = small_to_f32(kE4m3, most);
      const float lift = type == DType::f16 || most == 0 ? 1.0f : std::exp2(std::floor(std::log2(448.0f / top)));
      const float g = 0.037f;
      std::vector<std::byte> global(4);
      std::memcpy(global.data(), &g, 4);
      std::uint64_t lost = 0;
      const std::uint64_t said = finish_marlin_nvfp4(type, scales, global);
      EXPECT_EQ(load<float>(global.data()), g * (type == DType::f16 ? 0x1p7f : 0x1p119f) / lift);
      EXPECT_FLOAT_EQ(marlin_nvfp4_scale(type, load<float>(global.data())), g / lift);
      for (std::size_t i = 0; i < scales.size(); ++i) {
        const float s = small_to_f32(kE4m3, static_cast<unsigned>(before[i]));
        std::uint16_t half = f32_to_f16(f16_to_f32(f32_to_f16(f16_to_f32(f32_to_f16(s)) * lift)) * 128.0f);
        if (f16_to_f32(half) < 2.0f) half = 0;
        const auto want = static_cast<std::uint8_t>(static_cast<std::uint16_t>(half << 1) >> 8);
        ASSERT_EQ(static_cast<unsigned>(scales[i]), want) << most << " " << i;
        lost += want == 0 && s > 0 ? 1 : 0;
      }
      EXPECT_EQ(said, lost);
    }
}

// The second scale becomes one of Marlin's also where only the lift of the scales makes room for it; else it is named.
TEST(Float4Scales, MarlinsSecondScaleIsFinite) {
  for (const auto& [scale, global, fits] : {std::tuple(0x08, 1e5f, true), std::tuple(0x7e, 511.0f, true),
                                            std::tuple(0x7e, 512.0f, false), std::tuple(0x08, 1e38f, false)}) {
    const Nvfp4 v("nvfp4");
    const Layout l = v.layout(form_called("marlin/nvfp4"));
    std::vector<std::byte> payload(l.payload_bytes(), std::byte{0});
    for (const LayoutTensor& t : l.tensors) {
      if (t.name == "w2_scale")
        std::fill_n(payload.begin() + static_cast<std::ptrdiff_t>(t.offset), t.bytes * 2,
                    static_cast<std::byte>(scale));
      if (t.name == "w2_scale_2") std::memcpy(payload.data() + t.offset + t.bytes, &global, 4);
    }
    std::uint64_t rounded = 0;
    const Check done = layout_family(l.kind)->finish(l, std::vector<ExpertFacts>(2), payload.data(), rounded);
    ASSERT_EQ(static_cast<bool>(done), fits) << global;
    if (done) continue;
    EXPECT_EQ(done.error().code, Code::invalid_argument);
    EXPECT_EQ(done.error().subject, "w2_scale_2");
  }
}

// A layout whose kernels take the reciprocal of the activations' scale.
TEST(Float4Scales, ReciprocalOfNothing) {
  const Nvfp4 v("nvfp4");
  const Layout l = v.layout(form_called("plain/nvfp4"));
  std::vector<std::byte> payload(l.payload_bytes());
  std::uint64_t rounded = 0;
  const Check done = layout_family(l.kind)->finish(l, std::vector<ExpertFacts>(2), payload.data(), rounded);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::invalid_argument);
  EXPECT_EQ(done.error().subject, "w13_input_scale");
}

// --- padding
// ----------------------------------------------------------------------------------------------------------

// Rows and columns behind the checkpoint's are 0, in each half, and numbers come back.
TEST(Float4Forms, PaddingIsZero) {
  const FloatForm& f = form_called("plain/mxfp4-rocm");
  LayoutShape shape{
      .experts = 1, .hidden = 96, .intermediate = 160, .groups = Groups::even(32), .gated = true, .has_bias = true};
  shape.element = Element::e2m1;
  const Layout l = make_float_layout(f.kind, shape, {.mx = true});
  EXPECT_EQ(padded_hidden(l), 256);
  EXPECT_EQ(padded_intermediate(l), 256);
  std::vector<std::byte> payload(l.payload_bytes(), std::byte{0xaa});
  CanonicalRows rows;
  rows.shape(320, l.w13);
  std::fill(rows.codes.begin(), rows.codes.end(), std::int8_t{5});
  std::fill(rows.scales.begin(), rows.scales.end(), 1.0f);
  std::fill(rows.bias.begin(), rows.bias.end(), 1.0f);
  const ExpertTensors<std::byte> out{l, payload.data(), 0};
  ASSERT_TRUE(layout_family(l.kind)->write(rows, Which::w13, out));
  for (std::size_t n = 0; n < 512; ++n) {
    const bool row = n % 256 < 160;
    for (std::size_t b = 0; b < 128; ++b)
      ASSERT_EQ(out["w13_weight"][n * 128 + b], row && b < 48 ? std::byte{0x55} : std::byte{0}) << n << "," << b;
    for (std::size_t g = 0; g < 8; ++g)
      ASSERT_EQ(out["w13_scale"][n * 8 + g], row && g < 3 ? std::byte{127} : std::byte{0}) << n << "," << g;
    EXPECT_EQ(load<std::uint16_t>(out["w13_bias"].data() + 2 * n), row ? 0x3f80 : 0);
  }
}

}  // namespace
}  // namespace moe::test::float4_forms_test
