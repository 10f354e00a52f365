// The format that compressed-tensors states: a group's own, else that of the object.
#include <gtest/gtest.h>

#include <string>

#include "config/config.h"
#include "config/documents.h"

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

TEST(CompressedTensorsFormat, TheWrongOneIsNamedWhereItStands) {
  const auto group = resolve("pack-quantized", "packed"), object = resolve("packed", "");
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().subject, "/hf_quantization_config/config_groups/group_0/format");
  ASSERT_FALSE(object);
  EXPECT_EQ(object.error().subject, "/hf_quantization_config/format");
}

}  // namespace
}  // namespace moe::test::hf_compressed_tensors_test
