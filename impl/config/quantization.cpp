// The member "quantization" in its two forms, a named scheme or the arguments of compressed-tensors,
// and the frame of "hf_quantization_config", whose content hf_quantization.cpp reads.
//
//   arguments -> format (given or inferred) -> does it hold the weights? -> do groups divide the sizes?
#include "config/quantization.h"

#include <array>

#include "config/fields.h"
#include "config/sections.h"

namespace moe {
namespace {

using fields::Members;

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

// What a format can hold: number type, bits and group size, 0 = any.
struct Container {
  NumType type;
  int bits;
  std::int64_t group;
  std::string_view holds;
};
constexpr std::optional<Container> container(Format f) {
  switch (f) {
    case Format::gptq:
    case Format::pack_quantized:
    case Format::int_quantized:        return Container{kInt, 0, 0, "integer weights"};
    case Format::awq:                  return Container{kInt, 4, 0, "4-bit integer weights"};
    case Format::float_quantized:      return Container{kFloat, 8, 0, "8-bit float weights"};
    case Format::nvfp4_pack_quantized: return Container{kFloat, 4, 16, "4-bit float weights with group_size 16"};
    case Format::mxfp4_pack_quantized:
    case Format::mxfp4_gpt_oss:        return Container{kFloat, 4, 32, "4-bit float weights with group_size 32"};
    case Format::mxfp8_quantized:      return Container{kFloat, 8, 32, "8-bit float weights with group_size 32"};
    case Format::none:
    case Format::naive_quantized:      break;
  }
  return std::nullopt;
}

constexpr std::array<std::string_view, 7> kMembers = {
    "scheme", "weights", "input_activations", "format", "group_size", "zero_point_convention", "is_transposed"};
constexpr std::array<std::string_view, 8> kArgs = {
    "num_bits", "type", "strategy", "group_size", "block_structure", "symmetric", "dynamic", "actorder"};
constexpr std::array<std::string_view, 8> kMethods = {
    "compressed-tensors", "gptq", "awq", "fp8", "mxfp4", "modelopt", "modelopt_fp4", "quark"};
// clang-format on

constexpr std::string_view kBase = "/quantization";

enum class Operand : std::uint8_t { weights, activations };

constexpr bool is_grouped(Strategy s) { return s == Strategy::group || s == Strategy::tensor_group; }

std::string word(Strategy s) { return std::string(kStrategyNames[static_cast<std::size_t>(s)]); }

// Absent and null are the same for group_size, block_structure and actorder.
const json::Value* not_null(const Members& members, std::string_view key) {
  const json::Value* v = members.get(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

Result<std::optional<std::int64_t>> read_group_size(const Members& members) {
  if (not_null(members, "group_size") == nullptr) return std::optional<std::int64_t>();
  MOE_TRY(const std::optional<std::int64_t> g, members.integer("group_size", {-1, 65536}));
  if (*g == 0) return fields::fault(members.at("group_size"), "found 0, expected -1 (one group per row) or 1..65536");
  return g;
}

Result<Dynamic> read_dynamic(const Members& members) {
  const json::Value* v = members.get("dynamic");
  if (v == nullptr) return Dynamic::no;
  if (const bool* b = v->boolean()) return *b ? Dynamic::yes : Dynamic::no;
  if (v->string() != nullptr && *v->string() == "local") return Dynamic::local;
  return fields::unexpected(members.at("dynamic"), *v, "true, false or \"local\"");
}

Result<std::optional<std::array<std::int64_t, 2>>> read_blocks(const Members& members) {
  const json::Value* v = not_null(members, "block_structure");
  if (v == nullptr) return std::optional<std::array<std::int64_t, 2>>();
  const std::string pointer = members.at("block_structure");
  if (v->array() == nullptr || v->array()->size() != 2) return fields::unexpected(pointer, *v, "[rows, columns]");
  std::array<std::int64_t, 2> block{};
  for (std::size_t i = 0; i < block.size(); ++i) {
    const json::Value& element = (*v->array())[i];
    const std::optional<std::int64_t> n = fields::as_integer(element);
    if (!n || *n < 1 || *n > 65536) {
      return fields::unexpected(pointer + "/" + std::to_string(i), element, "an integer in [1, 65536]");
    }
    block[i] = *n;
  }
  return std::optional(block);
}

Result<ActOrder> read_actorder(const Members& members, Operand operand) {
  static constexpr std::array<std::string_view, 4> kWords = {"group", "weight", "dynamic", "static"};
  static constexpr std::array<ActOrder, 4> kOrders = {ActOrder::group, ActOrder::weight, ActOrder::group,
                                                      ActOrder::weight};
  const json::Value* v = not_null(members, "actorder");
  if (v == nullptr || (v->boolean() != nullptr && !*v->boolean())) return ActOrder::none;
  ActOrder order = ActOrder::group;  // true
  if (v->boolean() == nullptr) {
    MOE_TRY(const std::optional<std::size_t> i, members.word("actorder", kWords));
    order = kOrders[*i];
  }
  if (operand == Operand::activations) {
    return fields::unexpected(members.at("actorder"), *v, "none, activations have no order");
  }
  return order;
}

// The rules between the arguments (config.md 13).
Check check_args(const Members& members, const QuantArgs& a, Operand operand) {
  const auto refuse = [&](std::string_view key, const std::string& why) { return fields::fault(members.at(key), why); };
  const std::string strategy = word(a.strategy);
  const bool weights = operand == Operand::weights;
  if (a.strategy == Strategy::token && a.dynamic == Dynamic::no) {
    return refuse("dynamic", "found false, expected true with strategy token");
  }
  if (a.strategy == Strategy::token && weights) return refuse("strategy", "found token, which is for activations only");
  if ((a.strategy == Strategy::channel || a.strategy == Strategy::block) && !weights) {
    return refuse("strategy", "found " + strategy + ", which is for weights only");
  }
  const bool sized = a.group_size && *a.group_size > 0;
  if (is_grouped(a.strategy) && !sized) {
    return refuse("group_size", (a.group_size ? "found " + std::to_string(*a.group_size) : std::string("missing")) +
                                    ", expected a positive one with strategy " + strategy);
  }
  if (sized && !is_grouped(a.strategy)) {
    return refuse("group_size",
                  "found " + std::to_string(*a.group_size) + ", but strategy " + strategy + " has no groups");
  }
  if (a.strategy == Strategy::block && !a.block_structure) {
    return refuse("block_structure", "missing, expected [rows, columns] with strategy block");
  }
  if (a.block_structure && a.strategy != Strategy::block) {
    return refuse("block_structure", "found " + json::write(*members.get("block_structure")) + ", but strategy " +
                                         strategy + " has no blocks");
  }
  if (a.actorder == ActOrder::group && !is_grouped(a.strategy)) {
    return refuse("actorder", "found " + fields::brief(*members.get("actorder")) + ", but strategy " + strategy +
                                  " has no groups to order");
  }
  if (a.dynamic == Dynamic::local && a.strategy != Strategy::tensor_group) {
    return refuse("dynamic", "found \"local\", expected strategy tensor_group with it, not " + strategy);
  }
  if (weights && a.dynamic != Dynamic::no) {
    return refuse("dynamic",
                  "found " + fields::brief(*members.get("dynamic")) + ", expected false: weights are static");
  }
  return ok();
}

Result<QuantArgs> read_args(const json::Value& object, std::string pointer, Operand operand) {
  MOE_TRY(const Members members, Members::open(&object, std::move(pointer), kArgs));
  QuantArgs a;
  MOE_TRY(const std::int64_t bits, members.integer("num_bits", {1, 8}, 8));
  MOE_TRY(a.type, members.word("type", kNumTypeNames, NumType::integer));
  if (bits != 4 && bits != 8)
    return fields::fault(members.at("num_bits"), "found " + std::to_string(bits) + ", expected 4 or 8");
  a.num_bits = static_cast<int>(bits);
  MOE_TRY(a.group_size, read_group_size(members));
  const Strategy derived = !a.group_size ? Strategy::tensor : *a.group_size == -1 ? Strategy::channel : Strategy::group;
  MOE_TRY(a.strategy, members.word("strategy", kStrategyNames, derived));
  MOE_TRY(a.symmetric, members.boolean("symmetric", true));
  MOE_TRY(a.dynamic, read_dynamic(members));
  MOE_TRY(a.block_structure, read_blocks(members));
  MOE_TRY(a.actorder, read_actorder(members, operand));
  MOE_CHECK(check_args(members, a, operand));
  return a;
}

// {"scheme": ..}: the preset, with its group size replaced if one is given.
Result<Quantization> read_scheme(const Members& members) {
  const json::Value& v = *members.get("scheme");
  const Preset* preset = v.string() == nullptr ? nullptr : find_preset(*v.string());
  if (preset == nullptr) {
    std::array<std::string_view, kPresets.size()> names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = kPresets[i].name;
    return fields::unexpected(members.at("scheme"), v, fields::join(names));
  }
  for (const std::string_view other : {"weights", "input_activations"}) {
    if (members.has(other))
      return fields::fault(members.at(other), "given beside scheme, expected one of the two forms");
  }
  Quantization q;
  q.weights = preset->weights;
  q.input_activations = preset->input_activations;
  q.format = preset->format;
  if (!members.has("group_size")) return q;
  if (members.get("group_size")->is_null()) {
    return fields::unexpected(members.at("group_size"), *members.get("group_size"), "an integer in [-1, 65536]");
  }
  MOE_TRY(const std::optional<std::int64_t> g, read_group_size(members));
  if (!q.weights || q.weights->type != NumType::integer || q.weights->strategy != Strategy::group) {
    return fields::fault(members.at("group_size"), "found " + std::to_string(*g) + ", but the grouping of scheme " +
                                                       std::string(preset->name) + " is fixed");
  }
  q.weights->strategy = *g == -1 ? Strategy::channel : Strategy::group;
  q.weights->group_size = *g == -1 ? std::nullopt : g;
  return q;
}

// {"weights": {..}, "input_activations": {..}}
Result<Quantization> read_arguments(const Members& members) {
  if (members.has("group_size"))
    return fields::fault(members.at("group_size"), "given without scheme, expected inside weights");
  if (!members.has("weights")) return fields::missing(members.at("weights"), "weights or a scheme");
  Quantization q;
  MOE_TRY(q.weights, read_args(*members.get("weights"), members.at("weights"), Operand::weights));
  if (const json::Value* a = not_null(members, "input_activations")) {
    MOE_TRY(q.input_activations, read_args(*a, members.at("input_activations"), Operand::activations));
  }
  q.format = infer_format(q.weights, q.input_activations);
  return q;
}

Check read_storage(const Members& members, Quantization& q) {
  static constexpr std::array<std::string_view, 3> kZeroPoints = {"auto", "as_stored", "plus_one"};
  MOE_TRY(const std::size_t zero_points, members.word("zero_point_convention", kZeroPoints, std::size_t{0}));
  if (zero_points != 0 && !(q.weights && q.weights->type == NumType::integer)) {
    return fields::fault(members.at("zero_point_convention"),
                         "found " + std::string(kZeroPoints[zero_points]) + ", expected auto without integer weights");
  }
  MOE_TRY(const std::optional<bool> transposed, members.boolean("is_transposed"));
  const bool packed = q.format == Format::gptq || q.format == Format::awq || q.format == Format::pack_quantized;
  const std::string format(kFormatNames[static_cast<std::size_t>(q.format)]);
  if (transposed && !packed) {
    return fields::fault(members.at("is_transposed"),
                         "given for format " + format + ", expected gptq, awq or pack-quantized");
  }
  if (transposed && !*transposed && q.format != Format::pack_quantized) {
    return fields::fault(members.at("is_transposed"), "found false, but format " + format + " is always K-first");
  }
  if (!q.weights) return ok();
  std::optional<ZeroPoints> given;
  if (zero_points != 0) given = zero_points == 1 ? ZeroPoints::as_stored : ZeroPoints::plus_one;
  fill_storage(q, given, transposed);
  return ok();
}

Check check_format(const Members& members, const Quantization& q) {
  const std::string found = "found " + std::string(kFormatNames[static_cast<std::size_t>(q.format)]);
  if (!q.weights) {
    if (q.format == Format::none) return ok();
    return fields::fault(members.at("format"), found + ", expected none for weights that are not quantized");
  }
  const QuantArgs& w = *q.weights;
  const std::optional<Container> c = container(q.format);
  const bool holds =
      c ? w.type == c->type && (c->bits == 0 || w.num_bits == c->bits) && (c->group == 0 || w.group_size == c->group)
        : q.format != Format::none;
  if (!holds) {
    return fields::fault(members.at("format"),
                         found + ", which holds " + (c ? std::string(c->holds) : "no quantized weights") + ", for " +
                             std::to_string(w.num_bits) + "-bit " +
                             std::string(kNumTypeNames[static_cast<std::size_t>(w.type)]) + " weights");
  }
  if (w.actorder == ActOrder::group && q.format != Format::gptq && q.format != Format::pack_quantized) {
    return fields::fault(members.at("weights") + "/actorder",
                         found + " as the format, expected gptq or pack-quantized");
  }
  return ok();
}

Result<Quantization> read_strict(const json::Value* object, const Config& config) {
  if (object == nullptr) return Quantization();
  MOE_TRY(const Members members, Members::open(object, std::string(kBase), kMembers));
  const bool scheme = members.has("scheme");
  MOE_TRY(Quantization q, scheme ? read_scheme(members) : read_arguments(members));
  MOE_TRY(q.format, members.word("format", kFormatNames, q.format));
  MOE_CHECK(read_storage(members, q));
  MOE_CHECK(check_format(members, q));
  const std::string blocks_at = std::string(kBase) + (scheme ? "/scheme" : "/weights/block_structure");
  const std::string groups_at = std::string(kBase) + (members.has("group_size") ? "/group_size"
                                                      : scheme                  ? "/scheme"
                                                                                : "/weights/group_size");
  MOE_CHECK(check_sizes(q, config, groups_at, blocks_at));
  return q;
}

Result<Quantization> read_hf(const json::Value& object, const Config& config) {
  const std::string base = "/hf_quantization_config";
  if (object.object() == nullptr) return fields::unexpected(base, object, "an object");
  const std::string method_at = base + "/quant_method";
  const json::Value* method = object.find("quant_method");
  if (method == nullptr) return fields::missing(method_at, fields::join(kMethods));
  if (method->string() == nullptr || !fields::index_of(kMethods, *method->string())) {
    return fields::unexpected(method_at, *method, fields::join(kMethods));
  }
  MOE_TRY(std::optional<HfQuantization> resolved,
          resolve_hf_quantization(object, config.name, config.projection_names));
  Quantization q;
  if (resolved) q = std::move(resolved->quantization);
  q.hf = *method->string();
  MOE_CHECK(check_sizes(q, config, base, base));
  return q;
}

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
  if (w.num_bits == 4) {
    if (w.group_size == 32) return Format::mxfp4_pack_quantized;
    return w.group_size == 16 ? Format::nvfp4_pack_quantized : Format::naive_quantized;
  }
  if (w.strategy == Strategy::group && w.group_size == 32) return Format::mxfp8_quantized;
  return input_activations ? Format::float_quantized : Format::naive_quantized;
}

void fill_storage(Quantization& q, std::optional<ZeroPoints> zero_points, std::optional<bool> transposed) {
  const bool integers = q.weights && q.weights->type == NumType::integer;
  q.zero_point_convention = zero_points;
  if (!zero_points && integers)
    q.zero_point_convention = q.format == Format::gptq ? ZeroPoints::plus_one : ZeroPoints::as_stored;
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
  const auto refuse = [](const std::string& pointer, std::string_view name, std::int64_t size, const char* unit,
                         std::int64_t n) {
    return fields::fault(pointer, std::string(name) + " is " + std::to_string(size) + ", expected a multiple of the " +
                                      unit + " " + std::to_string(n));
  };
  constexpr std::string_view kHidden = "hidden_dim", kPart = "intermediate_size_per_partition";
  if (is_grouped(w.strategy) && w.group_size && *w.group_size > 0) {
    const std::int64_t g = *w.group_size;
    if (hidden % g != 0) return refuse(group_pointer, kHidden, hidden, "group size", g);
    if (part % g != 0) return refuse(group_pointer, kPart, part, "group size", g);
  }
  if (w.strategy == Strategy::block && w.block_structure) {
    const auto [rows, columns] = *w.block_structure;
    if (part % rows != 0) return refuse(block_pointer, kPart, part, "block rows", rows);
    if (config.parallel.tp_size > 1 && part % columns != 0)
      return refuse(block_pointer, kPart, part, "block columns", columns);
  }
  const bool packed = q.format == Format::pack_quantized || q.format == Format::gptq || q.format == Format::awq;
  if (w.type == NumType::integer && w.num_bits == 4 && packed) {
    constexpr std::int64_t kPerWord = 8;
    if (hidden % kPerWord != 0) return refuse(group_pointer, kHidden, hidden, "4-bit codes in a word,", kPerWord);
    if (part % kPerWord != 0) return refuse(group_pointer, kPart, part, "4-bit codes in a word,", kPerWord);
  }
  return ok();
}

Check read_quantization(const json::Value& document, Draft& draft) {
  const json::Value *strict = document.find("quantization"), *hf = document.find("hf_quantization_config");
  if (strict != nullptr && hf != nullptr) {
    return fields::fault("/hf_quantization_config", "given beside /quantization, expected one of the two");
  }
  MOE_TRY(draft.config.quantization, hf != nullptr ? read_hf(*hf, draft.config) : read_strict(strict, draft.config));
  return ok();
}

}  // namespace moe
