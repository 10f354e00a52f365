// Layers on the AMX rows with tile registers of software: the bits of the scalar row, with any number of threads, on a
// calling thread with a stack of 64 KiB. Included behind software_tiles.h and the source of the rows.
#pragma once

#include <gtest/gtest.h>

#include "support/rooms.h"
#include "support/small_stack.h"
#include "support/tiny_layer.h"

namespace moe::test {

class SoftwareLayers : public testing::TestWithParam<const Kernel*> {
 public:
  // Those rows, where the machine has the vectors that they use beside the tiles.
  static std::vector<const Kernel*> here(std::initializer_list<const Kernel*> rows) {
    const auto host = detect_platform();
    if (!host || !host->runs(Isa::avx512vnni)) return {};
    return rows;
  }
  static std::string name(const testing::TestParamInfo<const Kernel*>& i) { return std::string(i.param->id->name); }

 protected:
  // Qwen3-30B-A3B's hidden size, and as many channels between as software has time for.
  void has_the_bits_of_the_scalar_row() {
    const Kernel& kernel = *GetParam();
    for (const std::int64_t group : {32, 64, 128, -1}) {
      LayerShape s{.experts = 5, .top_k = 2, .hidden = 2048, .intermediate = 128, .group = group, .bias = true};
      s.layout = kernel.id->layout;
      s.act = kernel.id->act;
      if (!kernel.id->takes(Groups::of_size(group))) continue;
      const auto config = tiny_config(s);
      const auto packed = pack_layer(s, random_weights(s, 1));
      const auto layer = make_layer(config, packed, kernel), alone = make_layer(config, packed, scalar_of(kernel));
      const auto shared = make_layer(config, packed, kernel, threads(3));
      for (const std::int64_t tokens : {3, 16, 40}) {
        Batch b = random_batch(s, tokens, 1);
        const ApplyArgs args = b.args();
        ASSERT_TRUE(alone->apply(args));
        const std::vector<std::byte> want = b.out;
        bool applied = false;
        EXPECT_LE(on_small_stack([&] { applied = static_cast<bool>(layer->apply(args)); }), kMostUsed);
        EXPECT_TRUE(applied && b.out == want) << tokens << " tokens, group " << group;
        ASSERT_TRUE(shared->apply(args));
        EXPECT_EQ(b.out, want) << tokens << " tokens, group " << group << ", three threads";
      }
    }
  }
};

}  // namespace moe::test
