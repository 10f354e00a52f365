// AMX rows of integer weights on tile registers of software against the scalar rows, bit by bit: groups of one to ten
// units and channel-wise, parts of tokens that overlap, one panel and many, zero points where the row takes them, the
// largest codes, a poisoned token among others. Included behind software_tiles.h and the source of the rows.
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
    for (int round = 0; round < rounds(100); ++round) {
      const P16 m = matrix_for(kernel, shape());
      const std::vector<std::byte> panels = random_panels(m, rng_);
      const int n = pick(1, kernel.tile_rows);
      const std::vector<float> x = rows_of_input(static_cast<std::size_t>(n * m.k));
      const TileShape tile = tile_shape(kernel, m);
      const std::vector<std::byte> a = make_tile(kernel, tile, x.data(), n, HalfRule::even);
      const std::int64_t ld = m.panels() * kPanelRows + n % 3;
      std::vector<float> want(static_cast<std::size_t>(n * ld), -1.0f), got = want;
      GemmArgs args{&m, panels.data(), m.panels(), a.data(), n, tile, want.data(), ld, nullptr};
      multiply(scalar_of(kernel), args);
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
  }

 private:
  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }

  MatrixShape shape() {
    MatrixShape s{.rows = pick(1, 100),
                  .k = pick(1, 700),
                  .group = 0,
                  .halves = pick(1, 2),
                  .bias = pick(0, 1) == 1,
                  .scales = static_cast<Scales>(pick(2, 4)),
                  .zeros = pick(0, 1) == 1 && GetParam()->id->takes_zeros()};
    if (pick(0, 3) != 0) {
      s.group = 64 * pick(1, 10);
      s.k = s.group * pick(2, s.group <= 128 ? 11 : 4);
    } else {
      s.group = s.k;
    }
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
