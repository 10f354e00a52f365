// Every tensor argument of the C API on memory that ends, or begins, at a guard page, for every kernel row that this
// machine runs: weights, packed blocks, activations, routing, outputs, workspaces. Inputs are read-only; the results
// are those of the same calls in plain memory.
#include "support/guard_pages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/capi.h"
#include "support/p16.h"
#include "support/rooms.h"

namespace moe::test::guard_pages_test {
namespace {

// A described machine whose best row is `kernel`.
PlatformPtr platform_of(const Kernel& kernel) {
  nlohmann::json p = {{"type", "cpu"}, {"arch", kArchNames[static_cast<std::size_t>(native_arch())]}};
  p["features"] = nlohmann::json::array();
  const FeatureSet features = isa_features(kernel.id->isa);
  for (std::size_t i = 0; i < kFeatureNames.size(); ++i)
    if (features.test(i)) p["features"].push_back(kFeatureNames[i]);
  const std::string text = p.dump();
  return make<PlatformPtr>(
      [&](moe_platform** o, moe_error** e) { return moe_platform_create(text.data(), text.size(), o, e); });
}

struct Shape {
  std::int64_t hidden, inter, group;
  const char* activation;
};
// Tails of 16 and 64 in both sizes, groups and channels.
const Shape kShapes[] = {
    {64, 64, 32, "silu"},         {96, 160, 32, "swigluoai_uninterleave"},
    {160, 96, -1, "silu"},        {34, 46, -1, "swiglustep"},
    {288, 96, 96, "swigluoai"},   {256, 128, 128, "silu"},
    {128, 320, 64, "swiglustep"},
};
std::vector<Shape> shapes_of(const Kernel& kernel) {
  std::vector<Shape> shapes;
  for (const Shape& s : kShapes)
    if (kernel.id->takes(Groups::of_size(s.group))) shapes.push_back(s);
  return shapes;
}
constexpr std::int64_t kTokens[] = {1, 2, 5, 17, 20};
constexpr const char* kTypes[] = {"float32", "bfloat16", "float16"};

// Tensors of a set over guarded copies of the model's.
struct GuardedModel {
  GuardedModel(const Model& m, Flush flush) {
    for (StackedTensor t : stacked(m)) {
      std::size_t bytes = static_cast<std::size_t>(dtype_bits(static_cast<DType>(t.tensor.dtype)) / 8);
      const std::size_t element = bytes;
      for (int d = 0; d < t.tensor.ndim; ++d) bytes *= static_cast<std::size_t>(t.tensor.shape[d]);
      memory.emplace_back(t.tensor.data, bytes, flush, element);
      t.tensor.data = memory.back().data();
      tensors.push_back(t);
    }
  }
  std::vector<Guarded> memory;
  std::vector<StackedTensor> tensors;
};

class GuardPages : public testing::TestWithParam<const Kernel*> {
 protected:
  static Model model(const Shape& s, std::int64_t tokens, const char* dtype) {
    Model m;
    m.E = 5, m.K = 3;
    m.H = s.hidden, m.I = s.inter, m.group = s.group, m.T = tokens;
    m.activation = s.activation;
    m.dtype = dtype;
    m.bias = s.group == 32 || s.group == -1;
    return random_model(std::move(m), static_cast<std::uint32_t>(s.hidden + tokens));
  }
  // A layer of the row under test, with weights converted from `set`.
  Steps layer_of(const Model& m) {
    Steps s;
    s.context = make_context("{\"threads\":2}");
    s.config = make_config(m.config_text());
    s.selection = make_selection(s.config.get(), s.context.get(), platform_of(*GetParam()).get());
    EXPECT_EQ(std::string(moe_selection_kernel(s.selection.get())), GetParam()->id->name);
    finish(s, m);
    return s;
  }
};

void expect_ok(moe_status status, moe_error* err) {
  const ErrorPtr error(err);
  ASSERT_EQ(status, MOE_OK) << moe_error_details_json(err);
}

// Rows of `width` elements at `stride`: as many bytes as the last row needs.
Guarded strided(const std::vector<std::byte>& rows, std::int64_t tokens, std::int64_t width, std::int64_t stride,
                std::size_t element, Flush flush) {
  const auto w = static_cast<std::size_t>(width) * element, s = static_cast<std::size_t>(stride) * element;
  std::vector<std::byte> wide(static_cast<std::size_t>(tokens - 1) * s + w, std::byte{0xa5});
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) std::memcpy(&wide[t * s], &rows[t * w], w);
  return {wide.data(), wide.size(), flush, element};
}

moe_tensor with_stride(moe_tensor t, std::int64_t stride) {
  t.strides[0] = stride;
  t.strides[1] = 1;
  return t;
}

// One call with ids of the caller: each tensor in its own guarded memory, rows `gap` elements apart.
void apply_guarded(const Steps& s, const Model& m, const std::vector<std::byte>& want, Flush flush, std::int64_t gap) {
  const std::size_t size = m.dtype == "float32" ? 4 : 2;
  const Guarded x = strided(m.x, m.T, m.H, m.H + gap, size, flush);
  const Guarded ids = strided(bytes_of(m.ids), m.T, m.K, m.K + gap, 4, flush);
  const Guarded weights = strided(bytes_of(m.weights), m.T, m.K, m.K + gap, 4, flush);
  const Guarded out(static_cast<std::size_t>((m.T - 1) * (m.H + gap) + m.H) * size, flush, size);
  std::uint64_t bytes = 0, alignment = 0;
  ASSERT_EQ(moe_layer_workspace_size(s.layer.get(), MOE_APPLY_TOPK, m.T, &bytes, &alignment, nullptr), MOE_OK);
  const Guarded workspace(bytes, flush, alignment);
  Call c(m);
  c.hidden = with_stride(tensor(m.io_type(), {m.T, m.H}, x.data()), m.H + gap);
  c.ids = with_stride(tensor(MOE_DTYPE_I32, {m.T, m.K}, ids.data()), m.K + gap);
  c.weights = with_stride(tensor(MOE_DTYPE_F32, {m.T, m.K}, weights.data()), m.K + gap);
  c.result = with_stride(tensor(m.io_type(), {m.T, m.H}, out.data()), m.H + gap);
  c.args.workspace = workspace.data();
  c.args.workspace_size = bytes;
  moe_error* err = nullptr;
  const moe_status status = moe_apply(s.layer.get(), &c.args, &err);
  ASSERT_NO_FATAL_FAILURE(expect_ok(status, err));
  const std::size_t row = static_cast<std::size_t>(m.H) * size, step = static_cast<std::size_t>(m.H + gap) * size;
  for (std::size_t t = 0; t < static_cast<std::size_t>(m.T); ++t)
    ASSERT_EQ(std::memcmp(out.data() + t * step, &want[t * row], row), 0) << "token " << t << " gap " << gap;
}

// Flat form, in place, sums onto the output.
void flat_and_in_place(const Steps& s, const Model& m, const std::vector<std::byte>& want, Flush flush) {
  const std::size_t size = m.dtype == "float32" ? 4 : 2;
  const Guarded x(m.x.data(), m.x.size(), flush, size), ids(m.ids, flush), weights(m.weights, flush);
  const Guarded out(want.size(), flush, size);
  moe_error* err = nullptr;
  const moe_status status = moe_apply_flat(s.layer.get(), m.T, m.io_type(), x.data(), 0, nullptr,
                                           ids.as<std::int32_t>(), weights.as<float>(), m.io_type(), out.data(), &err);
  ASSERT_NO_FATAL_FAILURE(expect_ok(status, err));
  EXPECT_EQ(out.bytes(), want);
  std::memcpy(out.data(), m.x.data(), m.x.size());
  Call c(m);
  c.hidden.data = c.result.data = out.data();
  c.args.flags = MOE_APPLY_IN_PLACE;
  const moe_status again = moe_apply(s.layer.get(), &c.args, &err);
  ASSERT_NO_FATAL_FAILURE(expect_ok(again, err));
  EXPECT_EQ(out.bytes(), want);
  std::memset(out.data(), 0, out.size());
  c.hidden.data = x.data();
  c.args.flags = MOE_APPLY_ACCUMULATE;
  const moe_status sums = moe_apply(s.layer.get(), &c.args, &err);
  ASSERT_NO_FATAL_FAILURE(expect_ok(sums, err));
  EXPECT_EQ(out.bytes(), want);
}

// Routing inside, alone, and their optional outputs; logits of every type.
void route_guarded(const Steps& s, const Model& m, Flush flush) {
  const std::size_t size = m.dtype == "float32" ? 4 : 2;
  std::vector<float> logits(static_cast<std::size_t>(m.T * m.E));
  std::memcpy(logits.data(), m.logits.data(), m.logits.size());
  for (const moe_dtype type : {MOE_DTYPE_F32, MOE_DTYPE_BF16, MOE_DTYPE_F16}) {
    std::vector<std::byte> values = m.logits;
    if (type != MOE_DTYPE_F32) {
      std::vector<std::uint16_t> half;
      for (const float v : logits) half.push_back(type == MOE_DTYPE_BF16 ? f32_to_bf16(v) : f32_to_f16(v));
      values = bytes_of(half);
    }
    const Guarded l(values.data(), values.size(), flush, type == MOE_DTYPE_F32 ? 4 : 2);
    const auto slots = static_cast<std::size_t>(m.T * m.K);
    const Guarded wide(slots * 8, flush, 8), w(slots * 4, flush, 4);
    const moe_tensor lt = tensor(type, {m.T, m.E}, l.data()), it = tensor(MOE_DTYPE_I64, {m.T, m.K}, wide.data()),
                     wt = tensor(MOE_DTYPE_F32, {m.T, m.K}, w.data());
    const moe_route_args route{sizeof route, 0, &lt, nullptr, &it, &wt};
    moe_error* err = nullptr;
    const moe_status status = moe_route(s.context.get(), s.config.get(), &route, &err);
    ASSERT_NO_FATAL_FAILURE(expect_ok(status, err));
    const Guarded x(m.x.data(), m.x.size(), flush, size), out(m.x.size(), flush, size), ids(slots * 4, flush, 4),
        weights(slots * 4, flush, 4);
    Call c(m);
    const moe_tensor ids_out = tensor(MOE_DTYPE_I32, {m.T, m.K}, ids.data()),
                     weights_out = tensor(MOE_DTYPE_F32, {m.T, m.K}, weights.data());
    c.args.mode = MOE_APPLY_ROUTER_LOGITS;
    c.args.router_logits = &lt;
    c.args.topk_ids = c.args.topk_weights = nullptr;
    c.args.out_topk_ids = &ids_out;
    c.args.out_topk_weights = &weights_out;
    c.hidden.data = x.data();
    c.result.data = out.data();
    const moe_status inside = moe_apply(s.layer.get(), &c.args, &err);
    ASSERT_NO_FATAL_FAILURE(expect_ok(inside, err));
    EXPECT_EQ(weights.bytes(), w.bytes());
    for (std::size_t i = 0; i < slots; ++i) ASSERT_EQ(ids.as<std::int32_t>()[i], wide.as<std::int64_t>()[i]);
  }
}

TEST_P(GuardPages, Calls) {
  std::size_t turn = 0;
  for (const Shape& shape : shapes_of(*GetParam()))
    for (const std::int64_t tokens : kTokens) {
      const char* dtype = kTypes[turn++ % std::size(kTypes)];
      SCOPED_TRACE(testing::Message() << "H " << shape.hidden << " I " << shape.inter << " g " << shape.group << " T "
                                      << tokens << " " << dtype);
      const Model m = model(shape, tokens, dtype);
      const Steps s = layer_of(m);
      Call plain(m);
      moe_error* err = nullptr;
      const moe_status status = moe_apply(s.layer.get(), &plain.args, &err);
      ASSERT_NO_FATAL_FAILURE(expect_ok(status, err));
      for (const Flush flush : kFlushes) {
        for (const std::int64_t gap : {0, 3}) ASSERT_NO_FATAL_FAILURE(apply_guarded(s, m, plain.out, flush, gap));
        ASSERT_NO_FATAL_FAILURE(flat_and_in_place(s, m, plain.out, flush));
        ASSERT_NO_FATAL_FAILURE(route_guarded(s, m, flush));
      }
    }
}

TEST_P(GuardPages, WeightsAndPackedBlocks) {
  for (const Shape& shape : shapes_of(*GetParam())) {
    SCOPED_TRACE(testing::Message() << "H " << shape.hidden << " I " << shape.inter << " g " << shape.group);
    const Model m = model(shape, 7, "bfloat16");
    const Steps s = layer_of(m);
    Call plain(m);
    ASSERT_EQ(moe_apply(s.layer.get(), &plain.args, nullptr), MOE_OK);
    const void* block = nullptr;
    std::uint64_t block_bytes = 0, needed = 0, alignment = 0;
    ASSERT_EQ(moe_packed_data(s.packed.get(), &block, &block_bytes, nullptr), MOE_OK);
    ASSERT_EQ(moe_selection_packed_size(s.selection.get(), &needed, &alignment, nullptr), MOE_OK);
    for (const Flush flush : kFlushes) {
      // sources and dst
      const GuardedModel g(m, flush);
      const Guarded dst(needed, flush, alignment);
      WeightsPtr set =
          make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(s.config.get(), o, e); });
      for (const StackedTensor& t : g.tensors)
        ASSERT_EQ(moe_weights_set(set.get(), t.role, &t.tensor, nullptr, nullptr, nullptr), MOE_OK) << t.role;
      moe_convert_options options{};
      options.struct_size = sizeof options;
      options.dst = dst.data();
      options.dst_size = needed;
      const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
        return moe_convert_weights(s.context.get(), s.selection.get(), set.get(), &options, o, e);
      });
      ASSERT_NE(packed, nullptr);
      EXPECT_EQ(std::memcmp(dst.data(), block, block_bytes), 0);
      // a loaded block that may only be read, a map of experts, and a call over both
      const Guarded file(block, block_bytes, flush, 64);
      const PackedPtr loaded = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
        return moe_packed_load_memory(s.context.get(), file.data(), file.size(), MOE_LOAD_VERIFY, nullptr, nullptr, o,
                                      e);
      });
      const std::vector<std::int32_t> map = {0, 1, 2, 3, 4};
      const Guarded places(map, flush);
      const moe_tensor map_tensor = tensor(MOE_DTYPE_I32, {m.E}, places.data());
      moe_layer_options layer_options{};
      layer_options.struct_size = sizeof layer_options;
      layer_options.expert_map = &map_tensor;
      const LayerPtr layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
        return moe_layer_create(s.context.get(), s.selection.get(), loaded.get(), &layer_options, o, e);
      });
      Call call(m);
      ASSERT_EQ(moe_apply(layer.get(), &call.args, nullptr), MOE_OK);
      EXPECT_EQ(call.out, plain.out);
      const Guarded counts(static_cast<std::size_t>(m.E) * 8, flush, 8);
      EXPECT_EQ(moe_layer_expert_counts(layer.get(), counts.as<std::uint64_t>(), 5, 0, nullptr), MOE_OK);
      // dense numbers
      for (const auto& [type, size] : {std::pair{MOE_DTYPE_F32, 4}, std::pair{MOE_DTYPE_BF16, 2}})
        for (const char* role : {"w13_weight", "w2_weight"}) {
          const std::int64_t n = role[1] == '1' ? 2 * m.I : m.H, k = role[1] == '1' ? m.H : m.I;
          const Guarded dense(static_cast<std::size_t>(n * k * size), flush, static_cast<std::size_t>(size));
          const moe_tensor out = tensor(type, {n, k}, dense.data());
          EXPECT_EQ(moe_packed_dequantize(packed.get(), role, m.E - 1, &out, nullptr), MOE_OK) << role;
        }
    }
  }
}

// Whole tensors under their checkpoint names, one guarded buffer each.
TEST_P(GuardPages, NamedWeights) {
  for (const Shape& shape : shapes_of(*GetParam())) {
    const Model m = model(shape, 2, "float32");
    const Steps s = layer_of(m);
    if (std::string(shape.activation) == "swigluoai") continue;  // its stacked rows are interleaved, named ones are not
    const void* block = nullptr;
    std::uint64_t bytes = 0;
    ASSERT_EQ(moe_packed_data(s.packed.get(), &block, &bytes, nullptr), MOE_OK);
    for (const Flush flush : kFlushes) {
      WeightsPtr set =
          make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(s.config.get(), o, e); });
      std::vector<Guarded> memory;
      const auto give = [&](const std::string& name, const void* from, std::vector<std::int64_t> dims, moe_dtype type) {
        std::size_t size = static_cast<std::size_t>(dtype_bits(static_cast<DType>(type)) / 8);
        const std::size_t element = size;
        for (const std::int64_t d : dims) size *= static_cast<std::size_t>(d);
        memory.emplace_back(from, size, flush, element);
        const moe_tensor t = tensor(type, std::move(dims), memory.back().data());
        std::int32_t consumed = 0;
        moe_error* err = nullptr;
        const moe_status status = moe_weights_set_named(set.get(), ("model.layers.0.mlp.experts" + name).c_str(), &t,
                                                        nullptr, nullptr, &consumed, &err);
        ASSERT_NO_FATAL_FAILURE(expect_ok(status, err));
        EXPECT_EQ(consumed, 1) << name;
      };
      const std::int64_t g13 = m.groups(m.H), g2 = m.groups(m.I);
      for (std::int64_t e = 0; e < m.E; ++e) {
        const std::string n = "." + std::to_string(e);
        for (int half = 0; half < 2; ++half) {
          const std::int64_t row = (2 * e + half) * m.I;
          const std::string p = n + (half == 0 ? ".gate_proj." : ".up_proj.");
          give(p + "weight", m.w13.data() + row * m.H, {m.I, m.H}, MOE_DTYPE_I8);
          give(p + "weight_scale", m.s13.data() + row * g13 * 4, {m.I, g13}, MOE_DTYPE_F32);
          if (m.bias) give(p + "bias", m.b13.data() + row * 4, {m.I}, MOE_DTYPE_F32);
        }
        give(n + ".down_proj.weight", m.w2.data() + e * m.H * m.I, {m.H, m.I}, MOE_DTYPE_I8);
        give(n + ".down_proj.weight_scale", m.s2.data() + e * m.H * g2 * 4, {m.H, g2}, MOE_DTYPE_F32);
        if (m.bias) give(n + ".down_proj.bias", m.b2.data() + e * m.H * 4, {m.H}, MOE_DTYPE_F32);
      }
      const PackedPtr packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
        return moe_convert_weights(s.context.get(), s.selection.get(), set.get(), nullptr, o, e);
      });
      const void* data = nullptr;
      std::uint64_t size = 0;
      ASSERT_EQ(moe_packed_data(packed.get(), &data, &size, nullptr), MOE_OK);
      ASSERT_EQ(size, bytes);
      EXPECT_EQ(std::memcmp(data, block, bytes), 0) << "H " << shape.hidden;
    }
  }
}

// --- unquantized weights ------------------------------------------------------------------------------------

class FloatGuardPages : public testing::TestWithParam<const Kernel*> {};

TEST_P(FloatGuardPages, WeightsAndCalls) {
  const Kernel& row = *GetParam();
  const Element element = *p16_element(row.id->layout);
  for (const Shape& shape : shapes_of(*GetParam()))
    for (const std::int64_t tokens : {1, 5, 20}) {
      SCOPED_TRACE(testing::Message() << "H " << shape.hidden << " I " << shape.inter << " T " << tokens);
      Model m;
      m.E = 4, m.H = shape.hidden - 1, m.I = shape.inter + 1, m.T = tokens, m.group = -1;  // odd tails as well
      m.dtype = element == Element::f32 ? "float32" : element == Element::bf16 ? "bfloat16" : "float16";
      m = random_model(std::move(m), static_cast<std::uint32_t>(tokens));
      auto config = nlohmann::json::parse(m.config_text());
      config["quantization"] = {{"scheme", "none"}};
      Steps s;
      s.context = make_context("{\"threads\":2}");
      s.config = make_config(config.dump());
      s.selection = make_selection(s.config.get(), s.context.get(), platform_of(row).get());
      ASSERT_EQ(std::string(moe_selection_kernel(s.selection.get())), row.id->name);
      // any finite values do: the activations of another batch
      const std::int64_t size = element == Element::f32 ? 4 : 2, rows13 = m.E * 2 * m.I, rows2 = m.E * m.H;
      Model values;
      values.dtype = m.dtype, values.H = 64, values.T = (std::max(rows13 * m.H, rows2 * m.I) + 63) / 64;
      values.E = 2;
      values = random_model(std::move(values), 9);
      std::vector<std::byte> want;
      for (const Flush flush : kFlushes) {
        const auto bytes = [&](std::int64_t n) { return static_cast<std::size_t>(n * size); };
        const Guarded w13(values.x.data(), bytes(rows13 * m.H), flush, bytes(1)),
            w2(values.x.data(), bytes(rows2 * m.I), flush, bytes(1));
        const moe_tensor t13 = tensor(m.io_type(), {m.E, 2 * m.I, m.H}, w13.data()),
                         t2 = tensor(m.io_type(), {m.E, m.H, m.I}, w2.data());
        s.weights =
            make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(s.config.get(), o, e); });
        ASSERT_EQ(moe_weights_set(s.weights.get(), "w13_weight", &t13, nullptr, nullptr, nullptr), MOE_OK);
        ASSERT_EQ(moe_weights_set(s.weights.get(), "w2_weight", &t2, nullptr, nullptr, nullptr), MOE_OK);
        s.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
          return moe_convert_weights(s.context.get(), s.selection.get(), s.weights.get(), nullptr, o, e);
        });
        s.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
          return moe_layer_create(s.context.get(), s.selection.get(), s.packed.get(), nullptr, o, e);
        });
        s.weights.reset();  // before its memory
        Call plain(m);
        ASSERT_EQ(moe_apply(s.layer.get(), &plain.args, nullptr), MOE_OK);
        if (want.empty()) want = plain.out;
        EXPECT_EQ(plain.out, want);
        for (const std::int64_t gap : {0, 3}) ASSERT_NO_FATAL_FAILURE(apply_guarded(s, m, want, flush, gap));
        ASSERT_NO_FATAL_FAILURE(flat_and_in_place(s, m, want, flush));
        ASSERT_NO_FATAL_FAILURE(route_guarded(s, m, flush));
      }
    }
}

std::vector<const Kernel*> float_rows() {
  std::vector<const Kernel*> rows;
  for (const LayoutKind kind : {LayoutKind::p16_bf16, LayoutKind::p16_f16, LayoutKind::p16_f32})
    for (const Kernel* k : runnable_kernels(kind, ActFormat::f32)) rows.push_back(k);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, FloatGuardPages, testing::ValuesIn(float_rows()),
                         [](const auto& param) { return std::string(param.param->id->name); });

INSTANTIATE_TEST_SUITE_P(All, GuardPages, testing::ValuesIn(runnable_kernels(LayoutKind::p16_int4, ActFormat::tok8)),
                         [](const auto& param) { return std::string(param.param->id->name); });

}  // namespace
}  // namespace moe::test::guard_pages_test
