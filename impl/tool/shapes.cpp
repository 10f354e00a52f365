// Sizes of models as their config.json files have them, formats of weights, and the numbers that stand for a
// checkpoint's.
#include "tool/shapes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "tool/options.h"

namespace moe_tool {

// --- shapes -------------------------------------------------------------------------------------

namespace {
#define MOE_SIGMOID "\"routing\":{\"scoring_func\":\"sigmoid\",\"renormalize\":true}"
#define MOE_GPT_OSS "\"activation\":\"swigluoai\",\"has_bias\":true"
const std::vector<ModelShape> kShapes = {
    {"qwen3-30b-a3b", "w4a8-g128", 48, 128, 8, 2048, 768, ""},
    {"qwen3-235b-a22b", "w4a8-g128", 94, 128, 8, 4096, 1536, ""},
    {"qwen3-next-80b-a3b", "w4a8-g128", 48, 512, 10, 2048, 512, ""},
    {"mixtral-8x7b", "w4a8-g128", 32, 8, 2, 4096, 14336, ""},
    {"mixtral-8x22b", "w4a8-g128", 56, 8, 2, 6144, 16384, ""},
    {"deepseek-v3", "fp8-block", 58, 256, 8, 7168, 2048, MOE_SIGMOID},
    {"kimi-k2", "w4a16-g32", 60, 384, 8, 7168, 2048, MOE_SIGMOID},
    {"glm-4.5-air", "w4a8-g128", 45, 128, 8, 4096, 1408, MOE_SIGMOID},
    {"gpt-oss-20b", "mxfp4", 24, 32, 4, 2880, 2880, MOE_GPT_OSS},
    {"gpt-oss-120b", "mxfp4", 36, 128, 4, 2880, 2880, MOE_GPT_OSS},
};
#undef MOE_SIGMOID
#undef MOE_GPT_OSS
}  // namespace

const std::vector<ModelShape>& shapes() { return kShapes; }

const ModelShape& shape_named(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelShape& row : kShapes) {
    if (name == row.name) return row;
    names.emplace_back(row.name);
  }
  const std::string near = nearest_word(name, names);
  throw Failure(kUsage,
                fmt::format("--shape '{}': not a shape that is known{}; there are {}", printable(name),
                            near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(names, ", ")));
}

// --- formats ------------------------------------------------------------------------------------

namespace {

// What the bytes of a tensor may be: random bits, of which some are kept and some set, so that numbers are finite,
// positive where they are scales, and of a size that keeps the layer's output near 1.
struct MadeBits {
  std::uint64_t keep, set;
};
constexpr MadeBits kAny = {~std::uint64_t{0}, 0};
constexpr MadeBits kBf16 = {0x807f807f807f807f, 0x3c003c003c003c00};
constexpr MadeBits kBf16Scale = {0x007f007f007f007f, 0x3c003c003c003c00};
constexpr MadeBits kF32Scale = {0x007fffff007fffff, 0x3c0000003c000000};
constexpr MadeBits kE4m3 = {0xbfbfbfbfbfbfbfbf, 0};  // the largest exponents, and with them NaN, are left out
constexpr MadeBits kE4m3Scale = {0x0f0f0f0f0f0f0f0f, 0x3030303030303030};
constexpr MadeBits kPower = {0x0303030303030303, 0x7474747474747474};
constexpr MadeBits kNibble = {0x0707070707070707, 0};  // codes of int4 in a byte each: 0 to 7

// A tensor of the matrix [n, k]: elements of a row, rows for each row.
struct MadeTensor {
  const char* role;  // behind "w13_" and "w2_"; null: none
  moe_dtype dtype;
  std::int64_t columns_per_element;  // of the matrix; 0: one element for the whole matrix; -1: one for each row
  std::int64_t rows_per_element;
  MadeBits bits;
};
constexpr MadeTensor kNone = {nullptr, MOE_DTYPE_INVALID, 1, 1, kAny};

constexpr MadeTensor scales(std::int64_t group) { return {"scale", MOE_DTYPE_BF16, group, 1, kBf16Scale}; }
constexpr MadeTensor kCodes4 = {"weight", MOE_DTYPE_I8, 1, 1, kNibble};
constexpr MadeTensor kCodes8 = {"weight", MOE_DTYPE_I8, 1, 1, kAny};
constexpr MadeTensor kWords4 = {"weight", MOE_DTYPE_I32, 8, 1, kAny};
constexpr MadeTensor kWords8 = {"weight", MOE_DTYPE_I32, 4, 1, kAny};
constexpr MadeTensor kFloats8 = {"weight", MOE_DTYPE_F8_E4M3FN, 1, 1, kE4m3};
constexpr MadeTensor kFloats4 = {"weight", MOE_DTYPE_U8, 2, 1, kAny};

}  // namespace

struct WeightFormat {
  const char* name;
  const char* quantization;  // the member of the config document; "" for none
  MadeTensor tensors[3];
};

namespace {

#define MOE_GROUPS(scheme, g) "{\"scheme\":\"" scheme "\",\"group_size\":" #g "}"
#define MOE_SCHEME(scheme) "{\"scheme\":\"" scheme "\"}"
const std::vector<WeightFormat> kFormats = {
    {"w4a8-g128", MOE_GROUPS("W4A8", 128), {kCodes4, scales(128), kNone}},
    {"w4a8-g32", MOE_GROUPS("W4A8", 32), {kCodes4, scales(32), kNone}},
    {"w4a8-channel", MOE_GROUPS("W4A8", -1), {kCodes4, scales(-1), kNone}},
    {"w8a8-channel", MOE_SCHEME("W8A8"), {kCodes8, scales(-1), kNone}},
    {"w4a16-g128", MOE_GROUPS("W4A16", 128), {kWords4, scales(128), kNone}},
    {"w4a16-g32", MOE_GROUPS("W4A16", 32), {kWords4, scales(32), kNone}},
    {"w8a16-channel", MOE_GROUPS("W8A16", -1), {kWords8, scales(-1), kNone}},
    {"fp8-channel", MOE_SCHEME("FP8_DYNAMIC"), {kFloats8, scales(-1), kNone}},
    {"fp8-block", MOE_SCHEME("FP8_BLOCK"), {kFloats8, {"scale", MOE_DTYPE_F32, 128, 128, kF32Scale}, kNone}},
    {"mxfp8", MOE_SCHEME("MXFP8"), {kFloats8, {"scale", MOE_DTYPE_U8, 32, 1, kPower}, kNone}},
    {"mxfp4", MOE_SCHEME("MXFP4A16"), {kFloats4, {"scale", MOE_DTYPE_U8, 32, 1, kPower}, kNone}},
    {"nvfp4",
     MOE_SCHEME("NVFP4A16"),
     {kFloats4, {"scale", MOE_DTYPE_F8_E4M3FN, 16, 1, kE4m3Scale}, {"scale_2", MOE_DTYPE_F32, 0, 1, kF32Scale}}},
    {"bf16", "", {{"weight", MOE_DTYPE_BF16, 1, 1, kBf16}, kNone, kNone}},
};
#undef MOE_GROUPS
#undef MOE_SCHEME

// --- the source ---------------------------------------------------------------------------------

class MadeUpSource {
 public:
  MadeUpSource(const ModelShape& shape, const WeightFormat& format, bool has_bias)
      : shape_(shape), format_(format), has_bias_(has_bias) {}

  static moe_status get(void* user, const char* role, std::int64_t, const char* shard, moe_tensor* out,
                        moe_error** err) {
    try {
      const auto& self = *static_cast<const MadeUpSource*>(user);
      return shard == nullptr && self.find(role, *out) ? MOE_OK : MOE_ERR_MISSING_WEIGHT;
    } catch (...) {
      *err = moe_error_create(MOE_ERR_OUT_OF_MEMORY, "no memory for numbers", MOE_NUL_TERMINATED);
      return MOE_ERR_OUT_OF_MEMORY;
    }
  }

  // All tensors are made at once: get() comes from several threads.
  void fill() {
    for (const char* matrix : {"w13", "w2"}) {
      for (const MadeTensor& tensor : format_.tensors) add(matrix, tensor);
      if (has_bias_) add(matrix, {"bias", MOE_DTYPE_BF16, -2, 1, kBf16});
    }
  }

 private:
  struct Made {
    moe_tensor view;
    std::vector<std::uint64_t> words;
  };

  void add(const std::string& matrix, const MadeTensor& tensor) {
    if (tensor.role == nullptr) return;
    const bool w13 = matrix == "w13";
    const std::int64_t n = w13 ? 2 * shape_.intermediate : shape_.hidden;
    const std::int64_t k = w13 ? shape_.hidden : shape_.intermediate;
    const std::int64_t per = tensor.columns_per_element;
    auto view = sized<moe_tensor>();
    view.dtype = tensor.dtype;
    if (per == 0) {
      view.ndim = 1;
      view.shape[0] = w13 ? 2 : 1;
    } else if (per == -2) {
      view.ndim = 1;
      view.shape[0] = n;
    } else {
      view.ndim = 2;
      view.shape[0] = (n + tensor.rows_per_element - 1) / tensor.rows_per_element;
      view.shape[1] = per < 0 ? 1 : (k + per - 1) / per;
    }
    const std::int64_t bytes = moe_tensor_nbytes(view.dtype, view.ndim, view.shape);
    if (bytes < 0) throw Failure(kNo, "a shape that is too large");
    Made& made = made_[matrix + "_" + tensor.role];
    made.words.resize(static_cast<std::size_t>(bytes) / 8 + 1);
    std::mt19937_64 random(made_.size());
    for (std::uint64_t& word : made.words) word = (random() & tensor.bits.keep) | tensor.bits.set;
    view.data = made.words.data();
    made.view = view;
  }

  bool find(const char* role, moe_tensor& out) const {
    const auto found = made_.find(role);
    if (found == made_.end()) return false;
    out = found->second.view;
    return true;
  }

  const ModelShape& shape_;
  const WeightFormat& format_;
  bool has_bias_;
  std::map<std::string, Made> made_;
};

}  // namespace

std::vector<std::string> format_names() {
  std::vector<std::string> out;
  for (const WeightFormat& row : kFormats) out.emplace_back(row.name);
  return out;
}

const WeightFormat& format_named(const std::string& name) {
  for (const WeightFormat& row : kFormats)
    if (name == row.name) return row;
  const std::string near = nearest_word(name, format_names());
  throw Failure(kUsage, fmt::format("--format '{}': not a format that is known{}; there are {}", printable(name),
                                    near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                                    fmt::join(format_names(), ", ")));
}

std::string config_text(const ModelShape& shape, const WeightFormat& format) {
  const std::string_view quantization = format.quantization;
  const std::string_view more = shape.more;
  return fmt::format(
      "{{\"num_experts\":{},\"top_k\":{},\"hidden_dim\":{},\"intermediate_size\":{},\"in_dtype\":\"bfloat16\"{}{}{}{}}"
      "}",
      shape.experts, shape.top_k, shape.hidden, shape.intermediate,
      quantization.empty() ? "" : ",\"quantization\":", quantization, more.empty() ? "" : ",", more);
}

WeightsHandle made_up_weights(const moe_config* config, const ModelShape& shape, const WeightFormat& format) {
  const bool has_bias = document_of(moe_config_to_json, config).value("has_bias", false);
  auto source = std::make_unique<MadeUpSource>(shape, format, has_bias);
  source->fill();
  auto ops = sized<moe_weight_source_ops>();
  ops.get = &MadeUpSource::get;
  ops.destroy = [](void* user) { delete static_cast<MadeUpSource*>(user); };
  ops.user = source.release();  // the library destroys it, also when the call fails
  return make<WeightsHandle>(moe_weights_create_from_source, config, &ops);
}

}  // namespace moe_tool
