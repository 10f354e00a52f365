// moe_checkpoint_convert: a folder that opens, resumes, and holds one source, cut, platform and layout; whatever ends
// the writing, whole layers stay.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>

#include "support/converting.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::convert_folder_test {
namespace {

using testing::HasSubstr;

using ConvertFolder = Converting;

TEST_F(ConvertFolder, OpensAgain) {
  ASSERT_EQ(convert(out).status, MOE_OK);
  const CheckpointPtr c = open_model(out);
  ASSERT_EQ(moe_checkpoint_layer_count(c.get()), 4);
  for (std::int64_t l = 0; l < 4; ++l) {
    const moe_layer_info info = info_of(c.get(), l), was = info_of(source.get(), l);
    EXPECT_EQ(info.kind, was.kind);
    EXPECT_STREQ(info.name, was.name);
    EXPECT_EQ(info.flags != 0, was.kind == MOE_LAYER_EXPERTS);
    if (was.kind != MOE_LAYER_EXPERTS) continue;
    const ConfigPtr config = config_of(c.get(), l);
    const SelectionPtr selection = make_selection(config.get());
    const auto packed = [&](const CheckpointPtr& from) {
      return bytes_of_packed(make<PackedPtr>([&](moe_packed** o, moe_error** e) {
                               return moe_checkpoint_packed(nullptr, from.get(), selection.get(), nullptr, o, e);
                             }).get());
    };
    EXPECT_EQ(packed(c), packed(source));
    options.load_flags = MOE_LOAD_MMAP;
    const LayerPtr layer = make<LayerPtr>(
        [&](moe_layer** o, moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), l, &options, o, e); });
    EXPECT_NE(layer, nullptr);
  }
  const nlohmann::json d = describe(c.get());
  EXPECT_EQ(d["converted"]["platform"], describe(c.get())["converted"]["platform"]);
  EXPECT_EQ(d["quantization_from"], "config.json");
  EXPECT_THAT(d["converted"]["source"].get<std::string>(), HasSubstr("fast:xxh3:"));
  // It has no source tensors.
  moe_tensor t{};
  t.struct_size = sizeof t;
  moe_buffer* hold = nullptr;
  EXPECT_EQ(moe_checkpoint_tensor(c.get(), "model.layers.0.mlp.gate.weight", &t, &hold, nullptr), MOE_ERR_UNSUPPORTED);
  options.load_flags = 0;
  EXPECT_EQ(convert(dir.file("again"), c.get()).status, MOE_ERR_UNSUPPORTED);
}

TEST_F(ConvertFolder, GoesOnWithWhatIsMissing) {
  ASSERT_EQ(convert(out).status, MOE_OK);
  const auto whole = content(out);
  ASSERT_EQ(whole.size(), 5u);
  const std::string some = dir.file("some");
  const std::vector<std::int64_t> one = {2}, two = {3, 0};
  for (const auto* layers : {&one, &two}) {
    options.layers = layers->data();
    options.num_layers = layers->size();
    ASSERT_EQ(convert(some).status, MOE_OK);
    const CheckpointPtr c = open_model(some);
    if (layers != &one) continue;
    EXPECT_EQ(info_of(c.get(), 0).flags, 0u);
    moe_layer* none = nullptr;
    const Failure f =
        failure([&](moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), 0, nullptr, &none, e); });
    EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
    EXPECT_THAT(f.message, HasSubstr("not converted"));
  }
  EXPECT_EQ(content(some), whole);
  // Nothing is written where all is there.
  const auto time = std::filesystem::last_write_time(out + "/layer-00002.moe");
  options.layers = nullptr;
  options.num_layers = 0;
  ASSERT_EQ(convert(out).status, MOE_OK);
  EXPECT_EQ(std::filesystem::last_write_time(out + "/layer-00002.moe"), time);
}

TEST_F(ConvertFolder, HoldsOneSourceCutPlatformAndLayout) {
  const std::vector<std::int64_t> first = {0};
  options.layers = first.data();
  options.num_layers = 1;
  ASSERT_EQ(convert(out).status, MOE_OK);
  const auto before = content(out);
  const auto expect_mismatch = [&](const Failure& f, const char* member) {
    EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH) << f.message;
    EXPECT_THAT(f.details["member"].get<std::string>(), HasSubstr(member));
    EXPECT_EQ(content(out), before);
  };
  ModelDir other = model;  // a fine-tune: the same headers and sizes
  other.seed = 2;
  other.write(dir.file("other"));
  expect_mismatch(convert(out, open_model(dir.file("other")).get()), "source");
  const std::string patch = R"({"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true}})";
  options.patch_json = patch.data();
  options.patch_len = patch.size();
  expect_mismatch(convert(out), "parallel/");
  options.patch_json = nullptr;
  options.patch_len = 0;
#if defined(__aarch64__)
  const char* other_machine = R"({"type":"cpu","arch":"x86_64","features":["avx2","fma","f16c"]})";
#else
  const char* other_machine = R"({"type":"cpu","arch":"aarch64","features":["neon","dotprod","i8mm"]})";
#endif
  const PlatformPtr platform = make<PlatformPtr>(
      [&](moe_platform** o, moe_error** e) { return moe_platform_create(other_machine, MOE_NUL_TERMINATED, o, e); });
  options.platform = platform.get();
  expect_mismatch(convert(out), "platform");
  options.platform = nullptr;
  const std::string routing = R"({"top_k":1})";
  options.patch_json = routing.data();
  options.patch_len = routing.size();
  expect_mismatch(convert(out), "patch");
  options.patch_json = nullptr;
  options.patch_len = 0;
  const CheckpointPtr told = open_model(at, R"({"overrides":{"top_k":1}})");
  expect_mismatch(convert(out, told.get()), "options");
  const std::int64_t* far = first.data();
  for (const std::size_t count : {std::size_t{5}, SIZE_MAX}) {  // more than there are layers
    options.layers = far, options.num_layers = count;
    const Failure f = convert(out);
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "num_layers");
  }
  options.layers = first.data(), options.num_layers = 1;
  EXPECT_EQ(convert(at).status, MOE_ERR_INVALID_ARGUMENT);  // the source itself is no place
  dir.write("foreign/config.json", "{}");
  EXPECT_EQ(convert(dir.file("foreign")).status, MOE_ERR_CONFIG_MISMATCH);
}

// Kernel libraries that are there decide layouts, so that two machines of one name may want two.
TEST_F(ConvertFolder, IsForTheLibrariesOfItsAccelerator) {
  model.plain = true, model.quantization = "";
  model.write(at);
  source = open_model(at);
  const auto convert_for = [&](const std::string& libs, std::int64_t layer, const std::string& more = "") {
    const std::string text = R"({"type":"cuda","capability":[9,0],"cuda_version":12080,"libs":)" + libs + more + "}";
    const PlatformPtr platform = make<PlatformPtr>(
        [&](moe_platform** o, moe_error** e) { return moe_platform_create(text.data(), text.size(), o, e); });
    options.platform = platform.get(), options.layers = &layer, options.num_layers = 1;
    return convert(out);
  };
  // The manifest would name them at a length that no reader takes, and nothing is written.
  const Failure longer = convert_for("{\"" + std::string(600, 'x') + "\":true}", 0);
  EXPECT_EQ(longer.status, MOE_ERR_UNSUPPORTED) << longer.message;
  EXPECT_THAT(longer.message, HasSubstr("/platform"));
  EXPECT_FALSE(std::filesystem::exists(out));
  ASSERT_EQ(convert_for("{}", 0).status, MOE_OK);
  const Failure f = convert_for(R"({"flashinfer":true})", 2);
  EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH) << f.message;
  EXPECT_THAT(f.message, HasSubstr("cuda_version 12080 flashinfer"));
  // Marlin's workspace has its size of it, which is no part of the layout's id.
  const Failure multiprocessors = convert_for("{}", 2, R"(,"multiprocessor_count":78)");
  EXPECT_EQ(multiprocessors.status, MOE_ERR_CONFIG_MISMATCH) << multiprocessors.message;
  EXPECT_EQ(convert_for(R"({"flashinfer":false})", 2).status, MOE_OK);
}

// Documents of the source stand deeper in the manifest than in their own file. 32 levels are the most that one may
// have.
TEST_F(ConvertFolder, HoldsDeepDocuments) {
  model.quantization = "";
  model.write(at);
  for (const std::size_t lists : {std::size_t{30}, std::size_t{31}}) {
    SCOPED_TRACE(lists);
    std::string config = model.quantization_config();
    config.insert(1, R"("note":)" + std::string(lists, '[') + std::string(lists, ']') + ",");
    dir.write("model/hf_quant_config.json", config);
    source = open_model(at);
    std::filesystem::remove_all(out);
    ASSERT_EQ(convert(out).status, MOE_OK);
    EXPECT_EQ(convert(out).status, MOE_OK);
    EXPECT_EQ(load(open_model(out), 0).status, MOE_OK);
  }
}

TEST_F(ConvertFolder, KeepsTheCutOfARank) {
  const std::string patch = R"({"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true}})";
  options.patch_json = patch.data();
  options.patch_len = patch.size();
  ASSERT_EQ(convert(out).status, MOE_OK);
  const CheckpointPtr c = open_model(out);
  const ConfigPtr config = config_of(c.get(), 0);
  std::int64_t rank = -1;
  ASSERT_EQ(moe_config_get_int(config.get(), "/parallel/ep_rank", &rank, nullptr), MOE_OK);
  EXPECT_EQ(rank, 1);
  moe_layer* out_layer = nullptr;
  moe_checkpoint_options plain{};
  plain.struct_size = sizeof plain;
  ASSERT_EQ(moe_checkpoint_layer(nullptr, c.get(), 0, &plain, &out_layer, nullptr), MOE_OK);
  moe_layer_destroy(out_layer);
  const std::string other = R"({"parallel":{"tp_rank":0}})";
  plain.patch_json = other.data();
  plain.patch_len = other.size();
  const Failure f =
      failure([&](moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), 0, &plain, &out_layer, e); });
  EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH) << f.message;
}

// Options given when the folder is opened are put over its own member by member; a null among them stays one.
TEST_F(ConvertFolder, KeepsItsOptionsBesideTheCallers) {
  const auto number = [](const ConfigPtr& config, const char* pointer) {
    return json_of([&](moe_buffer** o, moe_error** e) {
      return moe_config_to_json(config.get(), o, e);
    })[nlohmann::json::json_pointer(pointer)];
  };
  const CheckpointPtr told = open_model(at, R"({"overrides":{"top_k":1,"routing":{"renormalize":false}}})");
  ASSERT_EQ(convert(out, told.get()).status, MOE_OK);
  const CheckpointPtr c =
      open_model(out, R"({"overrides":{"max_num_tokens":64,"routing":{"routed_scaling_factor":2.0}}})");
  const ConfigPtr config = config_of(c.get(), 0);
  EXPECT_EQ(number(config, "/top_k"), 1);
  EXPECT_EQ(number(config, "/routing/renormalize"), false);
  EXPECT_EQ(number(config, "/routing/routed_scaling_factor"), 2.0);
  EXPECT_EQ(number(config_of(open_model(out, R"({"overrides":{"top_k":2}})").get(), 0), "/top_k"), 2);
  const CheckpointPtr plain = open_model(out, R"({"overrides":{"quantization":null,"top_k":2}})");
  EXPECT_EQ(number(config_of(plain.get(), 0), "/quantization/format"), "none");
}

TEST_F(ConvertFolder, PassesOverLayersThatAreNotUnderstood) {
  model.more = R"(,"per_layer_config":{"2":{"skip":["mlp"]}})";
  model.write(at);
  const CheckpointPtr c = open_model(at);
  ASSERT_EQ(info_of(c.get(), 2).kind, MOE_LAYER_OTHER);
  ASSERT_EQ(convert(out, c.get()).status, MOE_OK);
  EXPECT_EQ(content(out).count("layer-00002.moe"), 0u);
  EXPECT_EQ(content(out).count("layer-00003.moe"), 1u);
  const std::int64_t strange = 2;  // not one that is asked for
  options.layers = &strange;
  options.num_layers = 1;
  EXPECT_EQ(convert(dir.file("one"), c.get()).details["reason"], "not_understood");
  options.layers = nullptr;
  options.num_layers = 0;
  model.class_name = "LlamaForCausalLM";
  model.write(at);
  const Failure f = convert(dir.file("none"), open_model(at).get());
  EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED);
  EXPECT_THAT(f.message, HasSubstr("LlamaForCausalLM"));
  EXPECT_FALSE(std::filesystem::exists(dir.file("none")));
}

// A folder decides the layouts of its layers, when they are loaded and when a conversion goes on.
TEST_F(ConvertFolder, NamesItsLayoutWhereNoKernelReadsIt) {
  ASSERT_EQ(convert(out).status, MOE_OK);
  const nlohmann::json manifest = nlohmann::json::parse(file_text(out + "/manifest.json"));
  const std::string own = manifest["layers"][0]["layout"], other = "p16/int8-g32,cw/1";
  edit("manifest.json", own, other);
  for (const Failure& f : {load(open_model(out), 0), convert(out)}) {
    EXPECT_EQ(f.status, MOE_ERR_NO_BACKEND) << f.message;
    EXPECT_EQ(f.details["stored_layout"], other);
    EXPECT_EQ(f.details["layout"], own);
    EXPECT_THAT(f.message, HasSubstr("packed as " + other + " in " + out + "; this machine would take " + own));
    EXPECT_TRUE(f.details["candidates"].is_array());
  }
}

TEST_F(ConvertFolder, SaysWhatOfItsOptionsIsTheCallers) {
  const std::string quantization = R"({"quantization_config":)" + model.quantization_config() + "}";
  ASSERT_EQ(convert(out).status, MOE_OK);
  EXPECT_EQ(describe(open_model(out).get())["quantization_from"], "config.json");
  EXPECT_EQ(describe(open_model(out, quantization).get())["quantization_from"], "options");
  const Failure f = convert(out, open_model(at, quantization).get());
  EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH);
  EXPECT_EQ(f.details["member"], "quantization_from");
}

// What a layer that is not converted yet holds is not known without its tensors.
TEST_F(ConvertFolder, TellsTheFormatOfItsLayersOnly) {
  model.plain = true;
  model.write(at);
  const std::int64_t one = 2;
  options.layers = &one;
  options.num_layers = 1;
  ASSERT_EQ(convert(out, open_model(at).get()).status, MOE_OK);
  const nlohmann::json layers = describe(open_model(out).get())["layers"];
  EXPECT_EQ(layers[2]["format"], "none");
  EXPECT_FALSE(layers[3].contains("format"));
}

TEST_F(ConvertFolder, ReportsPhasesAndBytesThatNeverGoBack) {
  std::uint64_t bytes = 0, total = 0;
  std::int64_t layers = 0;
  std::map<moe_phase, int> phases;
  const Asking asking([&](const moe_progress& p) {
    EXPECT_GE(p.bytes_done, bytes);
    EXPECT_GE(p.bytes_total, p.bytes_done);
    EXPECT_GE(p.layers_done, layers);
    EXPECT_EQ(p.layers_total, 3);
    bytes = p.bytes_done;
    total = p.bytes_total;
    layers = p.layers_done;
    ++phases[p.phase];
    EXPECT_EQ(p.unit, p.phase == MOE_PHASE_CONVERT ? MOE_UNIT_EXPERTS : MOE_UNIT_BYTES);
    return MOE_OK;
  });
  options.control = asking.control.get();
  ASSERT_EQ(convert(out).status, MOE_OK);
  EXPECT_EQ(bytes, total);
  for (const moe_phase p : {MOE_PHASE_HASH, MOE_PHASE_CONVERT, MOE_PHASE_SAVE}) EXPECT_GT(phases[p], 0) << p;
}

TEST_F(ConvertFolder, ACancelLeavesWholeLayers) {
  const Asking asking([&](const moe_progress& p) {
    return p.layer == 2 && p.phase == MOE_PHASE_SAVE && p.done == p.total ? MOE_ERR_CANCELLED : MOE_OK;
  });
  options.control = asking.control.get();
  EXPECT_EQ(convert(out).status, MOE_ERR_CANCELLED);
  EXPECT_EQ(content(out).size(), 3u);  // config.json, manifest.json, the first layer
  EXPECT_EQ(info_of(open_model(out).get(), 0).flags, static_cast<std::uint32_t>(MOE_LAYER_IS_CONVERTED));
  options.control = nullptr;
  ASSERT_EQ(convert(out).status, MOE_OK);
  ASSERT_EQ(convert(dir.file("whole")).status, MOE_OK);
  EXPECT_EQ(content(out), content(dir.file("whole")));
}

// A process that is killed at the n-th report.
TEST_F(ConvertFolder, AKillLeavesWholeLayersAndTheNextCallGoesOn) {
  ASSERT_EQ(convert(dir.file("whole")).status, MOE_OK);
  const auto whole = content(dir.file("whole"));
  int reports = 0;
  {
    const Asking counting([&](const moe_progress&) { return ++reports, MOE_OK; });
    options.control = counting.control.get();
    ASSERT_EQ(convert(dir.file("counted")).status, MOE_OK);
  }
  ASSERT_GT(reports, 8);
  for (int n = 1; n <= reports; n += share()) {
    SCOPED_TRACE(n);
    std::filesystem::remove_all(out);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(60);
      int seen = 0;
      const Asking asking([&](const moe_progress&) {
        if (++seen == n) ::kill(::getpid(), SIGKILL);
        return MOE_OK;
      });
      options.control = asking.control.get();
      ::_exit(convert(out).status);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    options.control = nullptr;
    if (std::filesystem::exists(out + "/manifest.json")) {  // every layer that it names is whole
      const CheckpointPtr c = open_model(out);
      const nlohmann::json manifest = nlohmann::json::parse(file_text(out + "/manifest.json"));
      for (const nlohmann::json& l : manifest["layers"])
        EXPECT_EQ(file_text(out + "/" + l["file"].get<std::string>()), whole.at(l["file"]));
    }
    ASSERT_EQ(convert(out).status, MOE_OK);
    EXPECT_EQ(content(out), whole);
  }
}

}  // namespace
}  // namespace moe::test::convert_folder_test
