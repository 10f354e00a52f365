// Index tensors that another thread of the host writes during a call: ids of experts, tables of hash routing, groups of
// columns, scales. The result is of either value, the status OK or INVALID_ARGUMENT; nothing is read or written
// elsewhere. (Not with the thread sanitizer: the race is the point.)
#include "support/sanitizers.h"

#if !MOE_TSAN
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <optional>
#include <thread>

#include "support/capi.h"
#include "support/guard_pages.h"
#include "support/rooms.h"
#include "support/wna16_model.h"

namespace moe::test::read_once_test {
namespace {

// Writes the one, then the other value into all places until it ends.
template <class T>
class Writer {
 public:
  Writer(T* places, std::size_t count, T one, T other)
      : thread_([this, places, count, one, other] {
          volatile T* p = places;
          while (!stop_.load(std::memory_order_relaxed))
            for (const T value : {one, other})
              for (std::size_t i = 0; i < count; ++i) p[i] = value;
        }) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

constexpr int kCalls = 50;

void expect_ok_or_refused(moe_status s) { EXPECT_TRUE(s == MOE_OK || s == MOE_ERR_INVALID_ARGUMENT) << s; }

TEST(ReadOnce, IdsOfExperts) {
  Model m;
  m.T = 3000;  // several parts of a plan
  m = random_model(std::move(m), 5);
  const Steps s = four_steps(m, "{\"threads\":2}");
  for (const auto& [one, other] : {std::pair(0, 3), std::pair(1, -1), std::pair(2, 1 << 20)}) {
    const Guarded ids(m.ids.size() * 4, Flush::right, 4);
    std::memcpy(ids.data(), m.ids.data(), ids.size());
    Call c(m);
    c.ids.data = ids.data();
    const Writer<std::int32_t> writer(ids.as<std::int32_t>(), m.ids.size(), one, other);
    for (int i = 0; i < kCalls; ++i) expect_ok_or_refused(moe_apply(s.layer.get(), &c.args, nullptr));
  }
}

// A tensor of the weights lies at a guard page and changes while it is converted.
template <class T>
void convert_while_written(const std::string& written, T one, T other) {
  Wna16Model m;
  m.order = true;
  m = random_wna16(std::move(m), 7);
  const ConfigPtr config = make_config(m.config_text());
  const SelectionPtr selection = make_selection(config.get());
  std::optional<Guarded> memory;
  const auto place = [&](const std::string& role, const std::vector<std::byte>& bytes) {
    if (role != written) return static_cast<std::byte*>(nullptr);
    memory.emplace(bytes.size(), Flush::right, sizeof(T));
    std::memcpy(memory->data(), bytes.data(), bytes.size());
    return memory->data();
  };
  const WeightsPtr weights = stacked_weights(m, config.get(), {.place = place});
  ASSERT_TRUE(memory);
  // Every other place: groups keep some columns of their own.
  const Writer<T> writer(memory->as<T>() + memory->size() / sizeof(T) / 2, memory->size() / sizeof(T) / 2, one, other);
  for (int i = 0; i < kCalls; ++i) {
    moe_packed* packed = nullptr;
    const moe_status s = moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &packed, nullptr);
    EXPECT_TRUE(s == MOE_OK || s == MOE_ERR_INVALID_ARGUMENT || s == MOE_ERR_UNSUPPORTED) << s;
    moe_packed_destroy(packed);
  }
}

TEST(ReadOnce, GroupsOfColumns) {
  for (const char* role : {"w13_g_idx", "w2_g_idx"}) {
    convert_while_written<std::int32_t>(role, 0, 1);
    convert_while_written<std::int32_t>(role, 1, 1 << 28);
    convert_while_written<std::int32_t>(role, 0, -5);
  }
}

TEST(ReadOnce, Scales) {
  for (const char* role : {"w13_scale", "w2_scale"})
    convert_while_written<float>(role, 0.5f, std::numeric_limits<float>::quiet_NaN());
}

// Weights beyond the numbers of the layer's type are looked for once more, for the message.
TEST(ReadOnce, Weights) {
  const ConfigPtr config = make_config(
      R"({"num_experts":2,"top_k":1,"hidden_dim":64,"intermediate_size":64,"in_dtype":"float16","activation":"silu"})");
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr weights =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const Guarded w13(std::size_t{2} * 128 * 64 * 4, Flush::right, 4), w2(std::size_t{2} * 64 * 64 * 4, Flush::right, 4);
  const moe_tensor t13 = tensor(MOE_DTYPE_F32, {2, 128, 64}, w13.data()),
                   t2 = tensor(MOE_DTYPE_F32, {2, 64, 64}, w2.data());
  ASSERT_EQ(moe_weights_set(weights.get(), "w13_weight", &t13, nullptr, nullptr, nullptr), MOE_OK);
  ASSERT_EQ(moe_weights_set(weights.get(), "w2_weight", &t2, nullptr, nullptr, nullptr), MOE_OK);
  const Writer<float> writer(w2.as<float>(), w2.size() / 4, 1.0f, 1e30f);
  for (int i = 0; i < kCalls; ++i) {
    moe_packed* packed = nullptr;
    expect_ok_or_refused(moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &packed, nullptr));
    moe_packed_destroy(packed);
  }
}

// The table's ids are indices of the logits.
TEST(ReadOnce, IdsOfHashRouting) {
  const ConfigPtr config = make_config(
      R"({"num_experts":8,"top_k":2,"hidden_dim":64,"intermediate_size":64,"routing":{"hash_routing":true,"scoring_func":"sqrtsoftplus"}})");
  constexpr std::int64_t kTokens = 500;
  const Guarded ids(kTokens * 2 * 4, Flush::right, 4), logits(kTokens * 8 * 4, Flush::right, 4);
  const moe_tensor l = tensor(MOE_DTYPE_F32, {kTokens, 8}, logits.data()),
                   i = tensor(MOE_DTYPE_I32, {kTokens, 2}, ids.data());
  std::vector<float> out(kTokens * 2);
  const moe_tensor w = tensor(MOE_DTYPE_F32, {kTokens, 2}, out.data());
  moe_route_args args{};
  args.struct_size = sizeof args;
  args.router_logits = &l, args.out_topk_ids = &i, args.out_topk_weights = &w;
  const Writer<std::int32_t> writer(ids.as<std::int32_t>(), kTokens * 2, 7, 1 << 28);
  for (int n = 0; n < kCalls; ++n) expect_ok_or_refused(moe_route(nullptr, config.get(), &args, nullptr));
}

}  // namespace
}  // namespace moe::test::read_once_test
#endif
