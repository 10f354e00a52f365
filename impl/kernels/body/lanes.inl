// What all vector forms share, for a lane type V (vector_*.inl): widening loads and exp. Included inside a target
// region and an anonymous namespace.
//
// Needs base/exp.h and V; gives F, I, kLanes, exp_lanes and load_as for elementwise.inl and
// route.inl.

using F = V::F;
using I = V::I;
constexpr std::int64_t kLanes = V::kLanes;

// No fma: it would change bits on machines that have it, and the baseline has none. All lanes take
// the same path and exceptions are selected at the end, NaN last, as it passes both comparisons
// before.
inline F exp_lanes(F x) {  // base/exp.h
  namespace c = exp_constants;
  // 1.5 * 2^23 leaves no bits behind the point: the addition itself rounds x * log2 e to an
  // integer, which lies in the low bits of t. The rounding mode is to nearest (base/float_state.h).
  const F t = V::add(V::mul(x, V::set(c::kLog2E)), V::set(c::kMagic));
  const F k = V::sub(t, V::set(c::kMagic));
  const F r = V::sub(V::sub(x, V::mul(k, V::set(c::kLn2Hi))), V::mul(k, V::set(c::kLn2Lo)));
  const F r2 = V::mul(r, r);
  F q = V::set(c::kQ4);
  q = V::add(V::mul(q, r), V::set(c::kQ3));
  q = V::add(V::mul(q, r), V::set(c::kQ2));
  q = V::add(V::mul(q, r), V::set(c::kQ1));
  q = V::add(V::mul(q, r), V::set(c::kQ0));
  const F p = V::add(V::set(1.0f), V::add(r, V::mul(r2, q)));
  // An addition to the exponent. It cannot reach the sign: x is in range, or the lane is replaced
  // below.
  F e = V::from_bits(V::add_i(V::bits(p), V::shl<23>(V::bits(t))));
  e = V::select(V::less(V::set(c::kMaxFinite), x), V::set(std::numeric_limits<float>::infinity()), e);
  e = V::select(V::less(x, V::set(c::kMinNormal)), V::set(0.0f), e);
  return V::select(V::is_nan(x), x, e);
}

template <DType D>
// Exact for all types. bf16 is the upper half of a float32.
inline F load_as(const std::byte* p) {
  if constexpr (D == DType::bf16) return V::from_bits(V::shl<16>(V::load_u16(p)));
  if constexpr (D == DType::f16) return V::load_f16(p);
  return V::load(reinterpret_cast<const float*>(p));
}

// Of the three types that activations have.
constexpr std::size_t dtype_bytes(DType d) { return d == DType::f32 ? 4 : 2; }
