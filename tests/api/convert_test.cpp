// Conversion options: the caller's memory, releasing sources, control; what disagrees is refused.
#include <gtest/gtest.h>

#include <limits>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::convert_test {
namespace {

class Convert : public testing::Test {
 protected:
  Model m = random_model();
  ConfigPtr config = make_config(m.config_text());
  SelectionPtr selection = make_selection(config.get());
  WeightsPtr weights = make_weights(config.get(), m, &sources);
  int sources = 0, dst_released = 0;
  moe_convert_options options{};
  std::uint64_t bytes = 0, alignment = 0;

  void SetUp() override {
    options.struct_size = sizeof options;
    ASSERT_EQ(moe_selection_packed_size(selection.get(), &bytes, &alignment, nullptr), MOE_OK);
  }
  Failure convert(PackedPtr* result = nullptr) {
    moe_packed* out = reinterpret_cast<moe_packed*>(8);
    const Failure f = failure(
        [&](moe_error** e) { return moe_convert_weights(nullptr, selection.get(), weights.get(), &options, &out, e); });
    if (f.status != MOE_OK) {
      EXPECT_EQ(out, nullptr);
      return f;
    }
    PackedPtr p(out);
    if (result != nullptr) *result = std::move(p);
    return f;
  }
  BufferPtr memory(std::size_t size) {
    return make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_buffer_create(size, 64, o, e); });
  }
  void give(void* dst, std::uint64_t size) {
    options.dst = dst;
    options.dst_size = size;
    options.dst_release = count_release;
    options.dst_user = &dst_released;
  }
};

TEST_F(Convert, IntoTheCallersMemory) {
  const BufferPtr dst = memory(bytes + 64);
  auto* end = static_cast<unsigned char*>(moe_buffer_data(dst.get())) + bytes;
  std::memset(end, 0xa5, 64);
  give(moe_buffer_data(dst.get()), bytes + 64);
  PackedPtr packed;
  ASSERT_EQ(convert(&packed).status, MOE_OK);
  EXPECT_EQ(dst_released, 0);
  const void* data = nullptr;
  std::uint64_t size = 0;
  ASSERT_EQ(moe_packed_data(packed.get(), &data, &size, nullptr), MOE_OK);
  EXPECT_EQ(data, options.dst);
  EXPECT_EQ(size, bytes);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(end[i], 0xa5);
  const Steps other = four_steps(m);
  const void* same = nullptr;
  ASSERT_EQ(moe_packed_data(other.packed.get(), &same, &size, nullptr), MOE_OK);
  EXPECT_EQ(std::memcmp(data, same, size), 0);
  packed.reset();
  EXPECT_EQ(dst_released, 1);
}

TEST_F(Convert, MemoryThatDoesNotFit) {
  const BufferPtr dst = memory(bytes);
  give(moe_buffer_data(dst.get()), bytes - 1);
  const Failure small = convert();
  EXPECT_EQ(small.status, MOE_ERR_BUFFER_TOO_SMALL);
  EXPECT_EQ(small.details["needed"], bytes);
  EXPECT_EQ(dst_released, 1);
  give(static_cast<char*>(moe_buffer_data(dst.get())) + 32, bytes);
  const Failure odd = convert();
  EXPECT_EQ(odd.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(odd.subject, "dst");
  EXPECT_EQ(dst_released, 2);
}

TEST_F(Convert, DstIsReleasedAtEachEarlyFailure) {
  give(nullptr, 0);
  const auto status = [&](const moe_selection* s, moe_weights* w, moe_packed** o) {
    const moe_status r = moe_convert_weights(nullptr, s, w, &options, o, nullptr);
    EXPECT_EQ(dst_released, 1);
    dst_released = 0;
    return r;
  };
  moe_packed* out = nullptr;
  EXPECT_EQ(status(nullptr, weights.get(), &out), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status(selection.get(), nullptr, &out), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status(selection.get(), weights.get(), nullptr), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status(reinterpret_cast<const moe_selection*>(config.get()), weights.get(), &out), MOE_ERR_INVALID_HANDLE);
  options.flags = 6;
  EXPECT_EQ(status(selection.get(), weights.get(), &out), MOE_ERR_INVALID_ARGUMENT);
  options.flags = 0;
  options.reserved0 = 1;
  EXPECT_EQ(status(selection.get(), weights.get(), &out), MOE_ERR_INVALID_ARGUMENT);
  options.reserved0 = 0;
  const WeightsPtr none =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  EXPECT_EQ(status(selection.get(), none.get(), &out), MOE_ERR_MISSING_WEIGHT);
  PackedPtr packed;
  ASSERT_EQ(convert(&packed).status, MOE_OK);  // a release without memory is kept as well
  EXPECT_EQ(dst_released, 0);
  packed.reset();
  EXPECT_EQ(dst_released, 1);
}

TEST_F(Convert, ReleasingSourcesEmptiesTheSet) {
  options.flags = MOE_CONVERT_RELEASE_SOURCES;
  PackedPtr packed;
  ASSERT_EQ(convert(&packed).status, MOE_OK);
  EXPECT_EQ(sources, 4);
  const auto j = json_of([&](moe_buffer** o, moe_error** e) { return moe_weights_to_json(weights.get(), o, e); });
  EXPECT_EQ(j["complete"], false);
  EXPECT_EQ(convert().status, MOE_ERR_MISSING_WEIGHT);
  weights.reset();
  EXPECT_EQ(sources, 4);
}

TEST_F(Convert, CancelledBeforeAndDuring) {
  const ControlPtr c = make<ControlPtr>(
      [](moe_control** o, moe_error** e) { return moe_control_create(nullptr, nullptr, nullptr, o, e); });
  moe_control_cancel(c.get());
  options.control = c.get();
  EXPECT_EQ(convert().status, MOE_ERR_CANCELLED);
  int asked = 0;
  const moe_progress_fn stop = [](void* user, std::uint64_t, std::uint64_t) -> moe_status {
    ++*static_cast<int*>(user);
    return MOE_ERR_CANCELLED;
  };
  const ControlPtr during =
      make<ControlPtr>([&](moe_control** o, moe_error** e) { return moe_control_create(stop, &asked, nullptr, o, e); });
  options.control = during.get();
  EXPECT_EQ(convert().status, MOE_ERR_CANCELLED);
  EXPECT_GT(asked, 0);
  options.control = nullptr;
  EXPECT_EQ(convert().status, MOE_OK);  // the set is as before
}

TEST_F(Convert, ValuesOutOfRangeNameTheirPlace) {
  m.w13[static_cast<std::size_t>((1 * 2 * m.I + 3) * m.H + 5)] = 8;
  const Failure f = convert();
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "w13_weight[1,3,5]");
  m.w13[static_cast<std::size_t>((1 * 2 * m.I + 3) * m.H + 5)] = 7;
  const float bad = -std::numeric_limits<float>::infinity();
  std::memcpy(m.s2.data() + 4 * (2 * m.H * 2 + 7 * 2 + 1), &bad, 4);
  const Failure g = convert();
  EXPECT_EQ(g.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(g.subject, "w2_scale[2,7,1]");
}

TEST_F(Convert, WeightsOfAnotherConfig) {
  Model other;
  other.group = 64;
  other = random_model(other);
  const ConfigPtr c = make_config(other.config_text());
  weights = make_weights(c.get(), other);
  const Failure f = convert();
  EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH);
  EXPECT_EQ(f.details["member"], "/quantization/weights");
}

}  // namespace
}  // namespace moe::test::convert_test
