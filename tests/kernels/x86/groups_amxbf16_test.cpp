// The AMX-BF16 rows of FP4 weights and of int4 in groups of 32 on tile registers of software (support/software_rows.h).
// On a machine with AMX the rows themselves are tested like all others (fp4_test, wna16_test); this one runs wherever
// AVX-512 VNNI is.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define w4a16_blk16_p16_amxbf16 w4a16_blk16_on_software_tiles
#define mxfp4_blk16_p16_amxbf16 mxfp4_blk16_on_software_tiles
#define nvfp4_blk16_p16_amxbf16 nvfp4_blk16_on_software_tiles
#include "kernels/x86/groups_amxbf16.cpp"
#undef w4a16_blk16_p16_amxbf16
#undef mxfp4_blk16_p16_amxbf16
#undef nvfp4_blk16_p16_amxbf16

#include "support/rooms.h"
#include "support/software_rows.h"

namespace moe::test {
namespace {

class GroupsAmxBf16 : public SoftwareRows {};

TEST_P(GroupsAmxBf16, HasTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GroupsAmxBf16);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, GroupsAmxBf16,
                         testing::ValuesIn(SoftwareRows::here({&kernel_rows::w4a16_blk16_on_software_tiles,
                                                               &kernel_rows::mxfp4_blk16_on_software_tiles,
                                                               &kernel_rows::nvfp4_blk16_on_software_tiles})),
                         name_of_row);

}  // namespace
}  // namespace moe::test
#endif
