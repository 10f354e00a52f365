// The vector form of quantizing one row to tok8, for a lane type V (vector_*.inl). Included inside a target
// region and an anonymous namespace. Lane by lane it does what kernels/ref/w4a8.cpp does.
//
// Two passes over the row: the range first, since the scale follows from it, then the codes. The
// row is in L1 or L2 by then.
//
// Needs ref/w4a8.h (the row's scale and single values) and V; gives quantize().

using F = V::F;
using I = V::I;
constexpr std::int64_t kLanes = V::kLanes;

// Codes of kLanes values: y = x * scale, to an integer by the rule, + zp, into [-128, 127].
// |x * scale| is at most 255 and a little, so the conversion to an integer cannot overflow and the
// rest is exact. Halves away from zero are no rounding mode of any x86 instruction: truncating,
// looking at the rest and adding one with the sign of y is. The clamp comes after the zero point is
// added, as in KleidiAI.
template <HalfRule R>
// zp: in all lanes.
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
// out: the row's place in the tile, r: its scale.
void quantize_codes(const QuantizeArgs& a, const QuantRow& out, const ref::RowScale& r) {
  const TileShape& s = a.shape;
  // KleidiAI's bf16 packer takes 8 columns at a time and rounds the rest with another function, so
  // the last K % 8 columns have the other rule.
  const std::int64_t even_end = R == HalfRule::even ? s.k / 8 * 8 : s.k;
  const F scale = V::set(r.scale);
  const I zp = V::set_i(r.zp);
  // Group by group, because each has a correction. A group may end within a vector: the scalar code
  // does what is left, so that no vector crosses into the next group's sum.
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
    // int4 codes are value + 8. |total| is at most 128 * 2^20, so -8 * total fits.
    out.corr[g * out.corr_stride] = -8 * total;
  }
}

// The names quantize and gemm are those that a row's file passes to kernel_row().
void quantize(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  // 0 belongs to the range: a zero activation must have a code of its own, exactly.
  F low = V::set(0.0f), high = low;
  I largest = V::set_i(0);
  std::int64_t k = 0;
  for (; k + kLanes <= s.k; k += kLanes) {
    const F x = V::load(a.x + k);
    // x stands first, so a NaN never becomes the minimum; the maximum of the bits finds it.
    low = V::min_or_b(x, low);
    high = V::max_or_b(x, high);
    largest = V::max_i(largest, V::and_i(V::bits(x), V::set_i(0x7fffffff)));
  }
  float rmin = V::min_of(low), rmax = V::max_of(high);
  bool poisoned = V::max_of(largest) >= 0x7f800000;
  // The same comparisons as above, for what is no whole vector.
  for (; k < s.k; ++k) {
    rmin = a.x[k] < rmin ? a.x[k] : rmin;
    rmax = a.x[k] > rmax ? a.x[k] : rmax;
    poisoned |= (std::bit_cast<std::uint32_t>(a.x[k]) & 0x7fffffffu) >= 0x7f800000u;
  }
  // The scale itself is scalar code: once per row, and its order of operations stands in one place
  // only.
  const ref::RowScale r = ref::row_scale(rmin, rmax, poisoned);
  const QuantRow out = quant_row(s, a.out);
  *out.recip = r.recip;
  *out.z = -r.zp;
  // Codes are 0 and recip is NaN: every result of the row becomes NaN and no other row's does.
  if (poisoned) {
    for (std::int64_t u = 0; u < s.units(); ++u) std::memset(out.codes + u * out.code_stride, 0, kUnitK);
    for (std::int64_t g = 0; g < s.group_count(); ++g) out.corr[g * out.corr_stride] = 0;
    return;
  }
  // Products with columns beyond K must be 0, whatever the weights' padding is.
  if (s.k % kUnitK != 0) std::memset(out.codes + (s.units() - 1) * out.code_stride, 0, kUnitK);  // beyond K
  if (a.rule == HalfRule::even)
    quantize_codes<HalfRule::even>(a, out, r);
  else
    quantize_codes<HalfRule::away>(a, out, r);
}
