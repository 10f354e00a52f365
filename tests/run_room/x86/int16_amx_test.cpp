// Layers on the AMX rows with 16-bit activations, tile registers of software (support/software_layers.h).
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define kW4a16BlkAmxInt8 kW4a16BlkSoftwareTiles
#define kW8a16BlkAmxInt8 kW8a16BlkSoftwareTiles
#include "kernels/x86/int16_amx.cpp"
#undef kW4a16BlkAmxInt8
#undef kW8a16BlkAmxInt8

#include "support/software_layers.h"

namespace moe::test {
namespace {

class Int16AmxLayers : public SoftwareLayers {};

TEST_P(Int16AmxLayers, HaveTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int16AmxLayers);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, Int16AmxLayers,
                         testing::ValuesIn(SoftwareLayers::here({&kW4a16BlkSoftwareTiles, &kW8a16BlkSoftwareTiles})),
                         SoftwareLayers::name);

}  // namespace
}  // namespace moe::test
#endif
