// The table of float layouts, and which tensors each has. See float_layout.h.
#include "layouts/floats/float_layout.h"

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"
#include "layouts/families.h"

namespace moe {
namespace {

using enum Grain;

constexpr float kLeastFlashInferScale = 1e-10f;

constexpr FloatForm form(LayoutKind kind, Grain grain, std::string_view id, WeightPlace place, ScalePlace scales) {
  return {.kind = kind, .grain = grain, .id = id, .place = place, .scales = scales};
}
constexpr FloatForm with_steps(FloatForm f, std::int64_t hidden, std::int64_t intermediate, std::int64_t w13_rows = 1) {
  f.hidden_step = hidden, f.intermediate_step = intermediate, f.w13_rows_step = w13_rows;
  return f;
}
constexpr FloatForm up_first(FloatForm f, int interleave = 0, int shuffle = 0) {
  f.up_first = true, f.interleave = interleave, f.shuffle = shuffle;
  return f;
}
constexpr FloatForm padded(FloatForm f, std::int64_t hidden, std::int64_t intermediate, std::int64_t ungated) {
  f.hidden_padding = hidden, f.intermediate_padding = intermediate, f.ungated_padding = ungated;
  return f;
}
constexpr FloatForm padded(FloatForm f) { return padded(f, 1, 16, 128); }
constexpr FloatForm padded(FloatForm f, std::int64_t hidden, std::int64_t intermediate) {
  return padded(f, hidden, intermediate, intermediate);
}
constexpr FloatForm apart(FloatForm f, int interleave) {
  f.apart = true, f.interleave = interleave;
  return f;
}
constexpr FloatForm nvfp4_form(LayoutKind kind, std::string_view id, ScalePlace scales, InputScales inputs) {
  FloatForm f = form(kind, nvfp4, id, WeightPlace::rows, scales);
  f.inputs = inputs;
  return f;
}
// Tiles of 128 rows of scales: those of w13 are filled up without a gate.
constexpr FloatForm tiled_nvfp4(LayoutKind kind, std::string_view id, InputScales inputs) {
  return with_steps(padded(nvfp4_form(kind, id, ScalePlace::swizzled, inputs), 1, 1, 128), 1, 1, 128);
}
constexpr FloatForm mxfp4_form(LayoutKind kind, std::string_view id, WeightPlace place, ScalePlace scales,
                               std::int64_t hidden, std::int64_t intermediate) {
  return padded(form(kind, mxfp4, id, place, scales), hidden, intermediate);
}
constexpr FloatForm at_least(FloatForm f, float scale) {
  f.least_scale = scale;
  return f;
}

// clang-format off
constexpr std::array kForms = {
    form(LayoutKind::float_plain, tensor,  "plain/fp8-tensor",  WeightPlace::rows, ScalePlace::one),
    form(LayoutKind::float_plain, channel, "plain/fp8-channel", WeightPlace::rows, ScalePlace::rows),
    form(LayoutKind::float_plain, block,   "plain/fp8-block",   WeightPlace::rows, ScalePlace::blocks),
    form(LayoutKind::float_plain, values,  "plain/unquantized", WeightPlace::rows, ScalePlace::none),

    padded(up_first(form(LayoutKind::float_flashinfer_cutlass, tensor, "flashinfer_cutlass/fp8-tensor",  WeightPlace::rows, ScalePlace::one))),
    at_least(up_first(form(LayoutKind::float_flashinfer_cutlass, block, "flashinfer_cutlass/fp8-block",  WeightPlace::rows, ScalePlace::blocks)), kLeastFlashInferScale),
    up_first(form(LayoutKind::float_flashinfer_cutlass, values,         "flashinfer_cutlass/unquantized", WeightPlace::rows, ScalePlace::none)),

    with_steps(padded(up_first(form(LayoutKind::float_flashinfer_trtllm, tensor, "flashinfer_trtllm/fp8-tensor", WeightPlace::rows, ScalePlace::one), 1, 32)), 32, 1, 32),
    with_steps(at_least(up_first(form(LayoutKind::float_flashinfer_trtllm, block, "flashinfer_trtllm/fp8-block", WeightPlace::blocks, ScalePlace::blocks), 0, 16), kLeastFlashInferScale), 128, 128),
    with_steps(up_first(form(LayoutKind::float_flashinfer_trtllm, mx,     "flashinfer_trtllm/mxfp8",       WeightPlace::rows,   ScalePlace::swizzled), 1, 32), 128, 128),
    with_steps(up_first(form(LayoutKind::float_flashinfer_trtllm, values, "flashinfer_trtllm/unquantized", WeightPlace::blocks, ScalePlace::none), 1, 32), 64, 64),

    with_steps(form(LayoutKind::float_marlin, tensor,  "marlin/fp8-tensor",  WeightPlace::marlin, ScalePlace::marlin), 64, 16, 64),
    with_steps(form(LayoutKind::float_marlin, channel, "marlin/fp8-channel", WeightPlace::marlin, ScalePlace::marlin), 64, 16, 64),
    with_steps(form(LayoutKind::float_marlin, block,   "marlin/fp8-block",   WeightPlace::marlin, ScalePlace::marlin), 64, 16, 64),
    with_steps(form(LayoutKind::float_marlin, mx,      "marlin/mxfp8",       WeightPlace::marlin, ScalePlace::marlin_bytes), 64, 16, 64),

    with_steps(form(LayoutKind::float_deep_gemm, block, "deepgemm/fp8-ue8m0", WeightPlace::rows, ScalePlace::packed), 128, 128),
    with_steps(form(LayoutKind::float_deep_gemm, block, "deepgemm/fp8-block", WeightPlace::rows, ScalePlace::by_columns), 128, 128),

    with_steps(form(LayoutKind::float_aiter, tensor,  "aiter/fp8-tensor",  WeightPlace::tiles16, ScalePlace::one),    32, 32),
    with_steps(form(LayoutKind::float_aiter, channel, "aiter/fp8-channel", WeightPlace::tiles16, ScalePlace::rows),   32, 32),
    with_steps(form(LayoutKind::float_aiter, block,   "aiter/fp8-block",   WeightPlace::tiles16, ScalePlace::blocks), 32, 32),
    with_steps(form(LayoutKind::float_aiter, values,  "aiter/unquantized", WeightPlace::tiles16, ScalePlace::none),   32, 32),

    form(LayoutKind::float_xpu, tensor, "xpu/fp8-tensor",  WeightPlace::transposed, ScalePlace::one),
    form(LayoutKind::float_xpu, mx,     "xpu/mxfp8",       WeightPlace::transposed, ScalePlace::bytes),
    form(LayoutKind::float_xpu, values, "xpu/unquantized", WeightPlace::transposed, ScalePlace::none),

    with_steps(form(LayoutKind::float_vnni, block,  "vnni/fp8",         WeightPlace::pairs, ScalePlace::blocks), 32, 32),
    with_steps(form(LayoutKind::float_vnni, values, "vnni/unquantized", WeightPlace::pairs, ScalePlace::none),   32, 32),

    with_steps(form(LayoutKind::float_cutlass_w4a8, int4, "cutlass/w4a8_fp8-encoded", WeightPlace::nibbles, ScalePlace::split), 256, 256),

    up_first(tiled_nvfp4(LayoutKind::float_flashinfer_cutlass, "flashinfer_cutlass/nvfp4",         InputScales::largest)),
    up_first(tiled_nvfp4(LayoutKind::float_b12x,               "b12x/nvfp4",                       InputScales::own)),
    tiled_nvfp4(LayoutKind::float_vllm_cutlass,                "vllm_cutlass/nvfp4",               InputScales::own),
    tiled_nvfp4(LayoutKind::float_cutedsl_batched,             "flashinfer_cutedsl_batched/nvfp4", InputScales::largest),
    with_steps(up_first(nvfp4_form(LayoutKind::float_cutedsl,  "flashinfer_cutedsl/nvfp4", ScalePlace::swizzled, InputScales::largest), 64), 1, 64),
    with_steps(padded(up_first(nvfp4_form(LayoutKind::float_flashinfer_trtllm, "flashinfer_trtllm/nvfp4", ScalePlace::swizzled, InputScales::largest), 1, 32), 256, 16, 128), 256, 64, 128),
    with_steps(form(LayoutKind::float_marlin, nvfp4, "marlin/nvfp4", WeightPlace::marlin, ScalePlace::marlin_bytes), 64, 16, 64),
    nvfp4_form(LayoutKind::float_plain,                        "plain/nvfp4", ScalePlace::bytes, InputScales::reciprocal),

    up_first(mxfp4_form(LayoutKind::float_flashinfer_trtllm,  "flashinfer_trtllm/mxfp4",        WeightPlace::rows,     ScalePlace::swizzled,     256, 256), 1, 32),
    up_first(mxfp4_form(LayoutKind::float_flashinfer_cutlass, "flashinfer_cutlass/mxfp4-mxfp8", WeightPlace::rows,     ScalePlace::swizzled,     128, 128)),
    up_first(mxfp4_form(LayoutKind::float_flashinfer_hopper,  "flashinfer_cutlass/mxfp4-bf16",  WeightPlace::hopper,   ScalePlace::folded,       128, 128)),
    mxfp4_form(LayoutKind::float_marlin,                      "marlin/mxfp4",                   WeightPlace::marlin,   ScalePlace::marlin_bytes, 256, 128),
    mxfp4_form(LayoutKind::float_vnni,                        "vnni/mxfp4",                     WeightPlace::blocks32, ScalePlace::blocks32,      32,  32),
    mxfp4_form(LayoutKind::float_deep_gemm,                   "deepgemm/mxfp4",                 WeightPlace::rows,     ScalePlace::floats,       128, 128),
    apart(mxfp4_form(LayoutKind::float_aiter_a16w4,           "aiter/mxfp4-bf16",               WeightPlace::tiles16,  ScalePlace::lanes,        256, 256), 16),
    mxfp4_form(LayoutKind::float_aiter,                       "aiter/mxfp4-mxfp4",              WeightPlace::tiles16,  ScalePlace::lanes,        256, 256),
    mxfp4_form(LayoutKind::float_plain,                       "plain/mxfp4",                    WeightPlace::rows,     ScalePlace::bytes,          1,  64),
    mxfp4_form(LayoutKind::float_plain_rocm,                  "plain/mxfp4-rocm",               WeightPlace::rows,     ScalePlace::bytes,        256, 256),
};
// clang-format on

constexpr std::array<std::string_view, 2> kCutlassNeeds = {"cutlass_reorder", "cutlass_pack_scales"};

Grain grain_of(const Matrix& m) {
  if (is_value(m.element)) return values;
  if (m.element == Element::e2m1) return m.scales == Scales::e8m0 ? mxfp4 : nvfp4;
  if (is_integer(m.element)) return int4;
  if (m.scale_rows == kAllRows) return tensor;
  if (m.scale_rows != 1) return block;
  return m.scales == Scales::e8m0 ? mx : channel;
}

// --- tensors ------------------------------------------------------------------------------------------

LayoutTensor tensor_of(DType dtype, std::vector<std::int64_t> shape) {
  return {.name = {}, .dtype = dtype, .shape = std::move(shape)};
}

MaybeTensor weight(const Layout&, const FloatMatrix& m) {
  const std::int64_t n = m.rows(), k = m.padded_k, wide = kBlockSize / std::max(m.element_bytes(), 1);
  if (m.four_bits()) {
    if (m.form->place == WeightPlace::marlin) return tensor_of(DType::i32, {k / 16, 2 * n});
    return tensor_of(DType::u8, {n, k / 2});
  }
  const DType dtype = is_value(m.source.element) ? value_type(m.source.element)
                      : m.fnuz                   ? DType::f8_e4m3fnuz
                                                 : DType::f8_e4m3fn;
  switch (m.form->place) {
    case WeightPlace::rows:
    case WeightPlace::tiles16:
    case WeightPlace::pairs:
      return tensor_of(dtype, {n, k});
    case WeightPlace::transposed:
      return tensor_of(dtype, {k, n});
    case WeightPlace::blocks:
      return tensor_of(dtype, {k / wide, n, wide});
    case WeightPlace::marlin:
      return tensor_of(DType::i32, {k / 16, 4 * n});
    default:
      return tensor_of(DType::u8, {n, k / 2});
  }
}

// Of each group the rows, one behind the other.
LayoutTensor by_groups(DType dtype, std::int64_t rows, std::int64_t groups) {
  LayoutTensor t = tensor_of(dtype, {rows, groups});
  const std::int64_t step = round_up<std::int64_t>(rows, 4);
  t.strides = {groups * step, 1, step};
  return t;
}

MaybeTensor scale(const Layout&, const FloatMatrix& m) {
  const std::int64_t n = m.rows(), g = m.groups();
  const DType byte = m.form->grain == nvfp4 ? DType::f8_e4m3fn : DType::u8;
  switch (m.form->scales) {
    case ScalePlace::none:
      return std::nullopt;
    case ScalePlace::one:
      return tensor_of(DType::f32, {});
    case ScalePlace::rows:
      return tensor_of(DType::f32, {n, 1});
    case ScalePlace::blocks:
      return tensor_of(DType::f32, {m.row_blocks(), g});
    case ScalePlace::bytes:
    case ScalePlace::lanes:
    case ScalePlace::blocks32:
      return tensor_of(byte, {n, g});
    case ScalePlace::swizzled:
      return tensor_of(byte, {round_up<std::int64_t>(n, 128), round_up<std::int64_t>(g, 4)});
    case ScalePlace::folded:
      return tensor_of(byte, {n / 64, g / 4, 16, 16});
    case ScalePlace::floats:
      return tensor_of(DType::f32, {n, g});
    case ScalePlace::marlin:
      return tensor_of(m.source.scales == Scales::f16 ? DType::f16 : DType::bf16, {g, n});
    case ScalePlace::marlin_bytes:
      return tensor_of(DType::u8, {g, n});
    case ScalePlace::by_columns:
      return by_groups(DType::f32, m.row_blocks(), g);
    case ScalePlace::packed:
      return by_groups(DType::i32, n, ceil_div<std::int64_t>(g, 4));
    case ScalePlace::split:
      return tensor_of(DType::f8_e4m3fn, {n, g});
  }
  return std::nullopt;
}

MaybeTensor second_scale(const Layout&, const FloatMatrix& m) {
  if (m.form->grain == nvfp4) return tensor_of(DType::f32, {});
  if (m.form->scales != ScalePlace::split) return std::nullopt;
  return tensor_of(DType::f32, {m.rows(), 1});
}

MaybeTensor input_scale(const Layout& l, const FloatMatrix& m) {
  if (!l.variant.input_scales) return std::nullopt;
  if (m.form->inputs == InputScales::largest || m.form->inputs == InputScales::own) return tensor_of(DType::f32, {});
  LayoutTensor t = tensor_of(DType::f32, {1});
  t.shared = true;
  return t;
}

MaybeTensor alpha(const Layout& l, const FloatMatrix& m) {
  if (!l.variant.input_scales || m.form->grain != tensor || l.kind != LayoutKind::float_flashinfer_cutlass)
    return std::nullopt;
  return tensor_of(DType::f32, {});
}

MaybeTensor bias(const Layout& l, const FloatMatrix& m) {
  if (!m.source.has_bias) return std::nullopt;
  DType dtype = l.variant.bias;
  for (const LayoutKind kind : {LayoutKind::float_flashinfer_trtllm, LayoutKind::float_aiter,
                                LayoutKind::float_aiter_a16w4, LayoutKind::float_vnni})
    if (l.kind == kind) dtype = DType::f32;
  for (const LayoutKind kind : {LayoutKind::float_flashinfer_cutlass, LayoutKind::float_flashinfer_hopper})
    if (l.kind == kind && m.w13) dtype = DType::bf16;
  return tensor_of(dtype, {m.rows()});
}

struct FloatPart {
  LayoutPart part;
  MaybeTensor (*tensor)(const Layout&, const FloatMatrix&);
};
constexpr std::array kParts = {
    FloatPart{LayoutPart::weight, weight},        FloatPart{LayoutPart::scale, scale},
    FloatPart{LayoutPart::scale_2, second_scale}, FloatPart{LayoutPart::input_scale, input_scale},
    FloatPart{LayoutPart::alpha, alpha},          FloatPart{LayoutPart::bias, bias}};
static_assert(std::all_of(kParts.begin(), kParts.end(), [](const FloatPart& p) { return kFloatParts.has(p.part); }));

// --- the family --------------------------------------------------------------------------------------

bool is_grouped_so(const Matrix& m, Grain grain) {
  switch (grain) {
    case block:
      return m.groups == Groups::of_size(kBlockSize, m.k) && m.scale_rows == kBlockSize;
    case nvfp4:
      return m.groups == Groups::of_size(16, m.k) && m.k % 16 == 0 && m.scale_rows == 1;
    case mxfp4:
      if (m.scale_rows != 1) return false;
      [[fallthrough]];
    case mx:
      return m.groups == Groups::of_size(32, m.k) && m.k % 32 == 0;
    case int4:
      return m.groups == Groups::of_size(kBlockSize, m.k) && m.k % kBlockSize == 0 && m.scale_rows == 1;
    default:
      return m.groups.is_whole();
  }
}

// Forms of which bit_compat makes other bytes.
bool has_vllm_way(const FloatForm& f) {
  return f.grain == tensor || f.grain == nvfp4 || f.scales == ScalePlace::floats;
}

bool is_variant(const Layout& l, const FloatForm& f) {
  const LayoutVariant& v = l.variant;
  const bool none =
      v.input == MarlinInput::none && !v.awq && !v.channel_wise && v.zero_shift == 0 && v.multiprocessors == 0;
  const bool number = f.grain == nvfp4 && f.place == WeightPlace::marlin
                          ? v.number == DType::f16 || v.number == DType::bf16
                          : v.number == DType::invalid;
  const bool inputs = f.grain == nvfp4 ? v.input_scales == (f.inputs != InputScales::none)
                                       : !v.input_scales || f.scales == ScalePlace::one;
  const bool bias = l.w13.has_bias ? is_float16_or_32(v.bias) : v.bias == DType::invalid;
  const bool amd = l.kind == LayoutKind::float_plain || l.kind == LayoutKind::float_aiter;
  return none && number && bias && inputs && (!v.bit_compat_vllm || has_vllm_way(f)) &&
         (!v.gate_up_pairs || (l.w13.halves == 2 && !f.up_first && !f.apart)) &&
         (!v.fnuz || (amd && l.w13.element == Element::e4m3));
}

}  // namespace

std::string float_id(const Layout& l) {
  const FloatForm* f = float_form(l);
  if (f == nullptr) return "";
  std::string s(f->id);
  if (f->grain == values) s += cat("-", row_of(l.w13.element).name);
  if (l.variant.fnuz) s += "-fnuz";
  if (l.w13.has_bias) s += "-bias";
  return s + (l.variant.bit_compat_vllm ? "-vllm/1" : "/1");
}

bool is_float_layout(const Layout& l) {
  const Matrix &w13 = l.w13, &w2 = l.w2;
  const bool same = w13.element == w2.element && w13.scales == w2.scales && w13.scale_rows == w2.scale_rows &&
                    w13.has_bias == w2.has_bias && w13.k == w2.half_rows && w13.half_rows == w2.k && w2.halves == 1;
  const bool plain = !w13.has_zeros && !w2.has_zeros && !w13.has_order && !w2.has_order && !w13.source && !w2.source;
  const bool element = is_value(w13.element) || w13.element == Element::e4m3 || w13.element == Element::int4 ||
                       w13.element == Element::e2m1;
  const FloatForm* f = same && plain && element ? float_form(l) : nullptr;
  return f != nullptr && is_grouped_so(w13, f->grain) && is_grouped_so(w2, f->grain) && is_variant(l, *f) &&
         padded_hidden(l) % f->hidden_step == 0 && padded_intermediate(l) % f->intermediate_step == 0 &&
         float_matrix(l, Which::w13).rows() % f->w13_rows_step == 0;
}

void list_float(Layout& l) {
  if (float_form(l) == nullptr) return;  // of a damaged file
  const FloatMatrix w13 = float_matrix(l, Which::w13), w2 = float_matrix(l, Which::w2);
  for (const FloatPart& p : kParts)
    for (const FloatMatrix* m : {&w13, &w2})
      if (MaybeTensor t = p.tensor(l, *m)) {
        t->name = part_name(m->w13 ? Which::w13 : Which::w2, p.part);
        l.tensors.push_back(*std::move(t));
      }
}

bool FloatForm::keeps(Scales type) const {
  if (grain == mxfp4) return type == Scales::e8m0;
  if (grain == nvfp4) return type == Scales::e4m3;
  switch (scales) {
    case ScalePlace::none:
      return type == Scales::none;
    case ScalePlace::marlin:
      return type == Scales::f16 || type == Scales::bf16;
    case ScalePlace::bytes:
    case ScalePlace::swizzled:
    case ScalePlace::marlin_bytes:
    case ScalePlace::packed:
      return type == Scales::e8m0;
    case ScalePlace::split:
      return type == Scales::e4m3;
    default:
      return type == Scales::f32;
  }
}

std::span<const FloatForm> float_forms() { return kForms; }

DType value_type(Element e) { return e == Element::f32 ? DType::f32 : e == Element::f16 ? DType::f16 : DType::bf16; }

bool is_float_kind(LayoutKind kind) { return layout_family(kind) == &layout_families::floats; }

const FloatForm* float_form(const Layout& l) {
  const Grain grain = grain_of(l.w13);
  for (const FloatForm& f : kForms)
    if (f.kind == l.kind && f.grain == grain && f.keeps(l.w13.scales)) return &f;
  return nullptr;
}

std::int64_t padded_hidden(const Layout& l) {
  const FloatForm* f = float_form(l);
  return f == nullptr ? l.w13.k : round_up(l.w13.k, f->hidden_padding);
}

std::int64_t padded_intermediate(const Layout& l) {
  const FloatForm* f = float_form(l);
  if (f == nullptr) return l.w2.k;
  return round_up(l.w2.k, l.w13.halves == 2 ? f->intermediate_padding : f->ungated_padding);
}

FloatMatrix float_matrix(const Layout& l, Which which) {
  const bool w13 = which == Which::w13;
  const std::int64_t hidden = padded_hidden(l), intermediate = padded_intermediate(l);
  FloatMatrix m{.form = float_form(l), .source = l.matrix(which), .w13 = w13};
  m.padded_half_rows = w13 ? intermediate : hidden;
  m.padded_k = w13 ? hidden : intermediate;
  m.gate_up_pairs = w13 && l.variant.gate_up_pairs;
  m.padded_behind = w13 && m.form->grain == tensor && l.variant.bit_compat_vllm;
  const bool has_two_scales = m.form->grain != nvfp4 && m.form->scales != ScalePlace::one && !l.variant.bit_compat_vllm;
  m.one_scale = w13 && m.source.halves == 2 && (m.form->grain == tensor || m.form->grain == nvfp4) && !has_two_scales;
  m.as_vllm = l.variant.bit_compat_vllm;
  m.fnuz = l.variant.fnuz;
  return m;
}

std::string_view w13_rows_word(const Layout& l) {
  const FloatForm* f = float_form(l);
  if (f == nullptr || l.w13.halves != 2) return "";
  if (f->up_first)
    return f->interleave == 1 ? "interleaved_up_gate" : f->interleave == 64 ? "interleaved64_up_gate" : "up_gate";
  return l.variant.gate_up_pairs ? "interleaved" : "gate_up";
}

std::span<const std::string_view> needs_of_host(const Layout& l) {
  if (l.kind == LayoutKind::float_cutlass_w4a8) return kCutlassNeeds;
  return {};
}

Layout make_float_layout(LayoutKind kind, LayoutShape shape, const FloatTraits& t) {
  const bool sixteen = t.activations == DType::f16;
  if (is_value(shape.element))
    shape.scales = Scales::none;
  else if (is_integer(shape.element))
    shape.scales = Scales::e4m3;
  else if (shape.element == Element::e2m1)
    shape.scales = t.mx ? Scales::e8m0 : Scales::e4m3;
  else if (t.mx || (kind == LayoutKind::float_deep_gemm && t.powers_of_two))
    shape.scales = Scales::e8m0;
  else if (kind == LayoutKind::float_marlin)
    shape.scales = sixteen ? Scales::f16 : Scales::bf16;
  else
    shape.scales = Scales::f32;
  Layout l = make_named_layout(kind, shape);
  const FloatForm* f = float_form(l);
  if (f == nullptr) return l;
  const bool marlin_nvfp4 = f->grain == nvfp4 && f->place == WeightPlace::marlin;
  l.variant = {.bit_compat_vllm = t.bit_compat_vllm && has_vllm_way(*f),
               .bias = shape.has_bias ? t.activations : DType::invalid,
               .number = marlin_nvfp4 ? (sixteen ? DType::f16 : DType::bf16) : DType::invalid,
               .input_scales = f->grain == nvfp4 ? f->inputs != InputScales::none
                                                 : t.static_activations && f->scales == ScalePlace::one,
               .gate_up_pairs = t.gate_up_pairs && shape.gated && !f->up_first && !f->apart,
               .fnuz = t.fnuz && shape.element == Element::e4m3 && !t.mx};
  place_tensors(l);
  return l;
}

}  // namespace moe
