// The AMX rows with int8 activations on tile registers of software (support/software_rows.h). On a machine with AMX the
// rows themselves are tested like all others (all_kernels_test, symmetric_test); this one runs wherever AVX-512 VNNI
// is.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define kW4a8AmxInt8 kW4a8SoftwareTiles
#define kW8a8AmxInt8 kW8a8SoftwareTiles
#include "kernels/x86/int8_amx.cpp"
#undef kW4a8AmxInt8
#undef kW8a8AmxInt8

#include "support/software_rows.h"

namespace moe::test {
namespace {

class Int8Amx : public SoftwareRows {};

TEST_P(Int8Amx, HasTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int8Amx);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, Int8Amx,
                         testing::ValuesIn(SoftwareRows::here({&kW4a8SoftwareTiles, &kW8a8SoftwareTiles})),
                         name_of_row);

}  // namespace
}  // namespace moe::test
#endif
