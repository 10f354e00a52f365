// Vector forms of widen, narrow, activate and combine, for a lane type V (vector_*.inl). Included inside a
// target region and an anonymous namespace. Lane by lane they do what kernels/ref/elementwise.cpp does,
// operation by operation; the scalar functions do a tail.
//
// One text for AVX2, AVX-512 and NEON. The order of operations is copied from the scalar code and
// must stay so: float addition is not associative, and tests compare every bit. Where nothing is
// said of NaN: min_or_b and max_or_b give their second operand when a comparison is false, so an x
// in second place passes NaN through and one in first place loses it.
//
// Needs ref/elementwise.h (tails), base/exp.h, base/gelu.h and V; gives widen, narrow, activate and
// combine, which the file puts into its Elementwise.

#include "kernels/body/lanes.inl"

// Nearest even by integer arithmetic: 0x7fff plus the lowest bit that stays carries exactly when
// the part that falls off is above a half, or a half and the bit is odd. A carry into the exponent
// is right, too: the largest floats round to Inf. vcvtneps2bf16 would flush subnormals. A NaN whose
// upper bits are all 1 would carry over into -0, hence the select; 0x40 keeps it quiet.
inline I bf16_bits(F x) {  // base/float_formats.h
  const I u = V::bits(x);
  const I odd = V::and_i(V::shr<16>(u), V::set_i(1));
  const I rounded = V::shr<16>(V::add_i(V::add_i(u, V::set_i(0x7fff)), odd));
  return V::select_i(V::is_nan(x), V::or_i(V::shr<16>(u), V::set_i(0x40)), rounded);
}

// The value that a tensor of type D would hold. f32: x itself.
template <DType D>
inline F round_lanes(F x) {
  if constexpr (D == DType::bf16) return V::from_bits(V::shl<16>(bf16_bits(x)));
  if constexpr (D == DType::f16) return V::round_f16(x);
  return x;
}

// Of what operations made of values that are rounded already: their NaNs carry nothing in the low half, so none turns
// into a number.
template <DType D>
// Fewer instructions than round_lanes, for the innermost steps of stepwise layers.
inline F round_again(F x) {
  if constexpr (D != DType::bf16) return round_lanes<D>(x);
  const I u = V::bits(x);
  const I odd = V::and_i(V::shr<16>(u), V::set_i(1));
  const I rounded = V::add_i(u, V::add_i(V::set_i(0x7fff), odd));
  return V::from_bits(V::and_i(rounded, V::set_i(static_cast<std::int32_t>(0xffff0000u))));
}

template <DType D>
// One NaN for all: x86 and Arm make NaNs of different signs and payloads, and outputs are compared
// as bytes.
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
// The tail goes to the scalar function: a vector load would read beyond memory of the caller.
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

// A switch per row and not per value: the loops are compiled for each type.
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

// -0 - x and not 0 - x, which would make +0 of +0. All uses go into exp, which is 1 for both zeros.
inline F negate(F x) { return V::sub(V::set(-0.0f), x); }
inline F abs_lanes(F x) { return V::from_bits(V::and_i(V::bits(x), V::set_i(0x7fffffff))); }

// A division and no reciprocal: x * (1 / d) has two roundings, and rcpps has other bits on every
// maker's processors. exp of a large -v is Inf, and a finite x / Inf is 0, as it should be.
inline F sigmoid_weighted(F x, F v) {  // x / (1 + exp(-v))
  return V::div(x, V::add(V::set(1.0f), exp_lanes(negate(v))));
}

// z is clamped at 16, where Q is 0 already: an infinite z would give Inf * 0, which is NaN.
inline F gelu_lanes(F x) {  // base/gelu.h
  namespace c = gelu_constants;
  const F z = V::min_or_b(V::set(c::kFar), abs_lanes(x));
  const F t = V::div(V::set(1.0f), V::add(V::set(1.0f), V::mul(V::set(c::kT), z)));
  F r = V::set(c::kR[c::kDegree - 1]);
  // Horner's scheme with two roundings per step, as base/gelu.h has it.
  for (int i = c::kDegree - 2; i >= 0; --i) r = V::add(V::mul(r, t), V::set(c::kR[i]));
  const F q = V::mul(V::mul(r, t), exp_lanes(negate(V::mul(V::mul(V::set(0.5f), z), z))));
  return V::sub(V::max_or_b(V::set(0.0f), x), V::mul(z, q));
}

// As a sigmoid, (1 + tanh(v)) / 2 = 1 / (1 + exp(-2v)): one exp and one division, no cancellation.
inline F gelu_tanh_lanes(F x) {
  namespace c = gelu_constants;
  const F cube = V::mul(V::set(c::kCube), V::mul(V::mul(x, x), x));
  return sigmoid_weighted(x, V::mul(V::set(c::kTwoSqrt2OverPi), V::add(x, cube)));
}

// Both forms are computed for all lanes and one is selected. The far form has no digits near 0,
// where it subtracts e from 1; the near one is a fraction of polynomials that is only good there.
// The sign is put on at the end, since the far form works with magnitudes.
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

// An enumerator per loop that is compiled, not per activation: two activations with the same
// arithmetic share one.
enum class Formula { silu, silu_clamped, step, oai, softcap, gelu, gelu_tanh, relu2 };

template <Formula K>
// relu2: max_or_b(0, v) keeps NaN, because v stands second.
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
// Every round_again ends an operation on tensors of type D. With D = f32 they vanish.
inline F gated_lanes(const ActivateArgs& a, F g, F u) {
  const F limit = V::set(a.limit), low = V::set(-a.limit);
  // GPT-OSS: only the upper side of the gate is clamped, both sides of up.
  if constexpr (K == Formula::oai) {
    g = V::min_or_b(limit, g);
    u = V::min_or_b(limit, V::max_or_b(low, u));
    const F t = round_again<D>(V::mul(g, V::set(a.alpha)));
    const F s = round_again<D>(sigmoid_weighted(V::set(1.0f), t));
    const F glu = round_again<D>(V::mul(g, s));
    return round_again<D>(V::mul(round_again<D>(V::add(u, V::set(a.beta))), glu));
  }
  if constexpr (K == Formula::softcap) {
    const F capped = a.alpha == 0.0f ? g : round_again<D>(soft_cap_lanes(g, V::set(a.alpha)));
    const F up = a.beta == 0.0f ? u : round_again<D>(soft_cap_lanes(u, V::set(a.beta)));
    return round_again<D>(V::mul(round_again<D>(sigmoid_weighted(capped, g)), up));
  }
  // The clamp comes behind silu here and before it in silu_clamped: two models, two definitions.
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
// Stepwise layers have D = R = in_dtype. Layers that round once have D = f32.
template <DType D, DType R, Formula K, bool Gated>
void activate_as(const ActivateArgs& a) {
  constexpr std::int64_t kHalves = Gated ? 2 : 1;
  for (int row = 0; row < a.rows; ++row) {
    const float* y13 = a.y13 + row * a.ld;
    float* out = a.out + row * a.out_ld;
    for (std::int64_t b = 0; b < a.blocks; ++b)
      // 16 gate columns, then the 16 up columns that belong to them: both are in lines that were
      // just read.
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
// The only place where an activation of the config becomes a loop. A switch without default: a new
// Activation does not compile until it has a line.
void activate_rounded(const ActivateArgs& a) {
  switch (a.activation) {
    case Activation::swigluoai:
    case Activation::swigluoai_uninterleave:
      return activate_as<D, R, Formula::oai, true>(a);
    case Activation::swiglu_softcap:
    case Activation::situ:
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

// D is in_dtype or float32 and R is in_dtype: five pairs of types are compiled.
void activate(const ActivateArgs& a) {
  const bool steps = a.rounding == Rounding::stepwise;
  if (a.dtype == DType::bf16)
    return steps ? activate_rounded<DType::bf16, DType::bf16>(a) : activate_rounded<DType::f32, DType::bf16>(a);
  if (a.dtype == DType::f16)
    return steps ? activate_rounded<DType::f16, DType::f16>(a) : activate_rounded<DType::f32, DType::f16>(a);
  return activate_rounded<DType::f32, DType::f32>(a);
}

// w is broadcast once per row. acc is read and written for each row, in the order of the rows,
// because the order of additions is part of the result; columns are independent of each other.
template <DType D, bool Rounded>
void combine_as(const CombineArgs& a) {  // count is a multiple of 16
  for (int row = 0; row < a.rows; ++row) {
    float* acc = a.acc + a.tokens[row] * a.acc_ld;
    const float* y = a.y + row * a.ld;
    const F w = V::set(a.weights == nullptr ? 1.0f : a.weights[row]);
    for (std::int64_t i = 0; i < a.count; i += kLanes) {
      if constexpr (Rounded) {
        // vLLM's three roundings: y itself, the product, the sum (w4a8_int8.md 8.1).
        const F scaled = round_lanes<D>(V::mul(round_lanes<D>(V::load(y + i)), w));
        V::store(acc + i, round_lanes<D>(V::add(V::load(acc + i), scaled)));
      } else {
        // One rounding per slot. An expert-parallel rank that adds returned rows in the same order
        // gets the same bits.
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
