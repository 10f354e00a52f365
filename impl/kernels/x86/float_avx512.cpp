// bf16, f16 and f32 weights on p16 with float32 rows, AVX-512: body/gemm_float.inl for 16 lanes.
#include <immintrin.h>

#include <array>
#include <bit>
#include <utility>

#include "kernels/ref/float.h"
#include "kernels/target.h"
#include "kernels/x86/rows.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl")

namespace moe {
namespace {

constexpr int kTileRows = 8;

#include "kernels/x86/vector_avx512.inl"

#include "kernels/x86/read_ahead.inl"

#include "kernels/body/gemm_float.inl"

constexpr Kernel row(std::string_view name, void (*gemm)(const GemmArgs&)) {
  return {.id = &kKernelIds[*kernel_index(name)],
          .exact = true,
          .tile_rows = kTileRows,
          .steps = &avx512::kSteps,
          .quantise = ref::copy_floats,
          .gemm = gemm};
}

}  // namespace

const Kernel kBf16Avx512Vnni = row("bf16_f32_p16_avx512vnni", gemm<Floats<Element::bf16>>);
const Kernel kF16Avx512Vnni = row("f16_f32_p16_avx512vnni", gemm<Floats<Element::f16>>);
const Kernel kF32Avx512Vnni = row("f32_f32_p16_avx512vnni", gemm<Floats<Element::f32>>);

}  // namespace moe

MOE_TARGET_END
