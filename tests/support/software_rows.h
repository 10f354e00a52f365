// AMX rows of integer and FP4 weights on tile registers of software against the scalar rows, bit by bit: the shortest
// groups and longer ones, also than a chunk (kernels/x86/groups_amxbf16.cpp), and whole rows; parts of tokens that
// overlap, one panel and many, zero points where the row takes them, the largest sums, a poisoned token among others.
// Every fourth round has what the row is there for, so that tiles are reached.
// Included behind software_tiles.h and the source of the rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test {

class SoftwareRows : public testing::TestWithParam<const Kernel*> {
 public:
  // Those rows, where the machine has the vectors that they use beside the tiles.
  static std::vector<const Kernel*> here(std::initializer_list<const Kernel*> rows) {
    const auto host = detect_platform();
    if (!host || !host->runs(Isa::avx512vnni)) return {};
    return rows;
  }

 protected:
  void has_the_bits_of_the_scalar_row() {
    const Kernel& kernel = *GetParam();
    const int before = SoftwareTiles::of_thread().calls;
    for (int round = 0; round < rounds(100); ++round) {
      const bool usual = round % 4 == 0;
      const P16 m = matrix_for(kernel, usual ? usual_shape() : shape());
      std::vector<std::byte> panels = random_panels(m, rng_);
      const int n = usual ? pick(32, kernel.tile_rows) : pick(1, pick(0, 1) == 0 ? 16 : kernel.tile_rows);
      std::vector<float> x = rows_of_input(static_cast<std::size_t>(n * m.k));
      if (pick(0, 7) == 0) make_largest(m, panels, x);
      TileShape tile = tile_shape(kernel, m);
      if (tile.values != 0 && pick(0, 1) == 0) {
        for (float& v : x) v = bf16_to_f32(f32_to_bf16(v));
        tile.values = 1;
      }
      const std::vector<std::byte> digits = make_tile(scalar_of(kernel), tile, x.data(), n, HalfRule::even),
                                   own = make_tile(kernel, tile, x.data(), n, HalfRule::even);
      const std::int64_t ld = m.panels() * kPanelRows + n % 3;
      std::vector<float> want(static_cast<std::size_t>(n * ld), -1.0f), got = want;
      GemmArgs args{&m, panels.data(), m.panels(), digits.data(), n, tile, want.data(), ld, nullptr};
      multiply(scalar_of(kernel), args);
      args.tile = own.data();
      args.out = got.data();
      args.next = round % 2 == 0 ? panels.data() : nullptr;
      multiply(kernel, args);
      for (std::vector<float>* v : {&want, &got})
        for (float& y : *v) y = std::isnan(y) ? NAN : y;  // NaNs are all alike
      ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
          << m.rows() << " rows, k " << m.k << ", group " << m.group() << ", " << n << " tokens, scales "
          << static_cast<int>(m.scales) << (m.has_zeros ? ", zero points" : "");
    }
    EXPECT_EQ(SoftwareTiles::of_thread().faults, 0);
    EXPECT_GE(SoftwareTiles::of_thread().calls - before, rounds(100) / 4) << "tiles are not reached";
  }

 private:
  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }

  // All weights and all activations as large as they get, so that the sums are, of one sign.
  void make_largest(const P16& m, std::vector<std::byte>& panels, std::vector<float>& x) {
    const bool nibbles = row_of(m.element).packed_bits == 4, high = pick(0, 1) == 1;
    const auto code = static_cast<std::byte>(!is_integer(m.element) ? (high ? 0x77 : 0xff) : high ? 0xff : 0);
    const auto zero = static_cast<std::byte>(high ? 0 : nibbles ? 16 : 255);
    for (std::byte* panel = panels.data(); panel != panels.data() + m.order_offset(); panel += m.panel_bytes()) {
      if (m.has_zeros) std::fill_n(panel + m.zero_offset(), m.group_count() * kPanelRows, zero);
      for (std::int64_t lane = 0; lane < kPanelRows; ++lane)
        for (std::int64_t k = 0; k < m.k; ++k) panel[m.code_offset(lane, k)] = code;
    }
    std::fill(x.begin(), x.end(), pick(0, 1) == 0 ? 32512.0f : -32512.0f);
  }

  MatrixShape shape() {
    const int least = static_cast<int>(GetParam()->id->group_multiple);
    MatrixShape s{.rows = pick(1, 100),
                  .k = pick(1, 700),
                  .group = 0,
                  .halves = pick(1, 2),
                  .bias = pick(0, 1) == 1,
                  .scales = static_cast<Scales>(pick(2, 4)),
                  .zeros = pick(0, 1) == 1 && GetParam()->id->takes_zeros()};
    const int groups = pick(0, 7);
    s.group = groups == 0 ? s.k : groups < 4 ? least : groups < 7 ? 64 * pick(1, 10) : least * pick(1, 40);
    if (groups != 0) s.k = s.group * pick(s.group == least ? 1 : 2, s.group <= 128 ? 20 : 4);
    return s;
  }
  // The shortest groups, and no zero points.
  MatrixShape usual_shape() {
    MatrixShape s = shape();
    s.zeros = false;
    s.group = static_cast<int>(GetParam()->id->group_multiple);
    s.k = s.group * pick(1, 36);
    return s;
  }
  std::vector<float> rows_of_input(std::size_t count) {
    std::normal_distribution<float> normal(0.0f, 3.0f);
    const bool extreme = pick(0, 3) == 0;
    std::vector<float> x(count);
    for (float& v : x) v = extreme ? (rng_() % 2 == 0 ? 32512.0f : -32512.0f) : normal(rng_);  // digits of +-127
    if (pick(0, 3) == 0) std::fill_n(x.begin(), count / 2, 0.0f);
    if (pick(0, 3) == 0) x[rng_() % count] = pick(0, 1) == 0 ? NAN : INFINITY;
    return x;
  }

  std::mt19937 rng_{20261122};
};

inline std::string name_of_row(const testing::TestParamInfo<const Kernel*>& i) {
  return std::string(i.param->id->name);
}

}  // namespace moe::test
