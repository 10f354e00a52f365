// The AMX rows with activations of 16 bits on tile registers of software (support/software_rows.h). On a machine with
// AMX the rows themselves are tested like all others (symmetric_test, wna16_test); this one runs wherever AVX-512 VNNI
// is.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define w4a16_blk16_p16_amxint8 w4a16_on_software_tiles
#define w8a16_blk16_p16_amxint8 w8a16_on_software_tiles
#include "kernels/x86/int16_amx.cpp"
#undef w4a16_blk16_p16_amxint8
#undef w8a16_blk16_p16_amxint8

#include "support/rooms.h"
#include "support/software_rows.h"

namespace moe::test {
namespace {

class Int16Amx : public SoftwareRows {};

TEST_P(Int16Amx, HasTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int16Amx);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, Int16Amx,
                         testing::ValuesIn(SoftwareRows::here({&kernel_rows::w4a16_on_software_tiles,
                                                               &kernel_rows::w8a16_on_software_tiles})),
                         name_of_row);

}  // namespace
}  // namespace moe::test
#endif
