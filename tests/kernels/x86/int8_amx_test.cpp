// The AMX rows with int8 activations on tile registers of software (support/software_rows.h). On a machine with AMX the
// rows themselves are tested like all others (all_kernels_test, symmetric_test); this one runs wherever AVX-512 VNNI
// is.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define w4a8_tok8_p16_amxint8 w4a8_on_software_tiles
#define w8a8_tok8_p16_amxint8 w8a8_on_software_tiles
#include "kernels/x86/int8_amx.cpp"
#undef w4a8_tok8_p16_amxint8
#undef w8a8_tok8_p16_amxint8

#include "support/rooms.h"
#include "support/software_rows.h"

namespace moe::test {
namespace {

class Int8Amx : public SoftwareRows {};

TEST_P(Int8Amx, HasTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int8Amx);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, Int8Amx,
                         testing::ValuesIn(SoftwareRows::here({&kernel_rows::w4a8_on_software_tiles,
                                                               &kernel_rows::w8a8_on_software_tiles})),
                         name_of_row);

}  // namespace
}  // namespace moe::test
#endif
