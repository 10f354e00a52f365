// moe.hpp on a small layer: the objects, their errors, and the four steps.
#include <gtest/gtest.h>

#include <numeric>
#include <type_traits>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "cpp/world.h"
#include "support/temp_dir.h"

namespace cpp_test {
namespace {

using namespace libmoe;

class CppLayer : public testing::Test {
 protected:
  void set_weights(Weights& weights) {
    weights.set("w13_weight", {n.w13, {kExperts, 2 * kInner, kHidden}}, [this] { ++released; });
    weights.set("w2_weight", {n.w2, {kExperts, kHidden, kInner}}, [this] { ++released; });
  }
  Packed packed() {
    Weights weights = Weights::create(config);
    set_weights(weights);
    return Packed::convert(selection, weights);
  }
  std::vector<float> apply(const Layer& layer) {
    std::vector<float> out(n.hidden.size());
    layer.apply({n.hidden, {kTokens, kHidden}}, {n.logits, {kTokens, kExperts}}, {out, {kTokens, kHidden}});
    return out;
  }

  Numbers n;
  int released = 0;
  Config config = Config::create(kConfig);
  Selection selection = Selection::create(config);
};

template <class T>
constexpr bool is_owner = std::is_nothrow_move_constructible_v<T>&& std::is_nothrow_move_assignable_v<T> &&
                          !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(is_owner<Buffer> && is_owner<Context> && is_owner<Config> && is_owner<Platform> && is_owner<Selection> &&
              is_owner<Weights> && is_owner<Packed> && is_owner<Layer> && is_owner<Control>);
static_assert(std::is_nothrow_copy_constructible_v<Error> && std::is_nothrow_copy_assignable_v<Error>);
static_assert(std::is_constructible_v<ConstTensor, const std::vector<float>&, Shape>);
static_assert(!std::is_constructible_v<Tensor, const std::vector<float>&, Shape>, "constant memory is not written");

TEST(CppVersion, IsTheLibrarys) {
  EXPECT_EQ(abi_version(), MOE_ABI_VERSION);
  EXPECT_EQ(version_number(), MOE_VERSION_MAJOR * 1000000 + MOE_VERSION_MINOR * 1000 + MOE_VERSION_PATCH);
  EXPECT_FALSE(version_string().empty());
  EXPECT_NE(abi_json().find("moe_apply"), std::string_view::npos);
  EXPECT_NE(build_info_json().find("version"), std::string_view::npos);
  EXPECT_TRUE(has_feature("io.mmap"));
  EXPECT_FALSE(has_feature("no such"));
  EXPECT_EQ(status_name(MOE_ERR_IO), "MOE_ERR_IO");
  EXPECT_EQ(reject_name(MOE_REJECT_ISA), "MOE_REJECT_ISA");
  EXPECT_EQ(dtype_name(MOE_DTYPE_BF16), "bf16");
  EXPECT_EQ(dtype_from_name("torch.bfloat16"), MOE_DTYPE_BF16);
  EXPECT_EQ(dtype_from_name(std::string("f32\0x", 5)), MOE_DTYPE_INVALID);
  EXPECT_EQ(tensor_nbytes(MOE_DTYPE_I4, {3, 5}), 9);
  EXPECT_EQ(tensor_nbytes(MOE_DTYPE_F32, {1, 1, 1, 1, 1, 1, 1}), -1);
}

TEST(CppError, SaysWhereAndIsCopied) {
  try {
    Config::create(R"({"num_experts":"four"})");
    FAIL() << "accepted";
  } catch (const std::exception& thrown) {
    const auto& error = dynamic_cast<const Error&>(thrown);
    EXPECT_EQ(error.status(), MOE_ERR_INVALID_CONFIG);
    EXPECT_STREQ(error.name(), "MOE_ERR_INVALID_CONFIG");
    EXPECT_STREQ(error.subject(), "/num_experts");
    EXPECT_EQ(std::string(error.what()), std::string(error.subject()) + ": " + error.message());
    EXPECT_NE(std::string_view(error.details()).find("\"subject\""), std::string_view::npos);
    Error copy(MOE_ERR_IO, "another");
    copy = error;
    const Error again(copy);
    EXPECT_EQ(again.get(), error.get());
  }
  auto result = Config::try_create("[]");
  ASSERT_FALSE(result);
  EXPECT_THROW((void)result.value(), Error);
  auto good = Config::try_create(kConfig);
  EXPECT_EQ(good.value().get_int("/top_k"), kTopK);
  EXPECT_EQ(result.error().status(), MOE_ERR_INVALID_CONFIG);
  const Error own(MOE_ERR_STATE, "mine");
  EXPECT_EQ(own.status(), MOE_ERR_STATE);
  EXPECT_STREQ(own.what(), "mine");
}

TEST(CppHandle, MovedFromIsEmptyAndRefused) {
  Config first = Config::create(kConfig);
  const Config second = std::move(first);
  EXPECT_TRUE(second);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
  const auto selection = Selection::try_create(first);
  ASSERT_FALSE(selection);
  EXPECT_EQ(selection.error().status(), MOE_ERR_INVALID_ARGUMENT);
  Config third = Config::create(kConfig);
  moe_config* raw = third.release();
  EXPECT_FALSE(third);
  third = Config(raw);
  EXPECT_EQ(third.get_int("/num_experts"), kExperts);
}

TEST(CppBuffer, Owns) {
  const Buffer buffer = Buffer::create(100, 128);
  EXPECT_EQ(buffer.size(), 100U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 128, 0U);
  EXPECT_EQ(Buffer::try_create(1, 3).error().status(), MOE_ERR_INVALID_ARGUMENT);
}

TEST(CppView, OfContainers) {
  std::vector<int> values{1, 2, 3};
  const View<int> view = values;
  EXPECT_EQ(view[2], 3);
  EXPECT_EQ(std::accumulate(view.begin(), view.end(), 0), 6);
  const View<const int> constant = view;
  EXPECT_EQ(constant.data(), values.data());
  const int array[] = {7, 8};
  EXPECT_EQ(View<const int>(array).size(), 2U);
  static_assert(!std::is_constructible_v<View<int>, const std::vector<int>&>);
#if __cplusplus >= 202002L
  const std::span<int> span = view;
  EXPECT_EQ(View<int>(span).data(), values.data());
#endif
}

TEST(CppTensor, KnowsTypesAndBytes) {
  const std::vector<float> values(6);
  const ConstTensor tensor(values, {2, 3});
  EXPECT_EQ(tensor.dtype(), MOE_DTYPE_F32);
  EXPECT_EQ(tensor.nbytes(), 24U);
  EXPECT_EQ(tensor.shape().size(), 2U);
  EXPECT_EQ(tensor.as<float>().size(), 6U);
  EXPECT_EQ(dtype_of<std::int8_t>(), MOE_DTYPE_I8);
  EXPECT_EQ(dtype_of<const std::uint16_t>(), MOE_DTYPE_U16);
  EXPECT_EQ(dtype_of<std::int64_t>(), MOE_DTYPE_I64);
  EXPECT_EQ(dtype_of<double>(), MOE_DTYPE_F64);
  EXPECT_EQ(dtype_of<bool>(), MOE_DTYPE_BOOL);
  EXPECT_TRUE(ConstTensor().absent());
  EXPECT_EQ(ConstTensor().get(), nullptr);
}

TEST(CppTensor, FromDlpack) {
  struct Managed {
    std::uint32_t major = 1, minor = 0;
    void *manager = nullptr, *deleter = nullptr;
    std::uint64_t flags = 0;
    void* data = nullptr;
    std::int32_t device_type = 1, device_id = 0, ndim = 1;
    std::uint8_t code = 2, bits = 32;
    std::uint16_t lanes = 1;
    std::int64_t *shape = nullptr, *strides = nullptr;
    std::uint64_t byte_offset = 0;
  } managed;
  float data[3] = {};
  std::int64_t shape = 3;
  managed.data = data;
  managed.shape = &shape;
  const ConstTensor tensor = ConstTensor::from_dlpack(&managed);
  EXPECT_EQ(tensor.data(), data);
  EXPECT_EQ(tensor.nbytes(), 12U);
  managed.device_type = 2;
  EXPECT_EQ(ConstTensor::try_from_dlpack(&managed).error().status(), MOE_ERR_UNSUPPORTED);
}

TEST_F(CppLayer, ConfigAndPlatformAnswer) {
  EXPECT_EQ(config.get_int("/num_experts"), kExperts);
  EXPECT_EQ(config.get_string("/in_dtype"), "float32");
  EXPECT_EQ(config.get_float("/routing/routed_scaling_factor"), 1.0);
  EXPECT_EQ(config.try_get_int("/no such").error().status(), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(config.merge(R"({"top_k":1})").get_int("/top_k"), 1);
  EXPECT_NE(config.to_json().text().find("hidden_dim"), std::string_view::npos);
  EXPECT_NE(Config::schema_json().find("$schema"), std::string_view::npos);
  EXPECT_EQ(Config::try_from_hf(R"({"architectures":["NoSuch"]})").error().status(), MOE_ERR_UNSUPPORTED);
  const Platform described = Platform::create(R"({"type":"cpu","arch":"x86_64","features":["avx2"]})");
  EXPECT_TRUE(described.has("avx2"));
  EXPECT_FALSE(described.has("avx512f"));
  EXPECT_NE(Platform::create().to_json().text().find("arch"), std::string_view::npos);
  EXPECT_NE(describe("activation", R"({"activation":"silu"})").text().find("gated"), std::string_view::npos);
}

TEST_F(CppLayer, SelectionShowsEveryCandidate) {
  EXPECT_FALSE(selection.backend().empty());
  EXPECT_FALSE(selection.kernel().empty());
  EXPECT_FALSE(selection.layout().empty());
  const std::vector<moe_candidate> all = selection.candidates();
  ASSERT_EQ(all.size(), selection.candidate_count());
  int chosen = 0;
  for (const moe_candidate& candidate : all) chosen += candidate.chosen;
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(selection.try_candidate(all.size()).error().status(), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_GE(selection.packed_size().bytes, n.w13.size());
  EXPECT_NE(selection.to_json().text().find("candidates"), std::string_view::npos);
  const Platform arm = Platform::create(R"({"type":"cpu","arch":"riscv64"})");
  EXPECT_EQ(Selection::create(config, {}, arm, MOE_SELECT_EXPLAIN_ONLY).candidate_count(), all.size());
}

TEST_F(CppLayer, FormsOfApplyAgree) {
  Layer layer;
  {
    const Packed converted = packed();
    layer = Layer::create(selection, converted);
  }
  EXPECT_EQ(released, 2);
  const std::vector<float> expected = apply(layer);
  EXPECT_NE(expected, std::vector<float>(expected.size()));

  std::vector<std::int32_t> ids(kTokens * kTopK);
  std::vector<float> weights(ids.size()), out(expected.size());
  route(config, {n.logits, {kTokens, kExperts}}, {ids, {kTokens, kTopK}}, {weights, {kTokens, kTopK}});
  layer.apply_topk({n.hidden, {kTokens, kHidden}}, {ids, {kTokens, kTopK}}, {weights, {kTokens, kTopK}},
                   {out, {kTokens, kHidden}});
  EXPECT_EQ(out, expected);

  const Size size = layer.workspace_size(kTokens);
  const Buffer workspace = Buffer::create(size.bytes, size.alignment);
  std::vector<std::int32_t> chosen(ids.size());
  std::vector<float> chosen_weights(ids.size());
  Apply call;
  call.hidden = {n.hidden, {kTokens, kHidden}};
  call.router_logits = {n.logits, {kTokens, kExperts}};
  call.out = {out, {kTokens, kHidden}};
  call.workspace = {static_cast<std::byte*>(workspace.data()), workspace.size()};
  call.out_topk_ids = {chosen, {kTokens, kTopK}};
  call.out_topk_weights = {chosen_weights, {kTokens, kTopK}};
  call.flags = MOE_APPLY_ACCUMULATE;
  layer.apply(call);
  EXPECT_EQ(chosen, ids);
  EXPECT_EQ(chosen_weights, weights);
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], 2 * expected[i], 1e-5);

  layer.apply_flat(kTokens, MOE_DTYPE_F32, n.hidden.data(), MOE_DTYPE_F32, n.logits.data(), nullptr, nullptr,
                   MOE_DTYPE_F32, out.data());
  EXPECT_EQ(out, expected);

  std::vector<std::uint64_t> counts(kExperts);
  layer.expert_counts(counts, true);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), std::uint64_t{4 * kTokens * kTopK});
  EXPECT_EQ(layer.try_expert_counts({counts.data(), 1}).error().status(), MOE_ERR_BUFFER_TOO_SMALL);
  EXPECT_NE(layer.to_json().text().find("kernel"), std::string_view::npos);
}

TEST_F(CppLayer, LayersTakeTheirOwnExpertMap) {
  const Packed converted = packed();
  const std::vector<std::int32_t> map{0, 1, 2, 3};
  LayerOptions options;
  options.expert_map = {map, {kExperts}};
  EXPECT_EQ(apply(Layer::create(selection, converted, {}, options)), apply(Layer::create(selection, converted)));
  options.expert_map = {map, {2, 2}};
  EXPECT_EQ(Layer::try_create(selection, converted, {}, options).error().status(), MOE_ERR_SHAPE);
}

TEST_F(CppLayer, BadTensorsAreRefusedBeforeTheyAreRead) {
  const Layer layer = Layer::create(selection, packed());
  std::vector<float> out(n.hidden.size());
  const ConstTensor hidden(n.hidden, {kTokens, kHidden}), logits(n.logits, {kTokens, kExperts});
  const Tensor result(out, {kTokens, kHidden});
  const auto status = [](const Result<void>& done) { return done ? MOE_OK : done.error().status(); };
  ASSERT_EQ(status(layer.try_apply(hidden, logits, result)), MOE_OK);
  std::vector<float> reserved;
  reserved.reserve(n.hidden.size());
  EXPECT_NE(status(layer.try_apply({reserved, {kTokens, kHidden}}, logits, result)), MOE_OK) << "an empty vector";
  EXPECT_EQ(status(layer.try_apply({View<float>(n.hidden.data(), 100), {kTokens, kHidden}}, logits, result)),
            MOE_ERR_SHAPE);
  EXPECT_EQ(status(layer.try_apply({n.hidden, {1, 1, 1, 1, 1, kTokens, kHidden}}, logits, result)), MOE_ERR_SHAPE);
  EXPECT_EQ(status(layer.try_apply({n.hidden, MOE_DTYPE_I32, {kTokens, kHidden}}, logits, result)), MOE_ERR_DTYPE);
  EXPECT_EQ(status(layer.try_apply({}, logits, result)), MOE_ERR_INVALID_ARGUMENT);
  std::vector<float> none;
  EXPECT_EQ(status(layer.try_apply({none, {0, kHidden}}, {none, {0, kExperts}}, {none, {0, kHidden}})), MOE_OK);
}

TEST_F(CppLayer, PackedIsSavedLoadedAndShown) {
  const Packed first = packed();
  const moe::test::TempDir folder;
  const std::string path = folder.path() + "/layer.moe";
  first.save(path);
  const std::vector<float> expected = apply(Layer::create(selection, first));
  EXPECT_EQ(apply(Layer::create(selection, Packed::load(path))), expected);
  int ended = 0;
  {
    const Packed second = Packed::load_memory(first.data(), [&] { ++ended; });
    EXPECT_EQ(apply(Layer::create(selection, second)), expected);
    EXPECT_EQ(ended, 0);
  }
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(Packed::try_load(folder.path() + "/none").error().status(), MOE_ERR_IO);
  EXPECT_EQ(Packed::try_load(path + std::string(1, '\0')).error().status(), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_STREQ(Packed::try_load(std::string("some\0file", 9)).error().message(),
               "a text with a NUL character inside, behind \"some\"");
  EXPECT_EQ(Packed::try_load_memory({}, [&] { ++ended; }).error().status(), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(ended, 2);

  EXPECT_NE(first.to_json().text().find("w13_packed"), std::string_view::npos);
  EXPECT_EQ(first.get("w13_packed").shape()[0], kExperts);
  EXPECT_EQ(first.get("w13_packed").strides().size(), 2U) << "experts lie apart";
  EXPECT_TRUE(ConstTensor(n.w13, {8}).strides().empty());
  EXPECT_EQ(first.try_get("no such").error().status(), MOE_ERR_INVALID_ARGUMENT);
  std::vector<float> dense(kHidden * kInner);
  first.dequantize("w2_weight", 1, {dense, {kHidden, kInner}});
  EXPECT_TRUE(std::equal(dense.begin(), dense.end(), n.w2.begin() + kHidden * kInner));
}

TEST_F(CppLayer, ConversionIntoMemoryOfTheCaller) {
  Weights weights = Weights::create(config);
  set_weights(weights);
  const Size size = selection.packed_size();
  const Buffer memory = Buffer::create(size.bytes, size.alignment);
  int ended = 0;
  const auto options = [&](std::size_t bytes) {
    ConvertOptions o;
    o.dst = {static_cast<std::byte*>(memory.data()), bytes};
    o.dst_release = [&ended] { ++ended; };
    return o;
  };
  EXPECT_EQ(Packed::try_convert(selection, weights, {}, options(64)).error().status(), MOE_ERR_BUFFER_TOO_SMALL);
  EXPECT_EQ(ended, 1);
  ConvertOptions last = options(memory.size());
  last.release_sources = true;
  {
    const Packed converted = Packed::convert(selection, weights, {}, std::move(last));
    EXPECT_EQ(released, 2);
    EXPECT_EQ(ended, 1);
  }
  EXPECT_EQ(ended, 2);
}

TEST_F(CppLayer, AFileWithoutExceptions) {
  const std::vector<float> expected = apply(Layer::create(selection, packed()));
  std::vector<float> out(expected.size());
  EXPECT_STREQ(without_exceptions(n, out), "");
  EXPECT_EQ(out, expected);
}

}  // namespace
}  // namespace cpp_test
