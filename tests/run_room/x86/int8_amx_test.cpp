// Layers on the AMX rows with int8 activations, tile registers of software (support/software_layers.h).
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
#include "support/software_layers.h"

namespace moe::test {
namespace {

class Int8AmxLayers : public SoftwareLayers {};

TEST_P(Int8AmxLayers, HaveTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int8AmxLayers);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, Int8AmxLayers,
                         testing::ValuesIn(SoftwareLayers::here({&kernel_rows::w4a8_on_software_tiles,
                                                                 &kernel_rows::w8a8_on_software_tiles})),
                         SoftwareLayers::name);

}  // namespace
}  // namespace moe::test
#endif
