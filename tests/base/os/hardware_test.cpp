// What the system says of memory and processor, and what it permits.
#include "base/os/hardware.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>

#include "base/cpu_features.h"
#include "base/os/topology.h"
#include "base/text.h"
#include "support/rooms.h"

namespace moe::test::hardware_test {
namespace {

TEST(Hardware, PagesAreThoseOfTheSystem) {
  EXPECT_TRUE(std::has_single_bit(page_bytes()));
  EXPECT_EQ(page_bytes(), static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

TEST(Hardware, TheCacheIsThatOfTheCLibraryOrTheKernel) {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  EXPECT_EQ(l1_bytes(), sysconf(_SC_LEVEL1_DCACHE_SIZE));
#else
  const auto text = read_fact("/sys/devices/system/cpu/cpu0/cache/index0/size");
  EXPECT_EQ(cat(l1_bytes() / 1024, "K"), text.value_or("0K"));
#endif
}

TEST(Hardware, AmxIsPermittedWhereItIs) {
  const bool permitted = permit_amx();
  EXPECT_TRUE(!permitted || has(cpu_facts().features, Feature::amx_tile));
  EXPECT_EQ(permit_amx(), permitted);
}

}  // namespace
}  // namespace moe::test::hardware_test
