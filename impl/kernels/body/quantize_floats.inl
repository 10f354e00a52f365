// Activations as 8-bit and 4-bit floats for a lane type V (vector_*.inl), with the bits of kernels/ref/float_acts.h.
// Included inside a target region and an anonymous namespace, after quantize_symmetric.inl.

namespace float_acts {

using F = V::F;
using I = V::I;
constexpr std::int64_t kLanes = V::kLanes;

// The nearest number with Mantissa bits behind the point, halves to even; below 2^Least the distance of numbers stays
// the same. |x| <= Largest first; NaN stays NaN.
// The addition rounds: the sum's last bit is the distance of numbers around x. (The mode is to nearest,
// base/float_state.h.)
template <int Mantissa, int Least>
[[gnu::always_inline]] inline F rounded(F x, float largest) {
  x = V::max_or_b(V::set(-largest), V::min_or_b(V::set(largest), x));
  const F power = V::from_bits(V::and_i(V::bits(x), V::set_i(0x7f800000)));
  constexpr float kLeast = power_of_two(Least), kLastBit = 1.5f * power_of_two(23 - Mantissa);
  const F magic = V::mul(V::max_or_b(V::set(kLeast), power), V::set(kLastBit));
  return V::sub(V::add(x, magic), magic);
}
[[gnu::always_inline]] inline F e4m3(F x) { return rounded<3, -6>(x, 448.0f); }

// Codes of e2m1, doubled.
struct E2m1 {
  static constexpr int kPlanes = 1;
  static I of(F x) { return V::truncate(V::mul(rounded<1, 0>(x, 6.0f), V::set(2.0f))); }
  static std::int32_t one(float x, float inverse) { return ref::e2m1_code(x, inverse); }
};
struct Mxfp4 : E2m1 {
  static ref::SymmetricScale scale(float largest, const QuantizeArgs&) { return ref::mxfp4_scale(largest); }
};
struct Nvfp4 : E2m1 {
  static ref::SymmetricScale scale(float largest, const QuantizeArgs& a) {
    return ref::nvfp4_scale(largest, a.input_scale);
  }
};

// Values of columns that share a scale: put(k, values) of kLanes from k on, put_one(k, value) of the last ones.
template <class Put, class PutOne>
[[gnu::always_inline]] inline void values(const float* x, std::int64_t k0, std::int64_t k1, ref::Float8Scale s, Put put,
                                          PutOne put_one) {
  std::int64_t k = k0;
  if (s.scale != s.scale) {  // one NaN for all
    for (; k + kLanes <= k1; k += kLanes) put(k, V::set(s.scale));
  } else if (s.inverse == 0.0f) {
    const F scale = V::set(s.scale);
    for (; k + kLanes <= k1; k += kLanes) put(k, e4m3(V::div(V::load(x + k), scale)));
  } else {
    const F inverse = V::set(s.inverse);
    for (; k + kLanes <= k1; k += kLanes) put(k, e4m3(V::mul(V::load(x + k), inverse)));
  }
  for (; k < k1; ++k) put_one(k, ref::float8_value(x[k], s));
}

// A row of float32.
inline void quantize_float8(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  const std::int64_t columns = s.scaled_columns();
  auto* tile = reinterpret_cast<float*>(a.out.tile);
  const auto place = [&](std::int64_t k) { return tile + float_offset(k, a.out.row, a.out.n); };
  for (std::int64_t k0 = 0; k0 < s.k; k0 += columns) {
    const std::int64_t k1 = k0 + columns < s.k ? k0 + columns : s.k;
    const ref::Float8Scale scale = ref::float8_scale(s.floats, symmetric::absmax(a.x + k0, k1 - k0), a.input_scale);
    const F times = V::set(scale.scale);
    values(
        a.x, k0, k1, scale, [&](std::int64_t k, F v) { V::store(place(k), V::mul(v, times)); },
        [&](std::int64_t k, float v) { *place(k) = v * scale.scale; });
  }
  for (std::int64_t k = s.k; k < s.units() * kUnitK; ++k) *place(k) = 0.0f;
}

// A row of bf16 numbers: what codes times powers of two are, else the codes' values with their scales behind them.
inline void quantize_float8_halves(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  const std::int64_t columns = s.scaled_columns();
  const auto place = [&](std::int64_t k) { return a.out.tile + 2 * half_offset(k, a.out.row, a.out.n); };
  float* to = s.has_row_scales() ? row_scales(s, a.out) : nullptr;
  for (std::int64_t k0 = 0; k0 < s.k; k0 += columns) {
    const std::int64_t k1 = k0 + columns < s.k ? k0 + columns : s.k;
    const ref::Float8Scale scale = ref::float8_scale(s.floats, symmetric::absmax(a.x + k0, k1 - k0), a.input_scale);
    if (to != nullptr) *to = scale.scale, to += a.out.n;
    const float factor = to != nullptr ? 1.0f : scale.scale;
    const F times = V::set(factor);
    // Numbers of eight significant bits lose nothing when the lower half goes.
    values(
        a.x, k0, k1, scale,
        [&](std::int64_t k, F v) { V::store_u16(place(k), V::template shr<16>(V::bits(V::mul(v, times)))); },
        [&](std::int64_t k, float v) {
          const auto half = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v * factor) >> 16);
          std::memcpy(place(k), &half, sizeof half);
        });
  }
  for (std::int64_t k = s.k; k < s.units() * kUnitK; ++k) std::memset(place(k), 0, 2);
}

}  // namespace float_acts
