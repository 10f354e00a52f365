// Vector forms of the row functions of routing, for a lane type V (vector_*.inl) and bits_of(V::M). Included
// inside a target region and an anonymous namespace. Lane by lane they do what kernels/ref/route.cpp does,
// operation by operation; rows are long enough for whole steps.
//
// Every loop goes over whole steps, and padding is part of the row: -inf in a row of logits, any
// value in scores beyond n, which no caller looks at.
//
// Needs ref/route.h (rests of rows), V, bits_of() (a mask as bits) and sqrt_lanes(); gives the
// seven functions of a RouteKernel. One row of logits is one token.

#include "kernels/body/best.inl"
#include "kernels/body/lanes.inl"

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::size_t kStep = usize(kLanes);
constexpr std::size_t kParts = kRouteLanes / kStep;
// Floats, so that one comparison of floats makes the mask of a short last step.
alignas(64) constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

template <DType D>
// n: experts. row: route_row_floats(n) floats, all of which are written.
void load_as_row(const std::byte* src, std::size_t n, float* row) {
  const F largest = V::set(std::numeric_limits<float>::max()), lowest = V::set(-kInf);
  std::size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    F x = load_as<D>(src + i * dtype_bytes(D));
    // NaN loses against everything instead of poisoning a softmax: one bad logit then costs its
    // expert and not the token (routing.md 1).
    x = V::select(V::is_nan(x), lowest, x);
    V::store(row + i, V::select(V::less(largest, x), largest, x));
  }
  if (i < n) ref::load_logits(D, src + i * dtype_bytes(D), n - i, row + i);
  for (i = n; i < route_row_floats(n); ++i) row[i] = -kInf;
}

void load(DType dtype, const std::byte* src, std::size_t n, float* row) {
  if (dtype == DType::bf16)
    load_as_row<DType::bf16>(src, n, row);
  else if (dtype == DType::f16)
    load_as_row<DType::f16>(src, n, row);
  else
    load_as_row<DType::f32>(src, n, row);
}

// The maximum is subtracted first, so exp never overflows. The divisor is the same for all lanes; a
// division has one rounding, a product with a reciprocal would have two.
void softmax(const float* row, std::size_t n, float* scores) {
  const std::size_t whole = round_up(n, kRouteLanes);
  F largest = V::load(row);
  for (std::size_t i = kStep; i < whole; i += kStep) largest = V::max_or_b(largest, V::load(row + i));
  const float m = V::max_of(largest);
  if (m == -kInf) {
    for (std::size_t i = 0; i < whole; i += kStep) V::store(scores + i, V::set(0.0f));
    return;
  }
  // 16 partial sums on every instruction set: two vectors of 8, one of 16. Folding is done by
  // scalar code in one fixed order, the same as in ref/route.cpp.
  F sums[kParts];
  for (F& s : sums) s = V::set(0.0f);
  for (std::size_t i = 0; i < whole; i += kRouteLanes)
    for (std::size_t p = 0; p < kParts; ++p) {
      const F e = exp_lanes(V::sub(V::load(row + i + p * kStep), V::set(m)));
      V::store(scores + i + p * kStep, e);
      sums[p] = V::add(sums[p], e);
    }
  // On the stack: 64 bytes, once per token.
  float part[kRouteLanes];
  for (std::size_t p = 0; p < kParts; ++p) V::store(part + p * kStep, sums[p]);
  // 8, 4, 2, 1: part[0] ends as the sum of all.
  for (std::size_t half = kRouteLanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
  const F sum = V::set(part[0]);
  for (std::size_t i = 0; i < whole; i += kStep) V::store(scores + i, V::div(V::load(scores + i), sum));
}

void sigmoid(const float* row, std::size_t n, float* scores) {
  const F one = V::set(1.0f);
  for (std::size_t i = 0; i < n; i += kStep) {
    const F e = exp_lanes(V::sub(V::set(-0.0f), V::load(row + i)));
    V::store(scores + i, V::div(one, V::add(one, e)));
  }
}

// base/exp.h, for u >= 1
// The shift is one of unsigned bits, but `above` is not negative for u >= 1, so it is the same as
// the arithmetic one of the definition.
inline F log_lanes(F u) {
  namespace c = exp_constants;
  constexpr std::int32_t kHalfSqrt2 = 0x3f3504f3;
  const F one = V::set(1.0f);
  const I above = V::add_i(V::bits(u), V::set_i(-kHalfSqrt2));
  const F k = V::to_float(V::shr<23>(above));
  const F m = V::from_bits(V::add_i(V::and_i(above, V::set_i(0x7fffff)), V::set_i(kHalfSqrt2)));
  const F f = V::sub(m, one);
  const F s = V::div(f, V::add(m, one));
  const F z = V::mul(s, s);
  F q = V::set(2.0f / 11.0f);
  q = V::add(V::mul(q, z), V::set(2.0f / 9.0f));
  q = V::add(V::mul(q, z), V::set(2.0f / 7.0f));
  q = V::add(V::mul(q, z), V::set(2.0f / 5.0f));
  q = V::add(V::mul(q, z), V::set(2.0f / 3.0f));
  const F rest = V::sub(V::mul(s, V::sub(f, V::mul(z, q))), V::mul(k, V::set(c::kLn2Lo)));
  return V::add(V::mul(k, V::set(c::kLn2Hi)), V::sub(f, rest));
}

// min_or_b(x, 20) keeps exp finite in lanes that are replaced afterwards. The quotient restores
// what 1 + e rounds away of a small e.
void sqrtsoftplus(const float* row, std::size_t n, float* scores) {
  const F one = V::set(1.0f), most = V::set(20.0f);
  for (std::size_t i = 0; i < n; i += kStep) {
    const F x = V::load(row + i);
    const F e = exp_lanes(V::min_or_b(x, most)), u = V::add(one, e);
    const F log1p = V::add(log_lanes(u), V::div(V::sub(e, V::sub(u, one)), u));
    V::store(scores + i, sqrt_lanes(V::select(V::less(most, x), x, log1p)));
  }
}

void add(const float* scores, const float* bias, std::size_t n, float* keys) {
  for (std::size_t i = 0; i < n; i += kStep) V::store(keys + i, V::add(V::load(scores + i), V::load(bias + i)));
}

// The largest and the second largest of 2 * kLanes candidates, where first >= second in each lane.
// If two lanes have the top key, both of the two largest are equal to it. Else the second largest
// is the best of the other lanes, or what stood second in the lane of the top.
// top + second is one addition, in which the order of the two does not matter: the same bits as the
// scalar code's.
inline float sum_of_two(F first, F second) {
  const float top = V::max_of(first);
  const V::M is_top = V::greater_equal(first, V::set(top));
  const unsigned tops = bits_of(is_top);
  if ((tops & (tops - 1)) != 0) return top + top;
  const float others = V::max_of(V::select(is_top, V::set(-kInf), first)), below = V::max_of(second);
  return top + (others > below ? others : below);
}

// One pass with two running vectors: each lane keeps its own two best. Groups may begin anywhere in
// the row, hence unaligned loads and the mask for the end.
void group_scores(const GroupArgs& a) {
  const F lanes = V::load(kLaneNumbers), lowest = V::set(-kInf);
  for (std::size_t g = 0; g < a.groups; ++g) {
    const float* keys = a.keys + g * a.per;
    // -inf is below every key, so groups of any size work, also those shorter than a vector.
    F first = lowest, second = lowest;
    for (std::size_t i = 0; i < a.per; i += kStep) {
      F x = V::load(keys + i);
      if (a.per - i < kStep) x = V::select(V::less(lanes, V::set(static_cast<float>(a.per - i))), x, lowest);
      second = V::max_or_b(V::min_or_b(x, first), second);
      first = V::max_or_b(x, first);
    }
    a.out[g] = a.score == GroupScore::largest ? V::max_of(first) : sum_of_two(first, second);
  }
}

// Whole steps are held against the worst of the best; few keys get further.
// The threshold is read once per step and may be too low for later lanes of it; offer() compares
// again, so that costs time only. Until k candidates are there, every key enters.
void select(const float* keys, std::int32_t first, std::size_t count, Best& best) {
  std::size_t i = 0;
  for (; i < count && best.n < best.k; ++i) offer(best, keys[i], first + static_cast<std::int32_t>(i));
  for (; i < count; i += kStep) {
    unsigned better = bits_of(V::less(V::set(best.keys[best.k - 1]), V::load(keys + i)));
    // Lanes beyond `count` hold other groups or padding.
    if (count - i < kStep) better &= (1u << (count - i)) - 1;
    for (; better != 0; better &= better - 1) {
      const auto lane = usize(std::countr_zero(better));
      offer(best, keys[i + lane], first + static_cast<std::int32_t>(i + lane));
    }
  }
}
