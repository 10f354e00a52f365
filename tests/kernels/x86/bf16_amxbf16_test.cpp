// The AMX row of bf16 weights on tile registers of software: every sum is one chain over k, whatever else is in the
// tile, so a token has the same bits alone and among 127 others, with one panel and with many. On a machine with AMX
// the row itself is tested like all others (bf16_test); this one runs wherever AVX512-BF16 is.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include "support/software_tiles.h"

// The row of this file beside that of the library.
#define bf16_bf16_p16_amxbf16 bf16_on_software_tiles
#include "kernels/x86/bf16_amxbf16.cpp"
#undef bf16_bf16_p16_amxbf16

#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"
#include "support/small_stack.h"

namespace moe::test {
namespace {

// The sum of a weight row and a tile of one token as TDPBF16PS makes it: 32 k at a time.
float chain(const P16& m, const std::byte* panel, std::size_t lane, const std::byte* token) {
  float sum = 0.0f;
  for (std::int64_t piece = 0; piece < 2 * m.units(); ++piece) {
    std::array<float, 2> half{};
    const std::byte* w = panel + m.header_bytes() + static_cast<std::size_t>(piece) * kPieceBytes + 4 * lane;
    for (std::size_t k = 0; k < 16; ++k)
      for (std::size_t i = 0; i < 2; ++i)
        half[i] = std::fma(bf16_to_f32(load<std::uint16_t>(token + 64 * piece + 4 * k, i)),
                           bf16_to_f32(load<std::uint16_t>(w + 64 * k, i)), half[i]);
    sum = sum + (half[0] + half[1]);
  }
  return m.has_bias ? sum + load<float>(panel + m.bias_offset(), lane) : sum + 0.0f;
}

TEST(Bf16Amx, EverySumIsOneChain) {
  const auto host = detect_platform();
  if (!host || !host->runs(Isa::avx512bf16)) GTEST_SKIP() << "its quantizer needs AVX512-BF16";
  const Kernel& kernel = kernel_rows::bf16_on_software_tiles;
  std::mt19937 rng(20261122);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (int round = 0; round < rounds(50); ++round) {
    const std::int64_t k = pick(1, 500);
    const P16 m =
        matrix_for(kernel, {.rows = pick(1, 80), .k = k, .group = k, .halves = pick(1, 2), .bias = pick(0, 1) == 1});
    const std::vector<std::byte> panels = random_panels(m, rng);
    const int n = pick(1, kernel.tile_rows);
    std::vector<float> x(static_cast<std::size_t>(n * k));
    for (float& v : x) v = normal(rng);
    const TileShape shape = tile_shape(kernel, m);
    const std::vector<std::byte> tile = make_tile(kernel, shape, x.data(), n, HalfRule::even);
    const std::int64_t ld = m.panels() * kPanelRows;
    std::vector<float> out(static_cast<std::size_t>(n * ld));
    multiply(kernel, {&m, panels.data(), m.panels(), tile.data(), n, shape, out.data(), ld,
                      round % 2 == 0 ? panels.data() : nullptr});
    for (int row = 0; row < n; ++row) {
      const std::vector<std::byte> token = make_tile(kernel, shape, x.data() + row * k, 1, HalfRule::even);
      for (std::size_t column = 0; column < static_cast<std::size_t>(ld); ++column) {
        const std::byte* panel = panels.data() + column / kPanelRows * m.panel_bytes();
        ASSERT_EQ(out[static_cast<std::size_t>(row * ld) + column], chain(m, panel, column % kPanelRows, token.data()))
            << m.rows() << " rows, k " << k << ", " << n << " tokens, row " << row << ", column " << column;
      }
    }
  }
  EXPECT_EQ(SoftwareTiles::of_thread().faults, 0);
}

TEST(Bf16Amx, FitsASmallStack) {
  const auto host = detect_platform();
  if (!host || !host->runs(Isa::avx512bf16)) GTEST_SKIP() << "its quantizer needs AVX512-BF16";
  const Kernel& kernel = kernel_rows::bf16_on_software_tiles;
  std::mt19937 rng(1);
  constexpr std::int64_t kK = 2048;
  const P16 m = matrix_for(kernel, {.rows = 64, .k = kK, .group = kK, .halves = 2, .bias = true});
  const std::vector<std::byte> panels = random_panels(m, rng);
  for (const int n : {1, 16, 64}) {
    const std::vector<float> x(static_cast<std::size_t>(n * kK), 0.5f);
    const TileShape shape = tile_shape(kernel, m);
    const std::vector<std::byte> tile = make_tile(kernel, shape, x.data(), n, HalfRule::even);
    const std::int64_t ld = m.panels() * kPanelRows;
    std::vector<float> out(static_cast<std::size_t>(n * ld));
    const GemmArgs args{&m, panels.data(), m.panels(), tile.data(), n, shape, out.data(), ld, nullptr};
    EXPECT_LE(on_small_stack([&] { multiply(kernel, args); }), kMostUsed);
  }
}

}  // namespace
}  // namespace moe::test
#endif
