// Selection: any config on any described machine. It ends; the candidates are asked in the order of their priorities
// and the first that accepts is taken; each refused one says why; libmoe's winner wins again when it is named; and
// the same question has the same answer twice.
//
//   input: the layer (tiny.h), then one byte for each word of the config and of the platform
#include <cstring>

#include "fuzz/tiny.h"

namespace {

using namespace moe::fuzz;

constexpr std::array<const char*, 14> kConfigWords = {R"("routing":{"scoring_func":"sigmoid"})",
                                                      R"("routing":{"method":"custom"})",
                                                      R"("routing":{"method":"topk"})",
                                                      R"("selection_policy":"vllm")",
                                                      R"("bit_compat":"vllm")",
                                                      R"("compute":"a8")",
                                                      R"("activation_quant":"block32")",
                                                      R"("parallel":{"tp_size":2,"tp_rank":1})",
                                                      R"("parallel":{"tp_size":2,"enable_expert_parallel":true})",
                                                      R"("marlin_input_dtype":"int8")",
                                                      R"("emulation_layout":"dense")",
                                                      R"("max_num_tokens":1)",
                                                      R"("compute":"a4")",
                                                      R"("compute":"mxfp8")"};
constexpr std::array<const char*, 9> kBackends = {"auto",     "cpu",    "marlin",         "emulation",        "xpu",
                                                  "cpu_int4", "triton", "batched_marlin", "flashinfer_trtllm"};
constexpr std::array<const char*, 8> kMachines = {R"("type":"cpu","arch":"x86_64")",
                                                  R"("type":"cpu","arch":"aarch64")",
                                                  R"("type":"cuda","capability":[8,0])",
                                                  R"("type":"cuda","capability":[9,0])",
                                                  R"("type":"rocm","gfx":"gfx942")",
                                                  R"("type":"xpu")",
                                                  R"("type":"tpu")",
                                                  R"("type":"oot")"};
constexpr std::array<const char*, 10> kFeatures = {"avx2",     "fma",         "f16c",        "avx512f", "avx512bw",
                                                   "avx512vl", "avx512_vnni", "avx512_bf16", "dotprod", "i8mm"};

std::string words_of_config(Producer& p) {
  std::string s;
  for (std::size_t i = 0, n = p.below(4); i < n; ++i) s += std::string(",") + p.pick(kConfigWords);
  return s + ",\"moe_backend\":\"" + p.pick(kBackends) + "\"";
}

std::string machine_of(Producer& p) {
  std::string s = std::string("{") + p.pick(kMachines);
  if (p.flag()) s += R"(,"libs":{"flashinfer":true,"torch_dyn_quant_4bit":true})";
  const std::uint32_t chosen = static_cast<std::uint32_t>(p.byte()) << 8 | p.byte();
  std::string features;
  for (std::size_t i = 0; i < kFeatures.size(); ++i)
    if ((chosen >> i & 1) != 0) features += (features.empty() ? "\"" : ",\"") + std::string(kFeatures[i]) + "\"";
  return s + ",\"features\":[" + features + "]}";
}

std::string text_of(const moe_selection* selection) {
  moe_buffer* text = nullptr;
  MOE_REQUIRE(moe_selection_to_json(selection, &text, nullptr) == MOE_OK);
  std::string s(static_cast<const char*>(moe_buffer_data(text)), moe_buffer_size(text));
  moe_buffer_destroy(text);
  return s;
}

void check_candidates(const moe_selection* selection) {
  const bool found = *moe_selection_backend(selection) != 0;
  int chosen = 0, last = -1;
  const std::size_t count = moe_selection_candidate_count(selection);
  for (std::size_t i = 0; i < count; ++i) {
    moe_candidate c{};
    c.struct_size = sizeof c;
    MOE_REQUIRE(moe_selection_candidate(selection, i, &c, nullptr) == MOE_OK);
    MOE_REQUIRE(c.priority >= last);
    last = c.priority;
    MOE_REQUIRE((c.reason == MOE_REJECT_NONE) == (*c.detail == 0) && std::strcmp(moe_reject_name(c.reason), "") != 0);
    if (c.chosen == 0) {
      MOE_REQUIRE(c.reason != MOE_REJECT_NONE || chosen == 1);  // who accepts and is not taken comes later
      continue;
    }
    ++chosen;
    MOE_REQUIRE(c.reason == MOE_REJECT_NONE && std::strcmp(c.backend, moe_selection_backend(selection)) == 0);
    MOE_REQUIRE(std::strcmp(c.kernel, moe_selection_kernel(selection)) == 0);
  }
  MOE_REQUIRE(chosen == (found ? 1 : 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Producer p(data, size);
  const std::string words = words_of_config(p), machine = machine_of(p);
  const TinyLayer layer(p, words);
  const Config config = make_config(layer.text);
  const Platform platform = make_platform(machine);
  if (!config || !platform) return 0;
  const auto select = [&](const moe_config* c, std::uint64_t flags, moe_status* status) {
    return made<Selection>(
        [&](auto** o, auto** e) { return moe_select_backend(nullptr, c, platform.get(), flags, o, e); }, status);
  };
  moe_status status = MOE_OK;
  const Selection explained = select(config.get(), MOE_SELECT_EXPLAIN_ONLY, &status);
  const Selection again = select(config.get(), MOE_SELECT_EXPLAIN_ONLY, nullptr);
  MOE_REQUIRE((explained == nullptr) == (again == nullptr));
  if (!explained) return 0;  // a word that this oracle does not know
  MOE_REQUIRE(text_of(explained.get()) == text_of(again.get()));
  check_candidates(explained.get());
  const std::string backend = moe_selection_backend(explained.get()), kernel = moe_selection_kernel(explained.get());
  const Selection taken = select(config.get(), 0, &status);
  const bool refused = status == MOE_ERR_NO_BACKEND || status == MOE_ERR_INVALID_CONFIG;  // a word without a row
  MOE_REQUIRE(backend.empty() ? refused : status == MOE_OK);
  if (!taken || words.find("\"selection_policy\":\"vllm\"") != std::string::npos) return 0;  // its names are vLLM's
  const std::string patch = "{\"moe_backend\":\"" + backend + "\"}";
  const Config named = made<Config>(
      [&](auto** o, auto** e) { return moe_config_merge(config.get(), patch.data(), patch.size(), o, e); });
  if (!named) return 0;
  const Selection same = select(named.get(), 0, &status);
  MOE_REQUIRE(same && moe_selection_kernel(same.get()) == kernel);
  return 0;
}
