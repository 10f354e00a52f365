// The format that compressed-tensors states: a group's own, else that of the object.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "config/config.h"
#include "config/documents.h"
#include "scheme/checkpoint.h"

namespace moe::test::hf_compressed_tensors_test {
namespace {

using nlohmann::json;

Result<std::optional<HfQuantization>> resolve(const std::string& format, const std::string& own) {
  json group = {{"targets", {"Linear"}},
                {"weights", {{"num_bits", 4}, {"type", "int"}, {"strategy", "channel"}, {"symmetric", true}}}};
  if (!own.empty()) group["format"] = own;
  const json object = {
      {"quant_method", "compressed-tensors"}, {"format", format}, {"config_groups", {{"group_0", group}}}};
  const auto v = moe::json::parse(object.dump());
  EXPECT_TRUE(v);
  return resolve_hf_quantization(*v, "model.layers.1.mlp.experts", {"gate_proj", "up_proj", "down_proj"}, 4);
}

TEST(CompressedTensorsFormat, AGroupsOwnIsTaken) {
  using enum Format;
  struct Case {
    const char *format, *own;
    Format want;
  };
  for (const Case& c : {
           Case{"pack-quantized", "", pack_quantized},
           Case{"int-quantized", "", int_quantized},
           Case{"mixed-precision", "pack-quantized", pack_quantized},
           Case{"mixed-precision", "int-quantized", int_quantized},
           Case{"int-quantized", "pack-quantized", pack_quantized},
           Case{"pack-quantized", "int-quantized", int_quantized},
       }) {
    const auto got = resolve(c.format, c.own);
    ASSERT_TRUE(got) << c.format << ", " << c.own << ": " << got.error().message;
    ASSERT_TRUE(*got);
    EXPECT_EQ((*got)->quantization.format, c.want) << c.format << ", " << c.own;
  }
}

struct Narrow {
  int bits;
  const char *type, *format;  // "": none is stated
  bool int8_inputs;
  Format want;
  int num_bits;
};

json narrow_object(const Narrow& c) {
  json group = {{"targets", {"Linear"}},
                {"weights", {{"num_bits", c.bits}, {"type", c.type}, {"group_size", 32}, {"symmetric", true}}}};
  if (c.int8_inputs) group["input_activations"] = {{"num_bits", 8}, {"strategy", "token"}, {"dynamic", true}};
  json object = {{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", group}}}};
  if (*c.format != '\0') object["format"] = c.format;
  return object;
}

Result<std::optional<HfQuantization>> resolve(const json& object) {
  const auto v = moe::json::parse(object.dump());
  EXPECT_TRUE(v);
  return resolve_hf_quantization(*v, "model.layers.1.mlp.experts", {"gate_proj", "up_proj", "down_proj"}, 4);
}

// The weights say what the codes become, the format how they are stored.
TEST(CompressedTensorsFormat, CodesOfFewerBits) {
  using enum Format;
  for (const Narrow& c : {
           Narrow{2, "int", "pack-quantized", false, pack_quantized_w2, 4},
           Narrow{3, "int", "pack-quantized", false, pack_quantized_w3, 4},
           Narrow{5, "int", "pack-quantized", false, pack_quantized_w5, 8},
           Narrow{6, "int", "pack-quantized", false, pack_quantized_w6, 8},
           Narrow{7, "int", "pack-quantized", false, pack_quantized_w7, 8},
           Narrow{4, "int", "pack-quantized", false, pack_quantized, 4},
           Narrow{8, "int", "pack-quantized", false, pack_quantized, 8},
           Narrow{3, "int", "pack-quantized", true, pack_quantized_w3, 4},
           Narrow{3, "int", "int-quantized", true, int_quantized, 4},
           Narrow{7, "int", "int-quantized", true, int_quantized, 8},
           Narrow{3, "int", "", false, pack_quantized_w3, 4},
           Narrow{3, "int", "", true, int_quantized, 4},
           Narrow{5, "int", "mixed-precision", true, int_quantized, 8},
           Narrow{6, "float", "mxfp6-pack-quantized", false, mxfp6_pack_quantized, 8},
           Narrow{6, "float", "", false, mxfp6_pack_quantized, 8},
           Narrow{6, "float", "mixed-precision", false, mxfp6_pack_quantized, 8},
       }) {
    SCOPED_TRACE(std::to_string(c.bits) + c.type + " " + c.format + (c.int8_inputs ? " int8" : ""));
    const auto got = resolve(narrow_object(c));
    ASSERT_TRUE(got) << got.error().message;
    ASSERT_TRUE(*got);
    const Quantization& q = (*got)->quantization;
    EXPECT_EQ(q.format, c.want);
    EXPECT_EQ(q.weights->num_bits, c.num_bits);
    EXPECT_EQ(q.is_transposed, c.want == pack_quantized ? std::optional(false) : std::nullopt);
    EXPECT_NE(tensor_set(q), nullptr);
    const bool bytes = c.want == int_quantized;
    EXPECT_EQ((*got)->suffixes.front(), bytes ? "weight" : "weight_packed");
    EXPECT_EQ((*got)->suffixes.size(), bytes || *c.type == 'f' ? 2U : 3U);  // and weight_shape
  }
}

TEST(CompressedTensorsFormat, OtherWidthsAreRefused) {
  struct Refused {
    Narrow given;
    const char* subject;
  };
  const char* const bits_of_group = "/hf_quantization_config/config_groups/group_0/weights/num_bits";
  for (const Refused& c : {
           Refused{{1, "int", "pack-quantized", false, {}, 0}, bits_of_group},
           Refused{{3, "float", "pack-quantized", false, {}, 0}, bits_of_group},
           Refused{{6, "float", "mxfp8-quantized", false, {}, 0}, bits_of_group},
           Refused{{6, "float", "pack-quantized", false, {}, 0}, bits_of_group},
           Refused{{3, "int", "mxfp6-pack-quantized", false, {}, 0}, bits_of_group},
           Refused{{8, "float", "mxfp6-pack-quantized", false, {}, 0}, "/hf_quantization_config/format"},
           Refused{{4, "int", "mxfp6-pack-quantized", false, {}, 0}, "/hf_quantization_config/format"},
           Refused{{4, "int", "pack-quantized-w3", false, {}, 0}, "/hf_quantization_config/format"},
       }) {
    const auto got = resolve(narrow_object(c.given));
    ASSERT_FALSE(got) << c.given.bits << c.given.format;
    EXPECT_EQ(got.error().subject, c.subject) << got.error().message;
  }
  json groups_of_64 = narrow_object({6, "float", "mxfp6-pack-quantized", false, {}, 0});
  groups_of_64["config_groups"]["group_0"]["weights"]["group_size"] = 64;
  EXPECT_FALSE(resolve(groups_of_64));
  json ordered = narrow_object({3, "int", "pack-quantized", false, {}, 0});
  ordered["config_groups"]["group_0"]["weights"]["actorder"] = "group";
  const auto got = resolve(ordered);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().subject, "/hf_quantization_config/config_groups/group_0/weights/actorder");
  ordered["config_groups"]["group_0"]["weights"]["actorder"] = "weight";
  EXPECT_TRUE(resolve(ordered));
}

TEST(CompressedTensorsFormat, TheWrongOneIsNamedWhereItStands) {
  const auto group = resolve("pack-quantized", "packed"), object = resolve("packed", "");
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().subject, "/hf_quantization_config/config_groups/group_0/format");
  ASSERT_FALSE(object);
  EXPECT_EQ(object.error().subject, "/hf_quantization_config/format");
}

}  // namespace
}  // namespace moe::test::hf_compressed_tensors_test
