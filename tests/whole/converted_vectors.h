// Golden files through the ABI: a config and a machine, tensors of a file in by role, named outputs out.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::converted_vectors {

using nlohmann::json;

// A role, and the tensor of the file that it is set to.
using Sources = std::vector<std::pair<const char*, const char*>>;

struct Converted {
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;
  Failure fault;  // of the conversion

  Converted(const VecFile& f, const json& document, const Sources& sources) {
    config = make_config(document.dump());
    if (!config) return;
    selection = make<SelectionPtr>(
        [&](moe_selection** o, moe_error** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, o, e); });
    if (!selection) return;
    weights = make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    for (const auto& [role, name] : sources) set(role, f.at(name));
    convert();
  }
  void set(const char* role, const VecTensor& t) {
    const moe_tensor view = tensor(static_cast<moe_dtype>(t.dtype), t.shape, t.data.data());
    const Failure set =
        failure([&](moe_error** e) { return moe_weights_set(weights.get(), role, &view, nullptr, nullptr, e); });
    EXPECT_EQ(set.status, MOE_OK) << role << ": " << set.message;
  }
  void convert() {
    moe_packed* out = nullptr;
    fault = failure(
        [&](moe_error** e) { return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &out, e); });
    packed.reset(out);
  }
  moe_tensor get(const std::string& role, std::int64_t expert = -1) const { return get_from(packed, role, expert); }
  static moe_tensor get_from(const PackedPtr& from, const std::string& role, std::int64_t expert = -1) {
    moe_tensor t{};
    t.struct_size = sizeof t;
    const Failure f = failure([&](moe_error** e) { return moe_packed_get(from.get(), role.c_str(), expert, &t, e); });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
    return t;
  }
  json about() const {
    return json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(packed.get(), o, e); });
  }
  // After a file, w13 or w2 of one expert as numbers.
  std::vector<float> dense(const char* role, std::int64_t expert, std::int64_t rows, std::int64_t columns) const {
    const TempDir dir;
    const std::string path = dir.path() + "/layer.moe";
    EXPECT_EQ(failure([&](moe_error** e) { return moe_packed_save(packed.get(), path.c_str(), 0, nullptr, e); }).status,
              MOE_OK);
    const PackedPtr loaded = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_packed_load(nullptr, path.c_str(), MOE_LOAD_VERIFY, nullptr, o, e);
    });
    std::vector<float> out(static_cast<std::size_t>(rows * columns));
    if (!loaded) return out;
    const moe_tensor view = tensor(MOE_DTYPE_F32, {rows, columns}, out.data());
    const Failure f =
        failure([&](moe_error** e) { return moe_packed_dequantize(loaded.get(), role, expert, &view, e); });
    EXPECT_EQ(f.status, MOE_OK) << f.message;
    return out;
  }
};

// Shape and bytes; F32 tensors of the files hold values of narrower types, too.
inline void expect_tensor(const moe_tensor& got, const VecTensor& want, const std::string& name) {
  ASSERT_EQ(std::vector<std::int64_t>(got.shape, got.shape + got.ndim), want.shape) << name;
  if (!want.digest && want.dtype == DType::f32 && got.dtype != MOE_DTYPE_F32) {
    const auto* bytes = static_cast<const std::byte*>(got.data);
    EXPECT_EQ(floats_of({bytes, bytes + got.nbytes}, got.dtype), want.as<float>()) << name;
    return;
  }
  EXPECT_EQ(static_cast<int>(got.dtype), static_cast<int>(want.dtype)) << name;
  EXPECT_EQ(difference(want, {static_cast<const std::byte*>(got.data), got.nbytes}), "") << name;
}

inline json cuda(int major, int minor = 0) {
  return {{"platform",
           {{"type", "cuda"}, {"capability", {major, minor}}, {"libs", {{"flashinfer", true}, {"deep_gemm", true}}}}}};
}
inline json rocm(const char* gfx) {
  return {{"platform", {{"type", "rocm"}, {"gfx", gfx}, {"libs", {{"aiter", true}}}}},
          {"vllm_env", {{"VLLM_ROCM_USE_AITER", "1"}}}};
}
inline json backend(json machine, const char* word) {
  machine["moe_backend"] = word;
  return machine;
}
inline json also(json a, const json& b) {
  a.update(b, true);
  return a;
}
// A layer of a file's sizes and scheme.
inline json layer(const VecFile& f, const char* scheme, const json& members) {
  const std::vector<std::int64_t>& down = f.at("w2" + std::string(f.has("w2") ? "" : "_weight_packed")).shape;
  const std::int64_t packed = f.has("w2") ? 1 : 8;
  json c = {{"num_experts", down[0]}, {"top_k", f.at("topk_ids").shape[1]},
            {"hidden_dim", down[1]},  {"intermediate_size", down[2] * packed},
            {"in_dtype", "bfloat16"}, {"quantization", {{"scheme", scheme}}}};
  return also(c, members);
}

}  // namespace moe::test::converted_vectors
