// The vector form of quantizing one row to tok8, for a lane type V (vector_*.inl). Included inside a target
// region and an anonymous namespace. Lane by lane it does what kernels/ref/w4a8.cpp does.

using F = V::F;
using I = V::I;
constexpr std::int64_t kLanes = V::kLanes;

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
void quantize_codes(const QuantizeArgs& a, const QuantRow& out, const ref::RowScale& r) {
  const TileShape& s = a.shape;
  const std::int64_t even_end = R == HalfRule::even ? s.k / 8 * 8 : s.k;
  const F scale = V::set(r.scale);
  const I zp = V::set_i(r.zp);
  for (std::int64_t g = 0; g < s.group_count(); ++g) {
    const std::int64_t end = (g + 1) * s.group(), vector_end = end < even_end ? end : even_end;
    I sum = V::set_i(0);
    std::int64_t k = g * s.group();
    for (; k + kLanes <= vector_end; k += kLanes) {
      const I q = code_lanes<R>(V::load(a.x + k), scale, zp);
      V::store_i8(out.codes + (k >> 6) * out.code_stride + (k & 63), q);
      sum = V::add_i(sum, q);
    }
    std::int32_t total = V::sum(sum);
    for (; k < end; ++k) {
      const std::int8_t q = ref::quant_code(a.x[k], r, R == HalfRule::even && k < even_end);
      out.codes[(k >> 6) * out.code_stride + (k & 63)] = q;
      total += q;
    }
    out.corr[g * out.corr_stride] = -8 * total;
  }
}

void quantize(const QuantizeArgs& a) {
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
  const QuantRow out = quant_row(s, a.out);
  *out.recip = r.recip;
  *out.z = -r.zp;
  if (poisoned) {
    for (std::int64_t u = 0; u < s.units(); ++u) std::memset(out.codes + u * out.code_stride, 0, kUnitK);
    for (std::int64_t g = 0; g < s.group_count(); ++g) out.corr[g * out.corr_stride] = 0;
    return;
  }
  if (s.k % kUnitK != 0) std::memset(out.codes + (s.units() - 1) * out.code_stride, 0, kUnitK);  // beyond K
  if (a.rule == HalfRule::even)
    quantize_codes<HalfRule::even>(a, out, r);
  else
    quantize_codes<HalfRule::away>(a, out, r);
}
