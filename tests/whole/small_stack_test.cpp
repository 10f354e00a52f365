// Every step of the C API on threads with a stack of 64 KiB, errors and failing allocators included. Layers of all
// rows below the API, at real shapes: tests/run_room/small_stack_test.cpp.
#include "support/small_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>

#include "fuzz/tiny.h"
#include "support/capi.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/temp_dir.h"

namespace moe::test::small_stack_test {
namespace {

// What call() says on such a thread.
template <class F>
moe_status on_thread(const char* name, const F& call) {
  moe_status status = MOE_ERR_INTERNAL;
  const std::size_t used = on_small_stack([&] { status = call(); });
  EXPECT_LE(used, kMostUsed) << name;
  return status;
}
template <class Ptr, class F>
Ptr make_there(const char* name, const F& call) {
  typename Ptr::pointer out = nullptr;
  EXPECT_EQ(on_thread(name, [&] { return call(&out); }), MOE_OK) << name;
  return Ptr(out);
}
// A text that an accessor gives.
template <class F>
void text_there(const char* name, const F& call) {
  const BufferPtr text = make_there<BufferPtr>(name, call);
  EXPECT_GT(moe_buffer_size(text.get()), 2u) << name;
}

struct Objects {
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;
  LayerPtr layer;
};

// Everything between a config's text and a layer, and what speaks of it.
Objects objects_of(const Model& m, const moe_platform* platform) {
  Objects o;
  const std::string text = m.config_text();
  o.config = make_there<ConfigPtr>(
      "config", [&](moe_config** c) { return moe_config_create(text.data(), text.size(), c, nullptr); });
  o.selection = make_there<SelectionPtr>("select", [&](moe_selection** s) {
    return moe_select_backend(nullptr, o.config.get(), platform, 0, s, nullptr);
  });
  if (!o.selection) return o;
  o.weights = make_there<WeightsPtr>("weights",
                                     [&](moe_weights** w) { return moe_weights_create(o.config.get(), w, nullptr); });
  for (const StackedTensor& t : stacked(m))
    EXPECT_EQ(on_thread("set",
                        [&] { return moe_weights_set(o.weights.get(), t.role, &t.tensor, nullptr, nullptr, nullptr); }),
              MOE_OK);
  o.packed = make_there<PackedPtr>("convert", [&](moe_packed** p) {
    return moe_convert_weights(nullptr, o.selection.get(), o.weights.get(), nullptr, p, nullptr);
  });
  o.layer = make_there<LayerPtr>("layer", [&](moe_layer** l) {
    return moe_layer_create(nullptr, o.selection.get(), o.packed.get(), nullptr, l, nullptr);
  });
  text_there("config_to_json", [&](moe_buffer** b) { return moe_config_to_json(o.config.get(), b, nullptr); });
  text_there("selection_to_json", [&](moe_buffer** b) { return moe_selection_to_json(o.selection.get(), b, nullptr); });
  text_there("weights_to_json", [&](moe_buffer** b) { return moe_weights_to_json(o.weights.get(), b, nullptr); });
  text_there("packed_to_json", [&](moe_buffer** b) { return moe_packed_to_json(o.packed.get(), b, nullptr); });
  text_there("layer_to_json", [&](moe_buffer** b) { return moe_layer_to_json(o.layer.get(), b, nullptr); });
  return o;
}

void saved_and_loaded(const Objects& o) {
  const TempDir dir;
  const std::string file = dir.file("w.moe");
  EXPECT_EQ(on_thread("save", [&] { return moe_packed_save(o.packed.get(), file.c_str(), 0, nullptr, nullptr); }),
            MOE_OK);
  for (const std::uint64_t flags : {std::uint64_t{0}, std::uint64_t{MOE_LOAD_MMAP}, std::uint64_t{MOE_LOAD_VERIFY}})
    make_there<PackedPtr>(
        "load", [&](moe_packed** p) { return moe_packed_load(nullptr, file.c_str(), flags, nullptr, p, nullptr); });
  EXPECT_EQ(on_thread("no file",
                      [&] {
                        moe_packed* none = nullptr;
                        moe_error* error = nullptr;
                        const moe_status s = moe_packed_load(nullptr, (file + "?").c_str(), 0, nullptr, &none, &error);
                        moe_error_destroy(error);
                        return s;
                      }),
            MOE_ERR_IO);
}

TEST(SmallStack, StepsAtRealShapes) {
  Model m;
  m.H = 2048, m.I = 768, m.E = 2, m.K = 2, m.T = 16;
  m.dtype = "bfloat16";
  for (const std::int64_t group : {std::int64_t{32}, std::int64_t{-1}}) {
    m.group = group;
    const Model model = random_model(m);
    for (const PlatformPtr& platform : capped_platforms()) {
      const Objects o = objects_of(model, platform.get());
      ASSERT_TRUE(o.layer);
      Call call(model);
      EXPECT_EQ(on_thread("apply", [&] { return moe_apply(o.layer.get(), &call.args, nullptr); }), MOE_OK);
      EXPECT_EQ(on_thread("apply_flat",
                          [&] {
                            return moe_apply_flat(o.layer.get(), model.T, MOE_DTYPE_BF16, model.x.data(), MOE_DTYPE_F32,
                                                  model.logits.data(), nullptr, nullptr, MOE_DTYPE_BF16,
                                                  call.out.data(), nullptr);
                          }),
                MOE_OK);
    }
    saved_and_loaded(objects_of(model, nullptr));
  }
}

TEST(SmallStack, Routing) {
  Model m;
  m.E = 128, m.K = 8;
  m = random_model(m);
  for (const char* routing :
       {R"({})", R"({"scoring_func":"sigmoid","use_grouped_topk":true,"num_expert_group":8,"topk_group":4})"}) {
    auto text = nlohmann::json::parse(m.config_text());
    text["routing"] = nlohmann::json::parse(routing);
    const ConfigPtr config = make_config(text.dump());
    std::vector<std::int32_t> ids(static_cast<std::size_t>(m.T * m.K));
    std::vector<float> weights(ids.size());
    const moe_tensor l = tensor(MOE_DTYPE_F32, {m.T, m.E}, m.logits.data()),
                     i = tensor(MOE_DTYPE_I32, {m.T, m.K}, ids.data()),
                     w = tensor(MOE_DTYPE_F32, {m.T, m.K}, weights.data());
    const moe_route_args args{sizeof args, 0, &l, nullptr, &i, &w};
    EXPECT_EQ(on_thread("route", [&] { return moe_route(nullptr, config.get(), &args, nullptr); }), MOE_OK);
  }
}

// Configs and queries of all kinds, whatever they are answered.
TEST(SmallStack, Texts) {
  namespace fs = std::filesystem;
  std::vector<std::string> texts = {std::string(100000, '['),
                                    "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"};
  for (const char* folder : {"config", "hf", "selection"})
    for (const auto& file : fs::recursive_directory_iterator(vector_path(folder))) {
      if (file.path().extension() != ".json") continue;
      texts.push_back(read_text(file.path().string()));
      const auto document = nlohmann::json::parse(texts.back(), nullptr, false);
      if (document.is_object() && document.contains("cases") && document["cases"].is_array())
        for (const auto& c : document["cases"]) texts.push_back(c.value("query", c.value("input", c)).dump());
      if (std::string(folder) == "hf") texts.push_back(nlohmann::json{{"hf_config", document}}.dump());
    }
  int configs = 0, answers = 0;
  const PlatformPtr cuda = make<PlatformPtr>([](moe_platform** o, moe_error** e) {
    return moe_platform_create("{\"type\":\"cuda\",\"capability\":[9,0]}", MOE_NUL_TERMINATED, o, e);
  });
  for (const std::string& text : some_of(texts)) {
    ConfigPtr made[2];
    for (const bool hf : {false, true}) {
      moe_config* config = nullptr;
      (void)on_thread("config", [&] {
        moe_error* error = nullptr;
        const moe_status s = hf ? moe_config_create_from_hf(text.data(), text.size(), nullptr, 0, &config, &error)
                                : moe_config_create(text.data(), text.size(), &config, &error);
        moe_error_destroy(error);
        return s;
      });
      made[hf].reset(config);
    }
    for (const ConfigPtr& config : made) {
      if (!config) continue;
      ++configs;
      for (const moe_platform* p :
           {static_cast<const moe_platform*>(nullptr), static_cast<const moe_platform*>(cuda.get())}) {
        moe_selection* selection = nullptr;
        (void)on_thread("select", [&] {
          moe_error* error = nullptr;
          const moe_status s = moe_select_backend(nullptr, config.get(), p, 0, &selection, &error);
          moe_error_destroy(error);
          return s;
        });
        moe_selection_destroy(selection);
      }
    }
    for (const char* topic : {"oracle", "checkpoint", "quant_config", "parallel_config", "routing_method", "activation",
                              "ocp_mx_scheme", "quant_key", "expert_map", "eplb_map", "align_block_size", "permute"}) {
      const moe_status answer = on_thread(topic, [&] {
        moe_buffer* answered = nullptr;
        moe_error* error = nullptr;
        const moe_status s = moe_describe(topic, text.data(), text.size(), &answered, &error);
        moe_buffer_destroy(answered);
        moe_error_destroy(error);
        return s;
      });
      answers += answer == MOE_OK ? 1 : 0;
    }
  }
  EXPECT_GE(configs, 20 / share());
  EXPECT_GE(answers, 100 / share());
}

TEST(SmallStack, Checkpoint) {
  const VecFile f = load_vectors("w4a8_int8/ckpt_g32_pack_quantized.safetensors");
  Model m;
  m.K = 1, m.E = 0;
  for (const auto& entry : f.tensors) {
    const auto& name = entry.first;
    const auto& t = entry.second;
    const auto ends = [&](const std::string& s) {
      return name.size() > s.size() && name.rfind(s) == name.size() - s.size();
    };
    if (ends("gate_proj.weight_scale")) m.E += 1, m.I = t.shape[0];
    if (ends("down_proj.weight_scale")) m.H = t.shape[0];
  }
  auto text = nlohmann::json::parse(m.config_text());
  text["quantization"]["format"] = "pack-quantized";
  const ConfigPtr config = make_config(text.dump());
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const std::string path = vector_path("w4a8_int8/ckpt_g32_pack_quantized.safetensors");
  ASSERT_EQ(
      on_thread("safetensors", [&] { return moe_weights_load_safetensors(w.get(), path.c_str(), nullptr, nullptr); }),
      MOE_OK);
  make_there<PackedPtr>("convert", [&](moe_packed** p) {
    return moe_convert_weights(nullptr, selection.get(), w.get(), nullptr, p, nullptr);
  });
}

// Layers of every kind (fuzz/tiny.h), with an allocator that has nothing first: an exception may pass all frames.
struct Kind {
  std::string members, platform, emulation;
};
const Kind kKinds[] = {
    {"", "", ""},
    {R"(,"compute":"a8")", "", ""},
    {R"(,"compute":"a16")", "", ""},
    {R"(,"bit_compat":"vllm")", "", ""},
    {R"(,"activation_quant":"block32")", R"({"type":"cpu","features":["avx2","fma","f16c"]})", ""},
    {"", R"({"type":"cpu","features":["scalar"]})", ""},
    {R"(,"platform":{"type":"cuda","capability":[9,0]},"moe_backend":"marlin")", "", R"(,"moe_backend":"emulation")"},
    {R"(,"platform":{"type":"xpu"})", "", R"(,"moe_backend":"emulation","emulation_layout":"dense")"},
    {R"(,"platform":{"type":"cpu"},"selection_policy":"vllm")", "",
     R"(,"moe_backend":"emulation","emulation_layout":"dense")"},
};

// Whether there is such a layer.
bool run_layer(const fuzz::TinyLayer& l, const Kind& kind, moe_context* poor) {
  const ConfigPtr config = fuzz::make_config(l.text);
  if (!config) return false;
  const PlatformPtr platform = kind.platform.empty() ? nullptr : fuzz::make_platform(kind.platform);
  ConfigPtr second;
  SelectionPtr selection, chosen;
  PackedPtr packed;
  LayerPtr layer;
  const auto optional = [](const char* name, auto& into, const auto& call) {
    typename std::remove_reference_t<decltype(into)>::pointer out = nullptr;
    (void)on_thread(name, [&] { return call(&out); });
    into.reset(out);
    return out != nullptr;
  };
  if (!optional("select", selection, [&](moe_selection** o) {
        return moe_select_backend(nullptr, config.get(), platform.get(), 0, o, nullptr);
      }))
    return false;
  const WeightsPtr weights = l.weights(config.get());
  EXPECT_FALSE(optional("convert, no memory", packed, [&](moe_packed** o) {
    return moe_convert_weights(poor, selection.get(), weights.get(), nullptr, o, nullptr);
  }));
  if (!optional("convert", packed, [&](moe_packed** o) {
        return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, nullptr);
      }))
    return false;
  if (!kind.emulation.empty()) {
    second = fuzz::make_config(l.with(kind.emulation));
    if (!second || !optional("select emulation", chosen, [&](moe_selection** o) {
          return moe_select_backend(nullptr, second.get(), nullptr, 0, o, nullptr);
        }))
      return false;
  }
  const moe_selection* const run_by = chosen ? chosen.get() : selection.get();
  if (!optional("layer", layer,
                [&](moe_layer** o) { return moe_layer_create(nullptr, run_by, packed.get(), nullptr, o, nullptr); }))
    return false;
  for (const std::int64_t tokens : {1, 5, 40}) {
    const auto bytes = static_cast<std::size_t>(tokens * l.H) * fuzz::bytes_of(l.dtype);
    const std::vector<std::uint8_t> x(bytes, 0x3c);
    std::vector<std::uint8_t> out(bytes);
    const std::vector<float> logits(static_cast<std::size_t>(tokens * l.E), 1.0f);
    EXPECT_EQ(on_thread(moe_selection_kernel(selection.get()),
                        [&] {
                          return moe_apply_flat(layer.get(), tokens, l.dtype, x.data(), MOE_DTYPE_F32, logits.data(),
                                                nullptr, nullptr, l.dtype, out.data(), nullptr);
                        }),
              MOE_OK);
  }
  return true;
}

TEST(SmallStack, LayersOfEveryKind) {
  moe_allocator_ops nothing{};
  nothing.struct_size = sizeof nothing;
  nothing.allocate = [](void*, size_t, size_t, int32_t) -> void* { return nullptr; };
  nothing.deallocate = [](void*, void*, size_t, size_t) {};
  moe_context_callbacks callbacks{};
  callbacks.struct_size = sizeof callbacks;
  callbacks.allocator = &nothing;
  const ContextPtr poor = make<ContextPtr>(
      [&](moe_context** o, moe_error** e) { return moe_context_create(nullptr, 0, &callbacks, o, e); });
  std::mt19937 rng(1);
  int ran = 0;
  for (int round = 0; round < rounds(360); ++round) {
    std::vector<std::uint8_t> bytes(64);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(rng());
    fuzz::Producer p(bytes.data(), bytes.size());
    const Kind& kind = kKinds[static_cast<std::size_t>(round) % std::size(kKinds)];
    ran += run_layer(fuzz::TinyLayer(p, kind.members), kind, poor.get()) ? 1 : 0;
  }
  EXPECT_GE(ran, rounds(360) / 4);
}

}  // namespace
}  // namespace moe::test::small_stack_test
