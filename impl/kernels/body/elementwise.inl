// Vector forms of widen, narrow, quantise, activate and combine, for a lane type V (vector_*.inl).
// Included inside a target region and an anonymous namespace. Lane by lane they do what
// kernels/ref/w4a8.cpp does, operation by operation; a tail goes through a padded copy.

using F = V::F;
using I = V::I;
constexpr std::int64_t kLanes = V::kLanes;

inline F exp_lanes(F x) {  // base/exp.h
  namespace c = exp_constants;
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
  F e = V::from_bits(V::add_i(V::bits(p), V::shl<23>(V::bits(t))));
  e = V::select(V::less(V::set(c::kMaxFinite), x), V::set(std::numeric_limits<float>::infinity()), e);
  e = V::select(V::less(x, V::set(c::kMinNormal)), V::set(0.0f), e);
  return V::select(V::is_nan(x), x, e);
}

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

template <DType D>
inline F load_as(const std::byte* p) {
  if constexpr (D == DType::bf16) return V::from_bits(V::shl<16>(V::load_u16(p)));
  if constexpr (D == DType::f16) return V::load_f16(p);
  return V::load(reinterpret_cast<const float*>(p));
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

constexpr std::size_t dtype_bytes(DType d) { return d == DType::f32 ? 4 : 2; }

template <DType D>
void widen_as(const std::byte* src, std::int64_t count, float* dst) {
  constexpr std::size_t size = dtype_bytes(D);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) V::store(dst + i, load_as<D>(src + static_cast<std::size_t>(i) * size));
  if (i < count) ref::widen(D, src + static_cast<std::size_t>(i) * size, count - i, dst + i);
}

template <DType D>
void narrow_as(const float* src, std::int64_t count, std::byte* dst) {
  constexpr std::size_t size = dtype_bytes(D);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_as<D>(dst + static_cast<std::size_t>(i) * size, V::load(src + i));
  if (i < count) ref::narrow(D, src + i, count - i, dst + static_cast<std::size_t>(i) * size);
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

// Codes of kLanes values: y = x * scale, to an integer by the rule, + zp, into [-128, 127].
template <HalfRule R>
inline I code_lanes(F x, F scale, I zp) {
  const F y = V::mul(x, scale);
  I q;
  if constexpr (R == HalfRule::even) {
    q = V::nearest_even(y);
  } else {
    q = V::truncate(y);
    const F rest = V::sub(y, V::to_float(q));  // exact
    q = V::add_i(q, V::select_i(V::greater_equal(rest, V::set(0.5f)), V::set_i(1), V::set_i(0)));
    q = V::add_i(q, V::select_i(V::greater_equal(V::set(-0.5f), rest), V::set_i(-1), V::set_i(0)));
  }
  return V::min_i(V::max_i(V::add_i(q, zp), V::set_i(-128)), V::set_i(127));
}

template <HalfRule R>
void quantise_codes(const QuantArgsRow& a, const ref::RowScale& r) {
  const TileShape& s = a.shape;
  const std::int64_t even_end = R == HalfRule::even ? s.k / 8 * 8 : s.k;
  const F scale = V::set(r.scale);
  const I zp = V::set_i(r.zp);
  for (std::int64_t g = 0; g < s.groups(); ++g) {
    const std::int64_t end = (g + 1) * s.group, vector_end = end < even_end ? end : even_end;
    I sum = V::set_i(0);
    std::int64_t k = g * s.group;
    for (; k + kLanes <= vector_end; k += kLanes) {
      const I q = code_lanes<R>(V::load(a.x + k), scale, zp);
      V::store_i8(a.out.codes + (k >> 5) * a.out.code_stride + (k & 31), q);
      sum = V::add_i(sum, q);
    }
    std::int32_t total = V::sum(sum);
    for (; k < end; ++k) {
      const std::int8_t q = ref::quant_code(a.x[k], r, R == HalfRule::even && k < even_end);
      a.out.codes[(k >> 5) * a.out.code_stride + (k & 31)] = q;
      total += q;
    }
    a.out.corr[g * a.out.corr_stride] = -8 * total;
  }
}

void quantise(const QuantArgsRow& a) {
  const TileShape& s = a.shape;
  F low = V::set(0.0f), high = low;
  I largest = V::set_i(0);
  std::int64_t k = 0;
  for (; k + kLanes <= s.k; k += kLanes) {
    const F x = V::load(a.x + k);
    low = V::min_or_b(x, low);
    high = V::max_or_b(x, high);
    largest = V::max_i(largest, V::and_i(V::bits(x), V::set_i(0x7fffffff)));
  }
  float rmin = V::min_of(low), rmax = V::max_of(high);
  bool poisoned = V::max_of(largest) >= 0x7f800000;
  for (; k < s.k; ++k) {
    rmin = a.x[k] < rmin ? a.x[k] : rmin;
    rmax = a.x[k] > rmax ? a.x[k] : rmax;
    poisoned |= (std::bit_cast<std::uint32_t>(a.x[k]) & 0x7fffffffu) >= 0x7f800000u;
  }
  const ref::RowScale r = ref::row_scale(rmin, rmax, poisoned);
  *a.out.recip = r.recip;
  *a.out.z = -r.zp;
  if (poisoned) {
    for (std::int64_t b = 0; b < s.blocks(); ++b) std::memset(a.out.codes + b * a.out.code_stride, 0, 32);
    for (std::int64_t g = 0; g < s.groups(); ++g) a.out.corr[g * a.out.corr_stride] = 0;
    return;
  }
  if (s.k % 32 != 0) std::memset(a.out.codes + (s.blocks() - 1) * a.out.code_stride, 0, 32);  // beyond K
  if (a.rule == HalfRule::even)
    quantise_codes<HalfRule::even>(a, r);
  else
    quantise_codes<HalfRule::away>(a, r);
}

template <DType D>
inline F silu_lanes(F v) {
  const F e = exp_lanes(V::sub(V::set(-0.0f), v));
  return round_lanes<D>(V::div(v, V::add(V::set(1.0f), e)));
}

enum class Form { silu, silu_clamped, step, oai };

template <DType D, Form K>
inline F activate_lanes(const ActivateArgs& a, F g, F u) {
  g = round_lanes<D>(g);
  u = round_lanes<D>(u);
  const F limit = V::set(a.limit), low = V::set(-a.limit);
  if constexpr (K == Form::oai) {
    g = V::min_or_b(limit, g);
    u = V::min_or_b(limit, V::max_or_b(low, u));
    const F t = round_lanes<D>(V::mul(g, V::set(a.alpha)));
    const F e = exp_lanes(V::sub(V::set(-0.0f), t));
    const F s = round_lanes<D>(V::div(V::set(1.0f), V::add(V::set(1.0f), e)));
    const F glu = round_lanes<D>(V::mul(g, s));
    return round_lanes<D>(V::mul(round_lanes<D>(V::add(u, V::set(a.beta))), glu));
  }
  if constexpr (K == Form::step)
    return round_lanes<D>(V::mul(V::min_or_b(limit, silu_lanes<D>(g)), V::min_or_b(limit, V::max_or_b(low, u))));
  if constexpr (K == Form::silu_clamped) {
    g = V::min_or_b(limit, g);
    u = V::min_or_b(limit, V::max_or_b(low, u));
  }
  return round_lanes<D>(V::mul(silu_lanes<D>(g), u));
}

template <DType D, Form K>
void activate_as(const ActivateArgs& a) {
  for (int row = 0; row < a.rows; ++row) {
    const float* y13 = a.y13 + row * a.ld;
    float* out = a.out + row * a.out_ld;
    for (std::int64_t b = 0; b < a.blocks; ++b)
      for (std::int64_t i = 0; i < kPanelRows; i += kLanes)
        V::store(out + b * kPanelRows + i, activate_lanes<D, K>(a, V::load(y13 + b * 2 * kPanelRows + i),
                                                                V::load(y13 + (b * 2 + 1) * kPanelRows + i)));
  }
}

template <DType D>
void activate_dtype(const ActivateArgs& a) {
  if (a.activation == Activation::swigluoai || a.activation == Activation::swigluoai_uninterleave)
    activate_as<D, Form::oai>(a);
  else if (a.activation == Activation::swiglustep && a.clamp)
    activate_as<D, Form::step>(a);
  else if (a.clamp)
    activate_as<D, Form::silu_clamped>(a);
  else
    activate_as<D, Form::silu>(a);
}

void activate(const ActivateArgs& a) {
  if (a.dtype == DType::bf16)
    activate_dtype<DType::bf16>(a);
  else if (a.dtype == DType::f16)
    activate_dtype<DType::f16>(a);
  else
    activate_dtype<DType::f32>(a);
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
