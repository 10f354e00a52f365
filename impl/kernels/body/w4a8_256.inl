// W4A8-int8 on p16 with 256-bit vectors: the 16 rows of a panel are two halves of 8 lanes, done together so that one
// broadcast of activations serves both. Included inside a target region and an anonymous namespace that define
// kTileRows and Dot::add<N>(w, a, c), after read_ahead.inl: the sums of 32 k (four vectors of codes at w) for both
// halves and N tokens, added to c. The float steps are those of kernels/ref/w4a8.cpp, in its order.
//
// W4A8 has an engine of its own beside symmetric_256.inl: its activations have zero points, and the
// order of its float steps is KleidiAI's, with fma at exactly two places.
//
// From the outside in: gemm looks up gemm_rows by the number of tokens, whole_panel walks over the
// groups of a panel and does the float steps, sum_group makes the integer sums of one group.

inline __m256 load_f32(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
// bf16 is the upper half of a float32.
inline __m256 load_bf16(const std::byte* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

// Offsets as quant_row() has them (kernels/tile.h); they are the same for all panels.
struct Tile {
  const std::int8_t* codes;
  const std::int32_t* corr;  // [G][n]
  const float* recip;
  const std::int32_t* z;

  explicit Tile(const GemmArgs& a) {
    codes = reinterpret_cast<const std::int8_t*>(a.tile);
    corr = reinterpret_cast<const std::int32_t*>(a.tile + a.shape.code_bytes(a.n));
    recip = reinterpret_cast<const float*>(corr + a.shape.group_count() * a.n);
    z = reinterpret_cast<const std::int32_t*>(recip + a.n);
  }
};

// The walk over the units of a panel, in blocks of 32 k.
// One walk for all groupings: unit_header is 64 for g32 and 0 else.
struct Walk {
  // It stays at a unit for two blocks of 32 columns.
  const std::byte* unit;    // first byte of the unit's codes
  std::size_t step;         // bytes between units
  std::size_t unit_header;  // of them, before the codes
  std::int64_t k = 0;       // the next block
  // Codes of the tile's first row; block_offset() finds a block.
  const std::int8_t* activations;
  Stream stream;

  // 256 bytes are the 32 columns of half a unit.
  const std::byte* codes() const { return unit + 256 * (k & 1); }
  [[gnu::always_inline]] void next() {
    if ((k++ & 1) != 0) unit += step, stream.fetch(unit - unit_header, unit_header);
  }
};

// Sums of the blocks up to `last`, beginning with the corrections of their group. Dot says where the accumulators of
// more than two tokens live: in registers as locals of this function alone, or in memory, where its operands need the
// registers.
template <int N>
[[gnu::always_inline]] inline void sum_blocks(Walk& walk, std::int64_t last, const std::int32_t* corr,
                                              __m256i (&c)[2][N]) {
#pragma GCC unroll 8
  for (int m = 0; m < N; ++m) c[0][m] = c[1][m] = _mm256_set1_epi32(corr[m]);
  for (; walk.k < last; walk.next()) {
    walk.stream.fetch(walk.codes(), 256);
    Dot::add<N>(walk.codes(), walk.activations + block_offset(walk.k, N), c);
  }
}

// noinline, as in sums_of() of symmetric_256.inl: the accumulators are locals of this function
// alone.
template <int N>
// last: the block behind the group's last one. corr: [N]. out: [half of the rows][N], set.
[[gnu::noinline]] void sum_group(Walk& walk, std::int64_t last, const std::int32_t* corr, __m256i (&out)[2][N]) {
  if constexpr (Dot::kInMemory && N > 2) {
    sum_blocks<N>(walk, last, corr, out);
  } else {
    __m256i c[2][N];
    sum_blocks<N>(walk, last, corr, c);
#pragma GCC unroll 8
    for (int m = 0; m < N; ++m) out[0][m] = c[0][m], out[1][m] = c[1][m];
  }
}

// N is the number of tokens of the tile; there is a function for each.
template <int N>
// out: of token 0 in the panel's first row; tokens are a.ld floats apart.
void whole_panel(const GemmArgs& a, const Tile& t, const std::byte* panel, float* out, const Stream& stream) {
  const P16& mat = *a.matrix;
  const Grouping kind = mat.grouping();
  // The stream is copied into the walk and so stays in registers.
  Walk walk{panel + mat.header_bytes() + mat.unit_header(), mat.unit_bytes(), mat.unit_header(), 0, t.codes, stream};
  stream.header(panel, mat.header_bytes() + mat.unit_header());
  // Results of groups so far; not used where a scale covers the row.
  __m256 f[2][N];
  for (auto& half : f)
    for (auto& x : half) x = _mm256_setzero_ps();
  __m256i c[2][N];
  // A scale per row: one exact sum over all of K, and floats only at the end.
  if (kind == Grouping::channel) {
    sum_group<N>(walk, a.shape.blocks(), t.corr, c);
  } else {
    // Groups are multiples of 32 in this layout.
    const std::int64_t per_group = mat.group() / 32;
    for (std::int64_t g = 0; g < mat.group_count(); ++g) {
      sum_group<N>(walk, (g + 1) * per_group, t.corr + g * N, c);
      // 16 bf16: 32 bytes, half of them for each half of the rows.
      const std::byte* scales = panel + mat.scale_offset(0, g);
      for (int half = 0; half < 2; ++half) {
        const __m256 scale = load_bf16(scales + 16 * half);
        for (int m = 0; m < N; ++m) f[half][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(c[half][m]), scale, f[half][m]);
      }
    }
  }
  for (int half = 0; half < 2; ++half) {
    // float rsum or int32 wsum, by the grouping.
    const std::byte* sums = panel + mat.sum_offset() + 32 * half;
    const __m256 bias = mat.has_bias ? load_f32(panel + mat.bias_offset() + 32 * half) : _mm256_setzero_ps();
    for (int m = 0; m < N; ++m) {
      const __m256 s_a = _mm256_set1_ps(t.recip[m]);
      __m256 r;
      if (kind == Grouping::channel) {
        // z * sum of weights, in integers: exact, at most 255 * 8 * K together with the sum itself.
        const __m256i i = _mm256_add_epi32(c[half][m], _mm256_mullo_epi32(load(sums), _mm256_set1_epi32(t.z[m])));
        // 16 * float(i) and (s / 16) * s_a: KleidiAI's int32 holds 16 times the sum, and these two
        // products round as it does.
        r = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(16.0f), _mm256_cvtepi32_ps(i)),
                          _mm256_mul_ps(load_f32(panel + 32 * half), s_a));
      } else {
        // Here z meets a float row sum, so this fma is a rounding that the definition has, too.
        const __m256 z = _mm256_set1_ps(static_cast<float>(t.z[m]));
        r = _mm256_mul_ps(_mm256_fmadd_ps(load_f32(sums), z, f[half][m]), s_a);
      }
      // bias last; without one +0.0, which turns -0 into +0 as KleidiAI does.
      _mm256_storeu_ps(out + m * a.ld + 8 * half, _mm256_add_ps(r, bias));
    }
  }
}

template <int N>
void gemm_rows(const GemmArgs& a) {
  const Tile t(a);
  const std::size_t bytes = a.matrix->panel_bytes();
  const Stream stream(a, bytes, a.part == 0 ? a.next : nullptr);
  for (std::int64_t p = 0; p < a.panel_count; ++p)
    whole_panel<N>(a, t, a.panels + usize(p) * bytes, a.out + p * kPanelRows, stream);
}

template <int... Rows>
constexpr std::array<void (*)(const GemmArgs&), kTileRows> by_rows(std::integer_sequence<int, Rows...>) {
  return {gemm_rows<Rows + 1>...};
}

void gemm(const GemmArgs& a) {
  static constexpr auto kByRows = by_rows(std::make_integer_sequence<int, kTileRows>());
  at(kByRows, a.n - 1)(a);
}
