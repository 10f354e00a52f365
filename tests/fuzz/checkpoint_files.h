// A tiny layer (tiny.h) as the files of a checkpoint directory: config.json, shards, index. Edits of the input spoil
// their texts value by value, so that most of what is read stays JSON; a shard's header is as long as it says unless an
// edit wants otherwise.
#pragma once

#include <fstream>

#include "fuzz/tiny.h"
#include "support/rooms.h"

namespace moe::fuzz {

// A class of models: how it names sizes, the layer and its projections.
struct Family {
  const char *architecture, *experts, *width, *more;
  const char* block;
  std::array<const char*, 3> projections;  // the first is "": gate and up are one tensor of all experts
  const char* bias;                        // of the router; "": none
};
inline constexpr std::array kFamilies = {
    Family{"Qwen3MoeForCausalLM",
           "num_experts",
           "moe_intermediate_size",
           R"("norm_topk_prob":true)",
           "mlp",
           {"gate_proj", "up_proj", "down_proj"},
           ""},
    Family{"MixtralForCausalLM",
           "num_local_experts",
           "intermediate_size",
           R"("sliding_window":null)",
           "block_sparse_moe",
           {"w1", "w3", "w2"},
           ""},
    Family{"DeepseekV3ForCausalLM",
           "n_routed_experts",
           "moe_intermediate_size",
           R"("first_k_dense_replace":0,"scoring_func":"sigmoid","topk_method":"noaux_tc","n_group":1,"topk_group":1)",
           "mlp",
           {"gate_proj", "up_proj", "down_proj"},
           "gate.e_score_correction_bias"},
    Family{"GraniteMoeForCausalLM",
           "num_local_experts",
           "intermediate_size",
           R"("tie_word_embeddings":false)",
           "block_sparse_moe",
           {"", "input_linear", "output_linear"},
           ""},
};

inline std::string quantization_config(const TinyLayer& l) {
  const Form& f = *l.form;
  const std::string bits = std::to_string(f.bits), group = std::to_string(l.group), format = f.format;
  const std::string type = std::string(R"("type":")") + (f.scale_rows == 0 ? "int" : "float") + "\"";
  const auto flag = [](bool on) { return on ? "true" : "false"; };
  if (format == "gptq")
    return R"({"quant_method":"gptq","bits":)" + bits + R"(,"group_size":)" + group + R"(,"desc_act":)" +
           flag(l.order) + R"(,"sym":)" + flag(!l.zeros) + R"(,"checkpoint_format":"gptq_v2"})";
  if (format == "awq")
    return R"({"quant_method":"awq","bits":4,"zero_point":true,"version":"gemm","group_size":)" + group + "}";
  if (f.scale_rows == kBlock)
    return R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[32,32]})";
  const std::string_view scheme = f.scheme;
  std::string grouped = R"("strategy":"channel")";
  if (scheme == "FP8") grouped = R"("strategy":"tensor")";
  if (f.has_powers() || (f.scale_rows == 0 && l.group > 0)) grouped = R"("strategy":"group","group_size":)" + group;
  if (f.starts_with("NV")) grouped = R"("strategy":"tensor_group","group_size":)" + group;
  std::string inputs = "null";  // of wna16
  if (f.starts_with("NV") || f.has_powers())
    inputs = R"({"num_bits":)" + bits + "," + type + "," + grouped + R"(,"symmetric":true,"dynamic":)" +
             (f.has_powers() ? "true}" : "\"local\"}");
  else if (!scheme.empty())
    inputs = R"({"num_bits":8,)" + type + R"(,"symmetric":true,)" +
             (scheme == "FP8" ? R"("strategy":"tensor","dynamic":false})" : R"("strategy":"token","dynamic":true})");
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":)" + bits + "," + type + "," +
         grouped + R"(,"symmetric":)" + flag(!l.zeros) + (l.order ? R"(,"actorder":"group")" : "") +
         R"(},"input_activations":)" + inputs + "}}}";
}

inline std::string config_json(const TinyLayer& l, const Family& family) {
  const std::string dtype = l.dtype == MOE_DTYPE_F32 ? "float32" : l.dtype == MOE_DTYPE_F16 ? "float16" : "bfloat16";
  std::string text = std::string(R"({"architectures":[")") + family.architecture + R"("],"torch_dtype":")" + dtype +
                     R"(","hidden_act":"silu","num_hidden_layers":1,"num_experts_per_tok":)" + std::to_string(l.top_k) +
                     R"(,"hidden_size":)" + std::to_string(l.H) + ",\"" + family.experts + "\":" + std::to_string(l.E) +
                     ",\"" + family.width + "\":" + std::to_string(l.I) + "," + family.more;
  if (std::string_view(l.form->format) != "none") text += R"(,"quantization_config":)" + quantization_config(l);
  return text + "}";
}

struct NamedTensor {
  std::string name;
  moe_dtype dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

// Half `h` of `halves` of one expert's part of `t`: of its rows, or of its columns where they are the output.
inline NamedTensor part(const StackedTensor& t, std::string name, std::int64_t e, std::int64_t h, std::int64_t halves,
                        bool k_first) {
  const std::vector<std::int64_t> shape(t.shape.begin() + 1, t.shape.end());
  const std::size_t whole = t.bytes.size() / static_cast<std::size_t>(t.shape[0]);
  const auto* first = t.bytes.data() + static_cast<std::size_t>(e) * whole;
  NamedTensor out{std::move(name), t.dtype, shape, {}};
  const bool shared = shape.empty() || t.role == "g_idx" || halves == 1;
  const std::size_t axis = k_first && shape.size() == 2 ? 1 : 0;
  if (!shared) out.shape[axis] /= halves;
  const std::size_t blocks = axis == 1 ? static_cast<std::size_t>(shape[0]) : 1, stride = whole / blocks;
  const std::size_t taken = shared ? stride : stride / static_cast<std::size_t>(halves);
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto* at = first + i * stride + (shared ? 0 : static_cast<std::size_t>(h) * taken);
    out.bytes.insert(out.bytes.end(), at, at + taken);
  }
  return out;
}

// How the format calls a role in files.
inline std::string name_in_files(const Form& form, const std::string& role) {
  const std::string_view format = form.format;
  const bool words = format == "gptq" || format == "awq";
  if (role == "weight")
    return words ? "qweight" : format.find("pack") != std::string_view::npos ? "weight_packed" : role;
  if (role == "scale") return words ? "scales" : form.scale_rows == kBlock ? "weight_scale_inv" : "weight_scale";
  if (role == "zero_point") return words ? "qzeros" : "weight_zero_point";
  if (role == "g_idx") return words ? role : "weight_g_idx";
  return role == "scale_2" ? "weight_scale_2" : role;
}

inline std::vector<NamedTensor> tensors_of(const TinyLayer& l, const Family& family) {
  const std::string block = std::string("model.layers.0.") + family.block + ".";
  std::vector<NamedTensor> all;
  for (const Matrix* m : {&l.w13, &l.w2}) {
    const bool up = m == &l.w13, stacked = *family.projections[0] == 0;
    for (const StackedTensor& t : l.tensors(*m)) {
      const std::string name = name_in_files(*l.form, t.role);
      if (stacked) all.push_back({block + family.projections[up ? 1 : 2] + "." + name, t.dtype, t.shape, t.bytes});
      for (std::int64_t e = 0; !stacked && e < l.E; ++e)
        for (std::int64_t h = 0; h < (up ? 2 : 1); ++h)
          all.push_back(part(t,
                             block + "experts." + std::to_string(e) + "." +
                                 family.projections[static_cast<std::size_t>(up ? h : 2)] + "." + name,
                             e, h, up ? 2 : 1, l.form->k_first));
    }
  }
  if (*family.bias != 0)
    all.push_back(
        {block + family.bias, MOE_DTYPE_F32, {l.E}, std::vector<std::uint8_t>(static_cast<std::size_t>(4 * l.E))});
  return all;
}

struct CheckpointFile {
  std::string name, text, data;  // text: JSON; data: what follows a shard's header
  std::int64_t longer = 0;       // than the header is, says the shard
  bool absent = false;

  bool is_shard() const { return name.ends_with(".safetensors"); }
  std::string bytes() const {
    if (!is_shard()) return text;
    std::string all;
    const std::uint64_t size = text.size() + static_cast<std::uint64_t>(longer);
    for (int i = 0; i < 8; ++i) all.push_back(static_cast<char>(size >> 8 * i & 255));
    return all + text + data;
  }
};

// config.json first; one to three shards, with an index or without.
inline std::vector<CheckpointFile> files_of(const TinyLayer& l, const Family& family, std::size_t shards, bool indexed,
                                            Noise& noise) {
  std::vector<CheckpointFile> files(1 + shards);
  files[0].name = "config.json";
  files[0].text = config_json(l, family);
  std::string map;
  for (std::size_t i = 1; i <= shards; ++i) {
    files[i].name = shards == 1 && !indexed ? "model.safetensors" : "model-" + std::to_string(i) + ".safetensors";
    files[i].text = R"({"__metadata__":{"format":"pt"})";
  }
  for (const NamedTensor& t : tensors_of(l, family)) {
    CheckpointFile& file = files[1 + noise.below(static_cast<std::uint32_t>(shards))];
    std::string shape;
    for (const std::int64_t n : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
    constexpr std::array kNames = {std::pair{MOE_DTYPE_F32, "F32"}, std::pair{MOE_DTYPE_I32, "I32"},
                                   std::pair{MOE_DTYPE_I8, "I8"}, std::pair{MOE_DTYPE_U8, "U8"},
                                   std::pair{MOE_DTYPE_F8_E4M3FN, "F8_E4M3"}};
    const auto named = std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == t.dtype; });
    MOE_REQUIRE(named != kNames.end());
    file.text += ",\"" + t.name + R"(":{"dtype":")" + named->second + R"(","shape":[)" + shape +
                 R"(],"data_offsets":[)" + std::to_string(file.data.size()) + "," +
                 std::to_string(file.data.size() + t.bytes.size()) + "]}";
    file.data.append(t.bytes.begin(), t.bytes.end());
    map += (map.empty() ? "\"" : ",\"") + t.name + "\":\"" + file.name + "\"";
  }
  for (std::size_t i = 1; i <= shards; ++i) files[i].text += "}";
  if (indexed) files.push_back({"model.safetensors.index.json", R"({"metadata":{},"weight_map":{)" + map + "}}", ""});
  return files;
}

// --- edits -------------------------------------------------------------------------------------------------------

struct Span {
  std::size_t at, size;
};
// A value of a text: what stands behind its n-th colon (of the list or object there the first).
inline Span value_of(const std::string& text, std::size_t n) {
  const auto colons = static_cast<std::size_t>(std::count(text.begin(), text.end(), ':'));
  if (colons == 0) return {0, text.size()};
  std::size_t at = 0;
  for (std::size_t i = 0; i <= n % colons; ++i) at = text.find(':', at) + 1;
  while (at < text.size() && (text[at] == '[' || text[at] == '{')) ++at;
  return {at, std::min(text.find_first_of(",]}", at), text.size()) - at};
}

inline void edit(Producer& p, std::vector<CheckpointFile>& files) {
  constexpr std::array kWords = {
      "0",    "1",  "-1", "2",  "3",     "32",       "64",        "1e2",     "4294967296", "9223372036854775807",
      "null", "{}", "[]", "\"", "false", "\"gptq\"", "\"F32\"",   "\"U8\"",  "\"I32\"",    "18446744073709551615",
      "true", "]",  "}",  ",",  "[2,3]", "\"BF16\"", "\"group\"", "\"F16\"", "\"token\"",  "\"../model.safetensors\""};
  CheckpointFile& file = files[p.below(files.size())];
  const std::size_t kind = p.below(6);
  const std::uint32_t where = static_cast<std::uint32_t>(p.byte()) << 8 | p.byte();
  const Span value = value_of(file.text, where);
  const std::size_t at = where % (file.text.size() + 1);
  if (kind == 0) file.text.replace(value.at, value.size, p.pick(kWords));
  if (kind == 1) {  // the value of another place
    const Span other = value_of(file.text, p.byte());
    file.text.replace(value.at, value.size, file.text.substr(other.at, other.size));
  }
  if (kind == 2) file.text.insert(at, p.pick(kWords));
  if (kind == 3) file.text.erase(at, 1 + p.below(64));
  if (kind == 4) file.text.replace(at, 1, 1, static_cast<char>(p.byte()));
  if (kind == 5) {
    const std::size_t end = p.below(4);
    if (end == 0) file.absent = true;
    if (end == 1) file.text.resize(at);
    if (end == 2) file.data.resize(where % (file.data.size() + 1));
    if (end == 3) file.longer = static_cast<std::int32_t>(p.word());
  }
}

}  // namespace moe::fuzz
