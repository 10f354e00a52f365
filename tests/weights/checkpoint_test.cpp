// Checkpoints by name: the ckpt_* vectors in all their forms give the same packed bytes; this rank's part
// is cut out of whole tensors; what does not belong is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "weights/weight_fixture.h"

namespace moe::test::checkpoint_test {
namespace {

using testing::HasSubstr;

const std::string kModule = "model.layers.0.mlp.experts";

class Vectors : public testing::TestWithParam<int> {};

TEST_P(Vectors, AllFormsGiveTheSameBytes) {
  const std::string base = GetParam() == 32 ? "w4a8_int8/ckpt_g32_" : "w4a8_int8/ckpt_cw_";
  LayerSpec spec{.experts = 2, .hidden = 64, .inter = 32, .group = GetParam()};
  const VecFile fused = load_vectors(base + "fused.safetensors");
  WeightSet stacked(config_of(spec));
  ASSERT_TRUE(stacked.set(Role::w13_weight, view_of(fused.at("w13_weight")), {}));
  ASSERT_TRUE(stacked.set(Role::w2_weight, view_of(fused.at("w2_weight")), {}));
  ASSERT_TRUE(stacked.set(Role::w13_scale, view_of(fused.at("w13_weight_scale")), {}));
  ASSERT_TRUE(stacked.set(Role::w2_scale, view_of(fused.at("w2_weight_scale")), {}));
  const Bytes want = convert_set(stacked);
  for (const char* form : {"int_quantized", "pack_quantized"}) {
    spec.format = std::string(form) == "int_quantized" ? "int-quantized" : "pack-quantized";
    const std::string file = base + form + ".safetensors";
    WeightSet loaded(config_of(spec));
    ASSERT_TRUE(loaded.load_safetensors(vector_path(file).c_str(), nullptr));
    ASSERT_TRUE(loaded.check_complete());
    EXPECT_EQ(convert_set(loaded), want) << form;
    WeightSet named(config_of(spec));
    const VecFile f = load_vectors(file);
    for (const auto& [name, t] : f.tensors) {
      const auto ours = named.set_named(name, view_of(t), {});
      ASSERT_TRUE(ours) << ours.error().message;
      EXPECT_TRUE(*ours);
    }
    ASSERT_TRUE(named.check_complete());
    EXPECT_EQ(convert_set(named), want) << form;
    // Reading through tensor() gives what the stacked form has.
    if (spec.format != "int-quantized") continue;
    const auto joined = loaded.tensor(Role::w13_weight, -1);
    ASSERT_TRUE(joined);
    EXPECT_EQ(std::memcmp(joined->view.data, fused.at("w13_weight").data.data(), fused.at("w13_weight").data.size()),
              0);
  }
}
INSTANTIATE_TEST_SUITE_P(Groups, Vectors, testing::Values(32, -1));

// --- a checkpoint of any size, as files -----------------------------------------------------------------

std::vector<std::int32_t> words_of(const std::int8_t* w, std::int64_t n, std::int64_t k) {
  const std::int64_t words = (k + 7) / 8;
  std::vector<std::int32_t> out(static_cast<std::size_t>(n * words));
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < k; ++c) {
      auto& word = out[static_cast<std::size_t>(r * words + c / 8)];
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | static_cast<std::uint32_t>(w[r * k + c] + 8)
                                                                              << (4 * (c % 8)));
    }
  return out;
}

struct Matrix2d {
  const char* projection;
  const std::int8_t* codes;
  const float* scales;
  const float* bias;
  std::int64_t n, k, groups;
};

std::vector<Matrix2d> matrices(const PlainLayer& l, std::int64_t e) {
  const std::int64_t h = l.spec.hidden, i = l.spec.inter, gh = l.groups(h), gi = l.groups(i);
  return {
      {"gate_proj", l.gate.data() + e * i * h, l.gate_scale.data() + e * i * gh, l.gate_bias.data() + e * i, i, h, gh},
      {"up_proj", l.up.data() + e * i * h, l.up_scale.data() + e * i * gh, l.up_bias.data() + e * i, i, h, gh},
      {"down_proj", l.down.data() + e * h * i, l.down_scale.data() + e * h * gi, l.down_bias.data() + e * h, h, i, gi}};
}

void add_expert(SafetensorsWriter& w, const PlainLayer& l, std::int64_t e) {
  for (const Matrix2d& m : matrices(l, e)) {
    const std::string name = kModule + "." + std::to_string(e) + "." + m.projection + ".";
    if (l.spec.format == "int-quantized") {
      w.add(name + "weight", "I8", {m.n, m.k}, m.codes, static_cast<std::size_t>(m.n * m.k));
    } else {
      const auto words = words_of(m.codes, m.n, m.k);
      w.add(name + "weight_packed", "I32", {m.n, (m.k + 7) / 8}, words.data(), words.size() * 4);
      const std::int64_t shape[] = {m.n, m.k};
      w.add(name + "weight_shape", "I64", {2}, shape, 16);
    }
    w.add(name + "weight_scale", "F32", {m.n, m.groups}, m.scales, static_cast<std::size_t>(m.n * m.groups) * 4);
    if (l.spec.bias) w.add(name + "bias", "F32", {m.n}, m.bias, static_cast<std::size_t>(m.n) * 4);
  }
  w.add("model.layers.0.mlp.odd_sized." + std::to_string(e), "U8", {1}, "x",
        1);  // shifts what follows off its alignment
}

std::string file_of(const PlainLayer& l) {
  SafetensorsWriter w;
  w.add("model.embed_tokens.weight", "U8", {3}, "abc", 3);
  for (std::int64_t e = 0; e < l.spec.experts; ++e) add_expert(w, l, e);
  return w.bytes();
}

// The stacked roles that rank r of n holds, straight from the plain numbers.
std::unique_ptr<WeightSet> reference_set(const PlainLayer& l, const LayerSpec& spec, std::vector<Owned>& keep) {
  const auto config = config_of(spec);
  const std::int64_t h = spec.hidden, part = config->intermediate_size_per_partition,
                     first = config->parallel.tp_rank * part;
  const auto experts = local_experts(*config);
  const auto count = static_cast<std::int64_t>(experts.size());
  std::vector<std::int8_t> w13, w2;
  std::vector<float> s13, s2, b13, b2;
  for (const std::int64_t e : experts) {
    const auto m = matrices(l, e);
    for (int p = 0; p < 2; ++p) {
      const Matrix2d& x = m[static_cast<std::size_t>(p)];
      w13.insert(w13.end(), x.codes + first * x.k, x.codes + (first + part) * x.k);
      s13.insert(s13.end(), x.scales + first * x.groups, x.scales + (first + part) * x.groups);
      b13.insert(b13.end(), x.bias + first, x.bias + first + part);
    }
    const Matrix2d& d = m[2];
    const std::int64_t g0 = spec.group == -1 ? 0 : first / spec.group,
                       g1 = spec.group == -1 ? 1 : (first + part) / spec.group;
    for (std::int64_t n = 0; n < d.n; ++n) {
      w2.insert(w2.end(), d.codes + n * d.k + first, d.codes + n * d.k + first + part);
      s2.insert(s2.end(), d.scales + n * d.groups + g0, d.scales + n * d.groups + g1);
      b2.push_back(config->parallel.tp_rank == 0 ? d.bias[n] : 0.0f);
    }
  }
  auto set = std::make_unique<WeightSet>(config);
  const auto give = [&](Role role, Owned o) {
    keep.push_back(std::move(o));
    keep.back().view.data = keep.back().data.data();
    const Check c = set->set(role, keep.back().view, {});
    EXPECT_TRUE(c) << (c ? "" : c.error().message);
  };
  keep.reserve(6);
  const auto width = [](std::size_t total, std::int64_t rows_total) {
    return static_cast<std::int64_t>(total) / rows_total;
  };
  give(Role::w13_weight, owned(DType::i8, {count, 2 * part, h}, w13.data()));
  give(Role::w2_weight, owned(DType::i8, {count, h, part}, w2.data()));
  give(Role::w13_scale, owned(DType::f32, {count, 2 * part, width(s13.size(), count * 2 * part)}, s13.data()));
  give(Role::w2_scale, owned(DType::f32, {count, h, width(s2.size(), count * h)}, s2.data()));
  if (spec.bias) {
    give(Role::w13_bias, owned(DType::f32, {count, 2 * part}, b13.data()));
    give(Role::w2_bias, owned(DType::f32, {count, h}, b2.data()));
  }
  return set;
}

struct Ranks {
  LayerSpec spec;
  int size;
  bool ep;
};

TEST(CheckpointParts, EachRankCutsItsShareOutOfWholeTensors) {
  const TempDir dir;
  for (const char* format : {"int-quantized", "pack-quantized"})
    for (const Ranks& c :
         {Ranks{{.inter = 128, .group = 32, .bias = true}, 4, false}, Ranks{{.inter = 96, .group = 32}, 3, false},
          Ranks{{.hidden = 46, .inter = 48, .group = -1, .bias = true}, 2, false},
          Ranks{{.experts = 5, .bias = true}, 2, true}, Ranks{{.hidden = 46, .inter = 26, .group = -1}, 1, false},
          Ranks{{.inter = 64, .group = 64}, 1, false}}) {
      LayerSpec whole = c.spec;
      whole.format = format;
      const PlainLayer layer(whole);
      const std::string path = dir.write("m.safetensors", file_of(layer));
      for (int rank = 0; rank < c.size; ++rank) {
        LayerSpec spec = whole;
        spec.more = R"(,"parallel":{"tp_size":)" + std::to_string(c.size) + ",\"tp_rank\":" + std::to_string(rank) +
                    R"(,"enable_expert_parallel":)" + (c.ep ? "true}" : "false}");
        LayerSpec plain = spec;
        plain.format = "int-quantized";
        std::vector<Owned> keep;
        const Bytes want = convert_set(*reference_set(layer, plain, keep));
        WeightSet loaded(config_of(spec));
        const Check ok = loaded.load_safetensors(path.c_str(), nullptr);
        ASSERT_TRUE(ok) << ok.error().message;
        ASSERT_TRUE(loaded.check_complete()) << loaded.check_complete().error().message;
        EXPECT_EQ(convert_set(loaded), want) << format << " rank " << rank;
        // The same through set_named from memory.
        WeightSet named(config_of(spec));
        const VecFile f = parse_vectors(file_of(layer));
        for (const auto& [name, t] : f.tensors) {
          const auto r = named.set_named(name, view_of(t), {});
          ASSERT_TRUE(r) << r.error().message;
          EXPECT_EQ(*r, name.find("_proj.") != std::string::npos) << name;
        }
        EXPECT_EQ(convert_set(named), want) << format << " rank " << rank;
      }
    }
}

TEST(CheckpointParts, AWordIsNotCut) {
  LayerSpec spec{
      .hidden = 46, .inter = 20, .group = -1, .format = "pack-quantized", .more = R"(,"parallel":{"tp_size":2})"};
  const TempDir dir;
  const std::string path = dir.write("m.safetensors", file_of(PlainLayer(spec)));
  WeightSet set(config_of(spec));
  const Check c = set.load_safetensors(path.c_str(), nullptr);
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().code, Code::unsupported);
  EXPECT_THAT(c.error().message, HasSubstr("multiple of 8"));
  spec.format = "int-quantized";
  WeightSet bytes(config_of(spec));
  EXPECT_TRUE(bytes.load_safetensors(dir.write("i.safetensors", file_of(PlainLayer(spec))).c_str(), nullptr));
}

TEST(CheckpointParts, OnlyTheFirstRankNeedsTheDownBias) {
  LayerSpec spec{.inter = 64, .bias = true};
  for (int rank = 0; rank < 2; ++rank) {
    spec.more = R"(,"parallel":{"tp_size":2,"tp_rank":)" + std::to_string(rank) + "}";
    const WeightSet set(config_of(spec));
    const auto missing = set.missing();
    EXPECT_EQ(std::count(missing.begin(), missing.end(), "w2_bias[0]"), rank == 0 ? 1 : 0);
    EXPECT_EQ(std::count(missing.begin(), missing.end(), "w13_bias[0]"), 1);
  }
}

// --- names -----------------------------------------------------------------------------------------------

TEST(CheckpointNames, OfOtherLayersAreNotOurs) {
  Releases r;
  WeightSet set(config_of({}));
  std::int8_t byte = 0;
  const TensorView v = row_major(DType::i8, {1}, &byte);
  for (const char* name : {"model.layers.1.mlp.experts.0.gate_proj.weight", "model.layers.0.mlp.gate.weight", "",
                           "model.layers.0.mlp.experts", "model.layers.0.mlp.experts.0.other.weight"}) {
    const auto ours = set.set_named(name, v, r.owner());
    ASSERT_TRUE(ours) << name;
    EXPECT_FALSE(*ours) << name;
  }
  EXPECT_EQ(r.count, 5);
}

// A checkpoint with every name in another place, or in two.
std::string renamed(const PlainLayer& l, const std::string& block, const std::array<const char*, 3>& projections,
                    std::int64_t from = 0) {
  SafetensorsWriter w;
  for (std::int64_t e = from; e < l.spec.experts; ++e)
    for (std::size_t p = 0; p < 3; ++p) {
      const Matrix2d m = matrices(l, e)[p];
      const std::string name = "model.layers.0." + block + "." + std::to_string(e) + "." + projections[p] + ".";
      w.add(name + "weight", "I8", {m.n, m.k}, m.codes, static_cast<std::size_t>(m.n * m.k));
      w.add(name + "weight_scale", "F32", {m.n, m.groups}, m.scales, static_cast<std::size_t>(m.n * m.groups) * 4);
    }
  return w.bytes();
}

TEST(CheckpointNames, OtherToolsPlaces) {
  const PlainLayer layer(LayerSpec{});
  std::vector<Owned> keep;
  const Bytes want = convert_set(*reference_set(layer, layer.spec, keep));
  using Projections = std::array<const char*, 3>;
  const Projections named = {"gate_proj", "up_proj", "down_proj"}, numbered = {"w1", "w3", "w2"};
  for (const char* block : {"mlp.experts", "block_sparse_moe.experts"})
    for (const Projections& projections : {named, numbered}) {
      SCOPED_TRACE(std::string(block) + " " + projections[0]);
      const TempDir dir;
      const std::string path = dir.write("model.safetensors", renamed(layer, block, projections));
      WeightSet loaded(config_of(layer.spec)), set(config_of(layer.spec));
      const Check c = loaded.load_safetensors(path.c_str(), nullptr);
      ASSERT_TRUE(c) << c.error().message;
      ASSERT_TRUE(loaded.check_complete());
      EXPECT_EQ(convert_set(loaded), want);
      const VecFile f = parse_vectors(read_text(path));
      for (const auto& [name, t] : f.tensors) {
        const auto ours = set.set_named(name, view_of(t), {});
        ASSERT_TRUE(ours) << ours.error().message;
        EXPECT_TRUE(*ours) << name;
      }
      EXPECT_EQ(convert_set(set), want);
      // A prefix that the caller gives is meant as it is.
      WeightSet given(config_of(layer.spec));
      ASSERT_TRUE(given.load_safetensors(path.c_str(), kModule.c_str()));
      EXPECT_EQ(static_cast<bool>(given.check_complete()), std::string(block) == "mlp.experts");
    }
}

TEST(CheckpointNames, TwoPlacesAtOnceAreRefused) {
  const PlainLayer layer(LayerSpec{});
  const TempDir dir;
  dir.write("a.safetensors", renamed(layer, "mlp.experts", {"gate_proj", "up_proj", "down_proj"}));
  dir.write("b.safetensors", renamed(layer, "block_sparse_moe.experts", {"w1", "w3", "w2"}, layer.spec.experts - 1));
  Config config = *config_of(layer.spec);
  config.named_by_class = "Qwen3MoeForCausalLM";  // a guess
  WeightSet set(std::make_shared<const Config>(config));
  const Check c = set.load_safetensors(dir.path().c_str(), nullptr);
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().code, Code::unexpected_weight);
  EXPECT_THAT(c.error().message, HasSubstr("block_sparse_moe.experts.3.w1"));
  EXPECT_THAT(c.error().message, HasSubstr("mlp.experts.0.down_proj"));
  EXPECT_FALSE(set.check_complete());
}

// A norm beside experts says nothing of them, whatever comes behind it in the file.
TEST(CheckpointNames, UnknownOnesBehindANorm) {
  const TempDir dir;
  const std::vector<float> data(64 * 64);
  SafetensorsWriter w;
  w.add(kModule + ".0.a_norm.weight", "F32", {64}, data.data(), 64 * 4);
  w.add(kModule + ".0.upward.weight", "F32", {32, 64}, data.data(), 32 * 64 * 4);
  WeightSet set(config_of({}));
  const Check c = set.load_safetensors(dir.write("x.safetensors", w.bytes()).c_str(), nullptr);
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().code, Code::unexpected_weight);
  EXPECT_THAT(c.error().message, HasSubstr("upward"));
}

TEST(CheckpointNames, WithoutAPlaceAreRefused) {
  const std::vector<std::int8_t> data(64 * 64);
  for (const char* suffix : {"0.gate_proj.weight_zero_point", "0.gate_proj.weight_packed", "0.down_proj.bias",
                             "4.gate_proj.weight", "04.gate_proj.weight", "-1.up_proj.weight",
                             "99999999999999999999.up_proj.weight", "0.gate_proj.weight.extra"}) {
    const std::string name = kModule + "." + suffix;
    WeightSet set(config_of({}));
    const auto r = set.set_named(name, row_major(DType::i8, {32, 64}, data.data()), {});
    ASSERT_FALSE(r) << name;
    EXPECT_EQ(r.error().code, Code::unexpected_weight);
    EXPECT_EQ(r.error().subject, name);
    const TempDir dir;
    SafetensorsWriter w;
    w.add(name, "I8", {32, 64}, data.data(), 32 * 64);
    const std::string path = dir.write("x.safetensors", w.bytes());
    const Check c = set.load_safetensors(path.c_str(), nullptr);
    ASSERT_FALSE(c);
    EXPECT_EQ(c.error().code, Code::unexpected_weight);
    EXPECT_EQ(c.error().subject, name);
    EXPECT_THAT(c.error().message, HasSubstr(path));
  }
}

TEST(CheckpointNames, WrongTypesAndShapes) {
  const std::vector<std::int64_t> data(64 * 64);
  struct Case {
    const char *name, *dtype;
    std::vector<std::int64_t> shape;
    std::size_t size;
    Code want;
  };
  for (const Case& c : {Case{"0.gate_proj.weight_packed", "I32", {32, 9}, 4, Code::shape},
                        Case{"0.gate_proj.weight_packed", "I32", {32, 8, 1}, 4, Code::shape},
                        Case{"0.gate_proj.weight_packed", "U32", {32, 8}, 4, Code::dtype},
                        Case{"0.gate_proj.weight_scale", "F64", {32, 2}, 8, Code::dtype},
                        Case{"0.gate_proj.weight_scale", "F32", {32, 1}, 4, Code::shape},
                        Case{"0.gate_proj.weight_scale", "F32", {}, 4, Code::shape},
                        Case{"0.down_proj.weight_packed", "I32", {}, 4, Code::shape},
                        Case{"0.down_proj.weight_packed", "I32", {32, 8}, 4, Code::shape},
                        Case{"0.down_proj.weight_shape", "I64", {2}, 8, Code::shape},
                        Case{"0.down_proj.weight_shape", "I32", {2}, 4, Code::dtype},
                        Case{"0.down_proj.weight_shape", "I64", {3}, 8, Code::shape},
                        Case{"0.gate_proj.weight_scale", "F32", {1, 1, 1, 1, 1, 1, 8, 8}, 4, Code::shape}}) {
    std::size_t n = c.size;
    for (const std::int64_t d : c.shape) n *= static_cast<std::size_t>(d);
    const TempDir dir;
    SafetensorsWriter w;
    w.add(kModule + "." + c.name, c.dtype, c.shape, data.data(), n);
    WeightSet set(config_of({.format = "pack-quantized"}));
    const Check r = set.load_safetensors(dir.write("x.safetensors", w.bytes()).c_str(), nullptr);
    ASSERT_FALSE(r) << c.name;
    EXPECT_EQ(r.error().code, c.want) << r.error().message;
    EXPECT_EQ(r.error().subject, kModule + "." + c.name);
    EXPECT_EQ(set.missing().size(), 16u);
  }
}

TEST(CheckpointNames, WeightShapeIsCheckedAndDropped) {
  Releases r;
  WeightSet set(config_of({.format = "pack-quantized"}));
  const std::string name = kModule + ".1.down_proj.weight_shape";
  const std::int64_t good[] = {64, -1, 32}, bad[] = {32, 64};
  TensorView v = row_major(DType::i64, {2}, good);
  v.strides[0] = 2;
  v.nbytes = 24;
  const auto dropped = set.set_named(name, v, r.owner());
  ASSERT_TRUE(dropped) << dropped.error().message;
  EXPECT_TRUE(*dropped);
  EXPECT_EQ(r.count, 1);
  const auto refused = set.set_named(name, row_major(DType::i64, {2}, bad), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::shape);
  EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr("[32, 64]"), HasSubstr("[64, 32]")));
}

TEST(CheckpointLoad, ADirectoryOfFilesWithAnotherModuleName) {
  const TempDir dir;
  LayerSpec spec;
  const PlainLayer layer(spec);
  nlohmann::json index;
  for (std::int64_t e = 0; e < 4; ++e) {
    SafetensorsWriter w;
    add_expert(w, layer, e);
    const std::string shard = "model-" + std::to_string(e) + ".safetensors";
    dir.write(shard, w.bytes());
    for (const auto& m : matrices(layer, e))
      for (const char* suffix : {"weight", "weight_scale"})
        index["weight_map"][kModule + "." + std::to_string(e) + "." + m.projection + "." + suffix] = shard;
  }
  dir.write("model.safetensors.index.json", index.dump());
  std::vector<Owned> keep;
  const Bytes want = convert_set(*reference_set(layer, spec, keep));
  WeightSet set(config_of(spec));
  ASSERT_TRUE(set.load_safetensors(dir.path().c_str(), nullptr));
  EXPECT_EQ(convert_set(set), want);
  WeightSet none(config_of(spec));
  ASSERT_TRUE(none.load_safetensors(dir.path().c_str(), "model.layers.7.mlp.experts"));
  EXPECT_EQ(none.missing().size(), 16u);
  Config renamed = *config_of(spec);
  renamed.name = "something.else";
  WeightSet by_module(std::make_shared<const Config>(renamed));
  ASSERT_TRUE(by_module.load_safetensors(dir.path().c_str(), kModule.c_str()));
  EXPECT_EQ(convert_set(by_module), want);
}

TEST(CheckpointLoad, AFailedLoadChangesNothing) {
  const TempDir dir;
  LayerSpec spec;
  const PlainLayer layer(spec);
  SafetensorsWriter w;
  add_expert(w, layer, 0);
  add_expert(w, layer, 1);
  w.add(kModule + ".9.gate_proj.weight", "U8", {1}, "x", 1);  // the last name of all
  WeightSet set(config_of(spec));
  EXPECT_FALSE(set.load_safetensors(dir.write("x.safetensors", w.bytes()).c_str(), nullptr));
  EXPECT_EQ(set.missing().size(), 16u);
  EXPECT_EQ(set.load_safetensors(dir.file("absent").c_str(), nullptr).error().code, Code::io);
  const std::vector<std::int8_t> data(4 * 64 * 64);
  ASSERT_TRUE(set.set(Role::w13_weight, row_major(DType::i8, {4, 64, 64}, data.data()), {}));
  EXPECT_EQ(set.load_safetensors(dir.write("y.safetensors", file_of(layer)).c_str(), nullptr).error().code,
            Code::state);
  EXPECT_EQ(set.missing().size(), 12u);
}

TEST(CheckpointLoad, AFileThatShrinksIsAnError) {
  const TempDir dir;
  LayerSpec spec;
  const std::string path = dir.write("x.safetensors", file_of(PlainLayer(spec)));
  WeightSet set(config_of(spec));
  ASSERT_TRUE(set.load_safetensors(path.c_str(), nullptr));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  const auto r = set.tensor(Role::w2_weight, 3);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::io);
  EXPECT_THAT(r.error().message, testing::AllOf(HasSubstr(path), HasSubstr("experts.3.down_proj.weight")));
}

}  // namespace
}  // namespace moe::test::checkpoint_test
