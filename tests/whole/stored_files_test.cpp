// Packed files of earlier builds (tests/vectors/packed): one for each layout kind and scale type. This build loads and
// verifies them, gives the same numbers, runs those that a kernel or an emulation runs, and writes the same bytes.
//
// The files are never made again. A new layout kind or scale type gets a case in cases() and its file by
//   test_api --gtest_also_run_disabled_tests --gtest_filter='*WriteMissing'
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>

#include "io/hash.h"
#include "io/packed.h"
#include "layouts/families.h"
#include "support/float4_model.h"
#include "support/rooms.h"
#include "support/temp_dir.h"
#include "support/tiny_layer.h"
#include "support/wna16_targets.h"

namespace moe::test::stored_files_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kTokens = 3;

// --- one file --------------------------------------------------------------------------------------------------------

struct File {
  PackedPtr packed;
  json about;  // moe_packed_to_json
  std::string text;

  explicit File(const std::string& path) : text(read_text(path)) {
    packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_packed_load(nullptr, path.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
    });
    if (packed) about = json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(packed.get(), o, e); });
  }
  std::int64_t config(const char* member) const { return about.at("config").at(member).get<std::int64_t>(); }
};

std::string hex_hash(const void* data, std::size_t bytes) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(xxh3({static_cast<const std::byte*>(data), bytes})));
  return text;
}

// Hash of the float32 numbers of a matrix, all experts.
std::string numbers(const File& f, const char* role, std::int64_t rows, std::int64_t columns) {
  const auto experts = f.about.at("experts").get<std::vector<std::int64_t>>();
  const auto size = static_cast<std::size_t>(rows * columns);
  std::vector<float> all(size * experts.size());
  for (const std::int64_t e : experts) {
    const auto local = static_cast<std::size_t>(e - experts[0]);
    const moe_tensor out = tensor(MOE_DTYPE_F32, {rows, columns}, all.data() + size * local);
    const Failure failed =
        failure([&](moe_error** err) { return moe_packed_dequantize(f.packed.get(), role, e, &out, err); });
    EXPECT_EQ(failed.status, MOE_OK) << failed.message;
  }
  for (float& v : all) v += 0.0f;  // -0 and 0 are the same number
  return hex_hash(all.data(), all.size() * sizeof(float));
}

json numbers(const File& f) {
  const std::int64_t hidden = f.config("hidden_dim"), intermediate = f.config("intermediate_size_per_partition");
  return {{"w13", numbers(f, "w13_weight", 2 * intermediate, hidden)},
          {"w2", numbers(f, "w2_weight", hidden, intermediate)}};
}

// A layer of the file under a config; null if there is none.
LayerPtr layer_of(const File& f, const json& config_text, const ContextPtr& context, bool must) {
  const ConfigPtr config = make_config(config_text.dump());
  moe_selection* chosen = nullptr;
  moe_layer* layer = nullptr;
  const Failure failed = failure([&](moe_error** e) {
    const moe_status s = moe_select_backend(context.get(), config.get(), nullptr, 0, &chosen, e);
    if (s != MOE_OK) return s;
    return moe_layer_create(context.get(), chosen, f.packed.get(), nullptr, &layer, e);
  });
  const SelectionPtr ended(chosen);
  if (must) {
    EXPECT_EQ(failed.status, MOE_OK) << failed.message;
  }
  return LayerPtr(layer);
}

// Its output for fixed tokens.
std::vector<float> output(const File& f, const moe_layer* layer) {
  const std::int64_t hidden = f.config("hidden_dim"), experts = f.config("num_experts"), k = f.config("top_k");
  const moe_dtype dtype = moe_dtype_from_name(f.about.at("config").at("in_dtype").get<std::string>().c_str());
  std::vector<float> x, weights;
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < kTokens * hidden; ++i) x.push_back(static_cast<float>(i * 37 % 101 - 50) / 32.0f);
  for (std::int64_t i = 0; i < kTokens * k; ++i) {
    ids.push_back(static_cast<std::int32_t>(i % experts));
    weights.push_back(static_cast<float>(i % 3 + 1) / 4.0f);
  }
  const std::vector<std::byte> bytes = in_dtype(x, dtype);
  return floats_of(apply_topk(layer, {dtype, kTokens, hidden, k, bytes.data(), ids.data(), weights.data()}), dtype);
}

// --- what is written ----------------------------------------------------------------------------------------------

struct Converted {
  json config;
  PackedPtr packed;
};
struct Case {
  std::string name;
  Converted layer;
};

Converted converted(const json& text, const moe_config* config, const WeightsPtr& weights) {
  const SelectionPtr selection = make_selection(config);
  if (!selection) return {};
  return {text, make<PackedPtr>([&](moe_packed** o, moe_error** e) {
            return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
          })};
}

// w4a8: int4 with int8 activations.
Converted w4a8(std::int64_t group, bool bias, const json& changes) {
  Model m;
  m.E = 2, m.H = 64, m.I = 128, m.group = group, m.bias = bias, m.dtype = "bfloat16";
  m.signed_scales = false;
  m = random_model(m, 7);
  json text = json::parse(m.config_text());
  text.update(changes);
  const ConfigPtr config = make_config(text.dump());
  return converted(text, config.get(), make_weights(config.get(), m));
}

// machine: of another engine.
Converted floats(const char* dtype, bool bias, const json& machine = json::object()) {
  const std::int64_t experts = 2, hidden = machine.empty() ? 48 : 64, intermediate = machine.empty() ? 40 : 64;
  json text = {{"num_experts", experts}, {"top_k", 2},      {"hidden_dim", hidden}, {"intermediate_size", intermediate},
               {"in_dtype", dtype},      {"has_bias", bias}};
  text.update(machine);
  const ConfigPtr config = make_config(text.dump());
  const moe_dtype type = moe_dtype_from_name(dtype);
  WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  std::uint32_t seed = 9;
  const auto set = [&](const char* role, const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t d : shape) size *= d;
    std::mt19937 rng(seed++);
    std::vector<float> values;
    for (std::int64_t i = 0; i < size; ++i)
      values.push_back(static_cast<float>(static_cast<int>(rng() % 255) - 127) / 1024.0f);
    auto* kept = new std::vector<std::byte>(in_dtype(values, type));
    const moe_tensor t = tensor(type, shape, kept->data());
    const Failure f = failure([&](moe_error** e) {
      return moe_weights_set(
          w.get(), role, &t, [](void* user) { delete static_cast<std::vector<std::byte>*>(user); }, kept, e);
    });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
  };
  set("w13_weight", {experts, 2 * intermediate, hidden});
  set("w2_weight", {experts, hidden, intermediate});
  if (bias) {
    set("w13_bias", {experts, 2 * intermediate});
    set("w2_bias", {experts, hidden});
  }
  return converted(text, config.get(), w);
}

enum class Groups { even, uneven };
Converted wna16(const char* target, Wna16Model m, Groups groups = Groups::even) {
  m.E = 2;
  m.signed_scales = false;  // as all files of that time
  const json extra = m.extra;
  m = random_wna16(m, 11);
  for (const Wna16Target& t : wna16_targets())
    if (std::string_view(t.name) == target) m.extra = t.members;
  m.extra.update(extra);
  std::mt19937 rng(13);
  for (auto* matrices : {&m.w13, &m.w2})
    for (Matrix13or2& w : *matrices) {
      for (float& scale : w.scales) scale = bf16_to_f32(f32_to_bf16(scale));
      for (std::int32_t& g : w.g_idx)
        if (groups == Groups::uneven) g = static_cast<std::int32_t>(rng() % static_cast<std::uint32_t>(w.groups));
    }
  const ConfigPtr config = make_config(m.config_text());
  return converted(json::parse(m.config_text()), config.get(), stacked_weights(m, config.get()));
}

// Scales of two bytes, which kernels read and no selection asks for: packed plainly, beside the config of the layer
// with float32 scales.
Converted short_scales(int bits, Scales scales) {
  Wna16Model m;
  m.E = 2, m.H = m.I = 64, m.bits = bits, m.signed_scales = false,
  m.dtype = scales == Scales::f16 ? MOE_DTYPE_F16 : MOE_DTYPE_BF16;
  m = random_wna16(m, 11);
  const ConfigPtr config = make_config(m.config_text());
  Converted out = converted(json::parse(m.config_text()), config.get(), stacked_weights(m, config.get()));
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(out.packed.get(), &data, &size, nullptr), MOE_OK);
  const auto like = open_packed({static_cast<const std::byte*>(data), size}, {}, "caller", nullptr, {});
  LayerShape shape;
  shape.experts = m.E, shape.hidden = m.H, shape.intermediate = m.I, shape.group = m.group;
  shape.layout = bits == 8 ? LayoutKind::p16_w8 : LayoutKind::p16_w4, shape.scales = scales,
  shape.signed_scales = false;
  const auto plain = pack_layer(shape, random_weights(shape, 17));
  PackedInfo info = like->info;
  info.layout = plain->info.layout;
  info.layout_id = info.layout.id();
  Buffer memory = *Buffer::create(static_cast<std::size_t>(*packed_block_bytes(info)));
  std::memset(memory.data(), 0, memory.size());
  std::memcpy(memory.data() + packed_payload_offset(info), plain->payload.data(), plain->payload.size());
  EXPECT_TRUE(seal_packed(info, memory.bytes(), {}, "owned", nullptr));
  auto* kept = new Buffer(std::move(memory));
  out.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_packed_load_memory(
        nullptr, kept->data(), kept->size(), 0, [](void* user) { delete static_cast<Buffer*>(user); }, kept, o, e);
  });
  return out;
}

Converted float8(const ScaleForm& form, bool bias = false) {
  Float8Model m;
  m.form = form, m.bias = bias, m.E = 2, m.H = 192, m.I = 128;
  if (form.mx) m.scale_type = MOE_DTYPE_U8;
  m = random_float8(std::move(m), 19);
  const ConfigPtr config = make_config(m.config_text());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  std::vector<OwnedTensor> roles = stacked_roles(m);
  const Failure f = set_roles(w.get(), roles);
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return converted(json::parse(m.config_text()), config.get(), w);
}

Converted float4(bool nv, bool bias) {
  Float4Model m{.nv = nv, .layer = {.E = 2, .H = 160, .I = 96, .bias = bias}};
  m = random_float4(std::move(m), 31);
  const ConfigPtr config = make_config(m.config_text());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const std::vector<OwnedTensor> roles = stacked_roles(m);
  const Failure f = set_roles(w.get(), roles);
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return converted(json::parse(m.config_text()), config.get(), w);
}

// In a layout of another engine: one expert of 128 rows and columns, or I = 120.
struct Elsewhere {
  ScaleForm form;
  json machine, inputs = nullptr;
  std::string activation = "silu";
  bool bias = false, short_half = false;
};
Converted float8_elsewhere(const Elsewhere& l) {
  Float8Model m;
  m.form = l.form, m.bias = l.bias, m.E = 1, m.K = 1, m.T = 1, m.H = 128, m.I = l.short_half ? 120 : 128;
  m.activation = l.activation, m.more = l.machine, m.input_activations = l.inputs;
  m.dtype = l.machine.value("in_dtype", m.dtype);
  if (m.form.mx) m.scale_type = MOE_DTYPE_U8;
  m = random_float8(std::move(m), 23);
  const ConfigPtr config = make_config(m.config_text());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  std::vector<OwnedTensor> roles = l.activation == "swigluoai" ? expert_roles(m) : stacked_roles(m);
  if (l.inputs.is_object() && l.inputs["dynamic"] == false) {
    roles.push_back({"w13_input_scale", -1, "", MOE_DTYPE_F32, {1, 2}, bytes_of(std::vector<float>{0.25f, 0.5f})});
    roles.push_back({"w2_input_scale", -1, "", MOE_DTYPE_F32, {1}, bytes_of(std::vector<float>{0.75f})});
  }
  const Failure f = set_roles(w.get(), roles);
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return converted(json::parse(m.config_text()), config.get(), w);
}

Converted int4_for_float8() {
  Wna16Model m;
  m.E = 1, m.K = 1, m.H = m.I = 256, m.group = 128, m.dtype = MOE_DTYPE_BF16, m.format = "pack-quantized";
  m.signed_scales = false;
  m = random_wna16(m, 29);
  m.extra = {{"platform", {{"type", "cuda"}, {"capability", {9, 0}}}}, {"quantization", {{"scheme", "W4AFP8"}}}};
  const ConfigPtr config = make_config(m.config_text());
  return converted(json::parse(m.config_text()), config.get(), stacked_weights(m, config.get()));
}

// NVFP4 or MXFP4 (as gpt-oss has it) in a layout of another engine: one expert, H = 128, I = 64.
Converted float4(const char* scheme, const json& more, bool bias = false) {
  const bool mx = std::string(scheme) == "MXFP4A16";
  constexpr std::int64_t kH = 128, kI = 64;
  json text = {{"num_experts", more.contains("parallel") ? 2 : 1},
               {"top_k", 1},
               {"hidden_dim", kH},
               {"intermediate_size", kI},
               {"in_dtype", "bfloat16"},
               {"has_bias", bias},
               {"quantization", {{"scheme", scheme}}}};
  if (mx) text["quantization"]["format"] = "mxfp4-gpt-oss", text["activation"] = "swigluoai";
  text.update(more);
  const ConfigPtr config = make_config(text.dump());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  std::mt19937 rng(31);
  std::vector<OwnedTensor> roles;
  for (const bool w13 : {true, false}) {
    const std::string m = w13 ? "w13_" : "w2_";
    const std::int64_t rows = w13 ? 2 * kI : kH, k = w13 ? kH : kI, groups = k / (mx ? 32 : 16);
    const auto bytes = [&](std::int64_t count, auto each) {
      std::vector<std::byte> v(static_cast<std::size_t>(count));
      for (std::byte& b : v) b = static_cast<std::byte>(each());
      return v;
    };
    const auto floats = [&](std::vector<float> v) { return bytes_of(v); };
    roles.push_back(
        {m + "weight", -1, "", MOE_DTYPE_U8, {1, rows, k / 2}, bytes(rows * k / 2, [&] { return rng() % 256; })});
    roles.push_back(
        {m + "scale", -1, "", mx ? MOE_DTYPE_U8 : MOE_DTYPE_F8_E4M3FN, {1, rows, groups}, bytes(rows * groups, [&] {
           return mx ? 120 + rng() % 6 : 56 + rng() % 48;
         })});
    if (bias) {
      std::vector<float> v;
      for (std::int64_t r = 0; r < rows; ++r) v.push_back(static_cast<float>(r % 13) / 8.0f);
      roles.push_back({m + "bias", -1, "", MOE_DTYPE_F32, {1, rows}, floats(v)});
    }
    if (mx) continue;
    roles.push_back({m + "scale_2", -1, "", MOE_DTYPE_F32, {1}, floats({w13 ? 0.01f : 0.03f})});
    roles.push_back({m + "input_scale", -1, "", MOE_DTYPE_F32, {1}, floats({w13 ? 0.25f : 0.7f})});
  }
  const Failure f = set_roles(w.get(), roles);
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return converted(text, config.get(), w);
}

void add_float4(std::vector<Case>& list) {
  const auto cuda = [](int major, const char* word) {
    return json{{"platform",
                 {{"type", "cuda"},
                  {"capability", {major, 0}},
                  {"libs", {{"flashinfer", true}, {"deep_gemm", true}, {"b12x", true}}}}},
                {"moe_backend", word}};
  };
  const auto with = [](json a, const json& b) {
    a.update(b);
    return a;
  };
  const auto add = [&](const char* name, Converted layer) { list.push_back({name, std::move(layer)}); };
  const json half = {{"in_dtype", "float16"}}, vllm = {{"bit_compat", "vllm"}};
  const json low_latency = {
      {"parallel", {{"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "deepep_low_latency"}}}};
  const auto nv = [](const json& more) { return float4("NVFP4", more); };
  add("float_flashinfer_cutlass_nvfp4", nv(cuda(10, "flashinfer_cutlass")));
  add("float_b12x", nv(cuda(12, "b12x")));
  add("float_vllm_cutlass_vllm", nv(with(cuda(10, "cutlass"), vllm)));
  add("float_cutedsl", nv(cuda(10, "flashinfer_cutedsl")));
  add("float_cutedsl_batched", nv(with(cuda(10, "flashinfer_cutedsl"), low_latency)));
  add("float_flashinfer_trtllm_nvfp4", nv(cuda(10, "flashinfer_trtllm")));
  add("float_marlin_nvfp4_bf16", nv(cuda(9, "marlin")));
  add("float_marlin_nvfp4_f16", nv(with(cuda(9, "marlin"), half)));
  add("float_plain_nvfp4", nv(cuda(9, "emulation")));
  const json aiter = {{"platform", {{"type", "rocm"}, {"gfx", "gfx950"}, {"libs", {{"aiter", true}}}}},
                      {"vllm_env", {{"VLLM_ROCM_USE_AITER", "1"}}}};
  const json cpu = {{"platform", {{"type", "cpu"}, {"arch", "x86_64"}, {"features", {"avx512_bf16", "avx512_vnni"}}}},
                    {"selection_policy", "vllm"}};
  const json by_switch = {{"vllm_env", {{"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "1"}}}};
  const auto mx = [](const json& more, bool bias = false) { return float4("MXFP4A16", more, bias); };
  add("float_flashinfer_trtllm_mxfp4", mx(cuda(10, "flashinfer_trtllm"), true));
  add("float_flashinfer_cutlass_mxfp4", mx(with(cuda(10, "auto"), by_switch)));
  add("float_flashinfer_hopper_bias", mx(cuda(9, "flashinfer_cutlass"), true));
  add("float_marlin_mxfp4_bias", mx(cuda(8, "marlin"), true));
  add("float_vnni_mxfp4", mx(cpu));
  add("float_deep_gemm_mxfp4", mx(with(cuda(10, "deep_gemm"), {{"activation", "silu"}})));
  add("float_aiter_a16w4", mx(aiter));
  add("float_plain_mxfp4", mx(cuda(9, "emulation")));
  add("float_plain_rocm", mx(with(aiter, {{"moe_backend", "emulation"}})));
}

void add_elsewhere(std::vector<Case>& list) {
  const auto cuda = [](int major, const char* word) {
    return json{{"platform",
                 {{"type", "cuda"}, {"capability", {major, 0}}, {"libs", {{"flashinfer", true}, {"deep_gemm", true}}}}},
                {"moe_backend", word}};
  };
  const auto with = [](json a, const json& b) {
    a.update(b);
    return a;
  };
  const json aiter = {{"platform", {{"type", "rocm"}, {"gfx", "gfx942"}, {"libs", {{"aiter", true}}}}},
                      {"vllm_env", {{"VLLM_ROCM_USE_AITER", "1"}}}};
  const json xpu = {{"platform", {{"type", "xpu"}}}}, half = {{"in_dtype", "float16"}};
  const json cpu = {{"platform", {{"type", "cpu"}, {"arch", "x86_64"}, {"features", {"avx512_bf16", "avx512_vnni"}}}},
                    {"selection_policy", "vllm"},
                    {"vllm_env", {{"VLLM_CPU_SGL_KERNEL", "1"}}}};
  const auto activations = [](const char* strategy, bool dynamic) {
    return json{{"num_bits", 8}, {"type", "float"}, {"strategy", strategy}, {"dynamic", dynamic}};
  };
  const json fixed = activations("tensor", false), token = activations("token", true);
  const json vllm = {{"bit_compat", "vllm"}}, no_powers = {{"vllm_env", {{"VLLM_USE_DEEP_GEMM_E8M0", "0"}}}};
  json groups = activations("group", true), mx = groups;
  groups["group_size"] = 128, mx["group_size"] = 32;
  const auto add = [&](const char* name, const Elsewhere& l) { list.push_back({name, float8_elsewhere(l)}); };
  add("float_plain_t", {kOneScale, cuda(9, "triton"), fixed});
  add("float_plain_cw_pairs", {kRowScales, cuda(9, "triton"), token, "swigluoai"});
  add("float_plain_b128x128", {kBlocks128, cuda(9, "triton"), groups});
  list.push_back({"float_plain_bf16_bias", floats("bfloat16", true, cuda(9, "triton"))});
  add("float_flashinfer_cutlass_t_vllm",
      {kOneScale, with(cuda(9, "flashinfer_cutlass"), vllm), fixed, "silu", true, true});
  add("float_flashinfer_trtllm_b128x128", {kBlocks128, cuda(10, "flashinfer_trtllm"), groups});
  add("float_flashinfer_trtllm_mx", {kMxScales, cuda(10, "flashinfer_trtllm"), mx});
  list.push_back({"float_flashinfer_trtllm_bf16", floats("bfloat16", false, cuda(10, "flashinfer_trtllm"))});
  add("float_marlin_t_bf16", {kOneScale, cuda(8, "marlin"), token, "silu", true});
  add("float_marlin_cw_f16", {kRowScales, with(cuda(8, "marlin"), half), token});
  add("float_marlin_mx", {kMxScales, cuda(8, "marlin"), mx});
  add("float_deep_gemm_ue8m0", {kBlocks128, cuda(9, "deep_gemm"), groups});
  add("float_deep_gemm_f32", {kBlocks128, with(cuda(9, "deep_gemm"), no_powers), groups});
  add("float_aiter_cw_fnuz", {kRowScales, aiter, token});
  list.push_back({"float_aiter_f16", floats("float16", false, aiter)});
  add("float_xpu_t", {kOneScale, xpu});
  list.push_back({"float_xpu_f32", floats("float32", false, xpu)});
  add("float_vnni_b128x128", {kBlocks128, cpu, groups});
  list.push_back({"float_cutlass_w4a8", int4_for_float8()});
}

Wna16Model model(moe_dtype dtype, const std::function<void(Wna16Model&)>& change = {}) {
  Wna16Model m;
  m.dtype = dtype, m.H = 128, m.I = 64;
  if (change) change(m);
  return m;
}

std::vector<Case> cases() {
  constexpr moe_dtype kF32 = MOE_DTYPE_F32, kF16 = MOE_DTYPE_F16, kBf16 = MOE_DTYPE_BF16;
  const auto zeros = [](Wna16Model& m) { m.zeros = true; };
  const auto eight = [](Wna16Model& m) { m.bits = 8; };
  const auto channel = [](Wna16Model& m) { m.group = -1; };
  const auto order = [](Wna16Model& m) { m.order = true; };
  const auto awq = [](Wna16Model& m) { m.format = "awq", m.zeros = true; };
  const auto vllm = [](Wna16Model& m) { m.extra = {{"bit_compat", "vllm"}}; };
  const json arm = {
      {"platform",
       {{"type", "cpu"}, {"arch", "aarch64"}, {"features", {"neon"}}, {"libs", {{"torch_dyn_quant_4bit", true}}}}}};
  json torch = arm;
  torch.update({{"selection_policy", "vllm"}, {"router_logits_dtype", "bfloat16"}});
  std::vector<Case> list;
  const auto add = [&](const char* name, Converted layer) { list.push_back({name, std::move(layer)}); };
  add("p16_int4_g32", w4a8(32, false, json::object()));
  add("p16_int4_g32_bias", w4a8(32, true, json::object()));
  add("p16_int4_g64", w4a8(64, false, json::object()));
  add("p16_int4_cw", w4a8(-1, true, json::object()));
  add("p16_bf16_bias", floats("bfloat16", true));
  add("p16_f16", floats("float16", false));
  add("p16_f32_bias", floats("float32", true));
  add("p16_w4_bf16", short_scales(4, Scales::bf16));
  add("p16_w4_f16", short_scales(4, Scales::f16));
  add("p16_w8_bf16", short_scales(8, Scales::bf16));
  add("p16_w8_f16", short_scales(8, Scales::f16));
  add("p16_w4_f32_zp", wna16("ours", model(kF32, zeros)));
  add("p16_w4_f32_cw", wna16("ours", model(kBf16, channel)));
  add("p16_w4_f32_ao", wna16("ours", model(kF16, order)));
  add("p16_w4_f32_uneven", wna16("ours", model(kBf16, order), Groups::uneven));
  add("p16_w4_f32_g16", wna16("ours", model(kF16, [](Wna16Model& m) { m.group = 16; })));
  add("p16_w8_f32_cw", wna16("ours", model(kF32, [](Wna16Model& m) { m.bits = 8, m.group = -1; })));
  add("p16_w8_f32", wna16("ours", model(kBf16, eight)));
  add("p16_w8_f32_bias", wna16("ours", model(kF16, [](Wna16Model& m) { m.bits = 8, m.bias = true; })));
  add("p16_e4m3_t", float8(kOneScale));
  add("p16_e4m3_cw_bias", float8(kRowScales, true));
  add("p16_e4m3_b128x128", float8(kBlocks128));
  add("p16_e4m3_b32x64", float8({"block", 32, 64}));
  add("p16_e4m3_b1x64", float8(kGroupScales));
  add("p16_mxfp8", float8(kMxScales));
  add("p16_mxfp4_bias", float4(false, true));
  add("p16_nvfp4", float4(true, false));
  add("p16_nvfp4_bias", float4(true, true));
  add("torch_float_g32", w4a8(32, true, torch));
  add("kai_g32", w4a8(32, true, arm));
  add("kai_cw", w4a8(-1, false, arm));
  add("wna16_marlin_f16_cw", wna16("marlin", model(kF16, channel)));
  add("wna16_marlin_bf16_ao", wna16("marlin", model(kBf16, order)));
  add("wna16_marlin_awq_f16", wna16("marlin", model(kF16, awq)));
  add("wna16_marlin_b8_bf16_vllm", wna16("marlin", model(kBf16, [&](Wna16Model& m) { eight(m), vllm(m); })));
  add("wna16_marlin_int8_f16", wna16("marlin int8", model(kF16)));
  add("wna16_marlin_fp8_bf16", wna16("marlin fp8", model(kBf16)));
  add("wna16_trtllm_bf16",
      wna16("trtllm", model(kBf16, [](Wna16Model& m) { m.format = "pack-quantized", m.H = m.I = 256; })));
  add("wna16_xpu_f16", wna16("xpu", model(kF16)));
  add("wna16_xpu_bf16", wna16("xpu", model(kBf16)));
  add("wna16_xpu_f32", wna16("xpu", model(kF32)));
  add("wna16_vnni_awq_bf16", wna16("vnni", model(kBf16, awq)));
  add("wna16_vnni_bf16", wna16("vnni", model(kBf16)));
  add("wna16_on_the_fly_f16", wna16("on_the_fly", model(kF16)));
  add("wna16_on_the_fly_b8_bf16", wna16("on_the_fly", model(kBf16, eight)));
  add("wna16_on_the_fly_f32_zp", wna16("on_the_fly", model(kF32, zeros)));
  add("wna16_dense_f16", wna16("dense", model(kF16, zeros)));
  add("wna16_dense_b8_bf16", wna16("dense", model(kBf16, eight)));
  add("wna16_dense_f32", wna16("dense", model(kF32)));
  add_elsewhere(list);
  add_float4(list);
  return list;
}

// What is merged into a config for a layer here, in order of preference.
const std::vector<json>& ways() {
  const auto emulation = [](const char* layout) {
    return json{{"platform", nullptr},        {"selection_policy", nullptr},   {"moe_backend", "emulation"},
                {"emulation_layout", layout}, {"marlin_input_dtype", nullptr}, {"vllm_env", nullptr}};
  };
  static const std::vector<json> list = {json::object(), emulation("on_the_fly"), emulation("dense")};
  return list;
}

std::string file_path(const std::string& name) { return vector_path("packed/" + name + ".moe"); }

TEST(StoredFiles, DISABLED_WriteMissing) {
  const std::string index_path = vector_path("packed/index.json");
  json index = fs::exists(index_path) ? json::parse(read_text(index_path)) : json::object();
  const ContextPtr context = make_context("{\"threads\":1}");
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::string path = file_path(c.name);
    if (fs::exists(path)) continue;
    ASSERT_TRUE(c.layer.packed);
    const Failure saved =
        failure([&](moe_error** e) { return moe_packed_save(c.layer.packed.get(), path.c_str(), 0, nullptr, e); });
    ASSERT_EQ(saved.status, MOE_OK) << saved.message;
    const File f(path);
    json row = {{"layout", f.about.at("layout")}, {"numbers", numbers(f)}};
    for (const json& way : ways()) {
      json config = c.layer.config;
      config.merge_patch(way);
      const LayerPtr layer = layer_of(f, config, context, false);
      if (!layer) continue;
      row["config"] = config;
      row["output"] = output(f, layer.get());
      break;
    }
    index[c.name] = row;
  }
  std::ofstream(index_path) << index.dump(1) << "\n";
}

// --- what is read ----------------------------------------------------------------------------------------------------

class StoredFile : public testing::TestWithParam<std::string> {
 protected:
  static const json& index() {
    static const json all = load_json("packed/index.json");
    return all;
  }
};

// Rows with integer products agree bit by bit, those with floats may differ in the last places.
bool is_float(const std::string& layout) {
  return layout.rfind("p16/bf16", 0) == 0 || layout.rfind("p16/f", 0) == 0 || layout.rfind("p16/e", 0) == 0;
}

TEST_P(StoredFile, LoadsAndGivesTheSameNumbers) {
  const json& want = index().at(GetParam());
  const File f(file_path(GetParam()));
  ASSERT_TRUE(f.packed);
  EXPECT_EQ(f.about.at("layout"), want.at("layout"));
  EXPECT_EQ(numbers(f), want.at("numbers"));
  if (!want.contains("output")) return;
  const ContextPtr context = make_context("{\"threads\":1}");
  const std::vector<float> expected = want.at("output");
  for (const char* isa : kAllIsas) {
    SCOPED_TRACE(isa);
    setenv("MOE_MAX_ISA", isa, 1);
    const LayerPtr layer = layer_of(f, want.at("config"), context, true);
    unsetenv("MOE_MAX_ISA");
    ASSERT_TRUE(layer);
    const std::vector<float> got = output(f, layer.get());
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_LE(relative_rms(got, expected), is_float(want.at("layout")) ? 1e-3 : 0.0);
  }
}

// The header follows from what the file says of itself, and the payload is taken as it is.
TEST_P(StoredFile, IsWrittenAgain) {
  const TempDir dir;
  const File f(file_path(GetParam()));
  ASSERT_TRUE(f.packed);
  const std::string again = dir.file("again.moe");
  const Failure saved =
      failure([&](moe_error** e) { return moe_packed_save(f.packed.get(), again.c_str(), 0, nullptr, e); });
  ASSERT_EQ(saved.status, MOE_OK) << saved.message;
  EXPECT_TRUE(read_text(again) == f.text);

  const auto opened = open_packed(std::as_bytes(std::span(f.text)), {.verify = true}, "caller", nullptr, {});
  ASSERT_TRUE(opened) << opened.error().message;
  const auto bytes = packed_block_bytes(opened->info);
  ASSERT_TRUE(bytes);
  Buffer memory = *Buffer::create(static_cast<std::size_t>(*bytes));
  std::memset(memory.data(), 0, memory.size());
  std::memcpy(memory.data() + packed_payload_offset(opened->info), opened->payload.data(), opened->payload.size());
  const auto sealed = seal_packed(opened->info, memory.bytes(), {}, "owned", nullptr);
  ASSERT_TRUE(sealed) << sealed.error().message;
  ASSERT_EQ(sealed->block.size(), f.text.size());
  EXPECT_EQ(std::memcmp(sealed->block.data(), f.text.data(), f.text.size()), 0);
}

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const auto& entry : fs::directory_iterator(vector_path("packed")))
    if (entry.path().extension() == ".moe") list.push_back(entry.path().stem());
  std::sort(list.begin(), list.end());
  return list;
}

INSTANTIATE_TEST_SUITE_P(Packed, StoredFile, testing::ValuesIn(names()),
                         [](const testing::TestParamInfo<std::string>& name) { return name.param; });

// Each layout kind, each type of elements and scales.
TEST(StoredFiles, NothingIsLeftOut) {
  std::set<LayoutKind> kinds;
  std::set<std::pair<LayoutKind, Scales>> scales;
  std::set<Element> elements;
  for (const std::string& name : names()) {
    const std::string text = read_text(file_path(name));
    const auto p = open_packed(std::as_bytes(std::span(text)), {}, "caller", nullptr, {});
    ASSERT_TRUE(p) << name;
    kinds.insert(p->info.layout.kind);
    scales.insert({p->info.layout.kind, p->info.layout.w13.scales});
    elements.insert(p->info.layout.w13.element);
  }
  for (int k = 0; k <= UINT8_MAX; ++k) {
    const auto kind = static_cast<LayoutKind>(k);
    const bool has_bytes = p16_element(kind) || layout_family(kind) != nullptr;
    EXPECT_EQ(kinds.count(kind), has_bytes ? 1u : 0u) << k;
  }
  for (const LayoutKind kind :
       {LayoutKind::p16_w4, LayoutKind::p16_w8, LayoutKind::wna16_xpu, LayoutKind::wna16_on_the_fly})
    for (const Scales s : {Scales::f32, Scales::bf16, Scales::f16})
      EXPECT_EQ(scales.count({kind, s}), 1u) << static_cast<int>(kind) << " " << static_cast<int>(s);
  for (const Scales s : {Scales::bf16, Scales::f16}) EXPECT_EQ(scales.count({LayoutKind::wna16_marlin, s}), 1u);
  for (const auto& [kind, s] : {std::pair{LayoutKind::float_marlin, Scales::f16},
                                {LayoutKind::float_marlin, Scales::bf16},
                                {LayoutKind::float_marlin, Scales::e8m0},
                                {LayoutKind::float_marlin, Scales::e4m3},
                                {LayoutKind::float_plain, Scales::e8m0},
                                {LayoutKind::float_plain, Scales::e4m3},
                                {LayoutKind::float_deep_gemm, Scales::e8m0},
                                {LayoutKind::float_deep_gemm, Scales::f32},
                                {LayoutKind::float_plain, Scales::none},
                                {LayoutKind::float_plain, Scales::f32}})
    EXPECT_EQ(scales.count({kind, s}), 1u) << static_cast<int>(kind) << " " << static_cast<int>(s);
  EXPECT_EQ(elements, std::set({Element::int4, Element::int8, Element::bf16, Element::f16, Element::f32, Element::e4m3,
                                Element::e2m1}));
}

}  // namespace
}  // namespace moe::test::stored_files_test
