// W4A8-int8 on p16, AVX-VNNI: one 256-bit vpdpbusd per 8 rows, 4 k and token.
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/ref/w4a8.h"
#include "kernels/target.h"
#include "kernels/x86/steps.h"

MOE_TARGET_BEGIN("avx2,fma,f16c,avxvnni")

namespace moe::kernels {
namespace {

constexpr int kTileRows =
    tile_rows("w4a8_tok8_p16_avxvnni");  // sums of both halves, codes and activations: all registers

#include "kernels/x86/dot_avxvnni.inl"

using Dot = NibbleDot;

#include "kernels/x86/vector_avx2.inl"

#include "kernels/body/quantize_tok8.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/w4a8_256.inl"

}  // namespace

constinit const Kernel kernel_rows::w4a8_tok8_p16_avxvnni =
    kernel_row("w4a8_tok8_p16_avxvnni", avx2::kSteps, quantize, gemm);

}  // namespace moe::kernels

MOE_TARGET_END
