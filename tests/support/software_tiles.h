// The tile registers of AMX as software, so that the walks of the AMX rows run on every machine with AVX-512: a test
// includes this file and then the row's source, whose intrinsics become these functions. Instructions that a CPU would
// refuse or that would read rows which nobody configured are counted as faults.
#pragma once

#include <immintrin.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float_formats.h"
#include "base/load.h"
#include "support/rooms.h"

namespace moe::test {

class SoftwareTiles {
 public:
  static SoftwareTiles& of_thread() {
    static thread_local SoftwareTiles tiles;
    return tiles;
  }
  int faults = 0;
  int calls = 0;  // of what configures tiles: one for each matrix

  void configure(const void* config) {
    const auto* at = static_cast<const std::byte*>(config);
    expect(load<std::uint8_t>(at) == 1 && load<std::uint8_t>(at, 1) == 0);
    for (std::size_t i = 2; i < 16; ++i) expect(load<std::uint8_t>(at, i) == 0);
    for (std::size_t i = 0; i < 16; ++i) {
      const int rows = load<std::uint8_t>(at, 48 + i), column_bytes = load<std::uint16_t>(at + 16, i);
      expect(i < 8 ? rows >= 1 && rows <= 16 && column_bytes >= 4 && column_bytes <= 64 && column_bytes % 4 == 0
                   : rows == 0 && column_bytes == 0);
      if (i < 8) tiles_[i] = {.rows = rows, .column_bytes = static_cast<std::size_t>(column_bytes)};
    }
    configured_ = true;
    ++calls;
  }
  void release() {
    expect(configured_);
    configured_ = false;
  }
  void zero(std::size_t tile) {
    expect(configured_);
    tiles_[tile].bytes = {};
  }
  void read(std::size_t tile, const void* from, std::ptrdiff_t stride) {
    zero(tile);
    for (int row = 0; row < tiles_[tile].rows; ++row)
      std::memcpy(tiles_[tile].at(row), static_cast<const std::byte*>(from) + row * stride, tiles_[tile].column_bytes);
  }
  void write(std::size_t tile, void* to, std::ptrdiff_t stride) {
    expect(configured_);
    for (int row = 0; row < tiles_[tile].rows; ++row)
      std::memcpy(static_cast<std::byte*>(to) + row * stride, tiles_[tile].at(row), tiles_[tile].column_bytes);
  }

  // Four products of bytes are added to an int32; A is signed, B is of type T.
  template <class T>
  void dot_bytes(std::size_t sums, std::size_t a, std::size_t b) {
    each_sum<std::int32_t>(sums, a, b, [&](std::int32_t sum, const std::byte* x, std::size_t column) {
      for (int k = 0; k < tiles_[b].rows; ++k)
        for (std::size_t i = 0; i < 4; ++i)
          sum += load<std::int8_t>(x + 4 * k, i) * load<T>(tiles_[b].at(k) + 4 * column, i);
      return sum;
    });
  }
  // One chain of fma for the even and one for the odd values of all rows of B, then their sum.
  void dot_bf16(std::size_t sums, std::size_t a, std::size_t b) {
    each_sum<float>(sums, a, b, [&](float sum, const std::byte* x, std::size_t column) {
      std::array<float, 2> half{};
      for (int k = 0; k < tiles_[b].rows; ++k)
        for (std::size_t i = 0; i < 2; ++i)
          half[i] = std::fma(bf16_to_f32(load<std::uint16_t>(x + 4 * k, i)),
                             bf16_to_f32(load<std::uint16_t>(tiles_[b].at(k) + 4 * column, i)), half[i]);
      return sum + (half[0] + half[1]);
    });
  }

 private:
  struct Tile {
    int rows = 0;
    std::size_t column_bytes = 0;
    std::array<std::byte, 1024> bytes{};
    std::byte* at(int row) { return bytes.data() + 64 * row; }
  };

  void expect(bool holds) { faults += holds ? 0 : 1; }

  template <class T, class Sum>
  void each_sum(std::size_t sums, std::size_t a, std::size_t b, Sum next) {
    const std::size_t columns = tiles_[sums].column_bytes / 4;
    expect(configured_ && tiles_[sums].rows == tiles_[a].rows && tiles_[b].column_bytes == 4 * columns &&
           tiles_[a].column_bytes == 4 * static_cast<std::size_t>(tiles_[b].rows));
    for (int row = 0; row < tiles_[sums].rows; ++row)
      for (std::size_t column = 0; column < columns; ++column) {
        std::byte* at = tiles_[sums].at(row) + 4 * column;
        const T sum = next(load<T>(at), tiles_[a].at(row), column);
        std::memcpy(at, &sum, sizeof sum);
      }
  }

  bool configured_ = false;
  std::array<Tile, 8> tiles_;
};

}  // namespace moe::test

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) moe::test::SoftwareTiles::of_thread().configure(config)
#define _tile_release() moe::test::SoftwareTiles::of_thread().release()
#define _tile_zero(tile) moe::test::SoftwareTiles::of_thread().zero(tile)
#define _tile_loadd(tile, from, stride) moe::test::SoftwareTiles::of_thread().read(tile, from, stride)
#define _tile_stored(tile, to, stride) moe::test::SoftwareTiles::of_thread().write(tile, to, stride)
#define _tile_dpbssd(sums, a, b) moe::test::SoftwareTiles::of_thread().dot_bytes<std::int8_t>(sums, a, b)
#define _tile_dpbsud(sums, a, b) moe::test::SoftwareTiles::of_thread().dot_bytes<std::uint8_t>(sums, a, b)
#define _tile_dpbf16ps(sums, a, b) moe::test::SoftwareTiles::of_thread().dot_bf16(sums, a, b)
