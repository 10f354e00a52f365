// Layers on a calling thread with a stack of 64 KiB: every row that this machine runs, Qwen3-30B-A3B's shapes.
#include "support/small_stack.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "support/rooms.h"
#include "support/tiny_layer.h"

namespace moe::test::small_stack_test {
namespace {

constexpr std::int64_t kGroups[] = {32, 128, -1};

struct Weights {
  std::shared_ptr<const Config> config;
  std::shared_ptr<const Packed> packed;
};

// Rows of a layout share their weights.
const Weights& weights_of(const LayerShape& s) {
  static std::map<std::tuple<LayoutKind, std::int64_t, bool>, Weights> made;
  Weights& w = made[{s.layout, s.group, s.zeros}];
  if (w.config == nullptr) w = {tiny_config(s), pack_layer(s, random_weights(s, 1))};
  return w;
}

class SmallStack : public testing::TestWithParam<const Kernel*> {};

TEST_P(SmallStack, Apply) {
  const Kernel& kernel = *GetParam();
  LayerShape s{.experts = 2, .top_k = 2, .hidden = 2048, .intermediate = 768, .bias = true};
  s.layout = kernel.id->layout;
  s.act = kernel.id->act;
  s.zeros = kernel.id->takes_zeros();
  std::size_t most = 0;
  for (const std::int64_t group : kGroups) {
    s.group = group;
    if (s.is_float() ? group != -1 : !kernel.id->takes(Groups::of_size(group))) continue;
    const Weights& w = weights_of(s);
    if (!kernel.id->fits(needs_of(w.packed->info.layout))) continue;
    const auto layer = make_layer(w.config, w.packed, kernel);
    for (const std::int64_t tokens : {1, 16, 64}) {
      if (tokens > 1 && kernel.id->isa == Isa::scalar) continue;  // it takes rows one by one, and long
      Batch b = random_batch(s, tokens, 1);
      const ApplyArgs args = b.args();
      bool applied = false;
      most = std::max(most, on_small_stack([&] { applied = static_cast<bool>(layer->apply(args)); }));
      EXPECT_TRUE(applied);
    }
  }
  EXPECT_LE(most, kMostUsed);
  RecordProperty("stack", std::to_string(most));
}

std::vector<const Kernel*> all_runnable() {
  std::vector<const Kernel*> rows;
  for (const ActFormat act : {ActFormat::tok8, ActFormat::blk8, ActFormat::blk16, ActFormat::bf16, ActFormat::f32})
    for (const Kernel* k : runnable_kernels(act)) rows.push_back(k);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, SmallStack, testing::ValuesIn(all_runnable()),
                         [](const auto& param) { return std::string(param.param->id->name); });

}  // namespace
}  // namespace moe::test::small_stack_test
