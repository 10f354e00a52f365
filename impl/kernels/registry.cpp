// All compiled-in kernel rows, bound to kKernelIds by position. A new row is listed here once.
#include <array>

#include "kernels/kernel.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/float.h"
#include "kernels/ref/symmetric.h"
#include "kernels/ref/w4a8.h"
#include "kernels/ref/w4a8_kai.h"
#if defined(__x86_64__)
#include "kernels/x86/rows.h"
#endif
#if defined(__aarch64__)
#include "kernels/arm/rows.h"
#endif

namespace moe {
namespace {

constexpr int kScalarTileRows = 4;

constexpr Kernel scalar(std::string_view name, void (*quantise)(const QuantArgsRow&), void (*gemm)(const GemmArgs&)) {
  return {.id = &kKernelIds[*kernel_index(name)],
          .exact = true,
          .tile_rows = kScalarTileRows,
          .steps = &ref::kSteps,
          .quantise = quantise,
          .gemm = gemm};
}

constexpr Kernel kW4a8Scalar = scalar("w4a8_tok8_p16_scalar", ref::quantise, ref::gemm);
constexpr Kernel kW4a8KaiScalar = scalar("w4a8_tok8_kai_scalar", ref::quantise_kai, ref::gemm_kai);
constexpr Kernel kW4a8BlockScalar = scalar("w4a8_blk8_p16_scalar", ref::quantise_blocks, ref::gemm_blocks);
constexpr Kernel kW4a8BlockZerosScalar = scalar("w4a8_blk8_p16_scalar_zp", ref::quantise_blocks, ref::gemm_blocks);
constexpr Kernel kW8a8Scalar = scalar("w8a8_tok8_p16_scalar", ref::quantise_row, ref::gemm_row);
constexpr Kernel kW8a8BlockScalar = scalar("w8a8_blk8_p16_scalar", ref::quantise_blocks, ref::gemm_blocks);
constexpr Kernel kW4a16BlkScalar = scalar("w4a16_blk16_p16_scalar", ref::quantise_blocks, ref::gemm_blocks);
constexpr Kernel kW8a16BlkScalar = scalar("w8a16_blk16_p16_scalar", ref::quantise_blocks, ref::gemm_blocks);
constexpr Kernel kW4a16Scalar = scalar("w4a16_f32_p16_scalar", ref::copy_floats, ref::gemm_float);
constexpr Kernel kW8a16Scalar = scalar("w8a16_f32_p16_scalar", ref::copy_floats, ref::gemm_float);
constexpr Kernel kBf16Scalar = scalar("bf16_f32_p16_scalar", ref::copy_floats, ref::gemm_float);
constexpr Kernel kF16Scalar = scalar("f16_f32_p16_scalar", ref::copy_floats, ref::gemm_float);
constexpr Kernel kF32Scalar = scalar("f32_f32_p16_scalar", ref::copy_floats, ref::gemm_float);

// clang-format off
constexpr const Kernel* kRows[] = {
#if defined(__x86_64__)
    &kW4a8AmxInt8, &kW4a8Avx512Vnni, &kW4a8AvxVnni, &kW4a8Avx2,
    &kW4a8BlockAvx512Vnni, &kW4a8BlockAvxVnni, &kW4a8BlockAvx2,
    &kW4a8BlockZerosAvx512Vnni, &kW4a8BlockZerosAvxVnni, &kW4a8BlockZerosAvx2,
    &kW8a8AmxInt8, &kW8a8Avx512Vnni, &kW8a8AvxVnni, &kW8a8Avx2,
    &kW8a8BlockAvx512Vnni, &kW8a8BlockAvxVnni, &kW8a8BlockAvx2,
    &kW4a16BlkAmxInt8, &kW4a16BlkAvx512Vnni, &kW4a16BlkAvxVnni, &kW4a16BlkAvx2,
    &kW8a16BlkAmxInt8, &kW8a16BlkAvx512Vnni, &kW8a16BlkAvxVnni, &kW8a16BlkAvx2,
    &kW4a16Avx512Vnni, &kW4a16Avx2, &kW8a16Avx512Vnni, &kW8a16Avx2,
    &kBf16AmxBf16, &kBf16Avx512Bf16, &kBf16Avx512Vnni, &kBf16Avx2, &kF16Avx512Vnni, &kF16Avx2, &kF32Avx512Vnni, &kF32Avx2,
#endif
#if defined(__aarch64__)
    &kW4a8KaiI8mm, &kW4a8KaiDotprod,
#endif
    &kW4a8Scalar, &kW4a8KaiScalar, &kW4a8BlockScalar, &kW4a8BlockZerosScalar, &kW8a8Scalar, &kW8a8BlockScalar,
    &kW4a16BlkScalar, &kW8a16BlkScalar,
    &kW4a16Scalar, &kW8a16Scalar, &kBf16Scalar, &kF16Scalar, &kF32Scalar,
};
// clang-format on

}  // namespace

std::span<const Kernel* const> kernels() { return kRows; }

const Kernel* kernel_at(std::size_t index) {
  for (const Kernel* k : kRows)
    if (k->id == &kKernelIds[index]) return k;
  return nullptr;
}

}  // namespace moe
