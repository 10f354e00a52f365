// Layers on the AMX rows with 16-bit activations, tile registers of software (support/software_layers.h).
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
#include "support/software_layers.h"

namespace moe::test {
namespace {

class Int16AmxLayers : public SoftwareLayers {};

TEST_P(Int16AmxLayers, HaveTheBitsOfTheScalarRow) { has_the_bits_of_the_scalar_row(); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int16AmxLayers);
INSTANTIATE_TEST_SUITE_P(SoftwareTiles, Int16AmxLayers,
                         testing::ValuesIn(SoftwareLayers::here({&kernel_rows::w4a16_on_software_tiles,
                                                                 &kernel_rows::w8a16_on_software_tiles})),
                         SoftwareLayers::name);

}  // namespace
}  // namespace moe::test
#endif
