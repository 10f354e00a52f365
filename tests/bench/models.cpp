// See models.h.
#include "bench/models.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string_view>

#include "base/float_formats.h"
#include "bench/cell.h"
#include "support/rooms.h"

namespace moe::bench {
namespace {

// --- formats ---------------------------------------------------------------------------------------------

std::int64_t each_k(std::int64_t k, std::int64_t) { return k; }
std::int64_t words_of_8(std::int64_t k, std::int64_t) { return (k + 7) / 8; }
std::int64_t words_of_4(std::int64_t k, std::int64_t) { return (k + 3) / 4; }
std::int64_t pairs(std::int64_t k, std::int64_t) { return k / 2; }
std::int64_t each_group(std::int64_t k, std::int64_t group) { return group < 0 ? 1 : k / group; }

std::int64_t blocks_of_columns(std::int64_t k, std::int64_t) { return (k + 127) / 128; }
std::int64_t blocks_of_rows(std::int64_t n) { return (n + 127) / 128; }

constexpr SourceTensor kNone{nullptr, MOE_DTYPE_INVALID, each_k, Fill::bits};
constexpr SourceTensor kInt4{"weight", MOE_DTYPE_I8, each_k, Fill::int4};
constexpr SourceTensor kInt8{"weight", MOE_DTYPE_I8, each_k, Fill::bits};
constexpr SourceTensor kPacked4{"weight", MOE_DTYPE_I32, words_of_8, Fill::bits};
constexpr SourceTensor kPacked8{"weight", MOE_DTYPE_I32, words_of_4, Fill::bits};
constexpr SourceTensor kScale{"scale", MOE_DTYPE_BF16, each_group, Fill::bf16};
constexpr SourceTensor kGroups{"g_idx", MOE_DTYPE_I32, each_k, Fill::groups};
constexpr SourceTensor kBf16{"weight", MOE_DTYPE_BF16, each_k, Fill::bf16};
constexpr SourceTensor kE4m3{"weight", MOE_DTYPE_F8_E4M3FN, each_k, Fill::e4m3};
constexpr SourceTensor kBlockScale{"scale", MOE_DTYPE_F32, blocks_of_columns, Fill::f32, blocks_of_rows};
constexpr SourceTensor kPowers{"scale", MOE_DTYPE_U8, each_group, Fill::e8m0};
constexpr SourceTensor kE2m1{"weight", MOE_DTYPE_U8, pairs, Fill::bits};
constexpr SourceTensor kBlockE4m3{"scale", MOE_DTYPE_F8_E4M3FN, each_group, Fill::e4m3_scale};
constexpr SourceTensor kTensorScale{"scale_2", MOE_DTYPE_F32, nullptr, Fill::one_number};
constexpr SourceTensor kInputScale{"input_scale", MOE_DTYPE_F32, nullptr, Fill::one_number};
constexpr SourceTensor kF32{"weight", MOE_DTYPE_F32, each_k, Fill::f32};

#define W4A8(g, more) "\"quantization\":{\"scheme\":\"W4A8\",\"group_size\":" #g more "}"
#define W8A8 "\"quantization\":{\"scheme\":\"W8A8\"}"
#define WNA16(scheme, g) "\"quantization\":{\"scheme\":\"" scheme "\",\"group_size\":" #g "}"
#define FLOATS(scheme) "\"in_dtype\":\"bfloat16\",\"quantization\":{\"scheme\":\"" scheme "\"}"
#define WITH(scheme, compute) FLOATS(scheme) ",\"compute\":\"" compute "\""
#define ACT_ORDER(g)                                                                                         \
  "\"quantization\":{\"weights\":{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":" #g \
  ",\"symmetric\":true,\"actorder\":\"group\"},\"format\":\"pack-quantized\"}"
#define W8A8_GROUPS(g)                                                                                              \
  "\"quantization\":{\"weights\":{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":" #g        \
  ",\"symmetric\":true},\"input_activations\":{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"token\",\"dynamic\":" \
  "true},"                                                                                                          \
  "\"format\":\"int-quantized\"}"
#define BLOCK32 ",\"activation_quant\":\"block32\""
#define PACKED ",\"format\":\"pack-quantized\""
constexpr std::array kFormats = {
    Format{"w4a8-g32", W4A8(32, ""), 32, MOE_DTYPE_BF16, {kInt4, kScale, kNone}},
    Format{"w4a8-g64", W4A8(64, ""), 64, MOE_DTYPE_BF16, {kInt4, kScale, kNone}},
    Format{"w4a8-g128", W4A8(128, ""), 128, MOE_DTYPE_BF16, {kInt4, kScale, kNone}},
    Format{"w4a8-channel", W4A8(-1, ""), -1, MOE_DTYPE_BF16, {kInt4, kScale, kNone}},
    Format{"w4a8-g32-block32", W4A8(32, "") BLOCK32, 32, MOE_DTYPE_BF16, {kInt4, kScale, kNone}},
    Format{"w4a8-g128-block32", W4A8(128, "") BLOCK32, 128, MOE_DTYPE_BF16, {kInt4, kScale, kNone}},
    Format{"w8a8-channel", W8A8, -1, MOE_DTYPE_BF16, {kInt8, kScale, kNone}},
    Format{"w8a8-channel-block32", W8A8 BLOCK32, -1, MOE_DTYPE_BF16, {kInt8, kScale, kNone}},
    Format{"w8a8-g32", W8A8_GROUPS(32), 32, MOE_DTYPE_BF16, {kInt8, kScale, kNone}},
    Format{"w8a8-g32-block32", W8A8_GROUPS(32) BLOCK32, 32, MOE_DTYPE_BF16, {kInt8, kScale, kNone}},
    Format{"w4a16-g32", WNA16("W4A16", 32), 32, MOE_DTYPE_BF16, {kPacked4, kScale, kNone}},
    Format{"w4a16-g128", WNA16("W4A16", 128), 128, MOE_DTYPE_BF16, {kPacked4, kScale, kNone}},
    Format{"w4a16-g128-act-order", ACT_ORDER(128), 128, MOE_DTYPE_BF16, {kPacked4, kScale, kGroups}},
    Format{"w8a16-g32", WNA16("W8A16", 32), 32, MOE_DTYPE_BF16, {kPacked8, kScale, kNone}},
    Format{"w8a16-channel", WNA16("W8A16", -1), -1, MOE_DTYPE_BF16, {kPacked8, kScale, kNone}},
    Format{"fp8-channel", FLOATS("FP8_DYNAMIC"), -1, MOE_DTYPE_BF16, {kE4m3, kScale, kNone}},
    Format{"fp8-channel-a8", WITH("FP8_DYNAMIC", "a8"), -1, MOE_DTYPE_BF16, {kE4m3, kScale, kNone}},
    Format{"fp8-block", FLOATS("FP8_BLOCK"), 128, MOE_DTYPE_BF16, {kE4m3, kBlockScale, kNone}},
    Format{"fp8-block-a8", WITH("FP8_BLOCK", "a8"), 128, MOE_DTYPE_BF16, {kE4m3, kBlockScale, kNone}},
    Format{"mxfp8", FLOATS("MXFP8"), 32, MOE_DTYPE_BF16, {kE4m3, kPowers, kNone}},
    Format{"mxfp8-a8", WITH("MXFP8", "a8"), 32, MOE_DTYPE_BF16, {kE4m3, kPowers, kNone}},
    Format{"mxfp4", FLOATS("MXFP4A16"), 32, MOE_DTYPE_BF16, {kE2m1, kPowers, kNone}},
    Format{"mxfp4-a8", WITH("MXFP4A16", "a8"), 32, MOE_DTYPE_BF16, {kE2m1, kPowers, kNone}},
    Format{"mxfp4-a4", WITH("MXFP4A16", "a4"), 32, MOE_DTYPE_BF16, {kE2m1, kPowers, kNone}},
    Format{"mxfp4-mxfp8", WITH("MXFP4A16", "mxfp8"), 32, MOE_DTYPE_BF16, {kE2m1, kPowers, kNone}},
    Format{"nvfp4", FLOATS("NVFP4A16"), 16, MOE_DTYPE_BF16, {kE2m1, kBlockE4m3, kTensorScale}},
    Format{"nvfp4-a8", WITH("NVFP4A16", "a8"), 16, MOE_DTYPE_BF16, {kE2m1, kBlockE4m3, kTensorScale}},
    Format{"nvfp4-a4", WITH("NVFP4", "a4"), 16, MOE_DTYPE_BF16, {kE2m1, kBlockE4m3, kTensorScale, kInputScale}},
    Format{"bf16", "\"in_dtype\":\"bfloat16\"", 0, MOE_DTYPE_BF16, {kBf16, kNone, kNone}},
    Format{"f32", "\"in_dtype\":\"float32\"", 0, MOE_DTYPE_F32, {kF32, kNone, kNone}},
    // The same packed bytes from the other checkpoint format: for conversion.
    Format{"w4a8-g32-packed", W4A8(32, PACKED), 32, MOE_DTYPE_BF16, {kPacked4, kScale, kNone}, true},
    Format{"w4a8-g128-packed", W4A8(128, PACKED), 128, MOE_DTYPE_BF16, {kPacked4, kScale, kNone}, true},
    Format{"w4a8-channel-packed", W4A8(-1, PACKED), -1, MOE_DTYPE_BF16, {kPacked4, kScale, kNone}, true},
};
#undef W4A8
#undef W8A8
#undef WNA16
#undef WITH
#undef FLOATS
#undef ACT_ORDER
#undef BLOCK32
#undef PACKED

std::size_t dtype_size(moe_dtype t) {
  const bool byte = t == MOE_DTYPE_I8 || t == MOE_DTYPE_U8 || t == MOE_DTYPE_F8_E4M3FN;
  return byte ? 1 : t == MOE_DTYPE_BF16 ? 2 : 4;  // those of the table
}

// Bits to keep and bits to set of eight random bytes.
struct Mask {
  std::uint64_t keep, set;
};
Mask mask_of(Fill fill) {
  if (fill == Fill::bf16) return {0x807f807f807f807fu, 0x3c003c003c003c00u};
  if (fill == Fill::e8m0) return {0x0303030303030303u, 0x7474747474747474u};
  if (fill == Fill::e4m3_scale) return {0x0f0f0f0f0f0f0f0fu, 0x3030303030303030u};
  if (fill == Fill::one_number) return {0x007fffff007fffffu, 0x3c0000003c000000u};
  if (fill == Fill::f32) return {0x807fffff807fffffu, 0x3c0000003c000000u};
  return {~std::uint64_t{0}, 0};
}

// Codes as quantizers leave them: a bell whose largest are near 448. (Few have the exponent 0, which takes longer.)
std::vector<std::uint64_t> random_e4m3(std::size_t count) {
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal(0.0f, 110.0f);
  std::array<std::uint8_t, 4096> bell;
  for (std::uint8_t& code : bell) code = static_cast<std::uint8_t>(f32_to_small(moe::kE4m3, normal(rng)));
  std::vector<std::uint64_t> out(count);
  for (std::uint64_t& word : out) {
    std::array<std::uint8_t, 8> bytes;
    for (std::uint8_t& byte : bytes) byte = bell[rng() % bell.size()];
    std::memcpy(&word, bytes.data(), 8);
  }
  return out;
}

// Scales are positive.
std::vector<std::uint64_t> random_words(std::size_t count, const SourceTensor& t) {
  if (t.fill == Fill::e4m3) return random_e4m3(count);
  std::mt19937_64 rng(1);
  std::vector<std::uint64_t> out(count);
  const Mask mask = mask_of(t.fill);
  const bool positive = std::string_view(t.suffix) == "scale";
  for (std::uint64_t& word : out) {
    std::uint64_t x = rng();
    if (t.fill == Fill::int4) {  // low nibbles, sign-extended
      x &= 0x0f0f0f0f0f0f0f0fu;
      x |= (x & 0x0808080808080808u) * 0x1e;
    }
    word = (x & mask.keep) | mask.set;
    if (t.fill == Fill::one_number) word &= 0x7fffffff7fffffffu;
    if (positive && dtype_size(t.dtype) > 1) word &= t.fill == Fill::f32 ? 0x7fffffff7fffffffu : 0x7fff7fff7fff7fffu;
  }
  return out;
}

// The groups of w13's columns, then those of w2's.
std::vector<std::uint64_t> group_lists(const Workload& w, std::int64_t group) {
  std::vector<std::int32_t> of(static_cast<std::size_t>(w.hidden + w.intermediate));
  std::mt19937 rng(1);
  const auto list = [&](std::int64_t begin, std::int64_t k) {
    for (std::int64_t i = 0; i < k; ++i) of[static_cast<std::size_t>(begin + i)] = static_cast<std::int32_t>(i / group);
    std::shuffle(of.begin() + begin, of.begin() + begin + k, rng);
  };
  list(0, w.hidden);
  list(w.hidden, w.intermediate);
  std::vector<std::uint64_t> words(of.size() / 2 + 1);
  std::memcpy(words.data(), of.data(), of.size() * sizeof of[0]);
  return words;
}

}  // namespace

std::span<const Format> formats() { return kFormats; }

const Format& format_named(const std::string& name) {
  for (const Format& f : kFormats)
    if (name == f.name) return f;
  throw std::runtime_error("no format " + name);
}

void check(moe_status status, moe_error*& e) {
  if (status == MOE_OK) return;
  const std::string text = moe_error_message(e);
  moe_error_destroy(e);
  throw std::runtime_error(text);
}

Owned<moe_context> make_context(int threads) {
  const std::string options = "{\"threads\":" + std::to_string(threads) + "}";
  moe_error* e = nullptr;
  moe_context* context = nullptr;
  check(moe_context_create(options.data(), options.size(), nullptr, &context, &e), e);
  return Owned<moe_context>(context);
}

// --- source ----------------------------------------------------------------------------------------------

namespace {

// Of one matrix; the tensors of w13 and w2 begin at the same places.
std::size_t tensor_words(const Workload& w, const Format& f, const SourceTensor& t) {
  if (t.fill == Fill::one_number) return 1;
  const std::int64_t w13 = t.rows(2 * w.intermediate) * t.columns(w.hidden, f.group),
                     w2 = t.rows(w.hidden) * t.columns(w.intermediate, f.group);
  return static_cast<std::size_t>(std::max(w13, w2)) * dtype_size(t.dtype) / 8 + 1;
}

}  // namespace

Source::Source(const Workload& w, const Format& f, std::size_t bytes) : workload_(w), format_(f) {
  experts_ = std::min(w.experts, 1 + static_cast<std::int64_t>(bytes / 8 / tensor_words(w, f, f.tensors[0])));
  for (std::size_t i = 0; i < f.tensors.size(); ++i)
    if (f.tensors[i].fill == Fill::groups)
      data_[i] = group_lists(w, f.group);
    else if (f.tensors[i].dtype != MOE_DTYPE_INVALID)
      data_[i] = random_words(tensor_words(w, f, f.tensors[i]) * static_cast<std::size_t>(experts_), f.tensors[i]);
}

moe_status MOE_CALL Source::get(void* user, const char* role, std::int64_t expert, const char* shard, moe_tensor* out,
                                moe_error** err) {
  const auto& s = *static_cast<Source*>(user);
  const std::string_view name = role;
  const bool w13 = name.substr(0, 4) == "w13_";
  const std::string_view suffix = name.substr(w13 ? 4 : 3);
  for (std::size_t i = 0; i < s.data_.size() && shard == nullptr; ++i) {
    const SourceTensor& t = s.format_.tensors[i];
    if (t.dtype == MOE_DTYPE_INVALID || suffix != t.suffix) continue;
    out->dtype = t.dtype;
    if (t.fill == Fill::groups) {
      out->ndim = 1;
      out->data = reinterpret_cast<std::int32_t*>(const_cast<std::uint64_t*>(s.data_[i].data())) +
                  (w13 ? 0 : s.workload_.hidden);
      out->shape[0] = w13 ? s.workload_.hidden : s.workload_.intermediate;
      return MOE_OK;
    }
    out->data = const_cast<std::uint64_t*>(s.data_[i].data()) +
                tensor_words(s.workload_, s.format_, t) * static_cast<std::size_t>(expert % s.experts_);
    out->ndim = t.fill == Fill::one_number ? 1 : 2;
    out->shape[0] = w13 ? 2 : 1;  // gate's and up's
    if (t.fill == Fill::one_number) return MOE_OK;
    out->shape[0] = t.rows(w13 ? 2 * s.workload_.intermediate : s.workload_.hidden);
    out->shape[1] = t.columns(w13 ? s.workload_.hidden : s.workload_.intermediate, s.format_.group);
    return MOE_OK;
  }
  *err = moe_error_create(MOE_ERR_MISSING_WEIGHT, "not in this source", MOE_NUL_TERMINATED);
  return MOE_ERR_MISSING_WEIGHT;
}

Owned<moe_weights> Source::weights(const moe_config* config) {
  moe_weight_source_ops ops{};
  ops.struct_size = sizeof ops;
  ops.user = this;
  ops.get = get;
  moe_weights* weights = nullptr;
  moe_error* e = nullptr;
  check(moe_weights_create_from_source(config, &ops, &weights, &e), e);
  return Owned<moe_weights>(weights);
}

// --- models ----------------------------------------------------------------------------------------------

Model::Model(const Workload& w, const Format& f, bool one_copy) : workload(w), format(f) {
  const std::string json = "{\"num_experts\":" + std::to_string(w.experts) + ",\"top_k\":" + std::to_string(w.top_k) +
                           ",\"hidden_size\":" + std::to_string(w.hidden) +
                           ",\"intermediate_size\":" + std::to_string(w.intermediate) + "," + f.members + "}";
  moe_error* e = nullptr;
  moe_config* c = nullptr;
  check(moe_config_create(json.data(), json.size(), &c, &e), e);
  config.reset(c);
  moe_selection* s = nullptr;
  check(moe_select_backend(nullptr, c, nullptr, 0, &s, &e), e);
  selection.reset(s);
  Source source(w, f);
  const Owned<moe_weights> weights = source.weights(c);
  const Owned<moe_context> context = make_context(cpu_count());
  std::uint64_t bytes = 0, alignment = 0;
  check(moe_selection_packed_size(s, &bytes, &alignment, &e), e);
  for (std::size_t i = one_copy ? 1 : copies_of(static_cast<double>(bytes)); i > 0; --i) {
    moe_packed* p = nullptr;
    check(moe_convert_weights(context.get(), s, weights.get(), nullptr, &p, &e), e);
    packed.emplace_back(p);
  }
  moe_tensor view{};
  view.struct_size = sizeof view;
  for (const char* role : {"w13_packed", "w2_packed"}) {
    check(moe_packed_get(packed[0].get(), role, 0, &view, &e), e);
    expert_bytes += static_cast<double>(view.shape[0]);
  }
}

Bound::Bound(const Model& m, int threads) : context(make_context(threads)) {
  for (const Owned<moe_packed>& p : m.packed) {
    moe_error* e = nullptr;
    moe_layer* layer = nullptr;
    check(moe_layer_create(context.get(), m.selection.get(), p.get(), nullptr, &layer, &e), e);
    layers.emplace_back(layer);
  }
}

}  // namespace moe::bench
