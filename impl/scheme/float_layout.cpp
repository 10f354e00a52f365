// The table of float layouts, and which tensors each has. See float_layout.h.
#include "scheme/float_layout.h"

#include <algorithm>

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"
#include "scheme/layout_named.h"

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
constexpr FloatForm up_first(FloatForm f, bool interleaved = false, int shuffle = 0) {
  f.up_first = true, f.interleaved = interleaved, f.shuffle = shuffle;
  return f;
}
constexpr FloatForm padded(FloatForm f) {
  f.pads = true;
  return f;
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

    with_steps(padded(up_first(form(LayoutKind::float_flashinfer_trtllm, tensor, "flashinfer_trtllm/fp8-tensor", WeightPlace::rows, ScalePlace::one), true, 32)), 32, 1, 32),
    with_steps(at_least(up_first(form(LayoutKind::float_flashinfer_trtllm, block, "flashinfer_trtllm/fp8-block", WeightPlace::blocks, ScalePlace::blocks), false, 16), kLeastFlashInferScale), 128, 128),
    with_steps(up_first(form(LayoutKind::float_flashinfer_trtllm, mx,     "flashinfer_trtllm/mxfp8",       WeightPlace::rows,   ScalePlace::swizzled), true, 32), 128, 128),
    with_steps(up_first(form(LayoutKind::float_flashinfer_trtllm, values, "flashinfer_trtllm/unquantized", WeightPlace::blocks, ScalePlace::none), true, 32), 64, 64),

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
};
// clang-format on

constexpr std::array<std::string_view, 2> kCutlassNeeds = {"cutlass_reorder", "cutlass_pack_scales"};
constexpr std::int64_t kGatedPadding = 16, kUngatedPadding = 128;

Grain grain_of(const P16Matrix& m) {
  if (is_value(m.element)) return values;
  if (is_integer(m.element)) return int4;
  if (m.scale_rows == kAllRows) return tensor;
  if (m.scale_rows != 1) return block;
  return m.scales == Scales::e8m0 ? mx : channel;
}

bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

// --- tensors ------------------------------------------------------------------------------------------

using MaybeTensor = std::optional<LayoutTensor>;

LayoutTensor tensor_of(DType dtype, std::vector<std::int64_t> shape) {
  return {.name = {}, .dtype = dtype, .shape = std::move(shape)};
}

MaybeTensor weight(const Layout&, const FloatMatrix& m) {
  const std::int64_t n = m.rows(), k = m.padded_k, wide = kBlockSize / std::max(m.element_bytes(), 1);
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
    case WeightPlace::nibbles:
      return tensor_of(DType::u8, {n, k / 2});
  }
  return std::nullopt;
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
    case ScalePlace::swizzled:
      return tensor_of(DType::u8, {n, g});
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

MaybeTensor row_scale(const Layout&, const FloatMatrix& m) {
  if (m.form->scales != ScalePlace::split) return std::nullopt;
  return tensor_of(DType::f32, {m.rows(), 1});
}

MaybeTensor input_scale(const Layout& l, const FloatMatrix&) {
  if (!l.variant.input_scales) return std::nullopt;
  LayoutTensor t = tensor_of(DType::f32, {1});
  t.shared = true;
  return t;
}

MaybeTensor alpha(const Layout& l, const FloatMatrix&) {
  if (!l.variant.input_scales || l.kind != LayoutKind::float_flashinfer_cutlass) return std::nullopt;
  return tensor_of(DType::f32, {});
}

MaybeTensor bias(const Layout& l, const FloatMatrix& m) {
  if (!m.source.has_bias) return std::nullopt;
  DType dtype = l.variant.bias;
  for (const LayoutKind kind : {LayoutKind::float_flashinfer_trtllm, LayoutKind::float_aiter, LayoutKind::float_vnni})
    if (l.kind == kind) dtype = DType::f32;
  if (l.kind == LayoutKind::float_flashinfer_cutlass && m.w13) dtype = DType::bf16;
  return tensor_of(dtype, {m.rows()});
}

using PartOf = MaybeTensor (*)(const Layout&, const FloatMatrix&);
constexpr std::array<PartOf, kFloatParts> kParts = {weight, scale, row_scale, input_scale, alpha, bias};

// --- NamedLayout --------------------------------------------------------------------------------------

void list_float(Layout& l) {
  if (float_form(l) == nullptr) return;  // of a damaged file
  const FloatMatrix w13 = float_matrix(l, Matrix::w13), w2 = float_matrix(l, Matrix::w2);
  for (std::size_t p = 0; p < kFloatParts; ++p)
    for (const FloatMatrix* m : {&w13, &w2})
      if (MaybeTensor t = kParts[p](l, *m)) {
        t->name = m->w13 ? kFloatNames[p].w13 : kFloatNames[p].w2;
        l.tensors.push_back(*std::move(t));
      }
}

std::string float_id(const Layout& l) {
  const FloatForm* f = float_form(l);
  if (f == nullptr) return "";
  std::string s(f->id);
  if (f->grain == values) s += cat("-", row_of(l.w13.element).name);
  if (l.variant.fnuz) s += "-fnuz";
  if (l.w13.has_bias) s += "-bias";
  return s + (l.variant.bit_compat_vllm ? "-vllm/1" : "/1");
}

bool is_grouped_so(const P16Matrix& m, Grain grain) {
  switch (grain) {
    case block:
      return m.groups == Groups::of_size(kBlockSize, m.k) && m.scale_rows == kBlockSize;
    case mx:
      return m.groups == Groups::of_size(32, m.k) && m.k % 32 == 0;
    case int4:
      return m.groups == Groups::of_size(kBlockSize, m.k) && m.k % kBlockSize == 0 && m.scale_rows == 1;
    default:
      return m.groups.is_whole();
  }
}

bool is_variant(const Layout& l, const FloatForm& f) {
  const LayoutVariant& v = l.variant;
  const bool none = v.input == MarlinInput::none && !v.awq && !v.channel_wise && v.zero_shift == 0 &&
                    v.number == DType::invalid && v.multiprocessors == 0;
  const bool bias = l.w13.has_bias ? is_float(v.bias) : v.bias == DType::invalid;
  const bool amd = l.kind == LayoutKind::float_plain || l.kind == LayoutKind::float_aiter;
  return none && bias && (!v.bit_compat_vllm || f.grain == tensor) &&
         (!v.input_scales || f.scales == ScalePlace::one) && (!v.gate_up_pairs || (l.w13.halves == 2 && !f.up_first)) &&
         (!v.fnuz || (amd && l.w13.element == Element::e4m3));
}

bool is_float(const Layout& l) {
  const P16Matrix &w13 = l.w13, &w2 = l.w2;
  const bool same = w13.element == w2.element && w13.scales == w2.scales && w13.scale_rows == w2.scale_rows &&
                    w13.has_bias == w2.has_bias && w13.k == w2.half_rows && w13.half_rows == w2.k && w2.halves == 1;
  const bool plain = !w13.has_zeros && !w2.has_zeros && !w13.has_order && !w2.has_order && !w13.source && !w2.source;
  const bool element = is_value(w13.element) || w13.element == Element::e4m3 || w13.element == Element::int4;
  const FloatForm* f = same && plain && element ? float_form(l) : nullptr;
  return f != nullptr && is_grouped_so(w13, f->grain) && is_grouped_so(w2, f->grain) && is_variant(l, *f) &&
         w13.k % f->hidden_step == 0 && w2.k % f->intermediate_step == 0 &&
         float_matrix(l, Matrix::w13).rows() % f->w13_rows_step == 0;
}

}  // namespace

bool FloatForm::keeps(Scales type) const {
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

bool is_float_kind(LayoutKind kind) {
  return std::any_of(kForms.begin(), kForms.end(), [&](const FloatForm& f) { return f.kind == kind; });
}

const FloatForm* float_form(const Layout& l) {
  const Grain grain = grain_of(l.w13);
  for (const FloatForm& f : kForms)
    if (f.kind == l.kind && f.grain == grain && f.keeps(l.w13.scales)) return &f;
  return nullptr;
}

std::int64_t padded_intermediate(const Layout& l) {
  if (const FloatForm* f = float_form(l); f != nullptr && f->pads)
    return round_up(l.w2.k, l.w13.halves == 2 ? kGatedPadding : kUngatedPadding);
  return l.w2.k;
}

FloatMatrix float_matrix(const Layout& l, Matrix which) {
  const bool w13 = which == Matrix::w13;
  const std::int64_t padded = padded_intermediate(l);
  FloatMatrix m{.form = float_form(l), .source = l.matrix(which), .w13 = w13};
  m.padded_half_rows = w13 ? padded : m.source.half_rows;
  m.padded_k = w13 ? m.source.k : padded;
  m.gate_up_pairs = w13 && l.variant.gate_up_pairs;
  m.padded_behind = w13 && l.variant.bit_compat_vllm;
  m.one_scale = w13 && m.source.halves == 2 && m.form->grain == tensor &&
                (m.form->scales == ScalePlace::one || l.variant.bit_compat_vllm);
  m.through_f16 = l.variant.bit_compat_vllm;
  m.fnuz = l.variant.fnuz;
  return m;
}

std::int64_t FloatMatrix::source_row(std::int64_t n) const {
  const std::int64_t all = rows(), half = padded_half_rows;
  if (const std::int64_t block = form->shuffle; block != 0) {
    const std::int64_t p = n % block;
    n += p % 8 * (block / 8) + p / 8 - p;
  }
  if (source.halves == 2) {
    if (form->interleaved || gate_up_pairs) n = n % 2 * half + n / 2;
    if (form->up_first) n = (n + half) % all;
    if (padded_behind) return n < source.rows() ? n : -1;
  }
  return n % half < source.half_rows ? n / half * source.half_rows + n % half : -1;
}

std::int64_t FloatMatrix::row_blocks() const {
  if (gate_up_pairs) return ceil_div(rows(), kBlockSize);
  return source.halves * ceil_div(source.half_rows, kBlockSize);
}

std::int64_t FloatMatrix::source_row_of_block(std::int64_t b, std::int64_t i) const {
  if (gate_up_pairs) return b * kBlockSize + i < rows() ? source_row(b * kBlockSize + i) : -1;
  const std::int64_t each = ceil_div(source.half_rows, kBlockSize), row = b % each * kBlockSize + i;
  const std::int64_t half = source.halves == 2 && form->up_first ? 1 - b / each : b / each;
  return row < source.half_rows ? half * source.half_rows + row : -1;
}

std::int64_t FloatMatrix::run() const {
  const std::int64_t bytes = element_bytes();
  switch (form->place) {
    case WeightPlace::rows:
      return padded_k;
    case WeightPlace::blocks:
      return kBlockSize / bytes;
    case WeightPlace::tiles16:
      return 16 / bytes;
    case WeightPlace::pairs:
      return 2;
    default:
      return 1;
  }
}

std::int64_t FloatMatrix::offset(std::int64_t n, std::int64_t k) const {
  const std::int64_t all = rows(), wide = run();
  switch (form->place) {
    case WeightPlace::transposed:
      return k * all + n;
    case WeightPlace::blocks:
      return k / wide * all * wide + n * wide + k % wide;
    case WeightPlace::tiles16:
      return n / 16 * 16 * padded_k + k / wide * 16 * wide + n % 16 * wide + k % wide;
    case WeightPlace::pairs: {
      const std::int64_t first = n / 32 * 32, count = std::min<std::int64_t>(32, all - first);
      return first * padded_k + k / 2 * 2 * count + (n - first) * 2 + k % 2;
    }
    default:
      return n * padded_k + k;
  }
}

std::string_view w13_rows_word(const Layout& l) {
  const FloatForm* f = float_form(l);
  if (f == nullptr || l.w13.halves != 2) return "";
  if (f->up_first) return f->interleaved ? "interleaved_up_gate" : "up_gate";
  return l.variant.gate_up_pairs ? "interleaved" : "gate_up";
}

std::span<const std::string_view> needs_of_host(const Layout& l) {
  if (l.kind == LayoutKind::float_cutlass_w4a8) return kCutlassNeeds;
  return {};
}

std::string_view float_output(std::string_view spelled) {
  for (const FloatNames& row : kFloatNames) {
    if (spelled == row.w13 || spelled == row.short13) return row.w13;
    if (spelled == row.w2 || spelled == row.short2) return row.w2;
  }
  return "";
}

Layout make_float_layout(LayoutKind kind, LayoutShape shape, const FloatTraits& t) {
  const bool sixteen = t.activations == DType::f16;
  if (is_value(shape.element))
    shape.scales = Scales::none;
  else if (is_integer(shape.element))
    shape.scales = Scales::e4m3;
  else if (t.mx || (kind == LayoutKind::float_deep_gemm && t.powers_of_two))
    shape.scales = Scales::e8m0;
  else if (kind == LayoutKind::float_marlin)
    shape.scales = sixteen ? Scales::f16 : Scales::bf16;
  else
    shape.scales = Scales::f32;
  Layout l = make_named_layout(kind, shape);
  const FloatForm* f = float_form(l);
  if (f == nullptr) return l;
  l.variant = {.bit_compat_vllm = t.bit_compat_vllm && f->grain == tensor,
               .bias = shape.has_bias ? t.activations : DType::invalid,
               .input_scales = t.static_activations && f->scales == ScalePlace::one,
               .gate_up_pairs = t.gate_up_pairs && shape.gated && !f->up_first,
               .fnuz = t.fnuz && shape.element == Element::e4m3 && !t.mx};
  place_tensors(l);
  return l;
}

namespace {
constexpr NamedLayout named(LayoutKind kind) { return {kind, float_id, is_float, list_float}; }
}  // namespace

constinit const NamedLayout named_layouts::float_plain = named(LayoutKind::float_plain);
constinit const NamedLayout named_layouts::float_flashinfer_cutlass = named(LayoutKind::float_flashinfer_cutlass);
constinit const NamedLayout named_layouts::float_flashinfer_trtllm = named(LayoutKind::float_flashinfer_trtllm);
constinit const NamedLayout named_layouts::float_marlin = named(LayoutKind::float_marlin);
constinit const NamedLayout named_layouts::float_deep_gemm = named(LayoutKind::float_deep_gemm);
constinit const NamedLayout named_layouts::float_aiter = named(LayoutKind::float_aiter);
constinit const NamedLayout named_layouts::float_xpu = named(LayoutKind::float_xpu);
constinit const NamedLayout named_layouts::float_vnni = named(LayoutKind::float_vnni);
constinit const NamedLayout named_layouts::float_cutlass_w4a8 = named(LayoutKind::float_cutlass_w4a8);

}  // namespace moe
