// moe_checkpoint_open: what is found of each layer, what is refused, and that every header is read once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/model_dir.h"
#include "support/rooms.h"
#include "support/sanitizers.h"
#include "support/temp_dir.h"

namespace moe::test::open_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Open : public testing::Test {
 protected:
  TempDir dir;
  std::string at = dir.file("model");
  ModelDir model;

  CheckpointPtr written(const std::string& options = "") const {
    model.write(at);
    return open_model(at, options);
  }
};

TEST_F(Open, ListsTheLayers) {
  model.layers = 4;
  model.dense = {0, 2};
  const CheckpointPtr c = written();
  ASSERT_EQ(moe_checkpoint_layer_count(c.get()), 4);
  for (std::int64_t l = 0; l < 4; ++l) {
    const moe_layer_info info = info_of(c.get(), l);
    EXPECT_EQ(info.kind, l % 2 == 0 ? MOE_LAYER_DENSE : MOE_LAYER_EXPERTS);
    EXPECT_EQ(info.flags, 0u);
    EXPECT_STREQ(info.problem, "");
    if (l % 2 == 0) continue;
    EXPECT_EQ(info.num_experts, model.E);
    EXPECT_EQ(info.hidden_dim, model.H);
    EXPECT_EQ(info.intermediate_size, model.I);
    EXPECT_EQ(info.top_k, model.K);
    EXPECT_EQ(info.name, "model.layers." + std::to_string(l) + ".mlp.experts");
    EXPECT_EQ(info.bytes,
              static_cast<std::uint64_t>(model.E * 3 * model.H * model.I * (model.group + 2) / model.group));
  }
  const nlohmann::json d = describe(c.get());
  EXPECT_EQ(d["class"], "Qwen3MoeForCausalLM");
  EXPECT_EQ(d["dtype"], "bfloat16");
  EXPECT_EQ(d["quantization_from"], "config.json");
  EXPECT_EQ(d["layers"][1]["format"], "int-quantized");
  EXPECT_THAT(d["layers"][1]["router"], ElementsAre("model.layers.1.mlp.gate.weight"));
  EXPECT_EQ(d["layers"][0]["kind"], "dense");
  EXPECT_FALSE(d.contains("converted"));
  EXPECT_EQ(moe_checkpoint_layer_count(nullptr), 0);
}

TEST_F(Open, SaysWhyThereIsNoConfig) {
  model.dense = {1};
  const CheckpointPtr c = written();
  const Failure dense = config_failure(c.get(), 1), past = config_failure(c.get(), 3),
                before = config_failure(c.get(), -1);
  EXPECT_EQ(dense.status, MOE_ERR_INVALID_CONFIG);
  EXPECT_EQ(dense.details["reason"], "dense_layer");
  for (const Failure& f : {past, before}) {
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.details["reason"], "past_the_end");
    EXPECT_EQ(f.subject, "layer");
  }
  moe_layer_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(moe_checkpoint_layer_info(c.get(), 3, &info, nullptr), MOE_ERR_INVALID_ARGUMENT);
}

TEST_F(Open, LayersThatAreNotUnderstoodDoNotKeepTheOthersClosed) {
  model.more = R"(,"num_experts_per_tok":2)";  // twice: no JSON that anyone can read
  model.write(at);
  const Failure f = open_failure(at);
  EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG);
  EXPECT_EQ(f.subject, at + "/config.json");

  model.more = "";
  model.class_name = "LlamaForCausalLM";
  const CheckpointPtr c = written();
  ASSERT_EQ(moe_checkpoint_layer_count(c.get()), 3);
  const moe_layer_info info = info_of(c.get(), 1);
  EXPECT_EQ(info.kind, MOE_LAYER_OTHER);
  EXPECT_THAT(info.problem, HasSubstr("LlamaForCausalLM"));
  const Failure none = config_failure(c.get(), 1);
  EXPECT_EQ(none.status, MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(none.details["reason"], "not_understood");
  EXPECT_THAT(describe(c.get())["layers"][1]["problem"], HasSubstr("LlamaForCausalLM"));

  // The option says which class to read it like.
  const std::string as = R"({"architecture":"Qwen3MoeForCausalLM","overrides":{"num_experts":4}})";
  EXPECT_EQ(open_failure(at, R"({"architecture":"Qwen3MoeForCausalLMM"})").subject, "options:/architecture");
  EXPECT_EQ(info_of(open_model(at, as).get(), 1).kind, MOE_LAYER_EXPERTS);
  model.class_name = "Qwen3MoeForCausalLM";
  std::string text = model.config();
  text.replace(text.find("Qwen3Moe"), 8, "Qwen9Moe");
  dir.write("model/config.json", text);
  EXPECT_EQ(info_of(open_model(at).get(), 1).kind, MOE_LAYER_OTHER);
  EXPECT_EQ(info_of(open_model(at, R"({"architecture":"Qwen3MoeForCausalLM"})").get(), 1).kind, MOE_LAYER_EXPERTS);
}

TEST_F(Open, MultiTokenPredictionComesLast) {
  model.class_name = "DeepseekV3ForCausalLM";
  const auto members = [](int predicted) {
    return R"(,"n_routed_experts":4,"first_k_dense_replace":1,"moe_layer_freq":1,"n_group":1,"topk_group":1,)"
           R"("n_shared_experts":1,"norm_topk_prob":true,"routed_scaling_factor":1.0,"scoring_func":"sigmoid",)"
           R"("topk_method":"noaux_tc","num_nextn_predict_layers":)" +
           std::to_string(predicted);
  };
  model.layers = 3;
  model.dense = {0};
  model.more = members(1);
  model.write(at);
  {  // the files have three layers, config.json tells of a fourth
    const CheckpointPtr c = open_model(at);
    ASSERT_EQ(moe_checkpoint_layer_count(c.get()), 4);
    EXPECT_EQ(info_of(c.get(), 0).kind, MOE_LAYER_DENSE);
    EXPECT_EQ(info_of(c.get(), 2).kind, MOE_LAYER_EXPERTS);
    const moe_layer_info last = info_of(c.get(), 3);
    EXPECT_EQ(last.kind, MOE_LAYER_OTHER);
    EXPECT_EQ(last.flags, static_cast<std::uint32_t>(MOE_LAYER_IS_MTP));
    EXPECT_THAT(last.problem, HasSubstr("multi-token prediction"));
    EXPECT_STREQ(last.name, "");
    EXPECT_EQ(last.num_experts, 0);
  }
  std::string text = model.config();  // now the third of them is that layer
  text.replace(text.find("\"num_hidden_layers\":3"), 21, "\"num_hidden_layers\":2");
  dir.write("model/config.json", text);
  const CheckpointPtr c = open_model(at);
  ASSERT_EQ(moe_checkpoint_layer_count(c.get()), 3);
  EXPECT_EQ(info_of(c.get(), 1).flags, 0u);
  EXPECT_EQ(info_of(c.get(), 2).kind, MOE_LAYER_EXPERTS);
  EXPECT_EQ(info_of(c.get(), 2).flags, static_cast<std::uint32_t>(MOE_LAYER_IS_MTP));
}

TEST_F(Open, RefusesWhatIsNoModel) {
  EXPECT_EQ(open_failure(dir.file("nothing")).status, MOE_ERR_IO);
  EXPECT_EQ(open_failure(dir.file("nothing")).subject, dir.file("nothing") + "/config.json");
  model.write(at);
  const Failure file = open_failure(at + "/config.json");
  EXPECT_EQ(file.status, MOE_ERR_IO);
  EXPECT_THAT(file.message, HasSubstr("ENOTDIR"));
  EXPECT_EQ(open_failure("").status, MOE_ERR_INVALID_ARGUMENT);
  for (const char* options : {R"({"layer_index":1})", R"({"module":"x"})"}) {
    const Failure f = open_failure(at, options);
    EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG);
    EXPECT_THAT(f.subject, HasSubstr("options:/"));
  }
  EXPECT_EQ(open_failure(at, "[]").subject, "options:");
  EXPECT_EQ(open_failure(at, "{").subject, "options:");
  EXPECT_EQ(open_failure(at, R"({"topk":2})").subject, "options:/topk");
  std::filesystem::remove(at + "/" + model.shard(1));
  const Failure shard = open_failure(at);
  EXPECT_EQ(shard.status, MOE_ERR_IO);
  EXPECT_THAT(shard.message, HasSubstr("incomplete download"));
  std::filesystem::remove(at + "/config.json");
  EXPECT_EQ(open_failure(at).subject, at + "/config.json");
}

// No layer is there that could say it.
TEST_F(Open, SaysWhyTheNumberOfLayersIsNotKnown) {
  model.write(at);
  const std::string config = file_text(at + "/config.json");
  const std::string member = "\"num_hidden_layers\":3";
  const std::size_t place = config.find(member);
  ASSERT_NE(place, std::string::npos) << config;
  for (const char* value : {"0", "-1", "\"2\"", "65537", "null"}) {
    dir.write("model/config.json",
              std::string(config).replace(place, member.size(), std::string("\"num_hidden_layers\":") + value));
    const Failure f = open_failure(at);
    EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG) << value;
    EXPECT_THAT(f.subject, HasSubstr("num_hidden_layers")) << value;
  }
}

// What a download that broke off lacks; a link whose blob is not there is no file that is not there.
TEST_F(Open, IncompleteDownloadsAreSeen) {
  model.write(at);
  std::filesystem::remove(at + "/model.safetensors.index.json");
  std::filesystem::remove(at + "/" + model.shard(1));
  const CheckpointPtr c = open_model(at);
  EXPECT_EQ(info_of(c.get(), 1).kind, MOE_LAYER_EXPERTS);
  EXPECT_THAT(info_of(c.get(), 1).problem, HasSubstr("incomplete download"));
  EXPECT_STREQ(info_of(c.get(), 0).problem, "");
  const auto expect_missing = [&](const CheckpointPtr& from) {
    const std::string to = dir.file("converted");
    const Failure f =
        failure([&](moe_error** e) { return moe_checkpoint_convert(nullptr, from.get(), to.c_str(), nullptr, e); });
    EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT) << f.message;
    EXPECT_FALSE(std::filesystem::exists(to));  // also layer 0 is not written
  };
  expect_missing(c);
  ModelDir fewer = model;  // half a layer
  fewer.E = 3;
  fewer.write(dir.file("fewer"));
  std::filesystem::copy(dir.file("fewer") + "/" + model.shard(1), at + "/" + model.shard(1));
  expect_missing(open_model(at));
  for (const char* file : {"hf_quant_config.json", "quantize_config.json", "model.safetensors.index.json"}) {
    std::filesystem::create_symlink("../blobs/none", at + "/" + file);
    const Failure f = open_failure(at);
    EXPECT_EQ(f.status, MOE_ERR_IO);
    EXPECT_EQ(f.subject, at + "/" + file);
    EXPECT_THAT(f.message, HasSubstr("incomplete download"));
    std::filesystem::remove(at + "/" + file);
  }
}

TEST_F(Open, FollowsTheLinksOfAHubCache) {
  model.write(dir.file("blobs"));
  std::filesystem::create_directories(at);
  for (const auto& e : std::filesystem::directory_iterator(dir.file("blobs")))
    std::filesystem::create_symlink(e.path(), at + "/" + e.path().filename().string());
  EXPECT_EQ(info_of(open_model(at).get(), 0).kind, MOE_LAYER_EXPERTS);
}

TEST_F(Open, WithoutAnIndexAllFilesCount) {
  model.write(at);
  std::filesystem::remove(at + "/model.safetensors.index.json");
  EXPECT_EQ(describe(open_model(at).get())["files"], 3);
}

TEST_F(Open, AFileThatIsCutAfterwardsIsAnError) {
  const CheckpointPtr c = written();
  std::filesystem::resize_file(at + "/" + model.shard(1), 2000);
  moe_layer* layer = nullptr;
  const Failure f =
      failure([&](moe_error** e) { return moe_checkpoint_layer(nullptr, c.get(), 1, nullptr, &layer, e); });
  EXPECT_EQ(layer, nullptr);
  EXPECT_EQ(f.status, MOE_ERR_IO);
  EXPECT_THAT(f.subject, HasSubstr(model.shard(1)));
}

#if !MOE_SANITIZED
// Bytes that this process has read from files.
std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string word;
  std::uint64_t n = 0;
  io >> word >> n;
  return word == "rchar:" ? n : 0;
}

TEST_F(Open, EachHeaderIsReadOnce) {
  model.layers = 6;
  model.write(at);
  if (bytes_read() == 0) GTEST_SKIP() << "/proc/self/io is not readable here";
  std::uint64_t headers =
      file_text(at + "/config.json").size() + file_text(at + "/model.safetensors.index.json").size();
  for (std::int64_t l = 0; l < model.layers; ++l) {
    std::uint64_t n = 0;
    const std::string text = file_text(at + "/" + model.shard(l));
    std::memcpy(&n, text.data(), 8);
    headers += 8 + n;
  }
  const std::uint64_t looking = bytes_read(), before = bytes_read(), own = before - looking;
  const CheckpointPtr c = open_model(at);
  std::uint64_t after = bytes_read();
  EXPECT_LE(after - before, headers + own);
  for (std::int64_t l = 0; l < model.layers; ++l) {
    const std::uint64_t start = bytes_read();
    const ConfigPtr config = config_of(c.get(), l);
    const WeightsPtr weights =
        make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
    EXPECT_EQ(moe_weights_load_checkpoint(weights.get(), c.get(), nullptr), MOE_OK);
    EXPECT_LE(bytes_read() - start, own) << "layer " << l;
  }
}
#endif

}  // namespace
}  // namespace moe::test::open_test
