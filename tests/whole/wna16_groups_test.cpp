// WNA16 groups that the kernels have no steps for, through the ABI: sizes that are no multiple of 32, act-order groups
// of several sizes, the part of act-ordered weights that a rank of tensor parallelism holds. Against a plain float64
// layer on every instruction set; numbers that come back; files, packed files, layouts, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/rooms.h"
#include "support/share.h"
#include "support/wna16_model.h"

namespace moe::test::wna16_groups_test {
namespace {

// Every column in any group: some groups are long, some empty.
void draw_groups(Wna16Model& m, std::uint32_t seed) {
  std::mt19937 rng(seed);
  for (auto* matrices : {&m.w13, &m.w2})
    for (Matrix13or2& w : *matrices)
      for (std::int32_t& g : w.g_idx)
        g = static_cast<std::int32_t>(
            std::min(rng() % static_cast<std::uint32_t>(w.groups), rng() % static_cast<std::uint32_t>(w.groups)));
}

// The layer on every instruction set: the same bits, the plain layer's numbers, a token alone as in the batch, with any
// threads.
void expect_layer(const Wna16Model& m) {
  const std::vector<double> want = plain_layer(m);
  std::vector<std::byte> first;
  for (const PlatformPtr& p : capped_platforms(kWna16Isas)) {
    const Wna16Layer layer(m, "{\"threads\":3}", p.get());
    ASSERT_TRUE(layer.layer);
    const std::vector<std::byte> out = layer.run(m, 0, m.T);
    EXPECT_LE(relative_rms(floats_of(out, m.dtype), want), bound_of(m)) << layer.kernel;
    if (first.empty()) first = out;
    EXPECT_EQ(out, first) << layer.kernel;
    EXPECT_EQ(Wna16Layer(m, "{\"threads\":1}", p.get()).run(m, 0, m.T), out) << layer.kernel;
    const auto row = std::ssize(out) / m.T;
    for (std::int64_t t = 0; t < m.T; ++t)
      EXPECT_EQ(layer.run(m, t, 1), std::vector<std::byte>(out.begin() + t * row, out.begin() + (t + 1) * row));
  }
}

void expect_numbers(const Wna16Layer& layer, const Wna16Model& m) {
  for (const bool up : {true, false})
    for (std::int64_t e = 0; e < m.E; ++e) {
      const Matrix13or2& w = (up ? m.w13 : m.w2)[static_cast<std::size_t>(e)];
      std::vector<float> dense(static_cast<std::size_t>(w.n * w.k));
      moe_tensor t = tensor(MOE_DTYPE_F32, {w.n, w.k}, dense.data());
      ASSERT_EQ(moe_packed_dequantize(layer.packed.get(), up ? "w13_weight" : "w2_weight", e, &t, nullptr), MOE_OK);
      for (std::int64_t n = 0; n < w.n; ++n)
        for (std::int64_t k = 0; k < w.k; ++k)
          ASSERT_EQ(dense[static_cast<std::size_t>(n * w.k + k)], static_cast<float>(m.weight(w, n, k)));
    }
}

std::string layout_of(const moe_packed* packed) {
  moe_buffer* buffer = nullptr;
  EXPECT_EQ(moe_packed_to_json(packed, &buffer, nullptr), MOE_OK);
  const std::string text(static_cast<const char*>(moe_buffer_data(buffer)), moe_buffer_size(buffer));
  moe_buffer_destroy(buffer);
  return nlohmann::json::parse(text).at("layout").get<std::string>();
}

// Weights from a checkpoint file, then a packed file: the same layer.
void expect_files(const Wna16Model& m) {
  Wna16Layer layer(m);
  ASSERT_TRUE(layer.layer);
  expect_numbers(layer, m);
  expect_same_from_files(layer, m);
}

struct Shape {
  std::int64_t h, i, group;
};

// --- group sizes --------------------------------------------------------------------------------------------------

std::vector<Wna16Model> odd_groups() {
  const Shape shapes[] = {{96, 48, 16}, {96, 48, 48}, {40, 80, 40}, {144, 72, 24}, {136, 272, 17}, {200, 400, 200}};
  std::vector<Wna16Model> models;
  std::uint32_t seed = 1;
  for (const Shape& s : shapes)
    for (const int bits : {4, 8})
      for (const char* format : {"gptq", "awq", "pack-quantized"}) {
        Wna16Model m;
        m.format = format;
        if (m.awq() && bits == 8) continue;
        m.bits = bits, m.H = s.h, m.I = s.i, m.group = s.group, m.zeros = seed % 2 == 0;
        m.order = !m.awq() && seed % 3 == 0;
        m.bias = seed % 4 == 1;
        m.plus_one = m.zeros && seed % 5 < 2;
        m.dtype = seed % 4 == 1 ? MOE_DTYPE_BF16 : seed % 4 == 3 ? MOE_DTYPE_F16 : MOE_DTYPE_F32;
        models.push_back(random_wna16(m, seed++));
      }
  return models;
}

TEST(Wna16Groups, OfAnySizeFrom16) {
  for (const Wna16Model& m : some_of(odd_groups(), 1)) {
    SCOPED_TRACE(m.config_text());
    expect_layer(m);
    expect_files(m);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(Wna16Groups, SmallOnesAreRefused) {
  Wna16Model m;
  m.group = 8;
  const ConfigPtr config = make_config(m.config_text());
  const Failure f = failure([&](moe_error** e) {
    moe_selection* s = nullptr;
    return moe_select_backend(nullptr, config.get(), nullptr, 0, &s, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_NO_BACKEND);
  EXPECT_THAT(f.message, testing::HasSubstr("a group size of at least 16 that divides both sizes"));
  EXPECT_THAT(f.message, testing::HasSubstr("it is 8"));
}

// Rows of zeros between the middle's columns must say nothing, whatever the function.
TEST(Wna16Groups, EveryActivation) {
  for (const char* name : {"gelu", "swigluoai_uninterleave", "swiglustep", "silu"}) {
    Wna16Model m;
    m.H = 96, m.I = 144, m.group = 48;
    m.extra = {{"activation", name}};
    m = random_wna16(m, 31);
    // The same numbers in groups of 16, which are other places: equal but for the order of sums.
    Wna16Model fine = m;
    fine.group = 16;
    for (auto* matrices : {&fine.w13, &fine.w2})
      for (Matrix13or2& w : *matrices) {
        std::vector<float> scales;
        for (const float s : w.scales) scales.insert(scales.end(), 3, s);
        w.scales = scales;
        w.zeros.resize(scales.size());
        w.groups *= 3;
        for (std::int64_t k = 0; k < w.k; ++k) w.g_idx[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(k / 16);
      }
    const Wna16Layer a(m), b(fine);
    ASSERT_TRUE(a.layer && b.layer);
    const std::vector<float> want = floats_of(b.run(fine, 0, m.T), m.dtype);
    EXPECT_LE(relative_rms(floats_of(a.run(m, 0, m.T), m.dtype), want), 1e-6) << name;
  }
}

// "compute": "a8": the same bits on every instruction set, and near the plain layer. Zero points: per block only.
TEST(Wna16Groups, Int8Activations) {
  for (const Shape& s : {Shape{96, 48, 16}, Shape{96, 144, 48}})
    for (const int bits : {4, 8})
      for (const bool order : {false, true})
        for (const char* quant : {"auto", "zeros", "per_token"}) {
          Wna16Model m;
          m.zeros = std::string_view(quant) == "zeros";
          m.bits = bits, m.order = order, m.H = s.h, m.I = s.i, m.group = s.group;
          m.extra = {{"compute", "a8"}, {"activation_quant", m.zeros ? "block32" : quant}};
          m = random_wna16(m, 5);
          if (order) draw_groups(m, 8);
          SCOPED_TRACE(m.config_text());
          const std::vector<double> want = plain_layer(m);
          std::vector<std::byte> first;
          for (const PlatformPtr& p : capped_platforms(kWna16Isas)) {
            const Wna16Layer layer(m, "{\"threads\":2}", p.get());
            ASSERT_TRUE(layer.layer);
            const std::vector<std::byte> out = layer.run(m, 0, m.T);
            EXPECT_LE(relative_rms(floats_of(out, m.dtype), want), 3e-2);
            if (first.empty()) first = out;
            EXPECT_EQ(out, first) << layer.kernel;
          }
        }
}

// --- groups of several sizes --------------------------------------------------------------------------------------

std::vector<Wna16Model> uneven_models() {
  const Shape shapes[] = {{128, 64, 32}, {64, 128, 64}, {96, 48, 48}, {256, 384, 128}, {64, 64, 16}};
  std::vector<Wna16Model> models;
  std::uint32_t seed = 70;
  for (const Shape& s : shapes)
    for (const int bits : {4, 8})
      for (const char* format : {"gptq", "pack-quantized"}) {
        Wna16Model m;
        m.format = format, m.bits = bits, m.H = s.h, m.I = s.i, m.group = s.group, m.order = true;
        m.zeros = seed % 2 == 0, m.bias = seed % 3 == 0, m.transposed = seed % 4 < 2;
        m.dtype = seed % 4 == 1 ? MOE_DTYPE_BF16 : seed % 4 == 3 ? MOE_DTYPE_F16 : MOE_DTYPE_F32;
        models.push_back(random_wna16(m, seed));
        draw_groups(models.back(), seed++);
      }
  return models;
}

TEST(Wna16Groups, OfSeveralSizes) {
  for (const Wna16Model& m : some_of(uneven_models(), 2)) {
    SCOPED_TRACE(m.config_text());
    expect_layer(m);
    expect_files(m);
    ASSERT_FALSE(HasFailure());
  }
}

// The selection names the layout of equal groups; conversion takes the one with room where it finds others, in one
// expert or in all, and says how many bytes it needs.
TEST(Wna16Groups, RoomIsTakenWhereItIsNeeded) {
  Wna16Model m;
  m.order = true;
  m = random_wna16(m, 12);
  const Wna16Layer even(m);
  EXPECT_EQ(layout_of(even.packed.get()), "p16/w4-g32-f32-ao/1");
  m.w2[2].g_idx[5] = 1 - m.w2[2].g_idx[5];  // 33 and 31 columns
  Wna16Layer layer(m);
  ASSERT_TRUE(layer.layer);
  EXPECT_EQ(layout_of(layer.packed.get()), "p16/w4-u4,u2-f32-ao/1");
  EXPECT_EQ(std::string(moe_selection_layout(layer.selection.get())), "p16/w4-g32-f32-ao/1");
  EXPECT_LE(relative_rms(floats_of(layer.run(m, 0, m.T), m.dtype), plain_layer(m)), 1e-5);
  // The caller's memory: what the layout of equal groups would need is not enough.
  const void* data = nullptr;
  std::uint64_t small = 0, size = 0;
  ASSERT_EQ(moe_packed_data(even.packed.get(), &data, &small, nullptr), MOE_OK);
  ASSERT_EQ(moe_packed_data(layer.packed.get(), &data, &size, nullptr), MOE_OK);
  ASSERT_GT(size, small);
  std::vector<std::byte> room(static_cast<std::size_t>(size) + 4096);
  moe_convert_options options{};
  options.struct_size = sizeof options;
  options.dst = room.data() + (4096 - reinterpret_cast<std::uintptr_t>(room.data()) % 4096);
  const auto convert = [&](std::uint64_t bytes) {
    options.dst_size = bytes;
    moe_packed* p = nullptr;
    const Failure f = failure([&](moe_error** e) {
      return moe_convert_weights(nullptr, layer.selection.get(), layer.weights.get(), &options, &p, e);
    });
    moe_packed_destroy(p);
    return f;
  };
  const Failure short_of = convert(small);
  EXPECT_EQ(short_of.status, MOE_ERR_BUFFER_TOO_SMALL);
  EXPECT_THAT(short_of.message, testing::HasSubstr(std::to_string(size) + " bytes needed"));
  EXPECT_EQ(convert(size).status, MOE_OK);
}

// Experts of even groups give the same bits in the layout that another expert needs, as long as groups are no longer
// than the steps of that layout; also where a matrix has one group, which is channel-wise in either.
TEST(Wna16Groups, RoomChangesNoBits) {
  const nlohmann::json numbers[] = {
      nlohmann::json::object(), {{"compute", "a8"}}, {{"compute", "a8"}, {"activation_quant", "per_token"}}};
  for (const Shape& s : {Shape{64, 32, 32}, Shape{128, 64, 32}, Shape{48, 24, 24}})
    for (const int bits : {4, 8})
      for (const nlohmann::json& extra : numbers) {
        Wna16Model m;
        m.bits = bits, m.H = s.h, m.I = s.i, m.group = s.group, m.order = true, m.K = 1;
        m.dtype = MOE_DTYPE_BF16;
        m.extra = extra;
        m = random_wna16(m, 31);
        std::fill(m.ids.begin(), m.ids.end(), 0);
        SCOPED_TRACE(m.config_text());
        const Wna16Layer even(m);
        std::fill_n(m.w13[2].g_idx.begin(), m.H - 5, 0);
        const Wna16Layer wider(m);
        ASSERT_TRUE(even.layer && wider.layer);
        EXPECT_NE(layout_of(even.packed.get()), layout_of(wider.packed.get()));
        EXPECT_EQ(even.run(m, 0, m.T), wider.run(m, 0, m.T));
      }
}

// --- tensor parallelism -------------------------------------------------------------------------------------------

// This rank's share as stacked tensors: rows of w13 and columns of w2 cut. With activation order w2's scales, zero
// points and group numbers are those of the whole matrix, without they are cut, too, and numbers begin at 0.
Wna16Model share_of(const Wna16Model& m, std::int64_t ranks, std::int64_t rank) {
  Wna16Model s = m;
  s.I = m.I / ranks;
  const std::int64_t first = rank * s.I;
  const auto rows = [&](auto& list, std::int64_t width) {
    auto all = std::move(list);
    list.clear();
    for (const std::int64_t half : {std::int64_t{0}, m.I})
      list.insert(list.end(), all.begin() + (half + first) * width, all.begin() + (half + first + s.I) * width);
  };
  for (Matrix13or2& w : s.w13) {
    rows(w.codes, w.k);
    rows(w.scales, w.groups);
    rows(w.zeros, w.groups);
    if (m.bias) rows(w.bias, 1);
    w.n = 2 * s.I;
  }
  for (Matrix13or2& w : s.w2) {
    std::vector<std::uint8_t> codes;
    for (std::int64_t n = 0; n < w.n; ++n)
      codes.insert(codes.end(), w.codes.begin() + n * w.k + first, w.codes.begin() + n * w.k + first + s.I);
    w.codes = codes;
    w.g_idx = {w.g_idx.begin() + first, w.g_idx.begin() + first + s.I};
    w.k = s.I;
    if (m.order || w.groups == 1) continue;
    const std::int64_t begin = first / m.group, end = begin + s.I / m.group;
    const auto groups = [&](auto& list) {
      auto all = std::move(list);
      list.clear();
      for (std::int64_t n = 0; n < w.n; ++n)
        list.insert(list.end(), all.begin() + n * w.groups + begin, all.begin() + n * w.groups + end);
    };
    groups(w.scales);
    groups(w.zeros);
    w.groups = end - begin;
    for (std::int32_t& g : w.g_idx) g -= static_cast<std::int32_t>(begin);
  }
  return s;
}

std::vector<std::byte> packed_bytes(const Wna16Layer& layer) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(layer.packed.get(), &data, &size, nullptr), MOE_OK);
  const auto* bytes = static_cast<const std::byte*>(data);
  return {bytes, bytes + size};
}

// GPTQ files have a g_idx without activation order, too. What a rank cuts from it counts on from the columns before; a
// caller's stack may count so or from 0. A list that does neither is refused.
TEST(Wna16Groups, TensorParallelWithAListInOrder) {
  const struct {
    Shape s;
    std::int64_t ranks;
  } cases[] = {{{64, 128, 32}, 2}, {{128, 128, 32}, 4}, {{128, 128, 64}, 2}, {{64, 128, -1}, 2}};
  std::uint32_t seed = 70;
  for (const auto& c : cases) {
    Wna16Model m;
    m.H = c.s.h, m.I = c.s.i, m.group = c.s.group, m.plain_g_idx = true;
    m = random_wna16(m, seed++);
    const TempDir dir;
    dir.write("model.safetensors", checkpoint_file(m));
    for (std::int64_t rank = 0; rank < c.ranks; ++rank) {
      Wna16Model share = share_of(m, c.ranks, rank);
      nlohmann::json document = nlohmann::json::parse(share.config_text());
      document["intermediate_size"] = m.I;
      document["parallel"] = {{"tp_size", c.ranks}, {"tp_rank", rank}};
      SCOPED_TRACE(document.dump());
      Wna16Layer layer;
      layer.config = make_config(document.dump());
      layer.selection = make_selection(layer.config.get());
      ASSERT_TRUE(layer.selection);
      layer.load(dir.path());
      ASSERT_TRUE(layer.layer);
      const std::vector<std::byte> cut = packed_bytes(layer);
      expect_numbers(layer, share);

      const auto given = [&](const Wna16Model& stacks) {
        layer.weights = stacked_weights(stacks, layer.config.get());
        layer.convert();
        return layer.packed ? packed_bytes(layer) : std::vector<std::byte>{};
      };
      EXPECT_EQ(given(share), cut);
      const std::int32_t first = m.w2[0].g_idx[static_cast<std::size_t>(rank * share.I)];
      for (Matrix13or2& w : share.w2)
        for (std::int32_t& g : w.g_idx) g += first;
      EXPECT_EQ(given(share), cut);
      Wna16Model wrong = share;
      for (std::int32_t& g : wrong.w2[1].g_idx) ++g;
      layer.weights = stacked_weights(wrong, layer.config.get());
      const Failure f = failure([&](moe_error** e) {
        moe_packed* none = nullptr;
        return moe_convert_weights(nullptr, layer.selection.get(), layer.weights.get(), nullptr, &none, e);
      });
      EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(f.subject, "w2_g_idx[1,0]") << f.message;
      share.plain_g_idx = false;
      EXPECT_EQ(given(share), cut);
    }
  }
}

// Ranks cut from files and ranks given their stacked share are the same bytes; their numbers are the whole's, and so is
// the sum of their outputs.
TEST(Wna16Groups, TensorParallelActivationOrder) {
  const struct {
    Shape s;
    std::int64_t ranks;
    const char* layout;
  } cases[] = {{{128, 128, 32}, 2, "g32,u4"}, {{64, 256, 64}, 4, "cw,u4"}, {{96, 192, 48}, 2, "g48,u4"}};
  std::uint32_t seed = 40;
  Turns turns(3);
  for (const auto& c : cases)
    for (const char* format : {"gptq", "pack-quantized"})
      for (const int bits : {4, 8}) {
        if (!turns.next()) continue;
        Wna16Model m;
        m.format = format, m.bits = bits, m.H = c.s.h, m.I = c.s.i, m.group = c.s.group, m.order = true;
        m.zeros = seed % 2 == 0;
        m = random_wna16(m, seed++);
        const TempDir dir;
        dir.write("model.safetensors", checkpoint_file(m));
        for (const PlatformPtr& p : capped_platforms(kWna16Isas)) {
          std::vector<float> sum(static_cast<std::size_t>(m.T * m.H), 0.0f);
          for (std::int64_t rank = 0; rank < c.ranks; ++rank) {
            Wna16Model share = share_of(m, c.ranks, rank);
            share.extra["parallel"] = {{"tp_size", c.ranks}, {"tp_rank", rank}};
            std::string text = nlohmann::json::parse(share.config_text()).dump();
            nlohmann::json document = nlohmann::json::parse(text);
            document["intermediate_size"] = m.I;
            SCOPED_TRACE(document.dump());
            Wna16Layer layer;
            layer.config = make_config(document.dump());
            layer.selection = make_selection(layer.config.get(), nullptr, p.get());
            ASSERT_TRUE(layer.selection);
            EXPECT_THAT(moe_selection_layout(layer.selection.get()), testing::HasSubstr(c.layout));
            layer.weights = stacked_weights(share, layer.config.get());
            layer.convert();
            ASSERT_TRUE(layer.layer);
            const std::vector<std::byte> stacked = packed_bytes(layer);
            expect_numbers(layer, share);
            layer.load(dir.path());
            ASSERT_TRUE(layer.layer);
            EXPECT_EQ(stacked, packed_bytes(layer));
            const std::vector<float> part = floats_of(layer.run(m, 0, m.T), m.dtype);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
          }
          EXPECT_LE(relative_rms(sum, plain_layer(m)), 1e-5);
        }
      }
}

// w2's scales of this rank's columns alone do not say what its groups are.
TEST(Wna16Groups, RanksNeedAllGroups) {
  Wna16Model m;
  m.order = true, m.I = 128;
  m.extra["parallel"] = {{"tp_size", 2}, {"tp_rank", 0}};
  const ConfigPtr config = make_config(m.config_text());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  std::vector<float> scales(static_cast<std::size_t>(m.E * 4 * m.H), 1.0f);
  const moe_tensor half = tensor(MOE_DTYPE_F32, {m.E, 2, m.H}, scales.data());
  const Failure f =
      failure([&](moe_error** e) { return moe_weights_set(w.get(), "w2_scale", &half, nullptr, nullptr, e); });
  EXPECT_EQ(f.status, MOE_ERR_SHAPE) << f.message;
  const moe_tensor all = tensor(MOE_DTYPE_F32, {m.E, 4, m.H}, scales.data());
  EXPECT_EQ(moe_weights_set(w.get(), "w2_scale", &all, nullptr, nullptr, nullptr), MOE_OK);
}

// --- weights of other engines' layouts ------------------------------------------------------------------------------

// Converted for another machine, then brought into places here.
TEST(Wna16Groups, OtherEnginesLayouts) {
  struct Row {
    Shape s;
    bool order;
    nlohmann::json there;
    const char* ours;
  };
  const nlohmann::json marlin = {{"platform", {{"type", "cuda"}, {"capability", {9, 0}}}}, {"moe_backend", "marlin"}};
  const nlohmann::json vnni = {{"platform", {{"type", "cpu"}}}, {"selection_policy", "vllm"}};
  const Row rows[] = {{{128, 128, 32}, true, marlin, "p16/w4-u4-f32-ao/1"},
                      {{96, 192, 48}, false, vnni, "p16/w4-g48-f32-zp-ao/1"}};
  for (const Row& r : rows) {
    Wna16Model m;
    m.H = r.s.h, m.I = r.s.i, m.group = r.s.group, m.order = r.order;
    m.dtype = MOE_DTYPE_BF16;
    m = random_wna16(m, 60);
    if (r.order) draw_groups(m, 61);
    SCOPED_TRACE(m.config_text());
    Wna16Layer layer;
    nlohmann::json document = nlohmann::json::parse(m.config_text());
    document.update(r.there);
    layer.config = make_config(document.dump());
    layer.selection = make_selection(layer.config.get());
    layer.weights = stacked_weights(m, layer.config.get());
    layer.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_convert_weights(nullptr, layer.selection.get(), layer.weights.get(), nullptr, o, e);
    });
    ASSERT_TRUE(layer.packed);
    document = nlohmann::json::parse(m.config_text());
    document["moe_backend"] = "emulation";
    if (r.order) document["emulation_layout"] = "dense";
    layer.config = make_config(document.dump());
    layer.selection = make_selection(layer.config.get());
    layer.create();
    ASSERT_TRUE(layer.layer);
    moe_buffer* text = nullptr;
    ASSERT_EQ(moe_layer_to_json(layer.layer.get(), &text, nullptr), MOE_OK);
    const BufferPtr kept(text);
    EXPECT_THAT(std::string(static_cast<const char*>(moe_buffer_data(text)), moe_buffer_size(text)),
                testing::HasSubstr(r.ours));
    EXPECT_LE(relative_rms(floats_of(layer.run(m, 0, m.T), m.dtype), plain_layer(m)), 1e-2);
  }
}

// They want all columns.
TEST(Wna16Groups, OtherEnginesTakeNoPart) {
  Wna16Model m;
  m.order = true, m.I = 128;
  m.extra = {{"parallel", {{"tp_size", 2}, {"tp_rank", 1}}},
             {"in_dtype", "bfloat16"},
             {"platform", {{"type", "cuda"}, {"capability", {9, 0}}}}};
  const ConfigPtr config = make_config(m.config_text());
  const Failure f = failure([&](moe_error** e) {
    moe_selection* s = nullptr;
    return moe_select_backend(nullptr, config.get(), nullptr, 0, &s, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_NO_BACKEND);
  EXPECT_THAT(f.message, testing::HasSubstr("tensor parallelism cuts them"));
}

}  // namespace
}  // namespace moe::test::wna16_groups_test
