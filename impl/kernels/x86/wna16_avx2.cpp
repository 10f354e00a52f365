// int4 and int8 weights with scales and zero points on p16 with float32 rows, AVX2: body/gemm_float.inl and
// body/weights_wna16.inl for 8 lanes.
#include <immintrin.h>

#include <array>
#include <bit>
#include <utility>

#include "kernels/ref/float.h"
#include "kernels/target.h"
#include "kernels/x86/rows.h"

MOE_TARGET_BEGIN("avx2,fma,f16c")

namespace moe {
namespace {

constexpr int kTileRows = 4;

#include "kernels/x86/vector_avx2.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

#include "kernels/body/weights_wna16.inl"

constexpr Kernel row(std::string_view name, void (*gemm)(const GemmArgs&)) {
  return {.id = &kKernelIds[*kernel_index(name)],
          .exact = true,
          .tile_rows = kTileRows,
          .steps = &avx2::kSteps,
          .quantise = ref::copy_floats,
          .gemm = gemm};
}

}  // namespace

const Kernel kW4a16Avx2 = row("w4a16_f32_p16_avx2", gemm<Codes<4>>);
const Kernel kW8a16Avx2 = row("w8a16_f32_p16_avx2", gemm<Codes<8>>);

}  // namespace moe

MOE_TARGET_END
