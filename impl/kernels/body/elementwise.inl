// Vector forms of widen, narrow, activate and combine, for a lane type V (vector_*.inl). Included inside a
// target region and an anonymous namespace. Lane by lane they do what kernels/ref/elementwise.cpp does,
// operation by operation; the scalar functions do a tail.

#include "kernels/body/lanes.inl"

inline I bf16_bits(F x) {  // base/float_formats.h
  const I u = V::bits(x);
  const I odd = V::and_i(V::shr<16>(u), V::set_i(1));
  const I rounded = V::shr<16>(V::add_i(V::add_i(u, V::set_i(0x7fff)), odd));
  return V::select_i(V::is_nan(x), V::or_i(V::shr<16>(u), V::set_i(0x40)), rounded);
}

template <DType D>
inline F round_lanes(F x) {
  if constexpr (D == DType::bf16) return V::from_bits(V::shl<16>(bf16_bits(x)));
  if constexpr (D == DType::f16) return V::round_f16(x);
  return x;
}

// Of what operations made of values that are rounded already: their NaNs carry nothing in the low half, so none turns
// into a number.
template <DType D>
inline F round_again(F x) {
  if constexpr (D != DType::bf16) return round_lanes<D>(x);
  const I u = V::bits(x);
  const I odd = V::and_i(V::shr<16>(u), V::set_i(1));
  const I rounded = V::add_i(u, V::add_i(V::set_i(0x7fff), odd));
  return V::from_bits(V::and_i(rounded, V::set_i(static_cast<std::int32_t>(0xffff0000u))));
}

template <DType D>
inline void store_as(std::byte* p, F x) {
  x = V::select(V::is_nan(x), V::from_bits(V::set_i(0x7fc00000)), x);
  if constexpr (D == DType::bf16)
    V::store_u16(p, bf16_bits(x));
  else if constexpr (D == DType::f16)
    V::store_f16(p, x);
  else
    V::store(reinterpret_cast<float*>(p), x);
}

template <DType D>
void widen_as(const std::byte* src, std::int64_t count, float* dst) {
  constexpr std::int64_t size = dtype_bytes(D);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) V::store(dst + i, load_as<D>(src + i * size));
  if (i < count) ref::widen(D, src + i * size, count - i, dst + i);
}

template <DType D>
void narrow_as(const float* src, std::int64_t count, std::byte* dst) {
  constexpr std::int64_t size = dtype_bytes(D);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_as<D>(dst + i * size, V::load(src + i));
  if (i < count) ref::narrow(D, src + i, count - i, dst + i * size);
}

void widen(DType dtype, const std::byte* src, std::int64_t count, float* dst) {
  if (dtype == DType::bf16)
    widen_as<DType::bf16>(src, count, dst);
  else if (dtype == DType::f16)
    widen_as<DType::f16>(src, count, dst);
  else
    widen_as<DType::f32>(src, count, dst);
}

void narrow(DType dtype, const float* src, std::int64_t count, std::byte* dst) {
  if (dtype == DType::bf16)
    narrow_as<DType::bf16>(src, count, dst);
  else if (dtype == DType::f16)
    narrow_as<DType::f16>(src, count, dst);
  else
    narrow_as<DType::f32>(src, count, dst);
}

inline F negate(F x) { return V::sub(V::set(-0.0f), x); }
inline F abs_lanes(F x) { return V::from_bits(V::and_i(V::bits(x), V::set_i(0x7fffffff))); }

inline F sigmoid_weighted(F x, F v) {  // x / (1 + exp(-v))
  return V::div(x, V::add(V::set(1.0f), exp_lanes(negate(v))));
}

inline F gelu_lanes(F x) {  // base/gelu.h
  namespace c = gelu_constants;
  const F z = V::min_or_b(V::set(c::kFar), abs_lanes(x));
  const F t = V::div(V::set(1.0f), V::add(V::set(1.0f), V::mul(V::set(c::kT), z)));
  F r = V::set(c::kR[c::kDegree - 1]);
  for (int i = c::kDegree - 2; i >= 0; --i) r = V::add(V::mul(r, t), V::set(c::kR[i]));
  const F q = V::mul(V::mul(r, t), exp_lanes(negate(V::mul(V::mul(V::set(0.5f), z), z))));
  return V::sub(V::max_or_b(V::set(0.0f), x), V::mul(z, q));
}

inline F gelu_tanh_lanes(F x) {
  namespace c = gelu_constants;
  const F cube = V::mul(V::set(c::kCube), V::mul(V::mul(x, x), x));
  return sigmoid_weighted(x, V::mul(V::set(c::kTwoSqrt2OverPi), V::add(x, cube)));
}

inline F soft_cap_lanes(F x, F c) {  // base/gelu.h
  const F one = V::set(1.0f), v = V::div(x, c), size = abs_lanes(v), q = V::mul(v, v);
  const F above = V::add(V::set(105.0f), V::mul(V::set(10.0f), q));
  const F below = V::add(V::set(105.0f), V::mul(q, V::add(V::set(45.0f), q)));
  const F e = exp_lanes(V::mul(V::set(-2.0f), size));
  const F far = V::mul(c, V::div(V::sub(one, e), V::add(one, e)));
  const auto sign = V::and_i(V::bits(x), V::set_i(static_cast<std::int32_t>(0x80000000u)));
  return V::select(V::less(size, V::set(0.5f)), V::mul(x, V::div(above, below)),
                   V::from_bits(V::or_i(V::bits(abs_lanes(far)), sign)));
}

enum class Formula { silu, silu_clamped, step, oai, softcap, gelu, gelu_tanh, relu2 };

template <Formula K>
inline F unary_lanes(F v) {
  if constexpr (K == Formula::gelu) return gelu_lanes(v);
  if constexpr (K == Formula::gelu_tanh) return gelu_tanh_lanes(v);
  if constexpr (K == Formula::relu2) {
    const F positive = V::max_or_b(V::set(0.0f), v);
    return V::mul(positive, positive);
  }
  return sigmoid_weighted(v, v);
}

// D: what every operation is rounded to, and g and u are already.
template <DType D, Formula K>
inline F gated_lanes(const ActivateArgs& a, F g, F u) {
  const F limit = V::set(a.limit), low = V::set(-a.limit);
  if constexpr (K == Formula::oai) {
    g = V::min_or_b(limit, g);
    u = V::min_or_b(limit, V::max_or_b(low, u));
    const F t = round_again<D>(V::mul(g, V::set(a.alpha)));
    const F s = round_again<D>(sigmoid_weighted(V::set(1.0f), t));
    const F glu = round_again<D>(V::mul(g, s));
    return round_again<D>(V::mul(round_again<D>(V::add(u, V::set(a.beta))), glu));
  }
  if constexpr (K == Formula::softcap) {
    const F capped = round_again<D>(soft_cap_lanes(g, V::set(a.alpha)));
    const F up = round_again<D>(soft_cap_lanes(u, V::set(a.beta)));
    return round_again<D>(V::mul(round_again<D>(sigmoid_weighted(capped, g)), up));
  }
  if constexpr (K == Formula::step) {
    const F stepped = V::min_or_b(limit, round_again<D>(unary_lanes<K>(g)));
    return round_again<D>(V::mul(stepped, V::min_or_b(limit, V::max_or_b(low, u))));
  }
  if constexpr (K == Formula::silu_clamped) {
    g = V::min_or_b(limit, g);
    u = V::min_or_b(limit, V::max_or_b(low, u));
  }
  return round_again<D>(V::mul(round_again<D>(unary_lanes<K>(g)), u));
}

// D: what every operation is rounded to, R: the result.
template <DType D, DType R, Formula K, bool Gated>
void activate_as(const ActivateArgs& a) {
  constexpr std::int64_t kHalves = Gated ? 2 : 1;
  for (int row = 0; row < a.rows; ++row) {
    const float* y13 = a.y13 + row * a.ld;
    float* out = a.out + row * a.out_ld;
    for (std::int64_t b = 0; b < a.blocks; ++b)
      for (std::int64_t i = 0; i < kPanelRows; i += kLanes) {
        const float* at = y13 + b * kHalves * kPanelRows + i;
        const F g = round_lanes<D>(V::load(at));
        F y;
        if constexpr (Gated)
          y = gated_lanes<D, K>(a, g, round_lanes<D>(V::load(at + kPanelRows)));
        else
          y = unary_lanes<K>(g);
        if constexpr (!Gated || D != R) y = round_lanes<R>(y);  // else the last step has done it
        V::store(out + b * kPanelRows + i, y);
      }
  }
}

template <DType D, DType R>
void activate_rounded(const ActivateArgs& a) {
  switch (a.activation) {
    case Activation::swigluoai:
    case Activation::swigluoai_uninterleave:
      return activate_as<D, R, Formula::oai, true>(a);
    case Activation::swiglu_softcap:
      return activate_as<D, R, Formula::softcap, true>(a);
    case Activation::swiglustep:
      return a.clamp ? activate_as<D, R, Formula::step, true>(a) : activate_as<D, R, Formula::silu, true>(a);
    case Activation::silu:
      return a.clamp ? activate_as<D, R, Formula::silu_clamped, true>(a) : activate_as<D, R, Formula::silu, true>(a);
    case Activation::gelu:
      return activate_as<D, R, Formula::gelu, true>(a);
    case Activation::gelu_tanh:
      return activate_as<D, R, Formula::gelu_tanh, true>(a);
    case Activation::relu2:
      return activate_as<D, R, Formula::relu2, true>(a);
    case Activation::silu_no_mul:
      return activate_as<D, R, Formula::silu, false>(a);
    case Activation::gelu_no_mul:
      return activate_as<D, R, Formula::gelu, false>(a);
    case Activation::gelu_tanh_no_mul:
      return activate_as<D, R, Formula::gelu_tanh, false>(a);
    case Activation::relu2_no_mul:
      return activate_as<D, R, Formula::relu2, false>(a);
  }
}

void activate(const ActivateArgs& a) {
  const bool steps = a.rounding == Rounding::stepwise;
  if (a.dtype == DType::bf16)
    return steps ? activate_rounded<DType::bf16, DType::bf16>(a) : activate_rounded<DType::f32, DType::bf16>(a);
  if (a.dtype == DType::f16)
    return steps ? activate_rounded<DType::f16, DType::f16>(a) : activate_rounded<DType::f32, DType::f16>(a);
  return activate_rounded<DType::f32, DType::f32>(a);
}

template <DType D, bool Rounded>
void combine_as(const CombineArgs& a) {  // count is a multiple of 16
  for (int row = 0; row < a.rows; ++row) {
    float* acc = a.acc + a.tokens[row] * a.acc_ld;
    const float* y = a.y + row * a.ld;
    const F w = V::set(a.weights == nullptr ? 1.0f : a.weights[row]);
    for (std::int64_t i = 0; i < a.count; i += kLanes) {
      if constexpr (Rounded) {
        const F scaled = round_lanes<D>(V::mul(round_lanes<D>(V::load(y + i)), w));
        V::store(acc + i, round_lanes<D>(V::add(V::load(acc + i), scaled)));
      } else {
        V::store(acc + i, V::fma(w, V::load(y + i), V::load(acc + i)));
      }
    }
  }
}

void combine(const CombineArgs& a) {
  if (!a.rounded)
    combine_as<DType::f32, false>(a);
  else if (a.dtype == DType::bf16)
    combine_as<DType::bf16, true>(a);
  else if (a.dtype == DType::f16)
    combine_as<DType::f16, true>(a);
  else
    combine_as<DType::f32, true>(a);
}
