// Tensors handed over by the names that layers of vLLM and SGLang give them: the layer is the same, what tells nothing
// new is checked, and messages have the caller's names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/rooms.h"
#include "support/wna16_targets.h"

namespace moe::test::role_names_test {
namespace {

using ::testing::HasSubstr;
using Lists = std::vector<std::int32_t>;

Failure set(moe_weights* w, const char* role, const moe_tensor& t) {
  return failure([&](moe_error** e) { return moe_weights_set(w, role, &t, nullptr, nullptr, e); });
}

std::vector<std::byte> bytes_in(const moe_packed* packed) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(packed, &data, &size, nullptr), MOE_OK);
  const auto* bytes = static_cast<const std::byte*>(data);
  return {bytes, bytes + size};
}

Wna16Model ordered(const char* format, bool order = true) {
  Wna16Model m;
  m.format = format;
  m.order = order;
  return random_wna16(m, 5);
}

TEST(RoleNames, TheSameLayer) {
  for (const char* format : {"gptq", "awq", "pack-quantized"})
    for (const bool more : {false, true}) {
      Wna16Model m;
      m.format = format;
      m.zeros = m.bias = more;
      m.order = more && !m.awq();
      m = random_wna16(m, 4);
      Wna16Conversion ours(m), theirs(m);
      theirs.weights = stacked_weights(m, theirs.config.get(), {.vllm = true});
      ASSERT_EQ(ours.convert().status, MOE_OK) << format;
      ASSERT_EQ(theirs.convert().status, MOE_OK) << format;
      EXPECT_EQ(bytes_in(ours.packed.get()), bytes_in(theirs.packed.get())) << format;
    }
}

TEST(RoleNames, UnknownOnesNameTheNearest) {
  const Wna16Model m = ordered("gptq");
  const Wna16Conversion c(m);
  const moe_tensor t = tensor(MOE_DTYPE_I32, {1}, m.ids.data());
  for (const auto& [name, nearest] : {std::pair{"w2_wieght", "w2_weight"}, std::pair{"w13_qzero", "w13_qzeros"},
                                      std::pair{"w13.weight_packed", "w13_weight_packed"}}) {
    const Failure f = set(c.weights.get(), name, t);
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "role");
    EXPECT_THAT(f.message, testing::AllOf(HasSubstr(name), HasSubstr(std::string("did you mean ") + nearest)));
  }
}

TEST(RoleNames, MessagesHaveTheCallersName) {
  Wna16Model m = ordered("gptq", false);
  m.w2[1].scales[0] = std::numeric_limits<float>::quiet_NaN();
  Wna16Conversion c(m);
  const moe_tensor bad = tensor(MOE_DTYPE_I32, {1}, m.ids.data());
  EXPECT_EQ(set(c.weights.get(), "w13_qweight", bad).subject, "w13_qweight");
  EXPECT_EQ(set(c.weights.get(), "w13_weight_scale_2", bad).subject, "w13_weight_scale_2");
  EXPECT_EQ(c.convert().subject, "w2_scale[1,0,0]");
  c.weights = stacked_weights(m, c.config.get(), {.vllm = true});
  const Failure f = c.convert();
  EXPECT_EQ(f.subject, "w2_scales[1,0,0]");
  EXPECT_THAT(f.message, testing::Not(HasSubstr("w2_scale[")));
}

TEST(RoleNames, AnotherNameReplacesThePlace) {
  const Wna16Model m = ordered("gptq", false);
  Wna16Conversion c(m);  // has w2_scale
  std::vector<float> scales(static_cast<std::size_t>(m.E * 2 * m.H), std::numeric_limits<float>::infinity());
  const moe_tensor t = tensor(MOE_DTYPE_F32, {m.E, 2, m.H}, scales.data());
  EXPECT_EQ(set(c.weights.get(), "w2_scales", t).status, MOE_OK);
  EXPECT_EQ(c.convert().subject, "w2_scales[0,0,0]");
}

Lists sorted(const std::vector<Matrix13or2>& all, bool stable = true) {
  Lists lists;
  for (const Matrix13or2& w : all) {
    Lists one(static_cast<std::size_t>(w.k));
    std::iota(one.begin(), one.end(), 0);
    if (!stable) std::reverse(one.begin(), one.end());
    std::stable_sort(one.begin(), one.end(), [&](std::int32_t a, std::int32_t b) {
      return w.g_idx[static_cast<std::size_t>(a)] < w.g_idx[static_cast<std::size_t>(b)];
    });
    lists.insert(lists.end(), one.begin(), one.end());
  }
  return lists;
}

TEST(RoleNames, ListsOfSortedColumns) {
  struct Case {
    const char* what;
    void (*spoil)(Lists&);
    const char* message;  // nullptr: right
  };
  // The second expert's list begins at 64; groups have 32 columns.
  const Case cases[] = {
      {"as it is", [](Lists&) {}, nullptr},
      {"outside", [](Lists& l) { l[64] = 64; }, "w2_g_idx_sort_indices[1,0]: column 64 is outside [0, 64)"},
      {"negative", [](Lists& l) { l[65] = -1; }, "outside"},
      {"twice", [](Lists& l) { l[65] = l[64]; }, "is there twice"},
      {"not sorted", [](Lists& l) { std::swap(l[64], l[127]); }, "does not sort w2_g_idx"},
      {"reversed", [](Lists& l) { std::reverse(l.begin() + 64, l.end()); }, "does not sort w2_g_idx"}};
  for (const char* format : {"gptq", "pack-quantized"})
    for (const bool order : {true, false})
      for (const bool stable : {true, false})
        for (const bool first : {true, false}) {
          const Wna16Model m = ordered(format, order);
          for (const Case& c : cases) {
            SCOPED_TRACE(std::string(format) + " " + c.what);
            Wna16Conversion conversion(m);
            ASSERT_EQ(conversion.convert().status, MOE_OK);
            const std::vector<std::byte> want = bytes_in(conversion.packed.get());
            Lists list = sorted(m.w2, stable);
            c.spoil(list);
            const moe_tensor t = tensor(MOE_DTYPE_I32, {m.E, m.I}, list.data());
            std::vector<std::int32_t> g_idx;
            for (const Matrix13or2& w : m.w2) g_idx.insert(g_idx.end(), w.g_idx.begin(), w.g_idx.end());
            const moe_tensor groups = tensor(MOE_DTYPE_I32, {m.E, m.I}, g_idx.data());
            const auto set_groups = [&] { return set(conversion.weights.get(), "w2_g_idx", groups).status; };
            if (first && order) {
              EXPECT_EQ(set_groups(), MOE_OK);
            }
            ASSERT_EQ(set(conversion.weights.get(), "w2_g_idx_sort_indices", t).status, MOE_OK);
            if (!first && order) {
              EXPECT_EQ(set_groups(), MOE_OK);
            }
            const Failure f = conversion.convert();
            EXPECT_EQ(f.status, c.message == nullptr ? MOE_OK : MOE_ERR_INVALID_ARGUMENT) << f.message;
            if (c.message == nullptr) {
              EXPECT_EQ(bytes_in(conversion.packed.get()), want);
            } else {
              EXPECT_THAT(f.subject + ": " + f.message, HasSubstr(c.message));
            }
          }
        }
}

TEST(RoleNames, EmptyLists) {
  for (const bool order : {false, true}) {
    const Wna16Model m = ordered("gptq", order);
    Wna16Conversion c(m);
    for (const char* role : {"w13_g_idx", "w2_weight_g_idx", "w13_g_idx_sort_indices"}) {
      const bool needed = order && std::string(role).find("sort") == std::string::npos;
      EXPECT_EQ(set(c.weights.get(), role, tensor(MOE_DTYPE_I32, {m.E, 0}, m.ids.data())).status,
                needed ? MOE_ERR_SHAPE : MOE_OK)
          << role;
      EXPECT_EQ(set(c.weights.get(), role, tensor(MOE_DTYPE_I32, {m.E + 1, 0}, m.ids.data())).status, MOE_ERR_SHAPE);
    }
    EXPECT_EQ(c.convert().status, MOE_OK);
  }
}

TEST(RoleNames, ListsOfOneExpert) {
  const Wna16Model m = ordered("gptq");
  Wna16Conversion c(m);
  Lists list = sorted(m.w13);
  const auto expert = [&](std::int64_t e, const char* shard) {
    const moe_tensor t = tensor(MOE_DTYPE_I32, {m.H}, list.data() + e * m.H);
    return failure([&](moe_error** err) {
      return moe_weights_set_expert(c.weights.get(), "w13_g_idx_sort_indices", e, shard, &t, nullptr, nullptr, err);
    });
  };
  EXPECT_EQ(expert(0, "w1").status, MOE_OK);
  EXPECT_EQ(expert(0, "w3").status, MOE_OK);
  EXPECT_EQ(expert(2, nullptr).status, MOE_OK);
  EXPECT_EQ(c.convert().status, MOE_OK);
  std::swap(list[static_cast<std::size_t>(2 * m.H)], list[static_cast<std::size_t>(3 * m.H - 1)]);
  const Failure f = c.convert();
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject.substr(0, 25), "w13_g_idx_sort_indices[2,") << f.message;
}

// vLLM's layers hold what the file says of one projection, in the model's type.
TEST(RoleNames, ShapesAreChecked) {
  Wna16Model m;
  m.format = "pack-quantized";
  m = random_wna16(m, 4);
  const Wna16Conversion c(m);
  const auto told = [&](const char* role, std::int64_t n, std::int64_t k) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t e = 0; e < m.E; ++e) numbers.insert(numbers.end(), {n, k});
    return set(c.weights.get(), role, tensor(MOE_DTYPE_I64, {m.E, 2}, numbers.data()));
  };
  EXPECT_EQ(told("w13_weight_shape", 2 * m.I, m.H).status, MOE_OK);
  EXPECT_EQ(told("w13_weight_shape", m.I, m.H).status, MOE_OK);
  EXPECT_EQ(told("w2_weight_shape", m.H, m.I).status, MOE_OK);
  const Failure f = told("w2_weight_shape", m.I, m.H);
  EXPECT_EQ(f.status, MOE_ERR_SHAPE);
  EXPECT_EQ(f.subject, "w2_weight_shape[0]");
  EXPECT_THAT(f.message, testing::AllOf(HasSubstr("[64, 128]"), HasSubstr("[128, 64]")));
  EXPECT_EQ(told("w13_weight_shape", 2 * m.H, m.H / 2).status, MOE_ERR_SHAPE);
  std::vector<std::uint16_t> bf16;
  for (std::int64_t e = 0; e < m.E; ++e)
    for (const std::int64_t n : {m.I, m.H}) bf16.push_back(f32_to_bf16(static_cast<float>(n)));
  EXPECT_EQ(set(c.weights.get(), "w13_weight_shape", tensor(MOE_DTYPE_BF16, {m.E, 2}, bf16.data())).status, MOE_OK);
  EXPECT_EQ(set(c.weights.get(), "w2_weight_shape", tensor(MOE_DTYPE_BF16, {m.E, 2}, bf16.data())).status,
            MOE_ERR_SHAPE);
  EXPECT_EQ(set(c.weights.get(), "w2_weight_shape", tensor(MOE_DTYPE_U8, {m.E, 2}, bf16.data())).status, MOE_ERR_DTYPE);
  EXPECT_EQ(set(c.weights.get(), "w2_weight_shape", tensor(MOE_DTYPE_BF16, {m.E, 1}, bf16.data())).status,
            MOE_ERR_SHAPE);
  EXPECT_EQ(
      json_of([&](moe_buffer** o, moe_error** e) { return moe_weights_to_json(c.weights.get(), o, e); })["complete"],
      true);
  // A format without such a tensor.
  const Wna16Conversion other(ordered("gptq"));
  EXPECT_EQ(set(other.weights.get(), "w2_weight_shape", tensor(MOE_DTYPE_BF16, {m.E, 2}, bf16.data())).status,
            MOE_ERR_UNEXPECTED_WEIGHT);
}

// One number for an expert: [E], and for the halves of w13 [E, 2].
TEST(RoleNames, NumbersOfTooManyDimensions) {
  const nlohmann::json config = {
      {"num_experts", 4},
      {"top_k", 2},
      {"hidden_dim", 64},
      {"intermediate_size", 32},
      {"in_dtype", "bfloat16"},
      {"quantization",
       {{"format", "nvfp4-pack-quantized"},
        {"weights",
         {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}, {"symmetric", true}}},
        {"input_activations",
         {{"num_bits", 4},
          {"type", "float"},
          {"strategy", "tensor_group"},
          {"group_size", 16},
          {"symmetric", true},
          {"dynamic", "local"}}}}}};
  const std::vector<float> numbers(8, 1.0f);
  for (const char* part : {"scale_2", "weight_scale_2", "global_scale", "weight_global_scale", "input_scale",
                           "input_scale_2", "input_global_scale"})
    for (const std::string side : {"w13_", "w2_"}) {
      const ConfigPtr c = make_config(config.dump());
      const WeightsPtr w =
          make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(c.get(), o, e); });
      const std::string role = side + part;
      const auto status = [&](const std::vector<std::int64_t>& shape) {
        return set(w.get(), role.c_str(), tensor(MOE_DTYPE_F32, shape, numbers.data())).status;
      };
      EXPECT_EQ(status({4, 1}), MOE_ERR_SHAPE) << role;
      EXPECT_EQ(status({4, 1, 1}), MOE_ERR_SHAPE) << role;
      EXPECT_EQ(status({4, 2, 1}), MOE_ERR_SHAPE) << role;
      EXPECT_EQ(status({}), MOE_ERR_SHAPE) << role;
      EXPECT_EQ(status({4, 2}), side == "w13_" ? MOE_OK : MOE_ERR_SHAPE) << role;
      ASSERT_EQ(status({4}), MOE_OK) << role;
      moe_tensor got{};
      got.struct_size = sizeof got;
      moe_buffer* hold = nullptr;
      EXPECT_EQ(moe_weights_get(w.get(), role.c_str(), -1, &got, &hold, nullptr), MOE_OK) << role;
      moe_buffer_destroy(hold);
      EXPECT_EQ(got.ndim, side == "w13_" ? 2 : 1) << role;
      EXPECT_EQ(set(w.get(), role.c_str(), got).status,
                side == "w13_" ? got.shape[1] == 2 ? MOE_OK : MOE_ERR_SHAPE : MOE_OK);
    }
}

}  // namespace
}  // namespace moe::test::role_names_test
