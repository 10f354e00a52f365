// Hostile int4 and int8 tensors through the ABI, for every layout that they may become: refused by name and place,
// before anything is written that a caller could take for a result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "support/rooms.h"
#include "support/wna16_targets.h"

namespace moe::test::wna16_refusals_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// Of a target: a model that it takes.
Wna16Model model_for(const Wna16Target& target) {
  Wna16Model m;
  const std::string name = target.name;
  m.E = 2;
  m.dtype = MOE_DTYPE_BF16;
  m.extra = target.members;
  if (name == "trtllm") m.format = "pack-quantized", m.H = m.I = 256;
  return random_wna16(m, 3);
}

Failure fault_of(const Wna16Model& m) {
  Wna16Conversion c(m);
  if (!c.weights) return {};
  Failure f = c.convert();
  EXPECT_FALSE(c.packed);
  return f;
}

TEST(Wna16Refusals, ScalesThatAreNone) {
  for (const Wna16Target& target : wna16_targets())
    for (const float bad : {kNan, kInf, -kInf}) {
      SCOPED_TRACE(target.name);
      Wna16Model m = model_for(target);
      Matrix13or2& w = m.w2[1];
      w.scales[static_cast<std::size_t>(5 * w.groups + 1)] = bad;  // row 5, group 1
      const Failure f = fault_of(m);
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(f.subject, m.packed() ? "w2_scale[1,5,1]" : "w2_scale[1,1,5]");  // in the shape that was given
      EXPECT_THAT(f.message, testing::EndsWith("is not a finite number"));
    }
}

TEST(Wna16Refusals, PlacesAreThoseOfTheTensorGiven) {
  for (const bool transposed : {false, true})
    for (const char* format : {"gptq", "awq", "pack-quantized"}) {
      Wna16Model m;
      m.format = format;
      m.transposed = transposed;
      m = random_wna16(m, 4);
      m.w13[2].scales[static_cast<std::size_t>(70 * 4 + 3)] = -kInf;  // of up
      EXPECT_EQ(fault_of(m).subject, m.packed() && !transposed ? "w13_scale[2,70,3]" : "w13_scale[2,3,70]") << format;
    }
}

// A config without activation order, and all lists of groups.
Wna16Conversion without_order(const Wna16Model& m) {
  Wna16Model said = m;
  said.order = false;
  Wna16Conversion c(said);
  if (c.selection) c.weights = stacked_weights(m, c.config.get());
  return c;
}

TEST(Wna16Refusals, GroupsOfColumnsOutOfRange) {
  for (const Wna16Target& target : wna16_targets())
    for (const std::int32_t bad :
         {-1, 8, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
      SCOPED_TRACE(target.name);
      Wna16Model m = model_for(target);
      m.order = true;  // the tensors are there, the config says that they are in their natural order
      m.w13[1].g_idx[9] = bad;
      Wna16Conversion c = without_order(m);
      ASSERT_TRUE(c.selection);
      const Failure f = c.convert();
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(f.subject, "w13_g_idx[1,9]");
      EXPECT_THAT(f.message, testing::HasSubstr("group " + std::to_string(bad) + " is outside"));
    }
}

// Without activation order a list must say what is so anyway: nothing is sorted silently.
TEST(Wna16Refusals, UnsortedGroupsWithoutActivationOrder) {
  for (const Wna16Target& target : wna16_targets()) {
    SCOPED_TRACE(target.name);
    Wna16Model m = model_for(target);
    m.order = true;
    std::swap(m.w2[0].g_idx[31], m.w2[0].g_idx[32]);
    Wna16Conversion c = without_order(m);
    ASSERT_TRUE(c.selection);
    const Failure f = c.convert();
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "w2_g_idx[0,31]");
    EXPECT_THAT(f.message, testing::HasSubstr("expected 0 without activation order"));
    // The natural list is taken.
    std::swap(m.w2[0].g_idx[31], m.w2[0].g_idx[32]);
    c.weights = stacked_weights(m, c.config.get());
    EXPECT_EQ(c.convert().status, MOE_OK);
  }
}

TEST(Wna16Refusals, GroupsWithActivationOrder) {
  for (const char* target : {"ours", "marlin", "dense"})
    for (const char* format : {"gptq", "pack-quantized"}) {
      SCOPED_TRACE(std::string(target) + " " + format);
      Wna16Model m;
      m.format = format;
      m.order = true;
      m.dtype = MOE_DTYPE_F16;
      for (const Wna16Target& t : wna16_targets())
        if (t.name == std::string(target)) m.extra = t.members;
      m = random_wna16(m, 8);
      m.w13[2].g_idx[77] = 4;  // of 4
      EXPECT_EQ(fault_of(m).subject, "w13_g_idx[2,77]");
      m.w13[2].g_idx[77] = -3;
      const Failure f = fault_of(m);
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(f.subject, "w13_g_idx[2,77]");
    }
}

void set_part(moe_weights* w, const std::string& role, std::int64_t expert, const char* shard, const Wna16Part& p) {
  const moe_tensor t = tensor(p.dtype == "I32" ? MOE_DTYPE_I32 : MOE_DTYPE_F32, p.shape, p.bytes.data());
  const Failure f = failure(
      [&](moe_error** e) { return moe_weights_set_expert(w, role.c_str(), expert, shard, &t, nullptr, nullptr, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
}

// Gate and up share one list in every layout: two that differ are refused, not the last one taken.
TEST(Wna16Refusals, GateAndUpWithDifferentLists) {
  for (const char* target : {"ours", "marlin", "dense"}) {
    Wna16Model m;
    m.order = true;
    m.dtype = MOE_DTYPE_F16;
    for (const Wna16Target& t : wna16_targets())
      if (t.name == std::string(target)) m.extra = t.members;
    m = random_wna16(m, 6);
    Wna16Conversion c(m);
    ASSERT_TRUE(c.selection);
    std::vector<std::vector<Wna16Part>> kept;  // the set has views of them
    const auto fill = [&](bool differ) {
      kept.clear();
      c.weights =
          make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(c.config.get(), o, e); });
      for (std::int64_t e = 0; e < m.E; ++e)
        for (const char* shard : {"w1", "w3", ""}) {
          const bool down = *shard == 0;
          Matrix13or2 w = down ? m.w2[static_cast<std::size_t>(e)] : m.w13[static_cast<std::size_t>(e)];
          if (differ && e == 1 && std::string(shard) == "w3") {  // the same groups in another order
            const auto other =
                std::find_if(w.g_idx.begin(), w.g_idx.end(), [&](std::int32_t g) { return g != w.g_idx[0]; });
            std::iter_swap(w.g_idx.begin(), other);
          }
          kept.push_back(parts_of(m, w, std::string(shard) == "w3" ? m.I : 0, down ? m.H : m.I));
          for (const Wna16Part& p : kept.back())
            set_part(c.weights.get(), std::string(down ? "w2_" : "w13_") + p.role, e, down ? nullptr : shard, p);
        }
    };
    fill(true);
    const Failure f = c.convert();
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT) << target;
    EXPECT_EQ(f.subject, "w13_g_idx[1,0]");
    EXPECT_THAT(f.message, testing::HasSubstr("gate has group"));
    fill(false);
    EXPECT_EQ(c.convert().status, MOE_OK);
  }
}

// Symmetric GPTQ files carry zero points that say nothing; any other is a contradiction.
TEST(Wna16Refusals, ZeroPointsOfSymmetricWeights) {
  for (const int bits : {4, 8})
    for (const int zero : {0, 6, 7, 8, 9, 127, 128, 255}) {
      if (zero >= 1 << bits) continue;
      Wna16Model m;
      m.bits = bits;
      m = random_wna16(m, 5);
      Wna16Model files = m;
      files.zeros = true;
      const auto middle = static_cast<std::uint8_t>(1 << (bits - 1));
      for (auto* matrices : {&files.w13, &files.w2})
        for (Matrix13or2& w : *matrices) std::fill(w.zeros.begin(), w.zeros.end(), middle);
      files.w13[1].zeros[static_cast<std::size_t>(66 * 4 + 2)] = static_cast<std::uint8_t>(zero);  // row 66, group 2
      Wna16Conversion c(m);
      c.weights = stacked_weights(files, c.config.get());
      const Failure f = c.convert();
      if (zero == middle || zero == middle - 1) {
        EXPECT_EQ(f.status, MOE_OK) << f.message;
        continue;
      }
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(f.subject, "w13_zero_point[1,2,66]");
      EXPECT_THAT(f.message, testing::HasSubstr("zero point " + std::to_string(zero) + " of symmetric weights"));
    }
}

// A plus_one zero point of 2^bits: nothing that packs zero points like codes holds it, our own 4-bit rows do.
TEST(Wna16Refusals, ZeroPointsBeyondTheCodes) {
  for (const char* target : {"ours", "on_the_fly", "dense"})
    for (const int bits : {4, 8}) {
      const bool fly = std::string(target) == "on_the_fly";
      if (fly && bits == 8) continue;  // no place for zero points at all
      SCOPED_TRACE(std::string(target) + " " + std::to_string(bits));
      Wna16Model m;
      m.bits = bits;
      m.zeros = m.plus_one = true;
      for (const Wna16Target& t : wna16_targets())
        if (t.name == std::string(target)) m.extra = t.members;
      m = random_wna16(m, 5);
      for (auto* matrices : {&m.w13, &m.w2})
        for (Matrix13or2& w : *matrices)
          for (std::uint8_t& z : w.zeros) z = static_cast<std::uint8_t>(std::min<int>(z, (1 << bits) - 2));
      EXPECT_EQ(Wna16Conversion(m).convert().status, MOE_OK);
      m.w2[0].zeros[static_cast<std::size_t>(9 * 2 + 1)] = static_cast<std::uint8_t>((1 << bits) - 1);
      if (bits == 4 && !fly) {
        EXPECT_EQ(Wna16Conversion(m).convert().status, MOE_OK);
        continue;
      }
      const Failure f = fault_of(m);
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
      EXPECT_THAT(f.subject, testing::StartsWith("w2_zero_point"));
      EXPECT_THAT(f.message, testing::HasSubstr(std::to_string(1 << bits)));
    }
}

// Whole tensors that the config asks for.
TEST(Wna16Refusals, MissingTensors) {
  struct Row {
    const char* format;
    bool zeros, order;
    const char* role;
  };
  for (const Row& row : {Row{"gptq", false, true, "w13_g_idx"}, Row{"pack-quantized", false, true, "w13_g_idx"},
                         Row{"awq", true, false, "w13_zero_point"}, Row{"gptq", true, false, "w13_zero_point"},
                         Row{"pack-quantized", true, false, "w13_zero_point"}}) {
    Wna16Model m;
    m.format = row.format, m.zeros = row.zeros, m.order = row.order;
    m = random_wna16(m, 2);
    Wna16Conversion c(m);
    ASSERT_TRUE(c.selection);
    Wna16Model less = m;
    less.zeros = less.order = false;
    c.weights = stacked_weights(less, c.config.get());
    const Failure f = c.convert();
    EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT) << row.format;
    EXPECT_THAT(f.message, testing::HasSubstr(row.role));
  }
}

// Bytes of a Marlin layer that say no order: neither numbers nor a layer come out of them.
TEST(Wna16Refusals, DamagedOrdersOfMarlin) {
  Wna16Model m;
  m.order = true;
  m.dtype = MOE_DTYPE_F16;
  m.extra = wna16_targets()[1].members;
  m = random_wna16(m, 12);
  for (const char* role : {"w13_g_idx_sort_indices", "w13_g_idx"})
    for (const std::int32_t bad : {-1, 128, 1 << 30, 3}) {  // 3: a place that another column has; a group out of order
      Wna16Conversion c(m);
      ASSERT_EQ(c.convert().status, MOE_OK);
      moe_tensor list{};
      list.struct_size = sizeof list;
      ASSERT_EQ(moe_packed_get(c.packed.get(), role, 1, &list, nullptr), MOE_OK);
      auto* first = static_cast<std::int32_t*>(list.data);
      if (bad == 3 && first[0] == 3) ++first;
      *first = bad;
      std::vector<float> dense(static_cast<std::size_t>(2 * m.I * m.H));
      const moe_tensor out = tensor(MOE_DTYPE_F32, {2 * m.I, m.H}, dense.data());
      const Failure numbers =
          failure([&](moe_error** e) { return moe_packed_dequantize(c.packed.get(), "w13_weight", 1, &out, e); });
      EXPECT_EQ(numbers.status, MOE_ERR_FORMAT) << role << " " << bad;
      EXPECT_THAT(numbers.subject, testing::HasSubstr(role + std::string("[1,")));
      Wna16Model run = m;
      run.extra = {{"moe_backend", "emulation"}, {"emulation_layout", "dense"}};
      const ConfigPtr config = make_config(run.config_text());
      const SelectionPtr selection = make_selection(config.get());
      const Failure layer = failure([&](moe_error** e) {
        moe_layer* none = nullptr;
        return moe_layer_create(nullptr, selection.get(), c.packed.get(), nullptr, &none, e);
      });
      EXPECT_EQ(layer.status, MOE_ERR_FORMAT) << role << " " << bad;
    }
}

// --- shapes: get_weight_shape's table ----------------------------------------------------------------------------

Failure set_failure(const moe_config* config, const std::string& role, moe_dtype dtype,
                    std::vector<std::int64_t> shape) {
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config, o, e); });
  const std::vector<std::byte> data(1 << 20);
  const moe_tensor t = tensor(dtype, std::move(shape), data.data());
  return failure([&](moe_error** e) { return moe_weights_set(w.get(), role.c_str(), &t, nullptr, nullptr, e); });
}

// The shape of the table, and of each extent one less, one more, or that of another packing factor.
TEST(Wna16Refusals, ShapesOfTheTable) {
  for (const int bits : {4, 8})
    for (const std::int64_t group : {32, -1})
      for (const bool transposed : {false, true}) {  // Marlin; row-major as FlashInfer takes them
        Wna16Model m;
        m.format = "pack-quantized";
        m.bits = bits, m.group = group, m.transposed = transposed;
        m.dtype = MOE_DTYPE_BF16;
        m.E = 2, m.H = 256, m.I = 256;
        if (transposed) m.extra = wna16_targets()[1].members;
        if (!transposed && bits == 4 && group == 32) m.extra = wna16_targets()[4].members;
        const ConfigPtr config = make_config(m.config_text());
        ASSERT_TRUE(make_selection(config.get()));
        const std::int64_t pack = 32 / bits, g = group == -1 ? 1 : 256 / group;
        struct Row {
          const char* role;
          moe_dtype dtype;
          std::int64_t n, columns;
        };
        for (const Row& row :
             {Row{"w13_weight", MOE_DTYPE_I32, 512, 256 / pack}, Row{"w13_scale", MOE_DTYPE_BF16, 512, g},
              Row{"w2_weight", MOE_DTYPE_I32, 256, 256 / pack}, Row{"w2_scale", MOE_DTYPE_BF16, 256, g}}) {
          SCOPED_TRACE(std::string(row.role) + " bits " + std::to_string(bits) + " group " + std::to_string(group));
          const std::vector<std::int64_t> right = transposed ? std::vector<std::int64_t>{2, row.columns, row.n}
                                                             : std::vector{std::int64_t{2}, row.n, row.columns};
          EXPECT_EQ(set_failure(config.get(), row.role, row.dtype, right).status, MOE_OK);
          std::vector<std::vector<std::int64_t>> wrong = {{2, right[2], right[1]}, {right[1], right[2]}};
          for (std::size_t d = 0; d < 3; ++d)
            for (const std::int64_t extent : {right[d] - 1, right[d] + 1, right[d] * 2}) {
              wrong.push_back(right);
              wrong.back()[d] = extent;
            }
          for (const auto& shape : wrong) {
            if (shape == right) continue;
            const Failure f = set_failure(config.get(), row.role, row.dtype, shape);
            EXPECT_EQ(f.status, MOE_ERR_SHAPE) << testing::PrintToString(shape);
            EXPECT_EQ(f.subject, row.role);
          }
          EXPECT_EQ(set_failure(config.get(), row.role, MOE_DTYPE_I8, right).status, MOE_ERR_DTYPE);
        }
      }
}

// What Marlin's method asks of a layer, with the reason and the member.
TEST(Wna16Refusals, ChecksOfTheMarlinMethod) {
  struct Row {
    nlohmann::json members;
    const char *reason, *subject;
  };
  const Row rows[] = {
      {{{"hidden_dim", 192}}, "MOE_REJECT_ALIGNMENT", "/hidden_dim"},
      {{{"hidden_dim", 144}, {"marlin_input_dtype", "int8"}}, "MOE_REJECT_ALIGNMENT", "/hidden_dim"},  // K % 32 == 16
      {{{"hidden_dim", 144}, {"marlin_input_dtype", "fp8"}, {"platform", {{"type", "cuda"}, {"capability", {8, 9}}}}},
       "MOE_REJECT_ALIGNMENT",
       "/hidden_dim"},
      {{{"apply_router_weight_on_input", true}, {"top_k", 1}}, "MOE_REJECT_ROUTING", "/apply_router_weight_on_input"},
      {{{"in_dtype", "float32"}}, "MOE_REJECT_INPUT_DTYPE", "/in_dtype"},
  };
  for (const Row& row : rows) {
    Wna16Model m;
    m.dtype = MOE_DTYPE_BF16;
    m.extra = wna16_targets()[1].members;
    m.extra.update(row.members);
    if (row.members.contains("marlin_input_dtype")) m.group = -1;  // no group divides 144
    SCOPED_TRACE(m.config_text());
    const ConfigPtr config = make_config(m.config_text());
    const Failure f = failure([&](moe_error** e) {
      moe_selection* none = nullptr;
      return moe_select_backend(nullptr, config.get(), nullptr, 0, &none, e);
    });
    EXPECT_EQ(f.status, MOE_ERR_NO_BACKEND);
    bool found = false;
    for (const auto& candidate : f.details["candidates"]) {
      if (candidate["experts"] != "MarlinExperts") continue;
      found = true;
      EXPECT_EQ(candidate["reason"], row.reason);
      EXPECT_EQ(candidate["subject"], row.subject);
    }
    EXPECT_TRUE(found) << f.details.dump();
  }
}

}  // namespace
}  // namespace moe::test::wna16_refusals_test
