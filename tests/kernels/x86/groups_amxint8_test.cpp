// The AMX-INT8 rows with a sum for each block of 32 columns, on tile registers of software (support/software_rows.h).
// On a machine with AMX the rows themselves are tested like all others; this one runs wherever AVX-512 VNNI is.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define w8a8_blk8_p16_amxint8 w8a8_blk8_on_software_tiles
#define w4a8_blk8_p16_amxint8 w4a8_blk8_on_software_tiles
#define w4a8_blk8_p16_amxint8_zp w4a8_blk8_zp_on_software_tiles
#define mxfp4_blk8_p16_amxint8 mxfp4_blk8_on_software_tiles
#define w8a8_tok8_p16_amxint8_g32 w8a8_tok8_g32_on_software_tiles
#define w4a8_tok8_p16_amxint8_g32 w4a8_tok8_g32_on_software_tiles
#define w8a16_blk16_p16_amxint8_g32 w8a16_blk16_g32_on_software_tiles
#include "kernels/x86/groups_amxint8.cpp"
#undef w8a8_blk8_p16_amxint8
#undef w4a8_blk8_p16_amxint8
#undef w4a8_blk8_p16_amxint8_zp
#undef mxfp4_blk8_p16_amxint8
#undef w8a8_tok8_p16_amxint8_g32
#undef w4a8_tok8_p16_amxint8_g32
#undef w8a16_blk16_p16_amxint8_g32

#include "support/rooms.h"
#include "support/software_rows.h"

namespace moe::test {
namespace {

class GroupsAmxInt8 : public SoftwareRows {};

TEST_P(GroupsAmxInt8, HasTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GroupsAmxInt8);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, GroupsAmxInt8,
                         testing::ValuesIn(SoftwareRows::here(
                             {&kernel_rows::w8a8_blk8_on_software_tiles, &kernel_rows::w4a8_blk8_on_software_tiles,
                              &kernel_rows::w4a8_blk8_zp_on_software_tiles, &kernel_rows::mxfp4_blk8_on_software_tiles,
                              &kernel_rows::w8a8_tok8_g32_on_software_tiles,
                              &kernel_rows::w4a8_tok8_g32_on_software_tiles,
                              &kernel_rows::w8a16_blk16_g32_on_software_tiles})),
                         name_of_row);

}  // namespace
}  // namespace moe::test
#endif
