// W4A8 on KleidiAI's weights: everything around the sums. Included inside a target region and an anonymous namespace;
// the including file has
//   template <int N> sums(weights, codes, chunks, int32x4_t (&sum)[N][2])
// sixteen times the sums of 8 rows for N tokens over chunks of 32 k, on top of `sum`.
//
// A code in the upper half of a byte is sixteen times its value, so nothing is shifted back before the end. Runs of at
// most 65536 k keep such sums in int32.
//
// Why floats are after KleidiAI's order: hosts compare with it bit by bit (w4a8_int8.md 7).
//
// Weights are signed nibbles here and not value + 8, since sdot and smmla multiply signed bytes:
// the low nibble is shifted up and the high one masked, both sixteen times their value.

// 2048 chunks are 65536 columns: 16 * 8 * 128 * 65536 is 2^30, within int32. A longer row is summed
// in runs, each divided by 16, which is exact.
constexpr std::int64_t kRunChunks = 2048;

// NEON loads need no alignment.
inline float32x4_t load_floats(const std::byte* p) { return vld1q_f32(reinterpret_cast<const float*>(p)); }
inline int32x4_t load_ints(const std::byte* p) { return vld1q_s32(reinterpret_cast<const std::int32_t*>(p)); }

// The exact sums of one group.
template <int N>
inline void group_sums(const std::byte* weights, const std::int8_t* codes, std::int64_t chunks,
                       int32x4_t (&total)[N][2]) {
  for (auto& t : total) t[0] = t[1] = vdupq_n_s32(0);
  for (std::int64_t c = 0; c < chunks; c += kRunChunks) {
    int32x4_t sum[N][2];
    sums<N>(reinterpret_cast<const std::int8_t*>(weights) + 128 * c, codes + 32 * N * c,
            std::min(kRunChunks, chunks - c), sum);
    for (int n = 0; n < N; ++n)
      for (int i = 0; i < 2; ++i) total[n][i] = vsraq_n_s32(total[n][i], sum[n][i], 4);
  }
}

// 8 rows times N tokens (w4a8_int8.md 7).
// A vector has four lanes, so 8 rows are two vectors.
template <int N>
inline void multiply_tile(const KaiMatrix& m, const std::byte* tile, const std::int8_t* codes, const std::int32_t* z,
                          const float* recip, float (&out)[N][8]) {
  float32x4_t r[N][2];
  int32x4_t sum[N][2];
  if (m.channel()) {
    group_sums<N>(tile, codes, m.chunks(), sum);
    for (int n = 0; n < N; ++n)
      for (int i = 0; i < 2; ++i) {
        // The blob has 16 times the sum of the weights; the sum of products was divided by 16
        // before.
        const int32x4_t wsum = vshrq_n_s32(load_ints(tile + m.sum_offset() + 16 * i), 4);
        const float32x4_t total = vcvtq_f32_s32(vmlaq_n_s32(sum[n][i], wsum, z[n]));
        const float32x4_t scale = vmulq_n_f32(load_floats(tile + m.scale_offset(0) + 16 * i), recip[n]);
        r[n][i] = vmulq_f32(vmulq_n_f32(total, 16.0f), scale);
      }
  } else {
    for (auto& v : r) v[0] = v[1] = vdupq_n_f32(0.0f);
    // Codes of a group lie N * group bytes behind those of the one before: 8 columns of all rows,
    // in turn.
    for (std::int64_t g = 0; g < m.group_count(); ++g) {
      group_sums<N>(tile + m.code_offset(g, 0), codes + N * m.group * g, m.chunks(), sum);
      const uint16x8_t bits = vld1q_u16(reinterpret_cast<const std::uint16_t*>(tile + m.scale_offset(g)));
      const float32x4_t scale[2] = {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
                                    vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(bits), 16))};
      for (int n = 0; n < N; ++n)
        for (int i = 0; i < 2; ++i) r[n][i] = vfmaq_f32(r[n][i], vcvtq_f32_s32(sum[n][i]), scale[i]);
    }
    for (int n = 0; n < N; ++n)
      for (int i = 0; i < 2; ++i)
        r[n][i] = vmulq_n_f32(
            vfmaq_n_f32(r[n][i], load_floats(tile + m.sum_offset() + 16 * i), static_cast<float>(z[n])), recip[n]);
  }
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < 2; ++i)
      vst1q_f32(out[n] + 4 * i, vaddq_f32(r[n][i], load_floats(tile + m.bias_offset() + 16 * i)));
}

// Sixteen rows of a half lie in two tiles, or in parts of three where the half does not begin with a tile.
// The engine counts in panels of 16 rows per half, the blob in tiles of 8 rows over both halves.
// a.first is the panel's number in the matrix: `panels` is the whole blob here.
template <int N>
void multiply_panel(const GemmArgs& a, const KaiMatrix& m, std::int64_t panel, float* out) {
  const P16& p = *a.matrix;
  const std::int64_t half = panel % p.halves, row0 = panel / p.halves * kPanelRows;
  const std::int64_t count = std::min(kPanelRows, p.half_rows - row0), first = half * p.half_rows + row0;
  const auto* codes = reinterpret_cast<const std::int8_t*>(a.tile);
  const auto* z = reinterpret_cast<const std::int32_t*>(a.tile + a.shape.code_bytes() * N);
  const auto* recip = reinterpret_cast<const float*>(z + N);
  // Tile by tile: of a tile at the border of two halves only the rows of this half are copied.
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = first + done, lane = row % kKaiRows, take = std::min(kKaiRows - lane, count - done);
    float result[N][8];
    multiply_tile<N>(m, a.panels + usize(row / kKaiRows) * m.tile_bytes(), codes, z, recip, result);
    for (int n = 0; n < N; ++n) std::memcpy(out + n * a.ld + done, result[n] + lane, usize(take) * sizeof(float));
    done += take;
  }
  // Results beyond N are 0, as panels of p16 give them.
  for (int n = 0; n < N; ++n) std::fill(out + n * a.ld + count, out + n * a.ld + kPanelRows, 0.0f);
}

template <int N>
void multiply(const GemmArgs& a) {
  const KaiMatrix m(*a.matrix);
  for (std::int64_t p = 0; p < a.panel_count; ++p) multiply_panel<N>(a, m, a.first + p, a.out + p * kPanelRows);
}

// One function for each number of tokens up to the row's tile.
template <int... N>
void multiply_rows(const GemmArgs& a, std::integer_sequence<int, N...>) {
  static constexpr void (*kByRows[])(const GemmArgs&) = {multiply<N + 1>...};
  kByRows[a.n - 1](a);
}
