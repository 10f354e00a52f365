// Quantization as values: the table of named schemes, what follows from the arguments, and the sizes
// that groups and blocks must divide.
#include <algorithm>
#include <array>
#include <numeric>

#include "base/text.h"
#include "config/fields.h"
#include "config/quantization/quantization.h"

namespace moe::config {
namespace {

constexpr QuantArgs args(int bits, NumType type, Strategy strategy,
                         std::optional<std::int64_t> group_size = std::nullopt, Dynamic dynamic = Dynamic::no) {
  QuantArgs a;
  a.num_bits = bits;
  a.type = type;
  a.strategy = strategy;
  a.group_size = group_size;
  a.dynamic = dynamic;
  return a;
}
constexpr QuantArgs asymmetric(QuantArgs a) {
  a.symmetric = false;
  return a;
}
constexpr QuantArgs blocks(QuantArgs a, std::int64_t rows, std::int64_t columns) {
  a.block_structure = {{rows, columns}};
  return a;
}

constexpr NumType kInt = NumType::integer, kFloat = NumType::floating;
constexpr QuantArgs kInt4Group = args(4, kInt, Strategy::group, 128);
constexpr QuantArgs kInt8Token = args(8, kInt, Strategy::token, std::nullopt, Dynamic::yes);
constexpr QuantArgs kFp8Token = args(8, kFloat, Strategy::token, std::nullopt, Dynamic::yes);
constexpr QuantArgs kFp8Tensor = args(8, kFloat, Strategy::tensor);
constexpr QuantArgs kFp8Block = blocks(args(8, kFloat, Strategy::block), 128, 128);
constexpr QuantArgs kNvfp4 = args(4, kFloat, Strategy::tensor_group, 16);
constexpr QuantArgs kMxfp4 = args(4, kFloat, Strategy::group, 32);
constexpr QuantArgs kMxfp8 = args(8, kFloat, Strategy::group, 32);

// clang-format off
constexpr std::array<Preset, 16> kPresets = {{
    // name         weights                             input_activations                                              format
    {"none",        std::nullopt,                       std::nullopt,                                                  Format::none},
    {"W4A16",       kInt4Group,                         std::nullopt,                                                  Format::pack_quantized},
    {"W4A16_ASYM",  asymmetric(kInt4Group),             std::nullopt,                                                  Format::pack_quantized},
    {"W8A16",       args(8, kInt, Strategy::group, 128), std::nullopt,                                                 Format::pack_quantized},
    {"W8A8",        args(8, kInt, Strategy::channel),   kInt8Token,                                                    Format::int_quantized},
    {"W4A8",        kInt4Group,                         kInt8Token,                                                    Format::int_quantized},
    {"W4AFP8",      kInt4Group,                         kFp8Token,                                                     Format::pack_quantized},
    {"FP8",         kFp8Tensor,                         kFp8Tensor,                                                    Format::float_quantized},
    {"FP8_DYNAMIC", args(8, kFloat, Strategy::channel), kFp8Token,                                                     Format::float_quantized},
    {"FP8_BLOCK",   kFp8Block,                          args(8, kFloat, Strategy::group, 128, Dynamic::yes),           Format::float_quantized},
    {"NVFP4",       kNvfp4,                             args(4, kFloat, Strategy::tensor_group, 16, Dynamic::local),   Format::nvfp4_pack_quantized},
    {"NVFP4A16",    kNvfp4,                             std::nullopt,                                                  Format::nvfp4_pack_quantized},
    {"MXFP4",       kMxfp4,                             args(4, kFloat, Strategy::group, 32, Dynamic::yes),            Format::mxfp4_pack_quantized},
    {"MXFP4A16",    kMxfp4,                             std::nullopt,                                                  Format::mxfp4_pack_quantized},
    {"MXFP8",       kMxfp8,                             args(8, kFloat, Strategy::group, 32, Dynamic::yes),            Format::mxfp8_quantized},
    {"MXFP8A16",    kMxfp8,                             std::nullopt,                                                  Format::mxfp8_quantized},
}};
// clang-format on
static_assert([] {  // the schema names them too
  for (std::size_t i = 0; i < kPresets.size(); ++i)
    if (kPresets[i].name != kSchemeNames.at(i)) return false;
  return kPresets.size() == kSchemeNames.size();
}());

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset* find_preset(std::string_view name) {
  const std::string lower = fields::lower_ascii(name);
  for (const Preset& p : kPresets)
    if (fields::lower_ascii(p.name) == lower) return &p;
  return nullptr;
}

Format infer_format(const std::optional<QuantArgs>& weights, const std::optional<QuantArgs>& input_activations) {
  if (!weights) return Format::none;
  const QuantArgs& w = *weights;
  if (w.type == NumType::integer) {
    const bool int_activations = input_activations && input_activations->type == NumType::integer;
    return int_activations ? Format::int_quantized : Format::pack_quantized;
  }
  if (w.num_bits == 4 || w.strategy == Strategy::group)
    for (std::size_t i = 0; i < kFormats.size(); ++i) {
      const FormatRow& f = kFormats[i];
      if (f.type == w.type && f.bits == w.num_bits && f.group != 0 && f.group == w.group_size)
        return static_cast<Format>(i);
    }
  return input_activations && w.num_bits == 8 ? Format::float_quantized : Format::naive_quantized;
}

void fill_storage(Quantization& q, std::optional<ZeroPoints> zero_points, std::optional<bool> transposed) {
  const bool integers = q.weights && q.weights->type == NumType::integer;
  q.zero_point_convention = zero_points;
  const bool has_sign = q.format == Format::modelopt_int4;
  if (!zero_points && integers)
    q.zero_point_convention = q.format == Format::gptq ? ZeroPoints::plus_one
                              : has_sign               ? ZeroPoints::twos_complement
                                                       : ZeroPoints::as_stored;
  q.is_transposed = transposed;
  if (transposed) return;
  if (q.format == Format::gptq || q.format == Format::awq) q.is_transposed = true;
  if (q.format == Format::pack_quantized) q.is_transposed = false;
}

Check check_sizes(const Quantization& q, const Config& config, const std::string& group_pointer,
                  const std::string& block_pointer) {
  if (!q.weights) return ok();
  const QuantArgs& w = *q.weights;
  const std::int64_t hidden = config.hidden_dim, part = config.intermediate_size_per_partition;
  constexpr std::string_view kHidden = "hidden_dim", kPart = "intermediate_size_per_partition";
  const auto refuse = [&](const std::string& pointer, std::string_view name, std::int64_t size, const char* unit,
                          std::int64_t n) {
    return fields::fault(pointer, cat(name, " is ", size, ", expected a multiple of the ", unit, " ", n,
                                      name == kPart ? config.cut_hint(n) : std::string()));
  };
  if (is_grouped(w.strategy) && w.group_size && *w.group_size > 0) {
    const std::int64_t g = *w.group_size;
    if (hidden % g != 0) return refuse(group_pointer, kHidden, hidden, "group size", g);
    if (part % g != 0) return refuse(group_pointer, kPart, part, "group size", g);
    const std::int64_t shared = q.format == Format::nvfp4_pairs ? 2 * g : g;
    if (hidden % shared != 0) return refuse(group_pointer, kHidden, hidden, "columns of a scale,", shared);
    if (part % shared != 0) return refuse(group_pointer, kPart, part, "columns of a scale,", shared);
  }
  if (w.strategy == Strategy::block && w.block_structure) {
    const auto [rows, columns] = *w.block_structure;
    if (part % rows != 0) return refuse(block_pointer, kPart, part, "block rows", rows);
    if (config.parallel.tp_size > 1 && part % columns != 0)
      return refuse(block_pointer, kPart, part, "block columns", columns);
  }
  constexpr std::array kPacked = {Format::pack_quantized, Format::gptq, Format::awq, Format::quark_reorder,
                                  Format::quark_order};
  const bool packed = std::find(kPacked.begin(), kPacked.end(), q.format) != kPacked.end();
  if (w.type != NumType::integer) return ok();
  if (is_narrow(q.format)) {  // words are full then, and codes that are packed in another way have another shape
    const int bits = at(kFormats, q.format).stored_bits;
    const std::int64_t codes = 32 / std::gcd(32, bits);
    const std::string unit = cat(bits, "-bit codes of whole words,");
    if (hidden % codes != 0) return refuse(group_pointer, kHidden, hidden, unit.c_str(), codes);
    if (part % codes != 0) return refuse(group_pointer, kPart, part, unit.c_str(), codes);
  }
  if (!packed) return ok();
  switch (code_width(w.num_bits)) {
    case CodeWidth::nibble: {
      constexpr std::int64_t kPerWord = 8;
      if (hidden % kPerWord != 0) return refuse(group_pointer, kHidden, hidden, "4-bit codes in a word,", kPerWord);
      if (part % kPerWord != 0) return refuse(group_pointer, kPart, part, "4-bit codes in a word,", kPerWord);
      break;
    }
    case CodeWidth::byte:  // the last word may not be full
      break;
  }
  return ok();
}

}  // namespace moe::config
