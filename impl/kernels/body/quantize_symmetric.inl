// The vector form of quantizing one row to symmetric integers, per row or per block of columns, for a lane type V
// (vector_*.inl). Included inside a target region and an anonymous namespace. Lane by lane it does what
// kernels/ref/symmetric.cpp does.
//
// Called once per row of activations, and a row has thousands of columns: everything per block (a
// scale, a correction) is done outside of the loops over columns.
//
// Needs ref/symmetric.h (scales and single values) and V; gives symmetric::quantize_row (W8A8) and
// symmetric::quantize_blocks<planes> (blk8: 1, blk16: 2). In a namespace of its own, so that a file
// can have the tok8 quantizer, too.
//
// Digits, by an example: code 1000 is 255 * 4 - 20, so its high digit is 4 and its low one -20. A
// product with weight 3 is then 255 * (4*3) + (-20*3) = 3000: two products of bytes and one of
// their sums.

namespace symmetric {

using F = V::F;
using I = V::I;
constexpr std::int64_t kLanes = V::kLanes;

// The largest magnitude; not finite as soon as one value is not: magnitudes are ordered like their bits.
// A comparison of integers, because positive floats are ordered like their bits and NaN and Inf are
// above all numbers: one maximum finds both the scale and the poisoned rows. A float maximum would
// lose NaN.
inline float absmax(const float* x, std::int64_t count) {
  I largest = V::set_i(0);
  std::int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes)
    largest = V::max_i(largest, V::and_i(V::bits(V::load(x + k)), V::set_i(0x7fffffff)));
  std::int32_t bits = V::max_of(largest);
  // A row has any length, and reading beyond it could fault.
  for (; k < count; ++k) {
    const auto b = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x[k]) & 0x7fffffffu);
    bits = b > bits ? b : bits;
  }
  return std::bit_cast<float>(bits);
}

// Stores the codes of kLanes columns.
// Planes 2: the two digits go to two planes 64 bytes apart. 1/255 is rounded, but |q| is at most
// 32512: the product is off by less than 2^-16 and never comes near a half, since q / 255 is at
// least 1/510 away from one. low = q - 255 * high, as q + high - 256 * high.
template <int Planes>
[[gnu::always_inline]] inline void store_codes(std::int8_t* out, I q) {
  if constexpr (Planes == 1) {
    V::store_i8(out, q);
  } else {
    const I high = V::nearest_even(V::mul(V::to_float(q), V::set(1.0f / 255)));  // 255 is odd: there are no halves
    V::store_i8(out, high);
    V::store_i8(out + kUnitK, V::sub_i(V::add_i(q, high), V::template shl<8>(high)));
  }
}

// What codes are: their planes, the scale of some columns by their largest magnitude, the codes of kLanes values times
// the inverse, and the code of one value.
struct Int8 {
  static constexpr int kPlanes = 1;
  static ref::SymmetricScale scale(float largest, const QuantizeArgs&) { return ref::symmetric_scale(largest); }
  static I of(F x) { return V::nearest_even(x); }
  static std::int32_t one(float x, float inverse) { return ref::symmetric_code(x, inverse); }
};
struct Int16 : Int8 {
  static constexpr int kPlanes = 2;
  static ref::SymmetricScale scale(float largest, const QuantizeArgs&) { return ref::symmetric_scale16(largest); }
};

// Codes of columns [k0, k1); returns -bias times their sum, which may wrap.
// The sum is kept in int32 lanes and may wrap, like the sums of products that it corrects; what
// comes out is right modulo 2^32.
template <class Codes>
// out: where column 0 of the row lies; `stride` is from one unit's piece of the row to the next.
inline std::int32_t codes(const QuantizeArgs& a, std::int8_t* out, std::ptrdiff_t stride, std::int64_t k0,
                          std::int64_t k1, float inverse) {
  constexpr int Planes = Codes::kPlanes;
  // Multiplying would be wrong: Inf * 0 is NaN, and its conversion to an integer is not 0.
  if (inverse == 0.0f) {  // an empty or a poisoned row
    for (std::int64_t k = k0; k < k1; ++k)
      for (int p = 0; p < Planes; ++p) out[(k >> 6) * stride + (k & 63) + p * kUnitK] = 0;
    return 0;
  }
  // A multiplication by 127 / absmax, as the definition has it. A division would have other bits.
  const F scale = V::set(inverse);
  I sum = V::set_i(0);
  std::int64_t k = k0;
  for (; k + kLanes <= k1; k += kLanes) {
    const I q = Codes::of(V::mul(V::load(a.x + k), scale));
    store_codes<Planes>(out + (k >> 6) * stride + (k & 63), q);
    sum = V::add_i(sum, q);
  }
  // Unsigned from here on: overflow of signed integers is undefined in scalar code.
  auto total = static_cast<std::uint32_t>(V::sum(sum));
  for (; k < k1; ++k) {
    const std::int32_t q = Codes::one(a.x[k], inverse);
    std::int8_t* at = out + (k >> 6) * stride + (k & 63);
    if constexpr (Planes == 1) {
      *at = static_cast<std::int8_t>(q);
    } else {
      const ref::Digits digits = ref::digits_of(q);
      at[0] = digits.high, at[kUnitK] = digits.low;
    }
    total += static_cast<std::uint32_t>(q);
  }
  return static_cast<std::int32_t>(0u - total * static_cast<std::uint32_t>(a.shape.bias));
}

// Only the last unit; the loops write all others whole.
inline void clear_tail(const TileShape& s, std::int8_t* out, std::ptrdiff_t stride) {
  if (s.k % kUnitK != 0) std::memset(out + (s.units() - 1) * stride, 0, s.piece());  // beyond K
}

// W8A8. z is written as 0 so that tiles of both tok8 families have defined bytes.
inline void quantize_row(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  const ref::SymmetricScale scale = ref::symmetric_scale(absmax(a.x, s.k));
  const QuantRow out = quant_row(s, a.out);
  clear_tail(s, out.codes, out.code_stride);
  for (std::int64_t g = 0; g < s.group_count(); ++g)
    out.corr[g * out.corr_stride] =
        codes<Int8>(a, out.codes, out.code_stride, g * s.group(), (g + 1) * s.group(), scale.inverse);
  *out.recip = scale.scale;
  *out.z = 0;
}

// One pass per block for the maximum and one for the codes: a block is 512 bytes at most and stays
// in L1.
template <class Codes>
void quantize_as(const QuantizeArgs& a) {
  const TileShape& s = a.shape;
  const BlockRow out = block_row(s, a.out);
  clear_tail(s, out.codes, out.code_stride);
  const std::int64_t columns = s.scaled_columns(), summed = s.summed_columns(), count = s.scale_count();
  std::int32_t* corr = out.corr;
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t k0 = b * columns, end = k0 + columns < s.k ? k0 + columns : s.k, k1 = k0 < end ? end : k0;
    const ref::SymmetricScale scale = Codes::scale(absmax(a.x + k0, k1 - k0), a);
    // The corrections of a block that K cuts short: a sum without columns has 0.
    for (std::int64_t k = k0; k < k0 + columns; k += summed, corr += out.stride)  // behind the last column: 0
      *corr = codes<Codes>(a, out.codes, out.code_stride, k, k + summed < k1 ? k + summed : k1, scale.inverse);
    out.scale[b * out.stride] = scale.scale;
  }
}
template <int Planes>
void quantize_blocks(const QuantizeArgs& a) {
  quantize_as<std::conditional_t<Planes == 2, Int16, Int8>>(a);
}

}  // namespace symmetric
