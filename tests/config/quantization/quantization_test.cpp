// The member "quantization": schemes against their strict form, the rules between the arguments, formats.
#include "config/quantization/quantization.h"

#include <gtest/gtest.h>

#include "config/documents.h"
#include "support/rooms.h"

namespace moe::test::quantization_test {
namespace {

using nlohmann::json;

json quantization(const json& q) { return resolved_of(layer_document({{"quantization", q}}))["quantization"]; }
// Pointer below /quantization.
std::string fault(const json& q, const json& more = json::object()) {
  json d = layer_document(more);
  d["quantization"] = q;
  const std::string at = fault_of(d);
  const std::string base = "/quantization";
  return at.rfind(base, 0) == 0 ? at.substr(base.size()) : at;
}

TEST(Quantization, SchemesAreShortForms) {
  const json int8_token = {{"strategy", "token"}, {"dynamic", true}};
  const json fp8_token = {{"type", "float"}, {"strategy", "token"}, {"dynamic", true}};
  const json group4 = {{"num_bits", 4}, {"group_size", 128}};
  const json nvfp4 = {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}};
  const json mxfp4 = {{"num_bits", 4}, {"type", "float"}, {"group_size", 32}};
  const json mxfp8 = {{"type", "float"}, {"group_size", 32}};
  const auto with = [](json a, const json& more) {
    a.update(more);
    return a;
  };
  struct Row {
    const char* scheme;
    json strict;
  };
  const Row rows[] = {
      {"W4A16", {{"weights", group4}}},
      {"W4A16_ASYM", {{"weights", with(group4, {{"symmetric", false}})}}},
      {"W8A16", {{"weights", {{"group_size", 128}}}}},
      {"W8A8", {{"weights", {{"strategy", "channel"}}}, {"input_activations", int8_token}}},
      {"W4A8", {{"weights", group4}, {"input_activations", int8_token}}},
      {"W4AFP8", {{"weights", group4}, {"input_activations", fp8_token}}},
      {"FP8", {{"weights", {{"type", "float"}}}, {"input_activations", {{"type", "float"}}}}},
      {"FP8_DYNAMIC", {{"weights", {{"type", "float"}, {"strategy", "channel"}}}, {"input_activations", fp8_token}}},
      {"FP8_BLOCK",
       {{"weights", {{"type", "float"}, {"strategy", "block"}, {"block_structure", {128, 128}}}},
        {"input_activations", {{"type", "float"}, {"group_size", 128}, {"dynamic", true}}}}},
      {"NVFP4", {{"weights", nvfp4}, {"input_activations", with(nvfp4, {{"dynamic", "local"}})}}},
      {"NVFP4A16", {{"weights", nvfp4}}},
      {"MXFP4", {{"weights", mxfp4}, {"input_activations", with(mxfp4, {{"dynamic", true}})}}},
      {"MXFP4A16", {{"weights", mxfp4}}},
      {"MXFP8", {{"weights", mxfp8}, {"input_activations", with(mxfp8, {{"dynamic", true}})}}},
      {"MXFP8A16", {{"weights", mxfp8}}},
  };
  EXPECT_EQ(std::size(rows) + 1, presets().size());
  for (const Row& row : rows) {
    EXPECT_EQ(quantization({{"scheme", row.scheme}}), quantization(row.strict)) << row.scheme;
    std::string lower = row.scheme;
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(quantization({{"scheme", lower}}), quantization(row.strict)) << lower;
  }
  EXPECT_EQ(quantization({{"scheme", "None"}})["format"], "none");
  EXPECT_EQ(find_preset("W4A8 "), nullptr);
  EXPECT_EQ(find_preset(""), nullptr);
}

TEST(Quantization, GroupSizeOfAScheme) {
  for (const char* s : {"W4A16", "W4A16_ASYM", "W8A16", "W4A8", "W4AFP8"}) {
    EXPECT_EQ(quantization({{"scheme", s}, {"group_size", 64}})["weights"]["group_size"], 64);
    const json channel = quantization({{"scheme", s}, {"group_size", -1}})["weights"];
    EXPECT_EQ(channel["strategy"], "channel");
    EXPECT_EQ(channel["group_size"], nullptr);
  }
  for (const char* s : {"none", "W8A8", "FP8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4", "NVFP4A16", "MXFP4", "MXFP4A16",
                        "MXFP8", "MXFP8A16"})
    EXPECT_EQ(fault({{"scheme", s}, {"group_size", 32}}), "/group_size") << s;
}

TEST(Quantization, RulesBetweenArguments) {
  struct Row {
    json weights, activations;
    const char* pointer;
  };
  const json token = {{"strategy", "token"}, {"dynamic", true}};
  const Row rows[] = {
      {{{"num_bits", 3}}, nullptr, "/weights/num_bits"},
      {{{"num_bits", 6}, {"type", "float"}}, nullptr, "/weights/num_bits"},
      {{{"num_bits", 9}}, nullptr, "/weights/num_bits"},
      {{{"strategy", "token"}, {"dynamic", true}}, nullptr, "/weights/strategy"},
      {{{"strategy", "token"}}, nullptr, "/weights/dynamic"},
      {{{"dynamic", true}}, nullptr, "/weights/dynamic"},
      {{{"dynamic", "local"}, {"strategy", "tensor_group"}, {"group_size", 16}}, nullptr, "/weights/dynamic"},
      {{{"dynamic", "local"}}, nullptr, "/weights/dynamic"},
      {{{"dynamic", "yes"}}, nullptr, "/weights/dynamic"},
      {{{"dynamic", nullptr}}, nullptr, "/weights/dynamic"},
      {{{"strategy", "group"}}, nullptr, "/weights/group_size"},
      {{{"strategy", "group"}, {"group_size", -1}}, nullptr, "/weights/group_size"},
      {{{"strategy", "tensor_group"}}, nullptr, "/weights/group_size"},
      {{{"strategy", "channel"}, {"group_size", 32}}, nullptr, "/weights/group_size"},
      {{{"strategy", "block"}}, nullptr, "/weights/block_structure"},
      {{{"strategy", "channel"}, {"block_structure", {64, 64}}}, nullptr, "/weights/block_structure"},
      {{{"strategy", "block"}, {"block_structure", {64}}}, nullptr, "/weights/block_structure"},
      {{{"strategy", "block"}, {"block_structure", {0, 64}}}, nullptr, "/weights/block_structure/0"},
      {{{"strategy", "block"}, {"block_structure", {64, 65537}}}, nullptr, "/weights/block_structure/1"},
      {{{"strategy", "channel"}, {"actorder", "group"}}, nullptr, "/weights/actorder"},
      {{{"group_size", 32}, {"actorder", "sorted"}}, nullptr, "/weights/actorder"},
      {{{"group_size", 32}, {"actorder", 1}}, nullptr, "/weights/actorder"},
      {{{"group_size", 32}}, {{"strategy", "channel"}}, "/input_activations/strategy"},
      {{{"group_size", 32}}, {{"strategy", "token"}}, "/input_activations/dynamic"},
      {{{"group_size", 32}},
       {{"strategy", "token"}, {"dynamic", true}, {"actorder", "weight"}},
       "/input_activations/actorder"},
      {{{"group_size", 32}}, {{"dynamic", "local"}, {"group_size", 16}}, "/input_activations/dynamic"},
      {{{"group_size", 32}}, {{"num_bits", 5}}, "/input_activations/num_bits"},
      {{{"group_size", 32}, {"num_bits", 4}}, token, "accepted"},
      {{{"group_size", 32}, {"num_bits", 4}},
       {{"dynamic", "local"}, {"strategy", "tensor_group"}, {"group_size", 16}},
       "accepted"},
      {{{"strategy", "block"}, {"block_structure", {64.0, 128}}, {"type", "float"}}, nullptr, "accepted"},
  };
  for (const Row& row : rows) {
    json q = {{"weights", row.weights}};
    q["input_activations"] = row.activations;
    EXPECT_EQ(fault(q), row.pointer) << q;
  }
}

// A width that no format has is answered with those that the type has.
TEST(Quantization, WidthsOfTheType) {
  for (const int bits : {1, 3}) {
    json d = layer_document(json::object());
    d["quantization"] = {{"weights", {{"num_bits", bits}}}};
    const auto c = parse_config(d.dump());
    ASSERT_FALSE(c);
    EXPECT_NE(c.error().message.find("found " + std::to_string(bits) + ", expected 4 or 8"), std::string::npos)
        << c.error().message;
  }
}

TEST(Quantization, ActivationOrder) {
  const auto order = [](const json& a) {
    return quantization({{"weights", {{"num_bits", 4}, {"group_size", 32}, {"actorder", a}}}})["weights"]["actorder"];
  };
  EXPECT_EQ(order("group"), "group");
  EXPECT_EQ(order("dynamic"), "group");
  EXPECT_EQ(order(true), "group");
  EXPECT_EQ(order("weight"), "weight");
  EXPECT_EQ(order("static"), "weight");
  EXPECT_EQ(order(false), nullptr);
  EXPECT_EQ(order(nullptr), nullptr);
  const json ordered = {{"num_bits", 4}, {"group_size", 32}, {"actorder", "group"}};
  EXPECT_EQ(fault({{"weights", ordered}, {"format", "gptq"}}), "accepted");
  EXPECT_EQ(fault({{"weights", ordered}, {"format", "awq"}}), "/weights/actorder");
  EXPECT_EQ(fault({{"weights", ordered}, {"format", "int-quantized"}}), "/weights/actorder");
  EXPECT_EQ(fault_of(layer_document({{"quantization", {{"weights", ordered}}}, {"marlin_input_dtype", "int8"}})),
            "/marlin_input_dtype");
}

TEST(Quantization, FormatsHoldTheirWeights) {
  const std::pair<const char*, json> kinds[] = {
      {"int4", {{"num_bits", 4}, {"group_size", 32}}},
      {"int8", {{"group_size", 32}}},
      {"fp8", {{"type", "float"}, {"strategy", "channel"}}},
      {"mxfp8", {{"type", "float"}, {"group_size", 32}}},
      {"fp4g16", {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}},
      {"fp4g32", {{"num_bits", 4}, {"type", "float"}, {"group_size", 32}}},
  };
  const std::map<std::string, std::vector<std::string>> holds = {
      {"none", {}},
      {"pack-quantized", {"int4", "int8"}},
      {"int-quantized", {"int4", "int8"}},
      {"gptq", {"int4", "int8"}},
      {"awq", {"int4"}},
      {"float-quantized", {"fp8", "mxfp8"}},
      {"naive-quantized", {"int4", "int8", "fp8", "mxfp8", "fp4g16", "fp4g32"}},
      {"nvfp4-pack-quantized", {"fp4g16"}},
      {"mxfp4-pack-quantized", {"fp4g32"}},
      {"mxfp4-gpt-oss", {"fp4g32"}},
      {"mxfp8-quantized", {"mxfp8"}},
      {"quark-reorder", {"int4"}},
      {"quark-order", {"int4"}},
      {"quark-int8", {"int8"}},
      {"modelopt-int4", {"int4"}},
      {"bitsandbytes-int8", {"int8"}},
      {"nvfp4-group-32", {"fp4g16"}},
      {"pack-quantized-w2", {"int4"}},
      {"pack-quantized-w3", {"int4"}},
      {"pack-quantized-w5", {"int8"}},
      {"pack-quantized-w6", {"int8"}},
      {"pack-quantized-w7", {"int8"}},
      {"mxfp6-pack-quantized", {"mxfp8"}},
  };
  EXPECT_EQ(holds.size(), kFormatNames.size());
  for (const auto& [format, weights] : holds)
    for (const auto& [name, args] : kinds) {
      const bool fits = std::find(weights.begin(), weights.end(), name) != weights.end();
      EXPECT_EQ(fault({{"weights", args}, {"format", format}}), fits ? "accepted" : "/format") << format << " " << name;
    }
  EXPECT_EQ(fault({{"scheme", "none"}, {"format", "gptq"}}), "/format");
}

TEST(Quantization, InferredFormats) {
  const auto format = [](const json& w, const json& a) {
    json q = {{"weights", w}};
    if (!a.is_null()) q["input_activations"] = a;
    return quantization(q)["format"].get<std::string>();
  };
  const json token = {{"strategy", "token"}, {"dynamic", true}};
  const json fp8_token = {{"type", "float"}, {"strategy", "token"}, {"dynamic", true}};
  EXPECT_EQ(format({{"num_bits", 4}}, nullptr), "pack-quantized");
  EXPECT_EQ(format({{"num_bits", 4}}, token), "int-quantized");
  EXPECT_EQ(format({{"num_bits", 4}}, fp8_token), "pack-quantized");
  EXPECT_EQ(format({{"type", "float"}}, nullptr), "naive-quantized");
  EXPECT_EQ(format({{"type", "float"}}, fp8_token), "float-quantized");
  EXPECT_EQ(format({{"type", "float"}, {"group_size", 32}}, nullptr), "mxfp8-quantized");
  EXPECT_EQ(format({{"type", "float"}, {"group_size", 64}}, nullptr), "naive-quantized");
  EXPECT_EQ(format({{"type", "float"}, {"num_bits", 4}, {"group_size", 32}}, nullptr), "mxfp4-pack-quantized");
  EXPECT_EQ(format({{"type", "float"}, {"num_bits", 4}, {"group_size", 16}}, nullptr), "nvfp4-pack-quantized");
  EXPECT_EQ(format({{"type", "float"}, {"num_bits", 4}, {"group_size", 64}}, nullptr), "naive-quantized");
}

TEST(Quantization, Storage) {
  const auto storage = [](json q) {
    q = quantization(q);
    return std::pair(q["zero_point_convention"], q["is_transposed"]);
  };
  const json w4 = {{"num_bits", 4}, {"group_size", 32}};
  using Pair = std::pair<json, json>;
  EXPECT_EQ(storage({{"weights", w4}}), Pair("as_stored", false));
  EXPECT_EQ(storage({{"weights", w4}, {"is_transposed", true}}), Pair("as_stored", true));
  EXPECT_EQ(storage({{"weights", w4}, {"format", "gptq"}}), Pair("plus_one", true));
  EXPECT_EQ(storage({{"weights", w4}, {"format", "gptq"}, {"zero_point_convention", "as_stored"}}),
            Pair("as_stored", true));
  EXPECT_EQ(storage({{"weights", w4}, {"format", "awq"}, {"is_transposed", true}}), Pair("as_stored", true));
  EXPECT_EQ(storage({{"weights", w4}, {"format", "int-quantized"}}), Pair("as_stored", nullptr));
  EXPECT_EQ(storage({{"scheme", "FP8"}}), Pair(nullptr, nullptr));
  EXPECT_EQ(fault({{"scheme", "FP8"}, {"zero_point_convention", "plus_one"}}), "/zero_point_convention");
  EXPECT_EQ(fault({{"scheme", "none"}, {"zero_point_convention", "as_stored"}}), "/zero_point_convention");
  EXPECT_EQ(fault({{"scheme", "FP8"}, {"zero_point_convention", "auto"}}), "accepted");
  EXPECT_EQ(fault({{"scheme", "W4A8"}, {"is_transposed", false}}), "/is_transposed");
  EXPECT_EQ(fault({{"weights", w4}, {"format", "gptq"}, {"is_transposed", false}}), "/is_transposed");
}

TEST(Quantization, SizesAndWhoIsToBlame) {
  const json odd = {{"hidden_dim", 96}};
  EXPECT_EQ(fault({{"scheme", "W4A8"}}, odd), "/scheme");
  EXPECT_EQ(fault({{"scheme", "W4A8"}, {"group_size", 64}}, odd), "/group_size");
  EXPECT_EQ(fault({{"weights", {{"num_bits", 4}, {"group_size", 64}}}}, odd), "/weights/group_size");
  EXPECT_EQ(fault({{"scheme", "W4A8"}, {"group_size", 32}}, odd), "accepted");
  // The width is the divided one.
  const json tp = {{"parallel", {{"tp_size", 8}}}};
  EXPECT_EQ(fault({{"scheme", "W4A8"}, {"group_size", 128}}, tp), "/group_size");
  EXPECT_EQ(fault({{"scheme", "W4A8"}, {"group_size", 64}}, tp), "accepted");
  // Blocks: rows always, columns when the width is divided; hidden_dim may end in a partial block.
  const auto block = [](std::int64_t rows, std::int64_t columns) {
    return json{{"weights", {{"type", "float"}, {"strategy", "block"}, {"block_structure", {rows, columns}}}}};
  };
  EXPECT_EQ(fault(block(96, 128)), "/weights/block_structure");
  EXPECT_EQ(fault(block(128, 96)), "accepted");
  EXPECT_EQ(fault(block(64, 96), tp), "/weights/block_structure");
  EXPECT_EQ(fault(block(64, 64), tp), "accepted");
  EXPECT_EQ(fault({{"scheme", "FP8_BLOCK"}}, tp), "/scheme");
  // Words of eight 4-bit codes.
  const json four = {{"weights", {{"num_bits", 4}, {"strategy", "channel"}}}};
  EXPECT_EQ(fault(four, {{"hidden_dim", 252}}), "/weights/group_size");
  EXPECT_EQ(fault(four, {{"intermediate_size", 508}}), "/weights/group_size");
  json by_int8 = four;
  by_int8["input_activations"] = {{"strategy", "token"}, {"dynamic", true}};
  EXPECT_EQ(fault(by_int8, {{"hidden_dim", 252}}), "accepted");
}

TEST(Quantization, TwoForms) {
  EXPECT_EQ(fault(json::object()), "/weights");
  EXPECT_EQ(fault({{"format", "gptq"}}), "/weights");
  EXPECT_EQ(fault({{"weights", json::object()}, {"group_size", 32}}), "/group_size");
  EXPECT_EQ(fault({{"scheme", "W4A8"}, {"weights", json::object()}}), "/weights");
  EXPECT_EQ(fault({{"scheme", "W4A8"}, {"input_activations", nullptr}}), "/input_activations");
  EXPECT_EQ(fault({{"scheme", 4}}), "/scheme");
  EXPECT_EQ(fault("W4A8"), "");
}

}  // namespace
}  // namespace moe::test::quantization_test
