// Layers of random NVFP4 and MXFP4 weights in every layout of another engine that selection accepts: whatever is
// accepted converts and comes back as the same numbers, whatever the sizes, also through a file, and does not depend on
// the number of threads. (AITER_MXFP4_MXFP4 is not asked for by any file that is read; its layout has unit tests.)
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "support/capi.h"
#include "support/float8_model.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::float4_layouts_random_test {
namespace {

using nlohmann::json;

struct Layer4 {
  const char* scheme;
  std::int64_t hidden, intermediate;
  std::string activation;
  bool bias = false, vllm = false;

  bool mx() const { return std::string(scheme).rfind("MXFP4", 0) == 0; }
  std::int64_t halves() const { return activation == "relu2_no_mul" ? 1 : 2; }
  bool pairs() const { return activation == "swigluoai"; }
};
constexpr std::int64_t kExperts = 2;

// Roles, and the numbers of w13 (gate, then up) and w2 by expert.
struct Tensors {
  std::vector<OwnedTensor> roles;
  std::vector<std::vector<float>> w13, w2;
};
Tensors random_tensors(const Layer4& l, std::uint32_t seed) {
  std::mt19937 rng(seed);
  Tensors t;
  for (const bool w13 : {true, false}) {
    const std::string m = w13 ? "w13_" : "w2_";
    const std::int64_t rows = w13 ? l.halves() * l.intermediate : l.hidden, k = w13 ? l.hidden : l.intermediate;
    const std::int64_t size = l.mx() ? 32 : 16, groups = k / size;
    std::vector<std::byte> codes(static_cast<std::size_t>(kExperts * rows * k / 2)),
        scales(static_cast<std::size_t>(kExperts * rows * groups));
    for (std::byte& b : codes) b = static_cast<std::byte>(rng() % 256);
    // Marlin keeps NVFP4's that are not far below the largest; MXFP4's have all exponents, but upstream's DeepGEMM has
    // no 2^-127.
    const unsigned first = l.vllm ? 1 : 0;
    for (std::byte& b : scales) b = static_cast<std::byte>(l.mx() ? first + rng() % 200 : 56 + rng() % 48);
    const std::vector<float> second = {0.01f, 0.37f};
    for (std::int64_t e = 0; e < kExperts; ++e) {
      std::vector<float> numbers;
      for (std::int64_t r = 0; r < rows; ++r) {
        const bool paired = w13 && l.pairs();
        const std::int64_t row = e * rows + (paired ? r % (rows / 2) * 2 + r / (rows / 2) : r);
        for (std::int64_t c = 0; c < k; ++c) {
          const auto byte = static_cast<unsigned>(codes[static_cast<std::size_t>((row * k + c) / 2)]);
          const auto scale = static_cast<unsigned>(scales[static_cast<std::size_t>(row * groups + c / size)]);
          const float s =
              l.mx() ? e8m0_to_f32(scale) : small_to_f32(kE4m3, scale) * second[static_cast<std::size_t>(e)];
          numbers.push_back(small_to_f32(kE2m1, c % 2 == 0 ? byte & 15u : byte >> 4) * s);
        }
      }
      (w13 ? t.w13 : t.w2).push_back(std::move(numbers));
    }
    t.roles.push_back({m + "weight", -1, "", MOE_DTYPE_U8, {kExperts, rows, k / 2}, std::move(codes)});
    t.roles.push_back({m + "scale",
                       -1,
                       "",
                       l.mx() ? MOE_DTYPE_U8 : MOE_DTYPE_F8_E4M3FN,
                       {kExperts, rows, groups},
                       std::move(scales)});
    if (l.bias) {
      std::vector<float> bias(static_cast<std::size_t>(kExperts * rows), 0.5f);
      t.roles.push_back({m + "bias", -1, "", MOE_DTYPE_F32, {kExperts, rows}, bytes_of(bias)});
    }
    if (l.mx()) continue;
    t.roles.push_back({m + "scale_2", -1, "", MOE_DTYPE_F32, {kExperts}, bytes_of(second)});
    if (std::string(l.scheme) == "NVFP4")
      t.roles.push_back({m + "input_scale", -1, "", MOE_DTYPE_F32, {kExperts}, bytes_of(second)});
  }
  return t;
}

std::vector<json> machines() {
  const auto cuda = [](int major, const char* word) {
    return json{{"platform",
                 {{"type", "cuda"},
                  {"capability", {major, 0}},
                  {"libs", {{"flashinfer", true}, {"deep_gemm", true}, {"b12x", true}}}}},
                {"moe_backend", word}};
  };
  std::vector<json> all;
  for (const char* word : {"flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cutedsl", "cutlass", "deep_gemm",
                           "marlin", "emulation", "auto"})
    for (const int major : {8, 9, 10, 12}) all.push_back(cuda(major, word));
  all.push_back(cuda(12, "b12x"));
  all.push_back(cuda(10, "auto"));
  all.back()["vllm_env"] = {{"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "1"}};
  all.push_back(cuda(10, "flashinfer_cutedsl"));
  all.back()["parallel"] = {
      {"dp_size", 2}, {"enable_expert_parallel", true}, {"all2all_backend", "deepep_low_latency"}};
  for (const char* word : {"auto", "emulation"})
    all.push_back({{"platform", {{"type", "rocm"}, {"gfx", "gfx950"}, {"libs", {{"aiter", true}}}}},
                   {"vllm_env", {{"VLLM_ROCM_USE_AITER", "1"}}},
                   {"moe_backend", word}});
  all.push_back({{"platform", {{"type", "xpu"}}}});
  all.push_back({{"platform", {{"type", "cpu"}, {"arch", "x86_64"}, {"features", {"avx512_bf16", "avx512_vnni"}}}},
                 {"selection_policy", "vllm"}});
  return all;
}

json document_of(const Layer4& l, const json& machine) {
  json d = {{"num_experts", machine.contains("parallel") ? 2 * kExperts : kExperts},
            {"top_k", 1},
            {"hidden_dim", l.hidden},
            {"intermediate_size", l.intermediate},
            {"activation", l.activation},
            {"has_bias", l.bias},
            {"in_dtype", "bfloat16"},
            {"quantization", {{"scheme", l.scheme}}}};
  if (std::string(l.scheme) == "MXFP4A16") d["quantization"]["format"] = "mxfp4-gpt-oss";
  if (l.vllm) d["bit_compat"] = "vllm";
  d.update(machine, true);
  return d;
}

std::vector<float> dense(const moe_packed* packed, const char* role, std::int64_t expert, std::int64_t rows,
                         std::int64_t columns) {
  std::vector<float> out(static_cast<std::size_t>(rows * columns));
  const moe_tensor view = tensor(MOE_DTYPE_F32, {rows, columns}, out.data());
  const Failure f = failure([&](moe_error** e) { return moe_packed_dequantize(packed, role, expert, &view, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return out;
}

// null: refused.
SelectionPtr accepted(const moe_config* config) {
  moe_selection* s = nullptr;
  failure([&](moe_error** e) { return moe_select_backend(nullptr, config, nullptr, 0, &s, e); });
  return SelectionPtr(s);
}

PackedPtr convert(const moe_config* config, const moe_selection* selection, const Tensors& t, int threads) {
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config, o, e); });
  const Failure set = set_roles(w.get(), t.roles);
  EXPECT_EQ(set.status, MOE_OK) << set.message;
  const ContextPtr context = make_context("{\"threads\":" + std::to_string(threads) + "}");
  moe_packed* p = nullptr;
  const Failure f =
      failure([&](moe_error** e) { return moe_convert_weights(context.get(), selection, w.get(), nullptr, &p, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return PackedPtr(p);
}

std::string bytes_of_packed(const PackedPtr& p) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(p.get(), &data, &size, nullptr), MOE_OK);
  return {static_cast<const char*>(data), size};
}

TEST(Float4LayoutsRandom, WhatIsAcceptedConvertsAndComesBack) {
  std::set<std::string> forms;
  std::uint32_t seed = 0;
  for (const json& machine : machines())
    for (const char* scheme : {"NVFP4", "NVFP4A16", "MXFP4", "MXFP4A16"})
      for (const auto& [hidden, intermediate] : {std::pair<int, int>{256, 128}, {96, 160}})
        for (const char* activation : {"silu", "relu2_no_mul", "swigluoai"}) {
          ++seed;
          const Layer4 l{scheme, hidden, intermediate, activation, seed % 3 == 0, seed % 2 == 0};
          const json document = document_of(l, machine);
          SCOPED_TRACE(document.dump());
          const ConfigPtr config = make_config(document.dump());
          const SelectionPtr selection = accepted(config.get());
          if (!selection) continue;
          const Tensors t = random_tensors(l, seed);
          const PackedPtr packed = convert(config.get(), selection.get(), t, 1);
          ASSERT_TRUE(packed);
          const json about =
              json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(packed.get(), o, e); });
          const std::string layout = about["layout"];
          if (layout.rfind("p16", 0) == 0) continue;
          EXPECT_EQ(about["scales_rounded"], 0);
          std::string form = layout.substr(0, layout.rfind('/'));
          for (const char* end : {"-vllm", "-bias"})
            if (form.ends_with(end)) form.resize(form.size() - 5);
          forms.insert(form);
          PackedPtr loaded;
          if (seed % 4 == 1) {
            const TempDir dir;
            const std::string path = dir.path() + "/layer.moe";
            ASSERT_EQ(failure([&](moe_error** e) {
                        return moe_packed_save(packed.get(), path.c_str(), 0, nullptr, e);
                      }).status,
                      MOE_OK);
            loaded = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
              return moe_packed_load(nullptr, path.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
            });
            ASSERT_TRUE(loaded);
          }
          const moe_packed* from = loaded ? loaded.get() : packed.get();
          for (std::int64_t e = 0; e < kExperts; ++e) {
            const auto i = static_cast<std::size_t>(e);
            ASSERT_TRUE(dense(from, "w13_weight", e, l.halves() * intermediate, hidden) == t.w13[i]) << e;
            ASSERT_TRUE(dense(from, "w2_weight", e, hidden, intermediate) == t.w2[i]) << e;
          }
          if (seed % 4 == 0) {
            EXPECT_EQ(bytes_of_packed(convert(config.get(), selection.get(), t, 3)), bytes_of_packed(packed));
          }
        }
  EXPECT_EQ(forms, (std::set<std::string>{"flashinfer_cutlass/nvfp4", "b12x/nvfp4", "vllm_cutlass/nvfp4",
                                          "flashinfer_cutedsl/nvfp4", "flashinfer_cutedsl_batched/nvfp4",
                                          "flashinfer_trtllm/nvfp4", "marlin/nvfp4", "plain/nvfp4",
                                          "flashinfer_trtllm/mxfp4", "flashinfer_cutlass/mxfp4-mxfp8",
                                          "flashinfer_cutlass/mxfp4-bf16", "marlin/mxfp4", "vnni/mxfp4",
                                          "deepgemm/mxfp4", "aiter/mxfp4-bf16", "plain/mxfp4", "plain/mxfp4-rocm"}));
}

}  // namespace
}  // namespace moe::test::float4_layouts_random_test
