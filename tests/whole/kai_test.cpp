// W4A8 for Arm through the C ABI, on any machine: every golden layer and checkpoint in KleidiAI's layouts and PyTorch's
// blob, sizes before work, named tensors, dense numbers, files, and calls on the packed bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "base/float_formats.h"
#include "base/platform.h"
#include "support/capi.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/temp_dir.h"

namespace moe::test::kai_test {
namespace {

constexpr const char* kDotprod = R"({"type":"cpu","arch":"aarch64","features":["neon","dotprod"],
                                     "libs":{"torch_dyn_quant_4bit":true}})";
constexpr const char* kPlain = R"({"type":"cpu","arch":"aarch64","features":["neon"],
                                   "libs":{"torch_dyn_quant_4bit":true}})";

// For calls: an Arm machine with dot products runs its own kernels; every machine runs the scalar row, which is what a
// described Arm machine without them gets.
const char* callable() {
  const auto host = detect_platform();
  return native_arch() == Arch::aarch64 && host && host->runs(Isa::dotprod) ? kDotprod : kPlain;
}

PlatformPtr platform(const char* text) {
  return make<PlatformPtr>(
      [&](moe_platform** o, moe_error** e) { return moe_platform_create(text, MOE_NUL_TERMINATED, o, e); });
}

struct Converted {
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;
};

Converted convert(const Model& m, const char* where, const char* policy = "libmoe") {
  Converted c;
  auto text = nlohmann::json::parse(m.config_text());
  text["selection_policy"] = policy;
  if (std::string(policy) == "vllm") text["router_logits_dtype"] = m.dtype;
  c.config = make_config(text.dump());
  const PlatformPtr p = platform(where);
  c.selection = make_selection(c.config.get(), nullptr, p.get());
  c.weights = make_weights(c.config.get(), m);
  c.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(nullptr, c.selection.get(), c.weights.get(), nullptr, o, e);
  });
  return c;
}

moe_tensor get(const moe_packed* packed, const char* role, std::int64_t expert = -1) {
  moe_tensor t{};
  t.struct_size = sizeof t;
  moe_error* err = nullptr;
  EXPECT_EQ(moe_packed_get(packed, role, expert, &t, &err), MOE_OK) << moe_error_details_json(err);
  moe_error_destroy(err);
  return t;
}

// A contiguous output.
std::vector<std::byte> bytes(const moe_tensor& t, std::size_t element) {
  std::size_t n = element;
  for (std::int32_t d = 0; d < t.ndim; ++d) n *= static_cast<std::size_t>(t.shape[d]);
  const auto* p = static_cast<const std::byte*>(t.data);
  return {p, p + n};
}

std::vector<float> dense(const moe_packed* packed, const char* role, std::int64_t expert, std::int64_t n,
                         std::int64_t k) {
  std::vector<float> out(static_cast<std::size_t>(n * k));
  const moe_tensor t = tensor(MOE_DTYPE_F32, {n, k}, out.data());
  moe_error* err = nullptr;
  EXPECT_EQ(moe_packed_dequantize(packed, role, expert, &t, &err), MOE_OK) << moe_error_details_json(err);
  moe_error_destroy(err);
  return out;
}

std::vector<std::string> layers() {
  std::vector<std::string> names;
  const auto index = load_json("w4a8_int8/index.json");
  for (const auto& f : index["files"])
    if (const auto name = f["file"].get<std::string>(); name.rfind("moe_", 0) == 0 || name.rfind("groupeqk_", 0) == 0)
      names.push_back(name);
  return names;
}

std::vector<float> floats(moe_dtype type, const std::vector<std::byte>& data) {
  VecTensor t;
  t.dtype = static_cast<DType>(type);
  t.data = data;
  return t.floats();
}

double largest(const std::vector<float>& v) {
  double most = 0;
  for (const float x : v) most = std::max(most, std::fabs(static_cast<double>(x)));
  return most;
}

// Group scales are bf16 numbers in KleidiAI's layouts and PyTorch's blob, whatever type the checkpoint gives them
// (w4a8_int8.md 3.2); channel-wise ones stay as they are.
TEST(Kai, GroupScalesAreRoundedWhateverTheirType) {
  for (const std::int64_t group : {32, 64, -1}) {
    Model m;
    m.group = group;
    m = random_model(m);
    const auto fine = [](const std::vector<std::byte>& scales) {
      std::vector<float> v = floats(MOE_DTYPE_F32, scales);
      for (std::size_t i = 0; i < v.size(); ++i) v[i] *= 1.0f + static_cast<float>(i % 7) * 0x1p-9f;
      return v;
    };
    const auto rounded = [&](std::vector<float> v) {
      if (group > 0)
        for (float& s : v) s = bf16_to_f32(f32_to_bf16(s));
      return bytes_of(v);
    };
    const std::vector<float> s13 = fine(m.s13), s2 = fine(m.s2);
    for (const moe_dtype type : {MOE_DTYPE_F32, MOE_DTYPE_F16}) {
      Model given = m, exact = m;
      given.s13 = in_dtype(s13, type), given.s2 = in_dtype(s2, type);
      given.s13_type = given.s2_type = type;
      exact.s13 = rounded(floats(type, given.s13)), exact.s2 = rounded(floats(type, given.s2));
      for (const auto& [where, policy] : {std::pair{kDotprod, "libmoe"}, std::pair{kPlain, "vllm"}}) {
        const Converted a = convert(given, where, policy), b = convert(exact, where, policy);
        ASSERT_TRUE(a.packed && b.packed);
        const std::size_t element = get(a.packed.get(), "w13_packed").dtype == MOE_DTYPE_F32 ? 4 : 1;
        for (const char* role : {"w13_packed", "w2_packed"})
          EXPECT_EQ(bytes(get(a.packed.get(), role), element), bytes(get(b.packed.get(), role), element)) << role;
        const auto about =
            json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(a.packed.get(), o, e); });
        EXPECT_EQ(about["scales_rounded"] > 0, group > 0) << about.dump();
      }
    }
  }
}

class KaiLayers : public testing::TestWithParam<std::string> {};

TEST_P(KaiLayers, PackedBytesAreKleidiAis) {
  const VecFile f = load_vectors("w4a8_int8/" + GetParam());
  const Model m = golden_model(f, "vllm");
  for (const char* policy : {"libmoe", "vllm"}) {
    if (std::string(policy) == "vllm" && (m.activation == "swigluoai_uninterleave"))
      continue;  // no word of that oracle
    const Converted c = convert(m, kDotprod, policy);
    ASSERT_TRUE(c.packed);
    EXPECT_STREQ(moe_selection_backend(c.selection.get()), "CPU_INT4");
    EXPECT_STREQ(moe_selection_kernel(c.selection.get()), "w4a8_tok8_kai_dotprod");
    for (const char* matrix : {"w13", "w2"}) {
      const std::string role = std::string(matrix) + "_packed";
      const moe_tensor t = get(c.packed.get(), role.c_str());
      EXPECT_EQ(t.dtype, MOE_DTYPE_U8);
      EXPECT_EQ(t.shape[0], m.E);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data) % 64, 0u);
      EXPECT_EQ(difference(f.expected(role + "_kai"), bytes(t, 1)), "") << role;
      EXPECT_EQ(get(c.packed.get(), (std::string(matrix) + "_weight").c_str()).data, t.data);
    }
  }
}

// The scalar row of the layout gives the bits of the rows on p16, whatever the machine.
TEST_P(KaiLayers, CallsOnThem) {
  const VecFile f = load_vectors("w4a8_int8/" + GetParam());
  for (const char* compat : {"vllm", "libmoe"}) {
    const Model m = golden_model(f, compat);
    const Converted c = convert(m, callable());
    const LayerPtr layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(nullptr, c.selection.get(), c.packed.get(), nullptr, o, e);
    });
    ASSERT_TRUE(layer);
    Call call(m), native(m);
    ASSERT_EQ(moe_apply(layer.get(), &call.args, nullptr), MOE_OK);
    const Steps s = four_steps(m);
    ASSERT_EQ(moe_apply(s.layer.get(), &native.args, nullptr), MOE_OK);
    EXPECT_EQ(call.out, native.out) << compat;
    const std::vector<float> want = f.at("out").floats(), got = floats(m.io_type(), call.out);
    const double bound = m.dtype == "float32" ? 1e-6 : m.dtype == "float16" ? 0x1p-9 : 0x1p-6;
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_LE(std::fabs(got[i] - want[i]), bound * largest(want)) << i;
  }
}

TEST_P(KaiLayers, ComeBackAndSurviveFiles) {
  const VecFile f = load_vectors("w4a8_int8/" + GetParam());
  const Model m = golden_model(f, "libmoe");
  const Steps native = four_steps(m);
  const TempDir dir;
  for (const auto& [where, policy] : {std::pair{kDotprod, "libmoe"}, std::pair{kPlain, "vllm"}}) {
    if (std::string(policy) == "vllm" && m.activation == "swigluoai_uninterleave") continue;
    const Converted c = convert(m, where, policy);
    ASSERT_TRUE(c.packed);
    const std::string path = dir.path() + "/layer.moe";
    ASSERT_EQ(moe_packed_save(c.packed.get(), path.c_str(), 0, nullptr, nullptr), MOE_OK);
    const PackedPtr loaded = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_packed_load(nullptr, path.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
    });
    for (std::int64_t e = 0; e < m.E; ++e) {
      EXPECT_EQ(dense(loaded.get(), "w13_weight", e, 2 * m.I, m.H),
                dense(native.packed.get(), "w13_weight", e, 2 * m.I, m.H));
      EXPECT_EQ(dense(loaded.get(), "w2_weight", e, m.H, m.I), dense(native.packed.get(), "w2_weight", e, m.H, m.I));
    }
    std::uint64_t size = 0, told = 0, alignment = 0;
    const void* data = nullptr;
    ASSERT_EQ(moe_packed_data(loaded.get(), &data, &size, nullptr), MOE_OK);
    ASSERT_EQ(moe_selection_packed_size(c.selection.get(), &told, &alignment, nullptr), MOE_OK);
    EXPECT_EQ(size, told);  // known before work
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, KaiLayers, testing::ValuesIn(layers()),
                         [](const auto& i) { return i.param.substr(0, i.param.find('.')); });

// Every pack_* matrix with an even number of rows as w2, and as an ungated w13.
TEST(KaiPack, MatricesThroughTheAbi) {
  int count = 0;
  const auto index = load_json("w4a8_int8/index.json");
  for (const auto& file : index["files"]) {
    const auto name = file["file"].get<std::string>();
    if (name.rfind("pack_", 0) != 0) continue;
    const VecFile f = load_vectors("w4a8_int8/" + name);
    const std::int64_t n = f.at("w_int4").shape[0], k = f.at("w_int4").shape[1], groups = f.at("scales").shape[1];
    if (n % 2 != 0) continue;  // H and I are even
    SCOPED_TRACE(name);
    const bool bias = f.has("bias"), channel = groups == 1;
    if (!channel && n % (k / groups) != 0) continue;  // the group divides both
    ++count;
    for (const bool kai : {true, false}) {
      nlohmann::json config = {{"num_experts", 1},
                               {"top_k", 1},
                               {"hidden_dim", n},
                               {"intermediate_size", k},
                               {"activation", "silu"},
                               {"has_bias", bias},
                               {"in_dtype", "float32"},
                               {"selection_policy", "vllm"},
                               {"quantization", {{"scheme", "W4A8"}, {"group_size", channel ? -1 : k / groups}}}};
      const ConfigPtr c = make_config(config.dump());
      const PlatformPtr p = platform(kai ? kDotprod : kPlain);
      const SelectionPtr s = make_selection(c.get(), nullptr, p.get());
      const WeightsPtr w =
          make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(c.get(), o, e); });
      const std::vector<std::int8_t> w13(static_cast<std::size_t>(2 * k * n), 1);
      const std::int64_t g13 = channel ? 1 : n / (k / groups);
      const std::vector<float> s13(static_cast<std::size_t>(2 * k * g13), 0.5f), b13(static_cast<std::size_t>(2 * k));
      std::vector<std::pair<const char*, moe_tensor>> given = {
          {"w13_weight", tensor(MOE_DTYPE_I8, {1, 2 * k, n}, w13.data())},
          {"w13_scale", tensor(MOE_DTYPE_F32, {1, 2 * k, g13}, s13.data())},
          {"w2_weight", tensor(MOE_DTYPE_I8, {1, n, k}, f.at("w_int4").data.data())},
          {"w2_scale",
           tensor(static_cast<moe_dtype>(f.at("scales").dtype), {1, n, groups}, f.at("scales").data.data())}};
      if (bias) {
        given.emplace_back("w13_bias", tensor(MOE_DTYPE_F32, {1, 2 * k}, b13.data()));
        given.emplace_back("w2_bias", tensor(MOE_DTYPE_F32, {1, n}, f.at("bias").data.data()));
      }
      for (const auto& [role, t] : given)
        ASSERT_EQ(moe_weights_set(w.get(), role, &t, nullptr, nullptr, nullptr), MOE_OK);
      const PackedPtr packed = make<PackedPtr>(
          [&](moe_packed** o, moe_error** e) { return moe_convert_weights(nullptr, s.get(), w.get(), nullptr, o, e); });
      ASSERT_TRUE(packed);
      const moe_tensor t = get(packed.get(), "w2_packed", 0);
      EXPECT_EQ(difference(f.expected(kai ? "packed_kai" : "packed_fallback"), bytes(t, kai ? 1 : 4)), "");
      if (bias) {
        std::vector<float> biases(static_cast<std::size_t>(n));
        const moe_tensor out = tensor(MOE_DTYPE_F32, {n}, biases.data());
        ASSERT_EQ(moe_packed_dequantize(packed.get(), "w2_bias", 0, &out, nullptr), MOE_OK);
        EXPECT_EQ(std::memcmp(biases.data(), f.at("bias").data.data(), 4 * biases.size()), 0);
      }
      const std::vector<float> numbers = dense(packed.get(), "w2_weight", 0, n, k);
      EXPECT_EQ(difference(f.expected("dense"), std::as_bytes(std::span(numbers))), "");
    }
  }
  EXPECT_GE(count, 8);
}

// Random layers whose rows fill no tile and whose columns end within a chunk, on KleidiAI's layout with its scalar row
// and on what this machine selects (p16 on x86, the layout with its fastest row on Arm): the same weights come back,
// also from a file, and calls give the same bits. (Rows are even, since they are the other matrix's columns: tests of
// odd rows are in convert/ and kernels/, of their refusal in oracle/select_test.cpp.)
TEST(KaiPack, RandomLayersGiveTheBitsOfThisMachinesRow) {
  std::mt19937 rng(17);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  const TempDir dir;
  for (int round = 0; round < rounds(120); ++round) {
    Model m;
    m.group = pick(0, 1) == 0 ? -1 : 32 * pick(1, 6);
    const int unit = m.group < 0 ? 2 : static_cast<int>(m.group), most = m.group < 0 ? 80 : 3;
    m.E = pick(1, 3), m.H = unit * pick(1, most), m.I = unit * pick(1, most);
    m.K = pick(1, static_cast<int>(m.E)), m.T = pick(1, 11), m.bias = pick(0, 1) == 1;
    m.dtype = std::array{"float32", "bfloat16", "float16"}[static_cast<std::size_t>(pick(0, 2))];
    m.compat = pick(0, 1) == 1 ? "vllm" : "libmoe";
    m = random_model(m, static_cast<std::uint32_t>(round));
    SCOPED_TRACE(m.config_text());
    const Converted c = convert(m, kPlain);
    const std::string path = dir.path() + "/random.moe";
    ASSERT_EQ(moe_packed_save(c.packed.get(), path.c_str(), 0, nullptr, nullptr), MOE_OK);
    const PackedPtr loaded = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_packed_load(nullptr, path.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
    });
    const Steps own = four_steps(m);
    for (std::int64_t e = 0; e < m.E; ++e) {
      ASSERT_EQ(dense(loaded.get(), "w13_weight", e, 2 * m.I, m.H),
                dense(own.packed.get(), "w13_weight", e, 2 * m.I, m.H));
      ASSERT_EQ(dense(loaded.get(), "w2_weight", e, m.H, m.I), dense(own.packed.get(), "w2_weight", e, m.H, m.I));
    }
    const LayerPtr layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(nullptr, c.selection.get(), loaded.get(), nullptr, o, e);
    });
    Call call(m), wanted(m);
    ASSERT_EQ(moe_apply(layer.get(), &call.args, nullptr), MOE_OK);
    ASSERT_EQ(moe_apply(own.layer.get(), &wanted.args, nullptr), MOE_OK);
    ASSERT_EQ(call.out, wanted.out);
  }
}

// All forms of a checkpoint give the same bytes.
TEST(KaiPack, PackedAndPlainCheckpoints) {
  for (const char* which : {"cw", "g32"}) {
    std::vector<std::vector<std::byte>> blobs;
    for (const char* format : {"int-quantized", "pack-quantized"}) {
      std::string file = "w4a8_int8/ckpt_" + std::string(which) + "_" + format + ".safetensors";
      std::replace(file.begin(), file.end(), '-', '_');
      const VecFile f = load_vectors(file);
      std::int64_t experts = 0, hidden = 0, inter = 0;
      for (const auto& [name, t] : f.tensors) {
        if (name.find("gate_proj.weight_scale") != std::string::npos) ++experts, inter = t.shape[0];
        if (name.find("down_proj.weight_scale") != std::string::npos) hidden = t.shape[0];
      }
      Model m;
      m.E = experts, m.H = hidden, m.I = inter, m.K = 1, m.group = std::string(which) == "cw" ? -1 : 32;
      auto text = nlohmann::json::parse(m.config_text());
      text["quantization"]["format"] = format;
      const ConfigPtr c = make_config(text.dump());
      const PlatformPtr p = platform(kDotprod);
      const SelectionPtr s = make_selection(c.get(), nullptr, p.get());
      const WeightsPtr w =
          make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(c.get(), o, e); });
      const std::string path = vector_path(file);
      moe_error* err = nullptr;
      ASSERT_EQ(moe_weights_load_safetensors(w.get(), path.c_str(), nullptr, &err), MOE_OK)
          << moe_error_details_json(err);
      const PackedPtr packed = make<PackedPtr>(
          [&](moe_packed** o, moe_error** e) { return moe_convert_weights(nullptr, s.get(), w.get(), nullptr, o, e); });
      ASSERT_TRUE(packed);
      blobs.push_back(bytes(get(packed.get(), "w13_packed"), 1));
      blobs.push_back(bytes(get(packed.get(), "w2_packed"), 1));
    }
    EXPECT_EQ(blobs[0], blobs[2]) << which;
    EXPECT_EQ(blobs[1], blobs[3]) << which;
  }
}

TEST(KaiPack, PyTorchsBlobIsWrittenAndNotRun) {
  const Model m = random_model();
  const Converted c = convert(m, kPlain, "vllm");
  ASSERT_TRUE(c.packed);
  EXPECT_STREQ(moe_selection_layout(c.selection.get()), "torch/dyn_quant_4bit-g32/1");
  EXPECT_STREQ(moe_selection_kernel(c.selection.get()), "CPUExpertsInt4");
  const moe_tensor t = get(c.packed.get(), "w13_packed");
  EXPECT_EQ(t.dtype, MOE_DTYPE_F32);
  EXPECT_EQ(t.shape[1], 2 * m.I * m.H / 2 + 2 * m.I * m.groups(m.H));
  const Failure f = failure([&](moe_error** e) {
    moe_layer* layer = nullptr;
    return moe_layer_create(nullptr, c.selection.get(), c.packed.get(), nullptr, &layer, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED);
  EXPECT_NE(f.message.find("no kernel"), std::string::npos) << f.message;
}

TEST(KaiPack, LayersSayWhatRuns) {
  const Model m = random_model();
  const Converted c = convert(m, callable());
  const LayerPtr layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(nullptr, c.selection.get(), c.packed.get(), nullptr, o, e);
  });
  const auto j = json_of([&](moe_buffer** o, moe_error** e) { return moe_layer_to_json(layer.get(), o, e); });
  EXPECT_EQ(j["layout"], "kai/qsi4c32p-g32/1");
  EXPECT_EQ(j["selected_kernel"], moe_selection_kernel(c.selection.get()));
  EXPECT_EQ(j["kernel"], callable() == kDotprod ? "w4a8_tok8_kai_dotprod" : "w4a8_tok8_kai_scalar");
}

// A kernel that the host lacks is refused, not replaced; the bytes are the same for all rows of the layout.
TEST(KaiPack, AnotherMachinesKernelIsRefused) {
  if (native_arch() == Arch::aarch64) return;  // "features" of an Arm host: layer_test
  const Model m = random_model();
  const Converted arm = convert(m, kDotprod), scalar = convert(m, kPlain);
  ASSERT_STREQ(moe_selection_kernel(arm.selection.get()), "w4a8_tok8_kai_dotprod");
  moe_layer* out = nullptr;
  const Failure f = failure([&](moe_error** e) {
    return moe_layer_create(nullptr, arm.selection.get(), arm.packed.get(), nullptr, &out, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(out, nullptr);
  EXPECT_NE(f.message.find("w4a8_tok8_kai_dotprod: it is one of aarch64, the host is "), std::string::npos)
      << f.message;
  EXPECT_TRUE(make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(nullptr, scalar.selection.get(), arm.packed.get(), nullptr, o, e);
  }));
}

}  // namespace
}  // namespace moe::test::kai_test
