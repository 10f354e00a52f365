// How this machine likes to be asked for weights: the row of the table that its vendor and L1 choose.
#include "kernels/prefetch_policy.h"

#include <gtest/gtest.h>

#include "base/cpu_features.h"
#include "base/os/hardware.h"
#include "support/rooms.h"

namespace moe::test::prefetch_policy_test {
namespace {

TEST(PrefetchPolicy, FollowsVendorAndCache) {
  const CpuFacts facts = cpu_facts();
  const bool large = l1_bytes() > 32 * 1024;
  const bool intel = facts.vendor == "GenuineIntel", amd = facts.vendor == "AuthenticAMD";
  for (int i = 0; i < 3; ++i) {
    const PrefetchPolicy r = prefetch_policy_here();
    EXPECT_EQ(r.ahead, large ? 8192 : 4096);
    EXPECT_EQ(r.into_l2, large && intel);
    EXPECT_EQ(r.pairs, large && amd);
    EXPECT_EQ(r.in_order, !large && amd);
  }
}

}  // namespace
}  // namespace moe::test::prefetch_policy_test
