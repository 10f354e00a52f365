// Element types: numbers of the ABI, sizes, names in three spellings.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "moe/moe.h"
#include "support/rooms.h"

namespace moe::test::dtype_test {
namespace {

std::set<int> known_numbers() {
  std::set<int> known;
  for (int n = -4; n < 256; ++n)
    if (dtype_bits(static_cast<DType>(n)) != 0) known.insert(n);
  return known;
}

TEST(DType, KnownNumbersAreThoseOfTheAbi) {
  const std::set<int> abi = {
      MOE_DTYPE_F32,         MOE_DTYPE_F16,         MOE_DTYPE_BF16,       MOE_DTYPE_F64,       MOE_DTYPE_I8,
      MOE_DTYPE_U8,          MOE_DTYPE_I16,         MOE_DTYPE_U16,        MOE_DTYPE_I32,       MOE_DTYPE_U32,
      MOE_DTYPE_I64,         MOE_DTYPE_U64,         MOE_DTYPE_BOOL,       MOE_DTYPE_F8_E4M3FN, MOE_DTYPE_F8_E5M2,
      MOE_DTYPE_F8_E4M3FNUZ, MOE_DTYPE_F8_E5M2FNUZ, MOE_DTYPE_F8_E8M0FNU, MOE_DTYPE_F6_E2M3FN, MOE_DTYPE_F6_E3M2FN,
      MOE_DTYPE_F4_E2M1FN,   MOE_DTYPE_I4,          MOE_DTYPE_U4,         MOE_DTYPE_I2,        MOE_DTYPE_U2};
  EXPECT_EQ(known_numbers(), abi);
  EXPECT_EQ(static_cast<int>(DType::invalid), MOE_DTYPE_INVALID);
}

TEST(DType, SizesSayWhatTheNamesSay) {
  // The last digits before a blank or the end of "f32", "bf16", "i4": the bits.
  for (int n : known_numbers()) {
    const auto t = static_cast<DType>(n);
    const std::string name = dtype_name(t);
    if (t == DType::boolean) {
      EXPECT_EQ(dtype_bits(t), 8);
      continue;
    }
    const std::string head = name.substr(0, name.find('_'));
    EXPECT_EQ(std::to_string(dtype_bits(t)), head.substr(head.find_first_of("0123456789"))) << name;
  }
}

TEST(DType, NamesAreDistinctAndReadBack) {
  std::set<std::string> names;
  for (int n : known_numbers()) {
    const auto t = static_cast<DType>(n);
    names.insert(dtype_name(t));
    EXPECT_EQ(dtype_from_name(dtype_name(t)), t);
  }
  EXPECT_EQ(names.size(), known_numbers().size());
}

TEST(DType, TorchAndSafetensorsSpellings) {
  struct Case {
    const char* name;
    DType type;
  };
  for (const Case& c :
       {Case{"torch.bfloat16", DType::bf16}, Case{"bfloat16", DType::bf16}, Case{"BF16", DType::bf16},
        Case{"torch.float32", DType::f32}, Case{"float16", DType::f16}, Case{"F8_E4M3", DType::f8_e4m3fn},
        Case{"torch.float8_e4m3fn", DType::f8_e4m3fn}, Case{"F8_E8M0", DType::f8_e8m0fnu},
        Case{"torch.bool", DType::boolean}, Case{"BOOL", DType::boolean}, Case{"torch.int4", DType::i4}})
    EXPECT_EQ(dtype_from_name(c.name), c.type) << c.name;
  EXPECT_EQ(dtype_from_safetensors("I64"), DType::i64);
  EXPECT_EQ(dtype_from_safetensors("i64"), DType::invalid);
  EXPECT_EQ(dtype_from_safetensors("bfloat16"), DType::invalid);
}

TEST(DType, OthersAreInvalid) {
  for (const char* name : {"", "torch.", "torch", "f31", "F32 ", " f32", "torch.torch.float32", "Bf16"})
    EXPECT_EQ(dtype_from_name(name), DType::invalid) << name;
  EXPECT_STREQ(dtype_name(static_cast<DType>(5)), "invalid");
  EXPECT_STREQ(dtype_name(static_cast<DType>(-1)), "invalid");
  EXPECT_EQ(dtype_bits(DType::invalid), 0);
}

TEST(DType, ActivationTypes) {
  for (int n : known_numbers())
    EXPECT_EQ(is_float16_or_32(static_cast<DType>(n)), n == MOE_DTYPE_F32 || n == MOE_DTYPE_F16 || n == MOE_DTYPE_BF16)
        << n;
}

}  // namespace
}  // namespace moe::test::dtype_test
