// Files and names of unquantized weights with all experts in one tensor: against the same numbers by role.
#include <gtest/gtest.h>

#include <set>

#include "support/float8_model.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/weight_files.h"

namespace moe::test::stacks_test {
namespace {

using nlohmann::json;

constexpr const char* kModule = "model.layers.0.mlp.experts";

struct StackCase {
  const char *name, *order, *stacked;
  std::int64_t tp;
  const char* file = stacked;  // what the tensors have
};
void PrintTo(const StackCase& c, std::ostream* out) { *out << c.name; }

class Stacks : public ::testing::TestWithParam<StackCase> {};

// The same numbers by role, row by row.
TEST_P(Stacks, GiveTheBytesOfTheirRoles) {
  const StackCase& c = GetParam();
  constexpr std::int64_t E = 3, H = 64, I = 32;
  const bool pairs = std::string(c.order) == "interleaved", columns = std::string(c.file) == "columns_first";
  const auto value = [](int matrix, std::int64_t e, std::int64_t n, std::int64_t k) {  // 0 gate, 1 up, 2 down
    return static_cast<float>((matrix * 37 + e * 11 + n * 5 + k * 3) % 101 - 50) / 64.0f;
  };
  const auto row_of_w13 = [&](std::int64_t r) {  // which half, and its row
    const bool up = pairs ? r % 2 == 1 : (r >= I) != (std::string(c.order) == "up_gate");
    return std::pair(up ? 1 : 0, pairs ? r / 2 : r % I);
  };
  std::vector<float> w13, w2, b13, b2;
  for (std::int64_t e = 0; e < E; ++e) {
    for (std::int64_t i = 0; i < 2 * I * H; ++i) {
      const auto [half, row] = row_of_w13(columns ? i % (2 * I) : i / H);
      w13.push_back(value(half, e, row, columns ? i / (2 * I) : i % H));
    }
    for (std::int64_t i = 0; i < H * I; ++i)
      w2.push_back(columns ? value(2, e, i % H, i / H) : value(2, e, i / I, i % I));
    for (std::int64_t r = 0; r < 2 * I; ++r) b13.push_back(value(row_of_w13(r).first, e, row_of_w13(r).second, 99));
    for (std::int64_t r = 0; r < H; ++r) b2.push_back(value(2, e, r, 99));
  }
  const std::vector<std::int64_t> shape13 = columns ? std::vector<std::int64_t>{E, H, 2 * I}
                                                    : std::vector<std::int64_t>{E, 2 * I, H},
                                  shape2 =
                                      columns ? std::vector<std::int64_t>{E, I, H} : std::vector<std::int64_t>{E, H, I};
  const std::string at = kModule;
  const std::vector<OwnedTensor> tensors = {
      {at + ".gate_up_proj", -1, "", MOE_DTYPE_F32, shape13, bytes_of(w13)},
      {at + ".gate_up_proj_bias", -1, "", MOE_DTYPE_F32, {E, 2 * I}, bytes_of(b13)},
      {at + ".down_proj", -1, "", MOE_DTYPE_F32, shape2, bytes_of(w2)},
      {at + ".down_proj_bias", -1, "", MOE_DTYPE_F32, {E, H}, bytes_of(b2)}};
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  for (std::int64_t rank = 0; rank < c.tp; ++rank) {
    const json document = {{"name", kModule},
                           {"num_experts", E},
                           {"top_k", 2},
                           {"hidden_dim", H},
                           {"intermediate_size", I},
                           {"in_dtype", "float32"},
                           {"has_bias", true},
                           {"w13_layout", c.order},
                           {"stacked_weights", c.stacked},
                           {"parallel", {{"tp_size", c.tp}, {"tp_rank", rank}}}};
    const ConfigPtr config = make_config(document.dump());
    ASSERT_TRUE(config);
    const std::int64_t part = I / c.tp, first = rank * part;
    std::vector<OwnedTensor> roles;
    for (std::int64_t e = 0; e < E; ++e)
      for (int matrix = 0; matrix < 3; ++matrix) {
        const std::int64_t rows = matrix == 2 ? H : part, ks = matrix == 2 ? part : H;
        std::vector<float> w, b;
        for (std::int64_t n = 0; n < rows; ++n) {
          for (std::int64_t k = 0; k < ks; ++k)
            w.push_back(matrix == 2 ? value(2, e, n, first + k) : value(matrix, e, first + n, k));
          b.push_back(value(matrix, e, matrix == 2 ? n : first + n, 99));
        }
        const std::string role = matrix == 2 ? "w2_" : "w13_", shard = matrix == 0 ? "w1" : matrix == 1 ? "w3" : "w2";
        roles.push_back({role + "weight", e, shard, MOE_DTYPE_F32, {rows, ks}, bytes_of(w)});
        roles.push_back({role + "bias", e, shard, MOE_DTYPE_F32, {rows}, bytes_of(b)});
      }
    expect_one_way_as_the_other(config.get(), dir, tensors, roles);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, Stacks,
                         ::testing::Values(StackCase{"gpt_oss", "interleaved", "columns_first", 1},
                                           StackCase{"gpt_oss_ranks", "interleaved", "columns_first", 2},
                                           StackCase{"llama4", "gate_up", "columns_first", 1},
                                           StackCase{"llama4_ranks", "gate_up", "columns_first", 2},
                                           StackCase{"rows", "gate_up", "rows_first", 1},
                                           StackCase{"rows_ranks", "gate_up", "rows_first", 2},
                                           StackCase{"up_first_ranks", "up_gate", "rows_first", 2},
                                           StackCase{"pairs_ranks", "interleaved", "rows_first", 2},
                                           // The shapes tell: gate_up_proj is square, down_proj is not.
                                           StackCase{"shapes_columns", "gate_up", "by_shape", 1, "columns_first"},
                                           StackCase{"shapes_rows", "gate_up", "by_shape", 2, "rows_first"},
                                           StackCase{"shapes_pairs", "interleaved", "by_shape", 2, "columns_first"},
                                           StackCase{"other_columns", "up_gate", "rows_first", 2, "columns_first"},
                                           StackCase{"other_rows", "gate_up", "columns_first", 2, "rows_first"}),
                         [](const auto& test) { return std::string(test.param.name); });

// Without the word, or under both names, nothing is guessed.
TEST(StackRefusals, NamesThatTheConfigDoesNotSpeakOf) {
  const json document = {{"name", kModule},  {"num_experts", 1},        {"top_k", 1},
                         {"hidden_dim", 64}, {"intermediate_size", 32}, {"in_dtype", "float32"}};
  std::vector<OwnedTensor> tensors = {
      {std::string(kModule) + ".gate_up_proj", -1, "", MOE_DTYPE_F32, {1, 64, 64}, std::vector<std::byte>(16384)},
      {std::string(kModule) + ".down_proj", -1, "", MOE_DTYPE_F32, {1, 64, 32}, std::vector<std::byte>(8192)}};
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  const ConfigPtr plain = make_config(document.dump());
  const SelectionPtr selection = make_selection(plain.get());
  const WeightsPtr weights = weights_of(plain.get());
  const Failure unknown = load(weights.get(), dir);
  EXPECT_EQ(unknown.status, MOE_ERR_UNEXPECTED_WEIGHT);
  EXPECT_NE(unknown.message.find("stacked_weights"), std::string::npos) << unknown.message;
  const Failure f = failure([&](moe_error** e) {
    moe_packed* p = nullptr;
    return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &p, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
  json told = document;
  told["stacked_weights"] = "rows_first";
  const ConfigPtr config = make_config(told.dump());
  const WeightsPtr stacked = weights_of(config.get());
  EXPECT_EQ(load(stacked.get(), dir).status, MOE_OK);
  tensors.push_back(
      {std::string(kModule) + ".0.up_proj.weight", -1, "", MOE_DTYPE_F32, {32, 64}, std::vector<std::byte>(8192)});
  const TempDir both;
  both.write("model.safetensors", safetensors_of(tensors));
  EXPECT_EQ(load(weights_of(config.get()).get(), both).status, MOE_ERR_UNEXPECTED_WEIGHT);
}

// gate_up_proj [E, 64, 64] alone tells nothing: it is taken as the word says until down_proj comes, in any call.
TEST(Stacks, OfSquareMatricesAwaitTheOther) {
  constexpr std::int64_t E = 2, H = 64, I = 32;
  const std::string at = kModule;
  const auto numbers = [](std::int64_t count) {
    std::vector<float> v;
    for (std::int64_t i = 0; i < count; ++i) v.push_back(static_cast<float>(i % 251) / 64.0f);
    return v;
  };
  const OwnedTensor w13 = {
      at + ".gate_up_proj", -1, "", MOE_DTYPE_F32, {E, H, 2 * I}, bytes_of(numbers(E * H * 2 * I))};
  const OwnedTensor w2 = {at + ".down_proj", -1, "", MOE_DTYPE_F32, {E, I, H}, bytes_of(numbers(E * I * H))};
  OwnedTensor turned = w2;
  turned.shape = {E, H, I};
  for (const char* word : {"rows_first", "by_shape"}) {
    const json document = {{"name", at},
                           {"num_experts", E},
                           {"top_k", 1},
                           {"hidden_dim", H},
                           {"intermediate_size", I},
                           {"in_dtype", "float32"},
                           {"stacked_weights", word}};
    const ConfigPtr config = make_config(document.dump());
    const SelectionPtr selection = make_selection(config.get());
    ASSERT_TRUE(selection);
    const TempDir both, first, second;
    both.write("model.safetensors", safetensors_of({w13, w2}));
    first.write("model.safetensors", safetensors_of({w13}));
    second.write("model.safetensors", safetensors_of({w2}));
    const WeightsPtr whole = weights_of(config.get()), parts = weights_of(config.get());
    EXPECT_EQ(load(whole.get(), both).status, MOE_OK);
    EXPECT_EQ(load(parts.get(), first).status, MOE_OK);
    EXPECT_EQ(load(parts.get(), second).status, MOE_OK);
    std::vector<std::vector<std::byte>> packed;
    for (moe_weights* w : {whole.get(), parts.get()}) {
      const PackedPtr p = packed_of(selection.get(), w);
      ASSERT_TRUE(p);
      const void* data = nullptr;
      std::uint64_t size = 0;
      ASSERT_EQ(moe_packed_data(p.get(), &data, &size, nullptr), MOE_OK);
      packed.emplace_back(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + size);
      std::vector<float> got(static_cast<std::size_t>(2 * I * H));
      const moe_tensor out = tensor(MOE_DTYPE_F32, {2 * I, H}, got.data());
      ASSERT_EQ(moe_packed_dequantize(p.get(), "w13_weight", 1, &out, nullptr), MOE_OK);
      EXPECT_EQ(got[1], static_cast<float>((H * 2 * I + 2 * I) % 251) / 64.0f);  // row 0, column 1 of expert 1
    }
    EXPECT_EQ(packed[0], packed[1]);
    // A layer's stacks have one order.
    std::int32_t taken = 0;
    const Failure mixed = set_named(whole.get(), turned, taken);
    EXPECT_EQ(mixed.status, MOE_ERR_SHAPE);
    EXPECT_NE(mixed.message.find("rows first"), std::string::npos) << mixed.message;
  }
}

// Apart and square, nothing ever tells.
TEST(StackRefusals, SquareMatricesWithoutAWord) {
  const std::string at = kModule;
  json document = {{"name", at},
                   {"num_experts", 1},
                   {"top_k", 1},
                   {"hidden_dim", 64},
                   {"intermediate_size", 64},
                   {"in_dtype", "float32"},
                   {"stacked_weights", "by_shape"},
                   {"stacked_names", {"gate_proj", "up_proj", "down_proj"}}};
  std::vector<OwnedTensor> tensors;
  for (const char* name : {".gate_proj", ".up_proj", ".down_proj"})
    tensors.push_back({at + name, -1, "", MOE_DTYPE_F32, {1, 64, 64}, std::vector<std::byte>(16384)});
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  const ConfigPtr config = make_config(document.dump());
  ASSERT_TRUE(config);
  const Failure f = load(weights_of(config.get()).get(), dir);
  EXPECT_EQ(f.status, MOE_ERR_SHAPE);
  EXPECT_NE(f.message.find("stacked_weights"), std::string::npos) << f.message;
  document["stacked_weights"] = "columns_first";
  const ConfigPtr told = make_config(document.dump());
  EXPECT_EQ(load(weights_of(told.get()).get(), dir).status, MOE_OK);
}

// gate_up_proj is the same in both orders, and w2 comes by its role: nothing tells.
TEST(StackRefusals, ASquareStackThatStaysAlone) {
  constexpr std::int64_t E = 2, H = 64, I = 32;
  const json document = {{"name", kModule},
                         {"num_experts", E},
                         {"top_k", 1},
                         {"hidden_dim", H},
                         {"intermediate_size", I},
                         {"in_dtype", "float32"},
                         {"stacked_weights", "by_shape"}};
  const ConfigPtr config = make_config(document.dump());
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr weights = weights_of(config.get());
  const OwnedTensor w13 = {std::string(kModule) + ".gate_up_proj", -1, "", MOE_DTYPE_F32, {E, H, H},
                           std::vector<std::byte>(E * H * H * 4)};
  std::int32_t taken = 0;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(set_named(weights.get(), w13, taken).status, MOE_OK);
  const std::vector<float> values(E * H * I);
  const moe_tensor w2 = tensor(MOE_DTYPE_F32, {E, H, I}, values.data());
  ASSERT_EQ(moe_weights_set(weights.get(), "w2_weight", &w2, nullptr, nullptr, nullptr), MOE_OK);
  moe_packed* packed = nullptr;
  const Failure f = failure(
      [&](moe_error** e) { return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &packed, e); });
  EXPECT_EQ(f.status, MOE_ERR_SHAPE);
  EXPECT_EQ(f.subject, w13.name);
  EXPECT_NE(f.message.find("stacked_weights"), std::string::npos) << f.message;
}

// [E, N, K] with its last two dimensions in the other order.
OwnedTensor turned(OwnedTensor t) {
  const std::int64_t n = t.shape[1], k = t.shape[2];
  const std::size_t size = t.bytes.size() / static_cast<std::size_t>(t.shape[0] * n * k);
  const std::vector<std::byte> from = t.bytes;
  for (std::int64_t e = 0; e < t.shape[0]; ++e)
    for (std::int64_t i = 0; i < n * k; ++i)
      std::copy_n(from.data() + static_cast<std::size_t>(e * n * k + i) * size, size,
                  t.bytes.data() + static_cast<std::size_t>(e * n * k + i % k * n + i / k) * size);
  std::swap(t.shape[1], t.shape[2]);
  return t;
}

// The official Qwen3-VL-MoE in FP8 has columns first, scales too; with one scale an expert as Mistral-Small-4.
TEST(Stacks, OfFloat8InBothOrders) {
  for (const bool blocks : {true, false})
    for (const bool by_half : {true, false})
      for (const std::int64_t H : {128, 256}) {
        if (blocks && by_half) continue;
        Float8Model m = random_float8({.form = blocks ? kBlocks128 : kOneScale, .H = H, .I = 128}, 31);
        if (!blocks && !by_half)  // one scale for both halves
          for (std::size_t e = 0; e < m.gate.size(); ++e) m.up[e].scales = m.gate[e].scales;
        json q = {{"quant_method", "fp8"}, {"activation_scheme", blocks ? "dynamic" : "static"}};
        if (blocks) q["weight_block_size"] = {128, 128};
        const json hf = {{"architectures", {"Qwen3VLMoeForConditionalGeneration"}},
                         {"hidden_size", m.H},
                         {"moe_intermediate_size", m.I},
                         {"num_experts", m.E},
                         {"num_experts_per_tok", m.K},
                         {"num_hidden_layers", 1},
                         {"dtype", m.dtype},
                         {"quantization_config", q}};
        const std::string at = "model.language_model.layers.0.mlp.experts.";
        std::vector<OwnedTensor> rows;
        for (OwnedTensor t : stacked_roles(m)) {
          const bool w13 = t.name.starts_with("w13"), scale = t.name.ends_with("scale");
          t.name = at + (w13 ? "gate_up_proj" : "down_proj") + (scale ? "_scale_inv" : "");
          if (scale && !blocks && w13 && !by_half) {  // [E, 1, 1]
            const std::size_t size = t.bytes.size() / static_cast<std::size_t>(2 * m.E);
            std::vector<std::byte> each;
            for (std::int64_t e = 0; e < m.E; ++e)
              each.insert(
                  each.end(), t.bytes.begin() + static_cast<std::ptrdiff_t>(2 * e) * static_cast<std::ptrdiff_t>(size),
                  t.bytes.begin() + static_cast<std::ptrdiff_t>((2 * e + 1)) * static_cast<std::ptrdiff_t>(size));
            t.bytes = each;
            t.shape = {m.E, 1, 1};
          } else if (scale && !blocks) {
            t.shape = {m.E, w13 ? 2 : 1, 1};
          }
          rows.push_back(std::move(t));
        }
        if (!blocks)
          for (const char* name : {"gate_up_proj", "down_proj"})
            rows.push_back({at + name + "_activation_scale",
                            -1,
                            "",
                            MOE_DTYPE_F32,
                            {m.E},
                            bytes_of(std::vector<float>(static_cast<std::size_t>(m.E), 0.5f))});
        std::vector<OwnedTensor> columns = rows;
        for (OwnedTensor& t : columns)
          if (t.shape.size() == 3 && (blocks || !t.name.ends_with("scale_inv"))) t = turned(t);
        for (const std::vector<OwnedTensor>& tensors : {rows, columns})
          for (const char* options : {"{}", R"({"overrides":{"stacked_weights":"columns_first"}})"}) {
            const std::string text = hf.dump(), told = options;
            const ConfigPtr config = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
              return moe_config_create_from_hf(text.data(), text.size(), told.data(), told.size(), o, e);
            });
            ASSERT_TRUE(config);
            const TempDir dir;
            dir.write("model.safetensors", safetensors_of(tensors));
            expect_one_way_as_the_other(config.get(), dir, tensors, stacked_roles(m));
          }
      }
}

// A scale for each row, beside the stacks of Granite, of which a tool keeps the names.
TEST(Stacks, OfFloat8Channels) {
  for (const bool column : {true, false}) {
    const Float8Model m = random_float8({.form = kRowScales, .H = 128, .I = 64}, 41);
    const std::string at = "model.layers.0.block_sparse_moe.";
    const json hf = {{"architectures", {"GraniteMoeHybridForCausalLM"}},
                     {"hidden_size", m.H},
                     {"intermediate_size", m.I},
                     {"num_local_experts", m.E},
                     {"num_experts_per_tok", m.K},
                     {"num_hidden_layers", 1},
                     {"dtype", m.dtype},
                     {"quantization_config",
                      {{"quant_method", "compressed-tensors"},
                       {"format", "float-quantized"},
                       {"config_groups", {{"FP8_DYNAMIC", {"Linear", "re:.*input_linear", "re:.*output_linear"}}}}}}};
    std::vector<OwnedTensor> tensors;
    for (OwnedTensor t : stacked_roles(m)) {
      const bool scale = t.name.ends_with("scale");
      t.name =
          at + (t.name.starts_with("w13") ? "input_linear.weight" : "output_linear.weight") + (scale ? "_scale" : "");
      if (scale) t.shape.resize(2);
      if (scale && column) t.shape.push_back(1);
      tensors.push_back(std::move(t));
    }
    const std::string text = hf.dump();
    const ConfigPtr config = make<ConfigPtr>([&](moe_config** o, moe_error** e) {
      return moe_config_create_from_hf(text.data(), text.size(), nullptr, 0, o, e);
    });
    ASSERT_TRUE(config);
    const TempDir dir;
    dir.write("model.safetensors", safetensors_of(tensors));
    expect_one_way_as_the_other(config.get(), dir, tensors, stacked_roles(m));
  }
}

// Where no stack of a format is read, no option helps.
TEST(StackRefusals, OfFormatsWithoutStacks) {
  const json document = {
      {"name", kModule},
      {"num_experts", 2},
      {"top_k", 1},
      {"hidden_dim", 64},
      {"intermediate_size", 32},
      {"quantization",
       {{"format", "int-quantized"},
        {"weights", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}, {"symmetric", true}}},
        {"input_activations", {{"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}}}}}};
  const ConfigPtr config = make_config(document.dump());
  ASSERT_TRUE(config);
  const std::vector<OwnedTensor> tensors = {
      {std::string(kModule) + ".gate_up_proj", -1, "", MOE_DTYPE_I8, {2, 64, 64}, std::vector<std::byte>(8192)}};
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  const Failure f = load(weights_of(config.get()).get(), dir);
  EXPECT_EQ(f.status, MOE_ERR_UNEXPECTED_WEIGHT);
  EXPECT_NE(f.message.find("an export with each expert by itself"), std::string::npos) << f.message;
  EXPECT_EQ(f.message.find("The options"), std::string::npos) << f.message;
}

// FP8 in blocks, as a class that writes stacks has it: the config.json tells, names and bytes are those of its tensors.
TEST(Stacks, OfFloat8Blocks) {
  const Float8Model m = random_float8({.form = kBlocks128, .H = 256, .I = 128}, 21);
  const json hf = {{"architectures", {"Qwen3VLMoeForConditionalGeneration"}},
                   {"hidden_size", m.H},
                   {"moe_intermediate_size", m.I},
                   {"num_experts", m.E},
                   {"num_experts_per_tok", m.K},
                   {"num_hidden_layers", 1},
                   {"dtype", m.dtype},
                   {"quantization_config",
                    {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}}}};
  const std::string at = "model.language_model.layers.0.mlp.experts.";
  const std::vector<std::pair<std::string, std::string>> names = {{"w13_weight", "gate_up_proj"},
                                                                  {"w13_scale", "gate_up_proj_scale_inv"},
                                                                  {"w2_weight", "down_proj"},
                                                                  {"w2_scale", "down_proj_scale_inv"}};
  std::vector<OwnedTensor> tensors = stacked_roles(m);
  for (OwnedTensor& t : tensors)
    for (const auto& [role, name] : names)
      if (t.name == role) t.name = at + name;
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  const auto create = [&](const std::string& options) {
    const std::string text = hf.dump();
    return make<ConfigPtr>([&](moe_config** o, moe_error** e) {
      return moe_config_create_from_hf(text.data(), text.size(), options.data(), options.size(), o, e);
    });
  };
  const ConfigPtr config = create("{}");
  ASSERT_TRUE(config);
  expect_one_way_as_the_other(config.get(), dir, tensors, stacked_roles(m));
  const std::string query = json{{"config", hf}}.dump();
  const json told = json_of(
      [&](moe_buffer** o, moe_error** e) { return moe_describe("checkpoint", query.data(), query.size(), o, e); });
  std::set<std::string> expected, ours;
  for (const json& t : told["tensors"]) expected.insert(t["name"].get<std::string>() + t["shape"].dump());
  for (const OwnedTensor& t : tensors) ours.insert(t.name + json(t.shape).dump());
  EXPECT_EQ(expected, ours);
  // Where rows of gate and up alternate, blocks would hold both.
  const ConfigPtr pairs = create(json{{"overrides", {{"w13_layout", "interleaved"}}}}.dump());
  ASSERT_TRUE(pairs);
  const Failure f = load(weights_of(pairs.get()).get(), dir);
  EXPECT_EQ(f.status, MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(f.subject, at + "gate_up_proj_scale_inv") << f.message;
}

}  // namespace
}  // namespace moe::test::stacks_test
