// Converted weights through the ABI: views, reading back, files and blocks.
#include <gtest/gtest.h>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::packed_test {
namespace {

class PackedWeights : public testing::Test {
 protected:
  Model m = random_model();
  Steps s = four_steps(m);
  const void* data = nullptr;
  std::uint64_t size = 0;
  TempDir dir;
  std::string path = dir.path() + "/layer.moe";

  void SetUp() override { ASSERT_EQ(moe_packed_data(s.packed.get(), &data, &size, nullptr), MOE_OK); }
  moe_status load(std::uint64_t flags, PackedPtr* out) {
    moe_packed* p = nullptr;
    const moe_status r = moe_packed_load(s.context.get(), path.c_str(), flags, nullptr, &p, nullptr);
    out->reset(p);
    return r;
  }
  void expect_same(const moe_packed* p) {
    const void* other = nullptr;
    std::uint64_t other_size = 0;
    ASSERT_EQ(moe_packed_data(p, &other, &other_size, nullptr), MOE_OK);
    ASSERT_EQ(other_size, size);
    EXPECT_EQ(std::memcmp(other, data, size), 0);
  }
};

TEST_F(PackedWeights, NamedOutputs) {
  const auto j = json_of([&](moe_buffer** o, moe_error** e) { return moe_packed_to_json(s.packed.get(), o, e); });
  EXPECT_EQ(j["layout"], "p16/int4-g32/1");
  moe_tensor all{}, one{};
  all.struct_size = one.struct_size = sizeof all;
  for (const char* role : {"w13_packed", "w2_packed"}) {
    ASSERT_EQ(moe_packed_get(s.packed.get(), role, -1, &all, nullptr), MOE_OK);
    EXPECT_EQ(all.dtype, MOE_DTYPE_U8);
    EXPECT_EQ(all.ndim, 2);
    EXPECT_EQ(all.shape[0], m.E);
    EXPECT_EQ(all.strides[0] % 4096, 0);
    ASSERT_EQ(moe_packed_get(s.packed.get(), role, 2, &one, nullptr), MOE_OK);
    EXPECT_EQ(one.ndim, 1);
    EXPECT_EQ(one.shape[0], all.shape[1]);
    EXPECT_EQ(one.data, static_cast<char*>(all.data) + 2 * all.strides[0]);
    EXPECT_GE(one.data, data);
    EXPECT_LE(static_cast<char*>(one.data) + one.nbytes, static_cast<const char*>(data) + size);
  }
  ASSERT_EQ(moe_packed_get(s.packed.get(), "w2_weight", 2, &all, nullptr), MOE_OK);  // the role of what it holds
  EXPECT_EQ(all.data, one.data);
  for (const auto& [role, expert, subject] : {std::tuple{"w13_scale", std::int64_t{0}, "role"},
                                              {"w13_packed", m.E, "expert"},
                                              {"w13_packed", std::int64_t{-2}, "expert"}}) {
    const moe_tensor before = one;
    const Failure f =
        failure([&, r = role, x = expert](moe_error** e) { return moe_packed_get(s.packed.get(), r, x, &one, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, subject);
    EXPECT_EQ(std::memcmp(&before, &one, sizeof one), 0);
  }
}

TEST_F(PackedWeights, Dequantized) {
  std::vector<float> out(static_cast<std::size_t>(2 * m.I * m.H), -1.0f);
  const moe_tensor t = tensor(MOE_DTYPE_F32, {2 * m.I, m.H}, out.data());
  ASSERT_EQ(moe_packed_dequantize(s.packed.get(), "w13_weight", 3, &t, nullptr), MOE_OK);
  const std::int64_t groups = m.groups(m.H);
  for (std::int64_t n = 0; n < 2 * m.I; ++n)
    for (std::int64_t k = 0; k < m.H; ++k) {
      float scale = 0;
      std::memcpy(&scale, m.s13.data() + 4 * ((3 * 2 * m.I + n) * groups + k / m.group), 4);
      const int code = m.w13[static_cast<std::size_t>((3 * 2 * m.I + n) * m.H + k)];
      ASSERT_EQ(out[static_cast<std::size_t>(n * m.H + k)], static_cast<float>(code) * scale) << n << " " << k;
    }
  const moe_tensor wrong = tensor(MOE_DTYPE_F32, {m.I, m.H}, out.data()),
                   ints = tensor(MOE_DTYPE_I32, {2 * m.I, m.H}, out.data());
  EXPECT_EQ(moe_packed_dequantize(s.packed.get(), "w13_weight", 0, &wrong, nullptr), MOE_ERR_SHAPE);
  EXPECT_EQ(moe_packed_dequantize(s.packed.get(), "w13_weight", 0, &ints, nullptr), MOE_ERR_DTYPE);
  EXPECT_EQ(moe_packed_dequantize(s.packed.get(), "w13_scale", 0, &t, nullptr), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(moe_packed_dequantize(s.packed.get(), "w13_weight", m.E, &t, nullptr), MOE_ERR_INVALID_ARGUMENT);
}

TEST(PackedBiases, AreWhatWasGiven) {
  Model m;
  m.bias = true;
  m = random_model(m);
  const Steps s = four_steps(m);
  struct Row {
    const char* role;
    std::int64_t rows;
    const std::vector<std::byte>& given;
  };
  for (const Row& r : {Row{"w13_bias", 2 * m.I, m.b13}, Row{"w2_bias", m.H, m.b2}})
    for (std::int64_t expert = 0; expert < m.E; ++expert) {
      std::vector<float> out(static_cast<std::size_t>(r.rows), -1.0f);
      const moe_tensor t = tensor(MOE_DTYPE_F32, {r.rows}, out.data());
      ASSERT_EQ(moe_packed_dequantize(s.packed.get(), r.role, expert, &t, nullptr), MOE_OK);
      const auto* want = r.given.data() + 4 * expert * r.rows;
      EXPECT_EQ(std::memcmp(out.data(), want, 4 * out.size()), 0) << r.role << " " << expert;
      const moe_tensor square = tensor(MOE_DTYPE_F32, {1, r.rows}, out.data());
      EXPECT_EQ(moe_packed_dequantize(s.packed.get(), r.role, expert, &square, nullptr), MOE_ERR_SHAPE);
    }
}

TEST_F(PackedWeights, WithoutBiasesGiveNone) {
  std::vector<float> out(static_cast<std::size_t>(2 * m.I));
  const moe_tensor t = tensor(MOE_DTYPE_F32, {2 * m.I}, out.data());
  const Failure f = failure([&](moe_error** e) { return moe_packed_dequantize(s.packed.get(), "w13_bias", 0, &t, e); });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "role");
}

TEST_F(PackedWeights, SavedAndLoaded) {
  ASSERT_EQ(moe_packed_save(s.packed.get(), path.c_str(), 0, nullptr, nullptr), MOE_OK);
  for (std::uint64_t flags = 0; flags < 8; ++flags) {
    PackedPtr p;
    ASSERT_EQ(load(flags, &p), MOE_OK) << flags;
    expect_same(p.get());
    const LayerPtr layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(s.context.get(), s.selection.get(), p.get(), nullptr, o, e);
    });
    p.reset();
    Call a(m), b(m);
    ASSERT_EQ(moe_apply(layer.get(), &a.args, nullptr), MOE_OK);
    ASSERT_EQ(moe_apply(s.layer.get(), &b.args, nullptr), MOE_OK);
    EXPECT_EQ(a.out, b.out);
  }
}

TEST_F(PackedWeights, FilesThatAreNot) {
  PackedPtr p;
  EXPECT_EQ(load(0, &p), MOE_ERR_IO);
  dir.write("layer.moe", "");
  EXPECT_EQ(load(0, &p), MOE_ERR_FORMAT);
  dir.write("layer.moe", std::string(100000, 'x'));
  EXPECT_EQ(load(0, &p), MOE_ERR_FORMAT);
  EXPECT_EQ(load(8, &p), MOE_ERR_INVALID_ARGUMENT);
  std::string broken(static_cast<const char*>(data), size);
  broken[size - 100] = static_cast<char>(broken[size - 100] ^ 1);
  dir.write("layer.moe", broken);
  EXPECT_EQ(load(MOE_LOAD_VERIFY, &p), MOE_ERR_FORMAT);
  EXPECT_EQ(moe_packed_save(s.packed.get(), path.c_str(), 1, nullptr, nullptr), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(moe_packed_save(s.packed.get(), (dir.path() + "/none/layer.moe").c_str(), 0, nullptr, nullptr), MOE_ERR_IO);
  EXPECT_EQ(moe_packed_save(s.packed.get(), "", 0, nullptr, nullptr), MOE_ERR_IO);
}

TEST_F(PackedWeights, FromMemoryItIsReleasedOnce) {
  const BufferPtr copy =
      make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_buffer_create(size + 64, 64, o, e); });
  auto* bytes = static_cast<char*>(moe_buffer_data(copy.get()));
  int released = 0;
  for (const std::size_t offset : {0U, 8U}) {  // aligned: shared; else copied
    std::memcpy(bytes + offset, data, size);
    PackedPtr p = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
      return moe_packed_load_memory(nullptr, bytes + offset, size, MOE_LOAD_VERIFY, count_release, &released, o, e);
    });
    expect_same(p.get());
    const void* seen = nullptr;
    std::uint64_t seen_size = 0;
    ASSERT_EQ(moe_packed_data(p.get(), &seen, &seen_size, nullptr), MOE_OK);
    EXPECT_EQ(seen == bytes, offset == 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(seen) % 64, 0U);
    p.reset();
    EXPECT_EQ(released, 1);
    released = 0;
  }
  moe_packed* out = nullptr;
  for (const std::size_t n : {std::size_t{0}, std::size_t{100}, static_cast<std::size_t>(size - 1)}) {
    EXPECT_EQ(moe_packed_load_memory(nullptr, bytes + 8, n, 0, count_release, &released, &out, nullptr), MOE_ERR_FORMAT)
        << n;
    EXPECT_EQ(released, 1);
    released = 0;
  }
  EXPECT_EQ(moe_packed_load_memory(nullptr, nullptr, 5, 0, count_release, &released, &out, nullptr),
            MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(moe_packed_load_memory(nullptr, bytes, size, 64, count_release, &released, &out, nullptr),
            MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(moe_packed_load_memory(nullptr, bytes, size, 0, count_release, &released, nullptr, nullptr),
            MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(released, 3);
}

}  // namespace
}  // namespace moe::test::packed_test
