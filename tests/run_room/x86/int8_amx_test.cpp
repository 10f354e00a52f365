// Layers on the AMX rows with int8 activations, tile registers of software (support/software_layers.h).
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define kW4a8AmxInt8 kW4a8SoftwareTiles
#define kW8a8AmxInt8 kW8a8SoftwareTiles
#include "kernels/x86/int8_amx.cpp"
#undef kW4a8AmxInt8
#undef kW8a8AmxInt8

#include "support/software_layers.h"

namespace moe::test {
namespace {

class Int8AmxLayers : public SoftwareLayers {};

TEST_P(Int8AmxLayers, HaveTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int8AmxLayers);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, Int8AmxLayers,
                         testing::ValuesIn(SoftwareLayers::here({&kW4a8SoftwareTiles, &kW8a8SoftwareTiles})),
                         SoftwareLayers::name);

}  // namespace
}  // namespace moe::test
#endif
