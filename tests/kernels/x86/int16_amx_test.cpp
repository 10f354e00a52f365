// The AMX rows with activations of 16 bits on tile registers of software (support/software_rows.h). On a machine with
// AMX the rows themselves are tested like all others (symmetric_test, wna16_test); this one runs wherever AVX-512 VNNI
// is.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define kW4a16BlkAmxInt8 kW4a16BlkSoftwareTiles
#define kW8a16BlkAmxInt8 kW8a16BlkSoftwareTiles
#include "kernels/x86/int16_amx.cpp"
#undef kW4a16BlkAmxInt8
#undef kW8a16BlkAmxInt8

#include "support/software_rows.h"

namespace moe::test {
namespace {

class Int16Amx : public SoftwareRows {};

TEST_P(Int16Amx, HasTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int16Amx);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, Int16Amx,
                         testing::ValuesIn(SoftwareRows::here({&kW4a16BlkSoftwareTiles, &kW8a16BlkSoftwareTiles})),
                         name_of_row);

}  // namespace
}  // namespace moe::test
#endif
