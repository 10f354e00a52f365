// The AMX rows of FP8 and MXFP8 weights on tile registers of software: every result is the sum that their file defines,
// whatever else is in the tile, with one panel and with many. On a machine with AMX the rows themselves are tested like
// all others (float8_test); these run wherever AVX512-BF16 is.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The rows of this file beside those of the library.
#define fp8_bf16_p16_amxbf16 fp8_on_software_tiles
#define mxfp8_bf16_p16_amxbf16 mxfp8_on_software_tiles
#define fp8_e4m3_p16_amxbf16 fp8_e4m3_on_software_tiles
#define mxfp8_e4m3_p16_amxbf16 mxfp8_e4m3_on_software_tiles
#include "kernels/x86/float8_amxbf16.cpp"
#undef fp8_bf16_p16_amxbf16
#undef mxfp8_bf16_p16_amxbf16
#undef fp8_e4m3_p16_amxbf16
#undef mxfp8_e4m3_p16_amxbf16

#include "support/float8.h"
#include "support/share.h"
#include "support/small_stack.h"

namespace moe::test {
namespace {

constexpr std::int64_t kSegment = 512;  // columns at most

// Scales of a panel go into the weights where that makes normal numbers of all of them.
bool folds(const Float8Case& c, std::int64_t panel) {
  if (c.m.scales != Scales::e8m0 || c.m.groups.is_whole() || c.m.group() != 32) return false;
  for (std::int64_t i = 0; i < c.m.group_count() * kPanelRows; ++i) {
    const auto byte = load<std::uint8_t>(c.packed.data() + static_cast<std::size_t>(panel) * c.m.panel_bytes(), i);
    if (byte < 10 || byte > 246) return false;
  }
  return true;
}

// What a row of the tile holds: numbers, and scales that meet the sums (1: none).
struct Rows {
  std::vector<float> values, scales;  // [token][k]

  explicit Rows(const Float8Case& c) : values(c.x), scales(c.x.size(), 1.0f) {
    if (c.act != ActFormat::e4m3) return;
    const TileShape shape = c.shape();
    const std::int64_t columns = shape.scaled_columns();
    for (std::int64_t row = 0; row < c.n; ++row)
      for (std::int64_t k0 = 0; k0 < c.m.k; k0 += columns) {
        const std::int64_t k1 = std::min(k0 + columns, c.m.k);
        const float* x = c.x.data() + row * c.m.k;
        const auto s = kernels::ref::float8_scale(c.floats, kernels::ref::absmax(x + k0, k1 - k0), kInputScale);
        for (std::int64_t k = k0; k < k1; ++k) {
          const auto at = static_cast<std::size_t>(row * c.m.k + k);
          values[at] = kernels::ref::float8_value(x[k], s) * (shape.has_row_scales() ? 1.0f : s.scale);
          if (shape.has_row_scales()) scales[at] = s.scale;
        }
      }
  }
};

// A result as TDPBF16PS makes its sums: 32 k at a time.
float result(const Float8Case& c, const Rows& rows, int token, std::int64_t n) {
  const bool fold = folds(c, c.m.panel_of(n));
  const std::int64_t columns = c.shape().has_row_scales() ? c.floats.columns : 0;
  float result = 0.0f;
  for (std::int64_t k = 0; k < c.m.k;) {
    std::int64_t end = std::min(c.m.k, (k / kSegment + 1) * kSegment);
    if (!fold && !c.m.groups.is_whole()) end = std::min(end, (k / c.m.group() + 1) * c.m.group());
    if (columns != 0) end = std::min(end, (k / columns + 1) * columns);
    const auto scale = static_cast<float>(c.scale(n, k));
    const float of_row = rows.scales[static_cast<std::size_t>(token * c.m.k + k)];
    float sum = 0.0f;
    for (; k < end; k += 32) {
      std::array<float, 2> half{};
      for (std::int64_t i = k; i < std::min(k + 32, c.m.k); ++i) {
        const unsigned code = c.codes[static_cast<std::size_t>(n * c.m.k + i)];
        const float w = small_to_f32(kE4m3, code) * (fold ? static_cast<float>(c.scale(n, i)) : 1.0f);
        float& to = half[static_cast<std::size_t>(i % 2)];
        to = std::fma(rows.values[static_cast<std::size_t>(token * c.m.k + i)], w, to);
      }
      sum = sum + (half[0] + half[1]);
    }
    k = end;
    result = std::fma(sum, fold ? 1.0f : scale * of_row, result);
  }
  return result + (c.m.has_bias ? c.bias[static_cast<std::size_t>(n)] : 0.0f);
}

class Float8Amx : public testing::TestWithParam<const Kernel*> {
 protected:
  void SetUp() override {
    const auto host = detect_platform();
    if (!host || !host->runs(Isa::avx512bf16)) GTEST_SKIP() << "its quantizer needs AVX512-BF16";
  }
};

TEST_P(Float8Amx, EverySumIsAsDefined) {
  const Kernel& kernel = *GetParam();
  constexpr Powers kPowers[] = {Powers::low, Powers::edges, Powers::near, Powers::edges};
  Float8Maker maker(kernel);
  for (int round = 0; round < rounds(60); ++round) {
    const Float8Case c = maker.make(maker.pick(1, kernel.tile_rows), kPowers[round % 4]);
    const auto out = results(kernel, c, round % 2 == 0);
    const Rows rows(c);
    for (int r = 0; r < c.n; ++r)
      for (std::int64_t n = 0; n < c.m.rows(); ++n)
        ASSERT_EQ(out[c.result(r, n)], result(c, rows, r, n)) << c.words() << ", token " << r << ", row " << n;
  }
  EXPECT_EQ(SoftwareTiles::of_thread().faults, 0);
}

TEST_P(Float8Amx, FitsASmallStack) {
  const Kernel& kernel = *GetParam();
  Float8Maker maker(kernel);
  for (const int n : {1, 16, 64}) {
    const Float8Case c = maker.make(n, Powers::near);
    const auto tile = make_tile(kernel, c.shape(), c.x.data(), n, HalfRule::even);
    std::vector<float> out(static_cast<std::size_t>(n * c.ld()));
    const GemmArgs args{&c.m, c.packed.data(), c.m.panels(), tile.data(), n, c.shape(), out.data(), c.ld(), nullptr};
    EXPECT_LE(on_small_stack([&] { multiply(kernel, args); }), kMostUsed);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Float8Amx,
                         testing::Values(&kernel_rows::fp8_on_software_tiles, &kernel_rows::mxfp8_on_software_tiles,
                                         &kernel_rows::fp8_e4m3_on_software_tiles,
                                         &kernel_rows::mxfp8_e4m3_on_software_tiles),
                         [](const auto& i) { return std::string(i.param->id->name); });

}  // namespace
}  // namespace moe::test
#endif
