// Float weights against float32 rows, for a lane type V (vector_*.inl) and the elements of p16. Included inside
// a target region and an anonymous namespace that define kTileRows and kAhead.
//
// Definition (kernels/ref/float.cpp): per unit of 64 k two chains of fma, even k and odd k, each in ascending
// order; the unit's sum even + odd is added to the result; the bias comes last. Two short chains a unit keep the
// rounding error small and the fma units busy with few rows; every tile height walks K alike.

using F = V::F;
constexpr std::int64_t kLanes = V::kLanes;
constexpr int kParts = static_cast<int>(kPanelRows / kLanes);  // vectors of a panel's rows

// The weights of two consecutive k, for the lanes of one part.
template <Element E>
inline void load_pair(const std::byte* w, F& even, F& odd) {
  if constexpr (E == Element::f32) {
    even = V::load(reinterpret_cast<const float*>(w));
    odd = V::load(reinterpret_cast<const float*>(w) + kPanelRows);
  } else if constexpr (E == Element::bf16) {
    const V::I pair = V::load_i(w);
    even = V::from_bits(V::shl<16>(pair));
    odd = V::from_bits(V::and_i(pair, V::set_i(static_cast<std::int32_t>(0xffff0000u))));
  } else {
    const V::I pair = V::load_i(w);
    even = V::widen_f16(V::and_i(pair, V::set_i(0xffff)));
    odd = V::widen_f16(V::shr<16>(pair));
  }
}

template <Element E, int N>
void panel_part(const GemmArgs& a, const std::byte* panel, int part, float* out, const std::byte* end) {
  constexpr std::size_t kPairBytes = E == Element::f32 ? 128 : 64;
  const P16Matrix& m = *a.matrix;
  const std::ptrdiff_t row = a.shape.padded();
  const float* x = reinterpret_cast<const float*>(a.tile);
  const std::byte* w = panel + m.header_bytes() + static_cast<std::size_t>(part * kLanes) * 4;
  F f[N];
  for (auto& s : f) s = V::set(0.0f);
  for (std::int64_t u = m.units(); u > 0; --u) {
    F even[N], odd[N];
    for (int i = 0; i < N; ++i) even[i] = odd[i] = V::set(0.0f);
    for (std::int64_t k = 0; k < kUnitK; k += 2, w += kPairBytes) {
      if (part == 0) {
        const std::byte* p = w + kAhead;
        if (p >= end && a.next != nullptr) p = a.next + (p - end);
        for (std::size_t line = 0; line < kPairBytes; line += 64) V::prefetch(p + line);
      }
      F we, wo;
      load_pair<E>(w, we, wo);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) {
        even[i] = V::fma(V::set(x[i * row + k]), we, even[i]);
        odd[i] = V::fma(V::set(x[i * row + k + 1]), wo, odd[i]);
      }
    }
    x += kUnitK;
    for (int i = 0; i < N; ++i) f[i] = V::add(f[i], V::add(even[i], odd[i]));
  }
  const F bias =
      m.has_bias ? V::load(reinterpret_cast<const float*>(panel + m.bias_offset()) + part * kLanes) : V::set(0.0f);
  for (int i = 0; i < N; ++i) V::store(out + i * a.ld, V::add(f[i], bias));
}

template <Element E, int N>
void gemm_rows(const GemmArgs& a) {
  const std::size_t bytes = a.matrix->panel_bytes();
  const std::byte* const end = a.panels + static_cast<std::size_t>(a.panel_count) * bytes;
  for (std::int64_t p = 0; p < a.panel_count; ++p)
    for (int part = 0; part < kParts; ++part)
      panel_part<E, N>(a, a.panels + static_cast<std::size_t>(p) * bytes, part, a.out + p * kPanelRows + part * kLanes,
                       end);
}

template <Element E, int... Rows>
constexpr std::array<void (*)(const GemmArgs&), kTileRows> by_rows(std::integer_sequence<int, Rows...>) {
  return {gemm_rows<E, Rows + 1>...};
}

template <Element E>
void gemm(const GemmArgs& a) {
  static constexpr auto kByRows = by_rows<E>(std::make_integer_sequence<int, kTileRows>());
  kByRows[static_cast<std::size_t>(a.n - 1)](a);
}
