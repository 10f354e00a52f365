// Objects and arguments for every function of moe_abi_json, made through libffi alone.
//
// arguments(function) gives a call that succeeds; the sweeps then spoil one word of it. A parameter that no
// rule here knows fails the test: a new function cannot be forgotten.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "support/capi.h"
#include "support/ffi_library.h"
#include "support/model_dir.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test {

struct DlPackBytes {  // DLManagedTensorVersioned of a float32 [2, 3]
  std::uint32_t major = 1, minor = 0;
  void *manager = nullptr, *deleter = nullptr;
  std::uint64_t flags = 0;
  void* data = nullptr;
  std::int32_t device_type = 1, device_id = 0, ndim = 2;
  std::uint8_t code = 2, bits = 32;
  std::uint16_t lanes = 1;
  std::int64_t *shape = nullptr, *strides = nullptr;
  std::uint64_t byte_offset = 0;
};

class FfiWorld {
 public:
  FfiWorld() : lib(MOE_LIBRARY) {
    tensors();
    const Word text = keep(model.config_text());
    config = made("moe_config_create", {text, kNul});
    context = made("moe_context_create", {keep("{\"threads\":1}"), kNul, 0});
    platform = made("moe_platform_create", {0, 0});
    selection = made("moe_select_backend", {context, config, 0, 0});
    weights = made("moe_weights_create", {config});
    for (const char* role : {"w13_weight", "w2_weight", "w13_scale", "w2_scale"})
      EXPECT_EQ(lib.status("moe_weights_set", {weights, keep(role), tensor_of(role).word(), 0, 0, 0}), MOE_OK);
    loose = made("moe_weights_create", {config});
    const ConfigText ckpt = checkpoint_config();
    file_config = made("moe_config_create", {keep(ckpt.text), kNul});
    file_weights = made("moe_weights_create", {file_config});
    packed = made("moe_convert_weights", {context, selection, weights, 0});
    layer = made("moe_layer_create", {context, selection, packed, 0});
    control = made("moe_control_create", {0, 0, 0});
    spare = made("moe_control_create", {0, 0, 0});
    buffer = made("moe_buffer_create", {64, 64});
    error = lib.call("moe_error_create", {MOE_ERR_IO, keep("text"), 4});
    EXPECT_EQ(lib.status("moe_packed_save", {packed, keep(path()), 0, 0, 0}), MOE_OK);
    ModelDir().write(model_path());
    checkpoint = made("moe_checkpoint_open", {context, keep(model_path()), 0, 0, 0});
    const Word of_layer = made("moe_checkpoint_config", {checkpoint, 0, 0, 0});
    checkpoint_selection = made("moe_select_backend", {context, of_layer, 0, 0});
    checkpoint_weights = made("moe_weights_create", {of_layer});
    structs();
    comm = made("moe_comm_create_threads", {1});
    dist = attached(comm);
  }
  ~FfiWorld() {
    for (const Begun& b : begun_) {  // BUSY: the call was not finished
      Word second = 0;
      const Word args = struct_of("moe_apply_args").word();
      const bool left = lib.status("moe_dist_begin", {b.dist, args, word_of(&second), 0}) == MOE_ERR_BUSY;
      lib.call("moe_dist_call_destroy", {left ? b.call : second});
    }
    for (const auto& [type, object] : owned_) lib.call(type + "_destroy", {object});
    lib.call("moe_error_destroy", {error});
  }
  FfiWorld(const FfiWorld&) = delete;
  FfiWorld& operator=(const FfiWorld&) = delete;

  static constexpr Word kNul = ~Word{0};
  Word keep(std::string text) {
    texts_.push_back(std::move(text));
    return word_of(texts_.back().c_str());
  }
  std::string path() const { return dir_.path() + "/layer.moe"; }
  std::string model_path() const { return dir_.path() + "/model"; }

  // Calls a function that makes an object: its last two parameters are out and err.
  Word made(const std::string& name, std::vector<Word> args) {
    Word out = 0, err = 0;
    args.push_back(word_of(&out));
    args.push_back(word_of(&err));
    EXPECT_EQ(lib.status(name, args), MOE_OK) << name << lib.text("moe_error_details_json", {err});
    lib.call("moe_error_destroy", {err});
    const json& params = lib.item("functions", name)["params"];
    owned_.emplace_back(tail_of(tail_of(params[params.size() - 2]["type"])), out);
    return out;
  }

  // Storage for the outputs of one call, filled with a pattern.
  struct Outputs {
    std::deque<Word> slots;
    std::vector<std::pair<std::string, Word*>> named;  // type, slot
    Word add(const std::string& type) {
      slots.push_back(kStale);
      named.emplace_back(type, &slots.back());
      return word_of(&slots.back());
    }
    static constexpr Word kStale = 0x5a5a5a5a5a5a5a5aU;
  };

  std::vector<Word> arguments(const json& function, Outputs& out) {
    const std::string name = function["name"];
    std::vector<Word> words;
    for (const json& p : function["params"]) words.push_back(argument(name, p, out));
    return words;
  }
  // Ends what a successful call gave.
  void end(Outputs& out) {
    for (auto& [type, slot] : out.named)
      if (head_of(type) == "out" && head_of(tail_of(type)) == "handle" && *slot != Outputs::kStale)
        lib.call(tail_of(tail_of(type)) + "_destroy", {*slot});
  }

  FfiStruct& tensor_of(const std::string& name) { return *tensors_.at(name); }
  FfiStruct& struct_of(const std::string& name) { return *structs_.at(name); }

  FfiLibrary lib;
  Model model = random_model();
  Word config = 0, context = 0, platform = 0, selection = 0, weights = 0, loose = 0, file_config = 0, file_weights = 0,
       packed = 0, layer = 0, control = 0, spare = 0, buffer = 0, error = 0, checkpoint = 0, checkpoint_selection = 0,
       checkpoint_weights = 0, comm = 0, dist = 0;
  std::vector<std::byte> out_bytes;
  std::vector<Word> counts = std::vector<Word>(64);

 private:
  struct Begun {
    Word dist, call;
  };
  Word attached(Word of_comm) {
    const Word d = made("moe_dist_create", {context, of_comm, config, 0, 0});
    EXPECT_EQ(lib.status("moe_dist_attach", {d, layer, 0}), MOE_OK);
    return d;
  }
  // A layer that no call uses, without and with `layer`; a call of one.
  Word new_comm() { return made("moe_comm_create_threads", {1}); }
  Word begun() {
    const Word d = attached(new_comm()), args = struct_of("moe_apply_args").word();
    Word call = 0;
    EXPECT_EQ(lib.status("moe_dist_begin", {d, args, word_of(&call), 0}), MOE_OK);
    begun_.push_back({d, call});
    return call;
  }
  struct ConfigText {
    std::string text, file;
  };
  static ConfigText checkpoint_config() {
    const std::string file = "w4a8_int8/ckpt_g32_int_quantized.safetensors";
    const VecFile f = load_vectors(file);
    Model m;
    m.E = 0;
    for (const auto& [name, t] : f.tensors) {
      if (name.find(".gate_proj.weight_scale") != std::string::npos) ++m.E, m.I = t.shape[0];
      if (name.find(".down_proj.weight_scale") != std::string::npos) m.H = t.shape[0];
    }
    m.K = 1;
    return {m.config_text(), vector_path(file)};
  }

  void add_tensor(const std::string& name, int dtype, std::vector<std::int64_t> shape, const void* data) {
    auto s = std::make_unique<FfiStruct>(lib, "moe_tensor");
    s->set("dtype", static_cast<Word>(dtype)).set("ndim", shape.size()).set("data", word_of(data));
    for (std::size_t i = 0; i < shape.size(); ++i) s->set("shape", static_cast<Word>(shape[i]), i);
    tensors_[name] = std::move(s);
  }
  void tensors() {
    const Model& m = model;
    out_bytes.resize(m.io_bytes());
    for (const StackedTensor& t : stacked(m))
      add_tensor(t.role, t.tensor.dtype, {t.tensor.shape, t.tensor.shape + t.tensor.ndim}, t.tensor.data);
    add_tensor("hidden", MOE_DTYPE_F32, {m.T, m.H}, m.x.data());
    add_tensor("out", MOE_DTYPE_F32, {m.T, m.H}, out_bytes.data());
    add_tensor("router_logits", MOE_DTYPE_F32, {m.T, m.E}, m.logits.data());
    add_tensor("topk_ids", MOE_DTYPE_I32, {m.T, m.K}, m.ids.data());
    add_tensor("topk_weights", MOE_DTYPE_F32, {m.T, m.K}, m.weights.data());
    add_tensor("out_topk_ids", MOE_DTYPE_I32, {m.T, m.K}, out_ids_.data());
    add_tensor("out_topk_weights", MOE_DTYPE_F32, {m.T, m.K}, out_weights_.data());
    add_tensor("expert_map", MOE_DTYPE_I32, {m.E}, map_.data());
    add_tensor("one_w2", MOE_DTYPE_I8, {m.H, m.I}, m.w2.data());
    add_tensor("gate", MOE_DTYPE_I8, {m.I, m.H}, m.w13.data());
    dense_.resize(static_cast<std::size_t>(m.H * m.I));
    add_tensor("dense", MOE_DTYPE_F32, {m.H, m.I}, dense_.data());
  }
  FfiStruct& add_struct(const std::string& name) {
    structs_[name] = std::make_unique<FfiStruct>(lib, name);
    return *structs_[name];
  }
  void structs() {
    FfiStruct& apply = add_struct("moe_apply_args").set("mode", MOE_APPLY_TOPK);
    for (const char* n : {"hidden", "topk_ids", "topk_weights", "out"}) apply.set(n, tensor_of(n).word());
    FfiStruct& route = add_struct("moe_route_args");
    for (const char* n : {"router_logits", "out_topk_ids", "out_topk_weights"}) route.set(n, tensor_of(n).word());
    add_struct("moe_layer_options").set("expert_map", tensor_of("expert_map").word());
    add_struct("moe_convert_options");
    add_struct("moe_parallel_ops").set("num_threads", 1).set("parallel_for", parallel_.word());
    add_struct("moe_allocator_ops").set("allocate", allocate_.word()).set("deallocate", deallocate_.word());
    add_struct("moe_context_callbacks")
        .set("parallel", struct_of("moe_parallel_ops").word())
        .set("allocator", struct_of("moe_allocator_ops").word());
    add_struct("moe_weight_source_ops").set("get", get_.word());
    for (const char* n : {"moe_candidate", "moe_progress", "moe_layer_info", "moe_checkpoint_options"}) add_struct(n);
    add_struct("moe_tensor");
    add_struct("moe_comm_ops").set("size", 1).set("alltoallv_start", exchange_.word()).set("test", test_.word());
  }

  Word argument(const std::string& function, const json& p, Outputs& out) {
    const std::string name = p["name"], type = p["type"], head = head_of(type);
    const auto special = special_.find(function + "." + name);
    if (special != special_.end()) return special->second(*this);
    if (head == "out") return out.add(type);
    if (head == "fn" || name == "user") return 0;
    if (type == "handle:moe_error") return function == "moe_error_destroy" ? 0 : error;
    if (head == "handle") return function == tail_of(type) + "_destroy" ? 0 : handle(tail_of(type));
    if (head == "ptr" && !tail_of(type).empty()) return struct_of(tail_of(type)).word();
    const auto value = numbers_.find(name);
    if (value != numbers_.end() && head != "ptr" && head != "cstr") return value->second;
    ADD_FAILURE() << function << "." << name << ": no rule makes this argument";
    return 0;
  }
  Word handle(const std::string& type) const {
    const std::map<std::string, Word> all = {
        {"moe_buffer", buffer},         {"moe_config", config},     {"moe_context", context},
        {"moe_checkpoint", checkpoint}, {"moe_control", control},   {"moe_layer", layer},
        {"moe_packed", packed},         {"moe_platform", platform}, {"moe_selection", selection},
        {"moe_weights", weights},       {"moe_comm", comm},         {"moe_dist", dist}};
    return all.at(type);
  }

  using Maker = Word (*)(FfiWorld&);
  const std::map<std::string, Word> numbers_ = {
      {"status", 4},       {"reason", 3},       {"dtype", 1},        {"ndim", 1},         {"size", 64},
      {"alignment", 64},   {"done", 1},         {"total", 2},        {"flags", 0},        {"index", 0},
      {"expert", 1},       {"mode", 1},         {"num_tokens", 5},   {"capacity", 64},    {"reset", 0},
      {"hidden_dtype", 1}, {"logits_dtype", 1}, {"out_dtype", 1},    {"message_len", 4},  {"options_len", kNul},
      {"json_len", kNul},  {"hf_len", kNul},    {"patch_len", kNul}, {"query_len", kNul}, {"layer", 0},
      {"full", 0}};
  // clang-format off
  const std::map<std::string, Maker> special_ = {
      {"moe_has_feature.name",                 [](FfiWorld& w) { return w.keep("isa.scalar"); }},
      {"moe_dtype_from_name.name",             [](FfiWorld& w) { return w.keep("bf16"); }},
      {"moe_error_create.message",             [](FfiWorld& w) { return w.keep("text"); }},
      {"moe_tensor_nbytes.shape",              [](FfiWorld& w) { return word_of(w.shape_.data()); }},
      {"moe_tensor_from_dlpack.dl_managed_tensor_versioned", [](FfiWorld& w) { return w.dlpack(); }},
      {"moe_control_cancel.control",           [](FfiWorld& w) { return w.spare; }},
      {"moe_context_create.options_json",      [](FfiWorld& w) { return w.keep("{\"threads\":1}"); }},
      {"moe_config_create.json",               [](FfiWorld& w) { return w.keep(w.model.config_text()); }},
      {"moe_config_create_from_hf.hf_json",    [](FfiWorld& w) { return w.keep(R"({"architectures":["MixtralForCausalLM"],"model_type":"mixtral","num_local_experts":8,"num_experts_per_tok":2,"hidden_size":64,"intermediate_size":96,"hidden_act":"silu","num_hidden_layers":2,"torch_dtype":"bfloat16"})"); }},
      {"moe_config_create_from_hf.options_json", [](FfiWorld& w) { return w.keep("{}"); }},
      {"moe_config_merge.patch_json",          [](FfiWorld& w) { return w.keep("{\"top_k\":1}"); }},
      {"moe_config_get_int.pointer",           [](FfiWorld& w) { return w.keep("/num_experts"); }},
      {"moe_config_get_float.pointer",         [](FfiWorld& w) { return w.keep("/routing/routed_scaling_factor"); }},
      {"moe_config_get_string.pointer",        [](FfiWorld& w) { return w.keep("/activation"); }},
      {"moe_platform_create.json",             [](FfiWorld& w) { return w.keep("{\"type\":\"cpu\"}"); }},
      {"moe_platform_has.feature",             [](FfiWorld& w) { return w.keep("scalar"); }},
      {"moe_describe.topic",                   [](FfiWorld& w) { return w.keep("oracle"); }},
      {"moe_describe.query_json",              [](FfiWorld& w) { return w.keep(load_json("selection/w4a8_int8.json")["cases"][0]["query"].dump()); }},
      {"moe_weights_set.role",                 [](FfiWorld& w) { return w.keep("w2_weight"); }},
      {"moe_weights_set.tensor",               [](FfiWorld& w) { return w.tensor_of("w2_weight").word(); }},
      {"moe_weights_set_expert.weights",       [](FfiWorld& w) { return w.loose; }},
      {"moe_weights_set_expert.role",          [](FfiWorld& w) { return w.keep("w2_weight"); }},
      {"moe_weights_set_expert.shard",         [](FfiWorld& w) { return w.keep("w2"); }},
      {"moe_weights_set_expert.tensor",        [](FfiWorld& w) { return w.tensor_of("one_w2").word(); }},
      {"moe_weights_set_named.weights",        [](FfiWorld& w) { return w.loose; }},
      {"moe_weights_set_named.name",           [](FfiWorld& w) { return w.keep("model.layers.0.mlp.experts.1.gate_proj.weight"); }},
      {"moe_weights_set_named.tensor",         [](FfiWorld& w) { return w.tensor_of("gate").word(); }},
      {"moe_weights_load_safetensors.weights", [](FfiWorld& w) { return w.file_weights; }},
      {"moe_weights_load_safetensors.path",    [](FfiWorld& w) { return w.keep(checkpoint_config().file); }},
      {"moe_weights_load_safetensors.module",  [](FfiWorld& w) { return w.keep("model.layers.0.mlp.experts"); }},
      {"moe_weights_get.role",                 [](FfiWorld& w) { return w.keep("w2_weight"); }},
      {"moe_packed_get.role",                  [](FfiWorld& w) { return w.keep("w2_packed"); }},
      {"moe_packed_dequantize.role",           [](FfiWorld& w) { return w.keep("w2_weight"); }},
      {"moe_packed_dequantize.out",            [](FfiWorld& w) { return w.tensor_of("dense").word(); }},
      {"moe_packed_save.path",                 [](FfiWorld& w) { return w.keep(w.path()); }},
      {"moe_packed_load.path",                 [](FfiWorld& w) { return w.keep(w.path()); }},
      {"moe_packed_load_memory.data",          [](FfiWorld& w) { return w.block().first; }},
      {"moe_packed_load_memory.size",          [](FfiWorld& w) { return w.block().second; }},
      {"moe_checkpoint_open.directory",        [](FfiWorld& w) { return w.keep(w.model_path()); }},
      {"moe_checkpoint_open.options_json",     [](FfiWorld& w) { return w.keep("{}"); }},
      {"moe_checkpoint_config.patch_json",     [](FfiWorld& w) { return w.keep("{\"top_k\":1}"); }},
      {"moe_weights_load_checkpoint.weights",  [](FfiWorld& w) { return w.checkpoint_weights; }},
      {"moe_checkpoint_packed.selection",      [](FfiWorld& w) { return w.checkpoint_selection; }},
      {"moe_checkpoint_convert.directory",     [](FfiWorld& w) { return w.keep(w.model_path() + ".converted"); }},
      {"moe_checkpoint_tensor.name",           [](FfiWorld& w) { return w.keep("model.layers.0.mlp.gate.weight"); }},
      {"moe_layer_expert_counts.counts",       [](FfiWorld& w) { return word_of(w.counts.data()); }},
      {"moe_comm_create_threads.size",         [](FfiWorld&) { return Word{1}; }},
      {"moe_dist_attach.dist",                 [](FfiWorld& w) { return w.made("moe_dist_create", {w.context, w.new_comm(), w.config, 0, 0}); }},
      {"moe_dist_begin.dist",                  [](FfiWorld& w) { return w.attached(w.new_comm()); }},
      {"moe_dist_poll.call",                   [](FfiWorld& w) { return w.begun(); }},
      {"moe_dist_finish.call",                 [](FfiWorld& w) { return w.begun(); }},
      {"moe_comm_create.options_json",         [](FfiWorld& w) { return w.keep("{}"); }},
      {"moe_comm_set_options.options_json"   , [](FfiWorld& w) { return w.keep("{}"); }},
      {"moe_dist_create.options_json",         [](FfiWorld& w) { return w.keep("{}"); }},
      {"moe_apply_flat.hidden",                [](FfiWorld& w) { return word_of(w.model.x.data()); }},
      {"moe_apply_flat.router_logits",         [](FfiWorld& w) { return word_of(w.model.logits.data()); }},
      {"moe_apply_flat.topk_ids",              [](FfiWorld&) { return Word{0}; }},
      {"moe_apply_flat.topk_weights",          [](FfiWorld&) { return Word{0}; }},
      {"moe_apply_flat.out",                   [](FfiWorld& w) { return word_of(w.out_bytes.data()); }},
  };
  // clang-format on

  Word dlpack() {
    dlpack_.data = dense_.data();
    dlpack_.shape = shape_.data();
    return word_of(&dlpack_);
  }
  std::pair<Word, Word> block() {
    std::pair<Word, Word> b;
    EXPECT_EQ(lib.status("moe_packed_data", {packed, word_of(&b.first), word_of(&b.second), 0}), MOE_OK);
    return b;
  }

  std::vector<Begun> begun_;
  std::deque<std::string> texts_;
  std::vector<std::pair<std::string, Word>> owned_;
  std::map<std::string, std::unique_ptr<FfiStruct>> tensors_, structs_;
  std::vector<std::int32_t> out_ids_ = std::vector<std::int32_t>(64), map_ = {0, 1, 2, 3};
  std::vector<float> out_weights_ = std::vector<float>(64), dense_;
  std::array<std::int64_t, 2> shape_ = {2, 3};
  DlPackBytes dlpack_;
  TempDir dir_;
  FfiCallback parallel_{lib, "moe_parallel_ops.parallel_for", [](FfiCallback&, const std::vector<Word>& a) -> Word {
                          for (Word i = 0; i < a[1]; ++i)
                            pointer_of<void(void*, std::size_t)>(a[2])(pointer_of<void>(a[3]), i);
                          return 0;
                        }};
  FfiCallback allocate_{lib, "moe_allocator_ops.allocate", [](FfiCallback&, const std::vector<Word>& a) -> Word {
                          return word_of(std::aligned_alloc(a[2], (a[1] + a[2] - 1) / a[2] * a[2]));
                        }};
  FfiCallback deallocate_{lib, "moe_allocator_ops.deallocate", [](FfiCallback&, const std::vector<Word>& a) -> Word {
                            std::free(pointer_of<void>(a[1]));
                            return 0;
                          }};
  FfiCallback exchange_{lib, "moe_comm_ops.alltoallv_start",
                        [](FfiCallback&, const std::vector<Word>&) -> Word { return MOE_ERR_UNSUPPORTED; }};
  FfiCallback test_{lib, "moe_comm_ops.test",
                    [](FfiCallback&, const std::vector<Word>&) -> Word { return MOE_ERR_UNSUPPORTED; }};
  FfiCallback get_{lib, "moe_weight_source_ops.get",
                   [](FfiCallback&, const std::vector<Word>&) -> Word { return MOE_ERR_MISSING_WEIGHT; }};
};

}  // namespace moe::test
