// Rows of the checkpoint formats and names of expert tensors (scheme/checkpoint.h), also against the
// checkpoint vectors.
#include "scheme/checkpoint.h"
#include "scheme/tensor_check.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "support/rooms.h"
#include "support/tensor_sets.h"
#include "support/vectors.h"

namespace moe::test::checkpoint_test {
namespace {

ExpertModule qwen(Format format = Format::pack_quantized) {
  ExpertModule m;
  m.prefix = "model.layers.3.mlp.experts";
  m.projections = {"gate_proj", "up_proj", "down_proj"};
  m.num_experts = 128;
  m.set = set_of(format);
  return m;
}

std::vector<std::int64_t> shape_of(Format format, std::string_view suffix, const MatrixSize& size) {
  for (const CheckpointTensor& row : set_of(format)->tensors) {
    if (row.suffix != suffix) continue;
    const TensorShape s = row.shape(size);
    return {s.span().begin(), s.span().end()};
  }
  ADD_FAILURE() << "no row " << suffix;
  return {};
}

bool is_readable(const Quantization& q) { return tensor_set(q) != nullptr; }

using Dims = std::vector<std::int64_t>;

TEST(Checkpoint, ShapesOfWholeTensors) {
  const MatrixSize gate = projection_size(Projection::gate, 2048, 768, {.groups = Groups::even(128), .num_bits = 4});
  const MatrixSize down = projection_size(Projection::down, 2048, 770, {.groups = {}, .num_bits = 4});
  EXPECT_EQ(shape_of(Format::int_quantized, "weight", gate), (Dims{768, 2048}));
  EXPECT_EQ(shape_of(Format::int_quantized, "weight_scale", gate), (Dims{768, 16}));
  EXPECT_EQ(shape_of(Format::int_quantized, "bias", gate), (Dims{768}));
  EXPECT_EQ(shape_of(Format::int_quantized, "weight_scale", down), (Dims{2048, 1}));
  EXPECT_EQ(shape_of(Format::pack_quantized, "weight_packed", gate), (Dims{768, 256}));
  EXPECT_EQ(shape_of(Format::pack_quantized, "weight_packed", down), (Dims{2048, 97}));  // 770 / 8, rounded up
  EXPECT_EQ(shape_of(Format::pack_quantized, "weight_shape", down), (Dims{2}));
  const MatrixSize one_group = projection_size(Projection::down, 64, 32, {.groups = Groups::even(32), .num_bits = 4});
  EXPECT_EQ(one_group.group_count(), 1);
  const MatrixSize eight_bits = projection_size(Projection::up, 66, 32, {.groups = {}, .num_bits = 8});
  EXPECT_EQ(shape_of(Format::pack_quantized, "weight_packed", eight_bits), (Dims{32, 17}));
}

TEST(Checkpoint, FieldsOfAwqWords) {
  constexpr std::array<int, 8> kNibbles = {0, 4, 1, 5, 2, 6, 3, 7};
  constexpr std::array<int, 4> kBytes = {0, 2, 1, 3};
  for (int c = 0; c < 8; ++c) EXPECT_EQ(awq_field(4, c), at(kNibbles, c));
  for (int c = 0; c < 4; ++c) EXPECT_EQ(awq_field(8, c), at(kBytes, c));
}

TEST(Checkpoint, DtypesOfRows) {
  for (const Format f : {Format::int_quantized, Format::pack_quantized})
    for (const CheckpointTensor& row : set_of(f)->tensors) {
      const bool floats = row.kind == TensorKind::scale || row.kind == TensorKind::bias;
      for (const DType t : {DType::f32, DType::f16, DType::bf16}) EXPECT_EQ(row.allows(t), floats) << row.suffix;
      EXPECT_EQ(row.follows_model_dtype(), floats);
      EXPECT_EQ(row.allows(DType::i8), row.suffix == "weight");
      const bool words = row.suffix == "weight_packed" || row.kind == TensorKind::zero_point;
      EXPECT_EQ(row.allows(DType::i32), words || row.kind == TensorKind::g_idx);
      EXPECT_EQ(row.allows(DType::i64), row.suffix == "weight_shape");
      EXPECT_FALSE(row.allows(DType::invalid));
      EXPECT_FALSE(row.allows(DType::u8));
      if (floats) {
        EXPECT_EQ(row.dtypes_text(), "f32, f16 or bf16");
      }
      if (row.kind == TensorKind::shape) {
        EXPECT_EQ(row.dtypes_text(), "i64");
      }
    }
  EXPECT_TRUE(set_of(Format::none)->tensor(TensorKind::weight)->allows(DType::f16));
  EXPECT_EQ(set_of(Format::none)->tensor(TensorKind::scale), nullptr);
  for (const Format f : {Format::mxfp4_pack_quantized, Format::mxfp4_gpt_oss}) {
    EXPECT_EQ(set_of(f)->tensor(TensorKind::weight)->dtypes_text(), "u8 or i8");
    EXPECT_EQ(set_of(f)->tensor(TensorKind::scale)->dtypes_text(), "u8 or f8_e8m0fnu");
    EXPECT_EQ(set_of(f)->tensor(TensorKind::scale_2), nullptr);
  }
  const TensorSet& nv = *set_of(Format::nvfp4_pack_quantized);
  EXPECT_EQ(nv.tensor(TensorKind::scale)->dtypes_text(), "f8_e4m3fn");
  for (const TensorKind k :
       {TensorKind::scale_2, TensorKind::global_scale, TensorKind::input_scale, TensorKind::input_global_scale}) {
    EXPECT_EQ(nv.tensor(k)->dtypes_text(), "f32");
    EXPECT_EQ(other_form(other_form(k)), k);
    EXPECT_NE(is_divisor(k), is_divisor(other_form(k)));
  }
  EXPECT_EQ(other_form(TensorKind::scale), TensorKind::scale);
  const TensorSet& mx = *set_of(Format::mxfp8_quantized);
  EXPECT_EQ(mx.tensor(TensorKind::weight)->dtypes_text(), "f8_e4m3fn");
  EXPECT_EQ(mx.tensor(TensorKind::scale)->dtypes_text(), "u8 or f8_e8m0fnu");
}

struct Fp8Form {
  const char* hf;  // "": none
  QuantArgs weights;
  const char* scale;
  Dims shape;  // of the scales of a gate of 256 x 320
};

TEST(Checkpoint, Fp8ScalesByTheirForm) {
  const auto args = [](Strategy strategy) {
    QuantArgs a;
    a.type = NumType::floating;
    a.strategy = strategy;
    if (strategy == Strategy::group) a.group_size = 64;
    if (strategy == Strategy::block) a.block_structure = {{128, 128}};
    return a;
  };
  for (const Fp8Form& f : {Fp8Form{"", args(Strategy::tensor), "weight_scale", {1}},
                           Fp8Form{"", args(Strategy::channel), "weight_scale", {256, 1}},
                           Fp8Form{"", args(Strategy::group), "weight_scale", {256, 5}},
                           Fp8Form{"", args(Strategy::block), "weight_scale", {2, 3}},
                           Fp8Form{"fp8", args(Strategy::block), "weight_scale_inv", {2, 3}},
                           Fp8Form{"modelopt", args(Strategy::channel), "weight_scale", {256, 1}},
                           Fp8Form{"modelopt", args(Strategy::block), "weight_scale", {2, 3}}}) {
    Quantization q;
    q.weights = f.weights;
    q.format = Format::float_quantized;
    if (*f.hf != '\0') q.file_method = f.hf;
    const TensorSet* set = tensor_set(q);
    ASSERT_NE(set, nullptr);
    EXPECT_EQ(set->codes, Codes::bits);
    const CheckpointTensor& scale = *set->tensor(TensorKind::scale);
    EXPECT_EQ(scale.suffix, f.scale);
    EXPECT_EQ(scale.dtypes_text(), "f32, f16, bf16 or f8_e8m0fnu");
    MatrixSize numbers{.groups = Groups::of_size(q.weights->group_size.value_or(-1)), .num_bits = 8};
    if (q.weights->block_structure) numbers.block = *q.weights->block_structure;
    const TensorShape shape = scale.shape(projection_size(Projection::gate, 320, 256, numbers));
    EXPECT_EQ(Dims(shape.span().begin(), shape.span().end()), f.shape);
    // Other files of floats have the names of compressed-tensors.
    EXPECT_EQ(set->tensor(TensorKind::input_scale)->need(extras_of(q, false)), Need::absent);
    q.input_activations.emplace();
    EXPECT_EQ(set->tensor(TensorKind::input_scale)->need(extras_of(q, false)), Need::optional);
    q.weights->num_bits = 4;
    EXPECT_EQ(tensor_set(q), nullptr);
  }
}

TEST(Checkpoint, ReadableAreUnquantizedWna16AndInt8Activations) {
  Quantization q;
  EXPECT_TRUE(is_readable(q));
  q.format = Format::int_quantized;
  q.weights.emplace();
  q.weights->num_bits = 4;
  q.weights->strategy = Strategy::group;
  q.weights->group_size = 32;
  EXPECT_FALSE(is_readable(q));  // 16-bit activations
  for (const Format f : {Format::pack_quantized, Format::gptq, Format::awq}) {
    q.format = f;
    EXPECT_TRUE(is_readable(q));
    q.weights->symmetric = false;
    q.weights->actorder = ActOrder::group;
    q.is_transposed = true;
    EXPECT_TRUE(is_readable(q));
    q.weights->symmetric = true;
    q.weights->actorder = ActOrder::none;
  }
  q.input_activations.emplace();
  q.input_activations->strategy = Strategy::token;
  q.input_activations->dynamic = Dynamic::yes;
  for (const Format f : {Format::int_quantized, Format::pack_quantized, Format::gptq, Format::awq}) {
    q.format = f;
    q.is_transposed = false;
    EXPECT_EQ(is_readable(q), f == Format::int_quantized || f == Format::pack_quantized);
    q.is_transposed = true;
    EXPECT_FALSE(is_readable(q));
  }
  q.format = Format::pack_quantized;
  q.is_transposed = false;
  q.weights->type = NumType::floating;
  EXPECT_FALSE(is_readable(q));
  q.weights->type = NumType::integer;
  q.weights->actorder = ActOrder::group;
  EXPECT_FALSE(is_readable(q));
  q.weights->actorder = ActOrder::weight;
  EXPECT_TRUE(is_readable(q));
  q.weights->symmetric = false;
  EXPECT_FALSE(is_readable(q));
}

TEST(Checkpoint, NeedsOfZeroPointsAndOrder) {
  Quantization q;
  q.format = Format::gptq;
  q.weights.emplace();
  q.weights->num_bits = 4;
  q.weights->strategy = Strategy::channel;
  const auto zeros = [&] { return extras_of(q, false).zeros; };
  const auto g_idx = [&] { return extras_of(q, false).g_idx; };
  EXPECT_EQ(extras_of(q, true).bias, Need::required);
  EXPECT_EQ(zeros(), Need::optional);
  EXPECT_EQ(g_idx(), Need::optional);
  q.weights->actorder = ActOrder::group;
  EXPECT_EQ(g_idx(), Need::required);
  q.format = Format::awq;
  EXPECT_EQ(zeros(), Need::optional);
  q.format = Format::pack_quantized;
  EXPECT_EQ(zeros(), Need::absent);
  q.weights->symmetric = false;
  EXPECT_EQ(zeros(), Need::required);
  q.input_activations.emplace();
  EXPECT_EQ(zeros(), Need::absent);
  EXPECT_EQ(g_idx(), Need::absent);
}

TEST(Checkpoint, OneScaleForAllRows) {
  Quantization q;
  q.format = Format::int_quantized;
  q.weights.emplace();
  q.weights->strategy = Strategy::channel;
  q.input_activations.emplace();
  q.input_activations->strategy = Strategy::token;
  q.input_activations->dynamic = Dynamic::yes;
  const TensorSet* by_row = tensor_set(q);
  q.weights->strategy = Strategy::tensor;
  const TensorSet* whole = tensor_set(q);
  ASSERT_TRUE(by_row != nullptr && whole != nullptr && whole != by_row);  // two sets for one word of the config
  const MatrixSize gate = projection_size(Projection::gate, 2048, 768, {.groups = {}, .num_bits = 8});
  const auto shape = [&](const TensorSet* set, TensorKind kind) { return set->tensor(kind)->shape(gate); };
  EXPECT_EQ(shape(by_row, TensorKind::scale), (TensorShape{{768, 1}, 2}));
  EXPECT_EQ(shape(whole, TensorKind::scale), (TensorShape{{1, 0}, 1}));
  EXPECT_EQ(shape(whole, TensorKind::weight), shape(by_row, TensorKind::weight));
  for (const TensorSet* set : {by_row, whole})  // callers hand over one for each row
    EXPECT_EQ(set->tensor(TensorKind::scale)->role_shape(gate), (TensorShape{{768, 1}, 2}));
}

TEST(Checkpoint, BlocksAndBytes) {
  const auto shape = [](Axis first, Axis second, const MatrixSize& m) {
    return CheckpointTensor{"t", TensorKind::scale, Presence::required, {DType::f32}, {first, second}}.shape(m);
  };
  const MatrixSize fp8{.n = 300, .k = 520, .num_bits = 8, .block = {128, 256}};
  EXPECT_EQ(shape(Axis::n_blocks, Axis::k_blocks, fp8), (TensorShape{{3, 3}, 2}));  // the last ones are not whole
  const MatrixSize fp4{.n = 7, .k = 65, .groups = Groups::even(13), .num_bits = 4};
  EXPECT_EQ(shape(Axis::n, Axis::k_bytes, fp4), (TensorShape{{7, 33}, 2}));
  const MatrixSize fp6{.n = 7, .k = 64, .num_bits = 6};
  EXPECT_EQ(shape(Axis::n, Axis::k_bytes, fp6), (TensorShape{{7, 48}, 2}));
}

TEST(Checkpoint, NamesOfStacksThatTheConfigGives) {
  ExpertModule m;
  m.prefix = "model.layers.3.moe";
  m.num_experts = 8;
  m.set = file_sets(Quantization{}, StackedWeights::rows_first).back();
  ASSERT_TRUE(m.is_stacked());
  const auto projection_of = [&](const std::string& name) -> std::optional<Projection> {
    const ParsedName p = parse_tensor_name("model.layers.3.moe." + name, m);
    return p.match == NameMatch::known ? std::optional(p.projection) : std::nullopt;
  };
  EXPECT_EQ(projection_of("gate_up_proj"), Projection::up);
  EXPECT_EQ(projection_of("gate_up_proj.weight"), Projection::up);
  EXPECT_EQ(projection_of("down_proj"), Projection::down);
  EXPECT_EQ(projection_of("down_proj.scale"), std::nullopt);
  m.stack = {{"input_linear.weight", "output_linear.weight"}};
  EXPECT_EQ(projection_of("input_linear"), Projection::up);
  EXPECT_EQ(projection_of("output_linear.weight"), Projection::down);
  EXPECT_EQ(projection_of("gate_up_proj"), std::nullopt);
  m.stack = {{"w1", "v1", "w2"}};  // apart
  EXPECT_EQ(projection_of("w1"), Projection::gate);
  EXPECT_EQ(projection_of("v1"), Projection::up);
  EXPECT_EQ(projection_of("w2"), Projection::down);
  EXPECT_EQ(projection_of("w13"), std::nullopt);
}

TEST(Checkpoint, ZeroExpertsHaveNoTensors) {
  ExpertModule m;
  m.prefix = "experts";
  m.projections = {"gate_proj", "up_proj", "down_proj"};
  m.num_experts = 4;
  m.zero_experts = 2;
  m.set = tensor_set(Quantization{});
  EXPECT_EQ(parse_tensor_name("experts.3.up_proj.weight", m).match, NameMatch::known);
  EXPECT_EQ(parse_tensor_name("experts.5.up_proj.weight", m).match, NameMatch::foreign);
  EXPECT_EQ(parse_tensor_name("experts.6.up_proj.weight", m).match, NameMatch::unknown_of_ours);
}

TEST(Checkpoint, ShapesOfColumnFirstTensors) {
  const MatrixSize gate = projection_size(Projection::gate, 2048, 768, {.groups = Groups::even(128), .num_bits = 4});
  EXPECT_EQ(shape_of(Format::gptq, "qweight", gate), (Dims{256, 768}));
  EXPECT_EQ(shape_of(Format::gptq, "scales", gate), (Dims{16, 768}));
  EXPECT_EQ(shape_of(Format::gptq, "qzeros", gate), (Dims{16, 96}));
  EXPECT_EQ(shape_of(Format::gptq, "g_idx", gate), (Dims{2048}));
  EXPECT_EQ(shape_of(Format::awq, "qweight", gate), (Dims{2048, 96}));
  EXPECT_EQ(shape_of(Format::awq, "qzeros", gate), (Dims{16, 96}));
  EXPECT_EQ(shape_of(Format::pack_quantized, "weight_zero_point", gate), (Dims{96, 16}));
  const MatrixSize eight = projection_size(Projection::down, 66, 32, {.groups = {}, .num_bits = 8});
  EXPECT_EQ(shape_of(Format::gptq, "qweight", eight), (Dims{8, 66}));
  EXPECT_EQ(shape_of(Format::gptq, "qzeros", eight), (Dims{1, 17}));
  for (const Format f : {Format::gptq, Format::awq})
    for (const CheckpointTensor& row : set_of(f)->tensors) {
      const bool matrix = row.shape(gate).ndim == 2;
      EXPECT_EQ(row.k_first(), matrix) << row.suffix;
      EXPECT_EQ(row.n_axis(), row.kind == TensorKind::g_idx ? -1 : matrix ? 1 : 0) << row.suffix;
    }
}

TEST(Checkpoint, ShapesOfNarrowCodes) {
  struct Case {
    Format format;
    int bits;
    std::int64_t k_words, n_words;  // of 768 rows and 2048 columns
  };
  for (const Case& c : {Case{Format::pack_quantized_w2, 2, 128, 48}, Case{Format::pack_quantized_w3, 3, 192, 72},
                        Case{Format::pack_quantized_w5, 5, 320, 120}, Case{Format::pack_quantized_w6, 6, 384, 144},
                        Case{Format::pack_quantized_w7, 7, 448, 168}}) {
    ASSERT_TRUE(is_narrow(c.format));
    EXPECT_EQ(read_as(c.format), Format::pack_quantized);
    EXPECT_EQ(stored_bits(c.format, 4), c.bits);
    const MatrixSize gate =
        projection_size(Projection::gate, 2048, 768, {.groups = Groups::even(128), .num_bits = c.bits});
    EXPECT_EQ(shape_of(c.format, "weight_packed", gate), (Dims{768, c.k_words})) << c.bits;
    EXPECT_EQ(shape_of(c.format, "weight_zero_point", gate), (Dims{c.n_words, 16})) << c.bits;
    EXPECT_EQ(shape_of(c.format, "weight_scale", gate), (Dims{768, 16})) << c.bits;
    EXPECT_EQ(set_of(c.format)->tensor(TensorKind::g_idx), nullptr);
  }
  const MatrixSize gate = projection_size(Projection::gate, 2048, 768, {.groups = Groups::even(32), .num_bits = 6});
  EXPECT_EQ(read_as(Format::mxfp6_pack_quantized), Format::mxfp8_quantized);
  EXPECT_EQ(shape_of(Format::mxfp6_pack_quantized, "weight_packed", gate), (Dims{768, 1536}));
  EXPECT_EQ(shape_of(Format::mxfp6_pack_quantized, "weight_scale", gate), (Dims{768, 64}));
  EXPECT_FALSE(is_narrow(Format::pack_quantized));
  EXPECT_EQ(read_as(Format::gptq), Format::gptq);
  EXPECT_EQ(stored_bits(Format::gptq, 8), 8);
}

TEST(Checkpoint, WhereATensorCanBeCut) {
  struct Case {
    Axis axis;
    int bits;
    std::int64_t lines, elements;
  };
  for (const Case& c :
       {Case{Axis::k, 8, 1, 1}, Case{Axis::k_words, 4, 8, 1}, Case{Axis::n_words, 8, 4, 1},
        Case{Axis::k_words, 2, 16, 1}, Case{Axis::n_words, 3, 32, 3}, Case{Axis::k_words, 5, 32, 5},
        Case{Axis::k_words, 6, 16, 3}, Case{Axis::n_words, 7, 32, 7}, Case{Axis::k_words, 8, 4, 1},
        Case{Axis::k_bytes, 4, 2, 1}, Case{Axis::k_bytes, 6, 4, 3}, Case{Axis::k_bytes, 8, 1, 1},
        Case{Axis::n_blocks, 8, 64, 1}, Case{Axis::k_blocks, 8, 128, 1}, Case{Axis::groups, 4, 32, 1}}) {
    const MatrixSize m = {.n = 128, .k = 256, .groups = Groups::even(32), .num_bits = c.bits, .block = {64, 128}};
    const AxisStep step = step_of(c.axis, m);
    EXPECT_EQ(step.lines, c.lines) << step.begins << " " << c.bits;
    EXPECT_EQ(step.elements, c.elements) << step.begins << " " << c.bits;
  }
}

TEST(Checkpoint, NamesThereAndBack) {
  ExpertModule m = qwen();
  m.has_bias = true;
  m.zeros = m.g_idx = Need::optional;
  std::set<std::string> names;
  for (const std::int64_t e : {0, 1, 9, 10, 127})
    for (const Projection p : {Projection::gate, Projection::up, Projection::down})
      for (const CheckpointTensor& row : m.set->tensors) {
        const std::string name = tensor_name(m, e, p, row);
        EXPECT_TRUE(names.insert(name).second) << name;
        const ParsedName back = parse_tensor_name(name, m);
        ASSERT_EQ(back.match, NameMatch::known) << name << " " << back.why;
        EXPECT_EQ(back.expert, e);
        EXPECT_EQ(back.projection, p);
        EXPECT_EQ(back.tensor, &row);
      }
  EXPECT_EQ(names.count("model.layers.3.mlp.experts.127.down_proj.weight_packed"), 1U);
  m.prefix = "";
  EXPECT_EQ(tensor_name(m, 5, Projection::up, m.set->tensors[0]), "5.up_proj.weight_packed");
  EXPECT_EQ(parse_tensor_name("5.up_proj.weight_packed", m).match, NameMatch::known);
}

TEST(Checkpoint, NamesOfStacks) {
  ExpertModule m = qwen(Format::mxfp4_gpt_oss);
  m.has_bias = true;
  ASSERT_TRUE(m.is_stacked());
  for (const char* name : {"gate_up_proj_blocks", "gate_up_proj_scales", "gate_up_proj_bias", "down_proj_blocks",
                           "down_proj_scales", "down_proj_bias"}) {
    const std::string whole = std::string(m.prefix) + "." + name;
    const ParsedName p = parse_tensor_name(whole, m);
    ASSERT_EQ(p.match, NameMatch::known) << name;
    EXPECT_EQ(p.projection, name[0] == 'g' ? Projection::up : Projection::down);
    EXPECT_EQ(tensor_name(m, 0, p.projection, *p.tensor), whole);
  }
  const auto match = [&](const char* name) { return parse_tensor_name(std::string(m.prefix) + "." + name, m).match; };
  EXPECT_EQ(match("gate_up_proj"), NameMatch::unknown_of_ours);
  EXPECT_EQ(match("gate_up_proj.weight"), NameMatch::unknown_of_ours);
  EXPECT_EQ(match("gate_up_projection"), NameMatch::foreign);
  EXPECT_EQ(match("0.gate_proj.weight"), NameMatch::foreign);
  m.has_bias = false;
  EXPECT_EQ(match("down_proj_bias"), NameMatch::unknown_of_ours);
  // Which stacks unquantized files may have, the config says.
  EXPECT_EQ(file_sets({}, StackedWeights::none).size(), 1U);
  for (const StackedWeights w : {StackedWeights::rows_first, StackedWeights::columns_first}) {
    const auto sets = file_sets({}, w);
    ASSERT_EQ(sets.size(), 2U);
    EXPECT_EQ(sets[0], set_of(Format::none));
    EXPECT_EQ(sets[1]->tensor(TensorKind::weight)->k_first(), w == StackedWeights::columns_first);
  }
}

// Stacks with rows first have a set with columns first, and the other way around; by_shape begins with rows.
TEST(Checkpoint, OrdersOfStacks) {
  const auto fp8 = [](Strategy strategy, std::int64_t n, std::int64_t k) {
    Quantization q;
    q.format = Format::float_quantized;
    q.weights.emplace();
    q.weights->type = NumType::floating;
    q.weights->strategy = strategy;
    if (n > 0) q.weights->block_structure = {{n, k}};
    return q;
  };
  using enum StackedWeights;
  for (const Quantization& q : {Quantization{}, fp8(Strategy::block, 128, 128), fp8(Strategy::tensor, 0, 0)}) {
    const TensorSet *rows = file_sets(q, rows_first).back(), *columns = file_sets(q, columns_first).back();
    EXPECT_EQ(rows->stacked, rows_first);
    EXPECT_EQ(columns->stacked, columns_first);
    EXPECT_EQ(turned(q, *rows), columns);
    EXPECT_EQ(turned(q, *columns), rows);
    EXPECT_EQ(file_sets(q, by_shape), file_sets(q, rows_first));
    EXPECT_EQ(turned(q, *tensor_set(q)), nullptr);
    for (std::size_t i = 0; i < rows->tensors.size(); ++i) {
      EXPECT_EQ(rows->tensors[i].suffix, columns->tensors[i].suffix);
      EXPECT_EQ(rows->tensors[i].is_matrix(), columns->tensors[i].is_matrix());
      EXPECT_EQ(columns->tensors[i].k_first(), columns->tensors[i].is_matrix());
    }
  }
  const Quantization uneven = fp8(Strategy::block, 64, 128);
  EXPECT_EQ(file_sets(uneven, columns_first).size(), 1U);
  EXPECT_EQ(turned(uneven, *file_sets(uneven, rows_first).back()), nullptr);
  EXPECT_EQ(turned({}, *file_sets({}, flat).back()), nullptr);
}

// One tensor has several names, whichever format of 8-bit floats it is.
TEST(Checkpoint, OtherNamesOfFp8Scales) {
  ExpertModule m = qwen(Format::none);
  Quantization q;
  q.format = Format::float_quantized;
  q.weights.emplace();
  q.weights->type = NumType::floating;
  for (const Strategy strategy : {Strategy::tensor, Strategy::channel, Strategy::block}) {
    q.weights->strategy = strategy;
    q.weights->block_structure.reset();
    if (strategy == Strategy::block) q.weights->block_structure = {{128, 128}};
    for (const char* method : {"", "fp8", "modelopt"}) {
      q.file_method = method;
      m.set = tensor_set(q);
      ASSERT_NE(m.set, nullptr);
      m.input_scale = Need::optional;
      const auto kind_of = [&](const char* suffix) -> std::optional<TensorKind> {
        const ParsedName p = parse_tensor_name(std::string(m.prefix) + ".0.up_proj." + suffix, m);
        return p.match == NameMatch::known ? std::optional(p.tensor->kind) : std::nullopt;
      };
      for (const char* suffix : {"weight_scale", "weight_scale_inv", "scale", "qscale_weight"})
        EXPECT_EQ(kind_of(suffix), TensorKind::scale) << suffix;
      for (const char* suffix : {"input_scale", "activation_scale", "qscale_act"})
        EXPECT_EQ(kind_of(suffix), TensorKind::input_scale) << suffix;
      for (const char* suffix : {"", "scales", "weight_scale_2"}) EXPECT_EQ(kind_of(suffix), std::nullopt) << suffix;
    }
  }
}

TEST(Checkpoint, ForeignNames) {
  const ExpertModule m = qwen();
  for (const char* name :
       {"", ".", "model.layers.3.mlp.experts", "model.layers.3.mlp.experts.", "model.layers.3.mlp.gate.weight",
        "model.layers.31.mlp.experts.0.up_proj.weight_packed", "model.layers.3.mlp.experts_0.up_proj.weight_packed",
        "xmodel.layers.3.mlp.experts.0.up_proj.weight_packed", "model.layers.3.mlp.experts.gate_up_proj",
        "model.layers.3.mlp.experts.0", "model.layers.3.mlp.experts.0.", "model.layers.3.mlp.experts.0.up_proj",
        "model.layers.3.mlp.experts.0.w1.weight_packed", "model.layers.3.mlp.experts.0.up_proj2.weight_packed",
        "model.layers.3.mlp.experts.shared.up_proj.weight_packed", "model.layers.3.mlp.experts..up_proj.weight_packed",
        "model.layers.3.mlp.experts.-.up_proj.weight_packed", "model.layers.3.mlp.experts.0x1.up_proj.weight_packed"})
    EXPECT_EQ(parse_tensor_name(name, m).match, NameMatch::foreign) << name;
}

TEST(Checkpoint, NamesOfOursWithoutAPlace) {
  const auto why = [](const ExpertModule& m, const std::string& rest) {
    const ParsedName p = parse_tensor_name("model.layers.3.mlp.experts." + rest, m);
    EXPECT_EQ(p.match, NameMatch::unknown_of_ours) << rest;
    EXPECT_EQ(p.tensor, nullptr);
    return std::string(p.why);
  };
  for (const char* number : {"128", "007", "00", "-1", "+1", "99999999999999999999999"})
    EXPECT_NE(why(qwen(), number + std::string(".up_proj.weight_packed")).find("expert number"), std::string::npos)
        << number;
  EXPECT_NE(why(qwen(), "0.up_proj.weight_zero_point").find("no zero points"), std::string::npos);
  EXPECT_NE(why(qwen(), "0.up_proj.weight_g_idx").find("no activation order"), std::string::npos);
  for (const char* suffix : {"weight", "qzeros", "g_idx", "", "weight_packed.x", "input_scale"})
    EXPECT_NE(why(qwen(), std::string("0.up_proj.") + suffix).find("no tensor of this name"), std::string::npos)
        << suffix;
  EXPECT_NE(why(qwen(Format::int_quantized), "0.up_proj.weight_shape").find("no tensor"), std::string::npos);
  EXPECT_NE(why(qwen(), "0.up_proj.bias").find("no bias"), std::string::npos);
  ExpertModule ungated = qwen();
  ungated.gated = false;
  EXPECT_NE(why(ungated, "0.gate_proj.weight_packed").find("ungated"), std::string::npos);
  EXPECT_EQ(parse_tensor_name("model.layers.3.mlp.experts.0.up_proj.weight_packed", ungated).match, NameMatch::known);
}

TEST(Checkpoint, RolesAndHalves) {
  EXPECT_EQ(role_of(Projection::gate, TensorKind::weight), Role::w13_weight);
  EXPECT_EQ(role_of(Projection::up, TensorKind::scale), Role::w13_scale);
  EXPECT_EQ(role_of(Projection::down, TensorKind::bias), Role::w2_bias);
  EXPECT_EQ(role_of(Projection::down, TensorKind::weight), Role::w2_weight);
  EXPECT_EQ(role_of(Projection::gate, TensorKind::shape), std::nullopt);
  EXPECT_EQ(half_of(Projection::gate, true), Half::w1);
  EXPECT_EQ(half_of(Projection::up, true), Half::w3);
  EXPECT_EQ(half_of(Projection::up, false), Half::whole);
  EXPECT_EQ(half_of(Projection::down, true), Half::whole);
}

TEST(Checkpoint, VectorsHaveTheTensorsOfTheRows) {
  const struct {
    const char* file;
    Format format;
    std::int64_t group;
  } cases[] = {{"w4a8_int8/ckpt_cw_int_quantized.safetensors", Format::int_quantized, -1},
               {"w4a8_int8/ckpt_g32_int_quantized.safetensors", Format::int_quantized, 32},
               {"w4a8_int8/ckpt_cw_pack_quantized.safetensors", Format::pack_quantized, -1},
               {"w4a8_int8/ckpt_g32_pack_quantized.safetensors", Format::pack_quantized, 32}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.file);
    const VecFile file = load_vectors(c.file);
    const std::int64_t experts = std::stoll(file.meta.at("E")), hidden = std::stoll(file.meta.at("H")),
                       intermediate = std::stoll(file.meta.at("I"));
    ExpertModule m = qwen(c.format);
    m.prefix = "model.layers.0.mlp.experts";
    m.num_experts = experts;
    std::size_t expected = 0;
    for (const CheckpointTensor& row : set_of(c.format)->tensors) expected += row.need({}) != Need::absent ? 1 : 0;
    EXPECT_EQ(file.tensors.size(), expected * 3 * static_cast<std::size_t>(experts));
    for (const auto& [name, tensor] : file.tensors) {
      const ParsedName p = parse_tensor_name(name, m);
      ASSERT_EQ(p.match, NameMatch::known) << name;
      EXPECT_TRUE(p.tensor->allows(tensor.dtype)) << name;
      const MatrixSize size =
          projection_size(p.projection, hidden, intermediate, {.groups = Groups::of_size(c.group), .num_bits = 4});
      const TensorShape shape = p.tensor->shape(size);
      EXPECT_EQ(tensor.shape, Dims(shape.span().begin(), shape.span().end())) << name;
      if (p.tensor->kind == TensorKind::shape) {
        EXPECT_EQ(tensor.as<std::int64_t>(), (Dims{size.n, size.k})) << name;
      }
    }
  }
}

}  // namespace
}  // namespace moe::test::checkpoint_test
