// 8 float lanes for body/*.inl. Included inside a target region and a namespace.
// Each function is one instruction or the shortest sequence with its bits. The bodies are written
// for these names, so a member that is missing here only fails where a body needs it. The static
// functions need no always_inline: they are members of a type in an anonymous namespace of each
// file.
//
// V is the interface between an instruction set and the bodies. Its members, and which bodies ask
// for them:
//
// F, I, M      vectors of float32 and int32, and what a comparison gives; I also holds bytes and words
// kLanes       float32 values of an F
// load, store, set, set_i, add, sub, mul, div, fma, min_or_b, max_or_b, less, select, bits, ...
//              everywhere: one float32 operation each, with one rounding
// min_i, max_i, min_of, max_of, sum, truncate, nearest_even, store_i8
//              quantizers; max_of also in route.inl
// load_u8, load_u16, load_f16, load_e8m0, load_e4m3
//              scales and zero points, widened
// shuffle_u8, unpack_..., shl_u16, add_u8, repeated, choose
//              codes of 4- and 8-bit floats
// store_u16, store_f16, round_f16
//              rounding to the input dtype
//
// NEON has a part of it, which suffices for elementwise.inl.
struct V {
  static constexpr std::int64_t kLanes = 8;
  using F = __m256;
  using I = __m256i;
  using M = __m256;

  // Unaligned everywhere: rows of callers have any alignment.
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static I set_i(std::int32_t x) { return _mm256_set1_epi32(x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  // a * b + c with one rounding. Only where the definition says fma: `add(mul())` has two.
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  // minps and maxps give the second operand when one is NaN: the order of operands is part of the
  // meaning.
  static F min_or_b(F a, F b) { return _mm256_min_ps(a, b); }  // b when unordered
  static F max_or_b(F a, F b) { return _mm256_max_ps(a, b); }
  // OQ: false for NaN, and quiet.
  static M less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static M greater_equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
  static M is_nan(F a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
  // vblendvps looks at the sign bit of each lane, which all comparisons set with the others.
  static F select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }
  static I select_i(M m, I yes, I no) { return bits(_mm256_blendv_ps(from_bits(no), from_bits(yes), m)); }

  static I bits(F x) { return _mm256_castps_si256(x); }
  static F from_bits(I x) { return _mm256_castsi256_ps(x); }
  // Wraps, as unsigned arithmetic of the scalar code does.
  static I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
  static I sub_i(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I and_i(I a, I b) { return _mm256_and_si256(a, b); }
  static I and_or(I a, I mask, I b) { return _mm256_or_si256(_mm256_and_si256(a, mask), b); }
  static I or_i(I a, I b) { return _mm256_or_si256(a, b); }
  template <int S>
  static I shl(I a) {
    return _mm256_slli_epi32(a, S);
  }
  // Logical: zeros come in from above.
  template <int S>
  static I shr(I a) {
    return _mm256_srli_epi32(a, S);
  }
  static I min_i(I a, I b) { return _mm256_min_epi32(a, b); }
  static I max_i(I a, I b) { return _mm256_max_epi32(a, b); }
  // Callers make sure that values fit into int32.
  static I truncate(F x) { return _mm256_cvttps_epi32(x); }
  // Rounded by an explicit mode and then converted: the mode of the processor does not matter.
  static I nearest_even(F x) {
    return _mm256_cvttps_epi32(_mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }

  // Across lanes, once per row or block; integers, so the order does not matter.
  static std::int32_t sum(I x) {
    const __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i t = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
  }
  static std::int32_t max_of(I x) {
    const __m128i s = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i t = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
  }
  // Inputs are no NaN here, and a minimum has no rounding: any order gives the same bits.
  static float min_of(F x) {
    const __m128 s = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 t = _mm_min_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_min_ps(t, _mm_shuffle_ps(t, t, 1)));
  }
  static float max_of(F x) {
    const __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 t = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ps(t, _mm_shuffle_ps(t, t, 1)));
  }

  // Saturating packs: values in range pass as they are.
  static void store_i8(std::int8_t* p, I x) {  // values already in [-128, 127]
    const __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(h, h));
  }
  // bf16 and fp16 as they lie in memory, 16 bits in each lane.
  static I load_u16(const std::byte* p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I load_u8(const std::byte* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  // Scales of a byte: powers of two (2^-127, code 0, is a subnormal), and e4m3, whose bits are those of a fp16 2^8
  // times as small.
  // A shift by 7 puts the 4 bits of exponent into the low four of fp16's five, and a scale has no
  // sign that would reach the fifth; the biases differ by 8, hence 256. The maximum replaces code 0
  // of e8m0.
  static F load_e8m0(const std::byte* p) { return from_bits(max_i(shl<23>(load_u8(p)), set_i(0x00400000))); }
  static F load_e4m3(const std::byte* p) {
    const __m128i h = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return mul(_mm256_cvtph_ps(_mm_slli_epi16(h, 7)), set(256.0f));
  }
  static void store_u16(std::byte* p, I x) {  // values in [0, 65535]
    const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), h);
  }
  static I load_i(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  // Both 128-bit halves are packed by one instruction of 128 bits, so their order stays.
  static F widen_f16(I x) {  // values in [0, 65535]
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
  }
  // Exact for every fp16 value, subnormals included; the processor's flush flags do not concern it.
  static F load_f16(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store_f16(std::byte* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // There and back: nearest even, and what is too large becomes Inf, as in float_formats.h.
  static F round_f16(F x) { return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }

  // Of bytes and words; `unpack`, `shuffle` and `repeated` see 16 bytes at a time.
  static I repeated(const std::uint8_t* bytes) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  static I set_u8(std::uint8_t x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static I shuffle_u8(I table, I index) { return _mm256_shuffle_epi8(table, index); }  // 0 where the index has bit 7
  // Of 16 numbers that which the low four bits of a lane choose.
  // AVX2 permutes eight floats: both halves of the table are asked, and bit 3 of the index selects.
  static F choose(const float* numbers, I index) {
    const F low = _mm256_permutevar8x32_ps(load(numbers), index),
            high = _mm256_permutevar8x32_ps(load(numbers + 8), index);
    return _mm256_blendv_ps(low, high, from_bits(shl<28>(index)));
  }
  static I add_u8(I a, I b) { return _mm256_add_epi8(a, b); }
  static I xor_i(I a, I b) { return _mm256_xor_si256(a, b); }
  static I and_xor(I a, I mask, I b) { return _mm256_xor_si256(_mm256_and_si256(a, mask), b); }
  template <int S>
  static I shl_u16(I a) {
    return _mm256_slli_epi16(a, S);
  }
  template <int S>
  static I shr_u16(I a) {
    return _mm256_srli_epi16(a, S);
  }
  static I unpack_low_u8(I a, I b) { return _mm256_unpacklo_epi8(a, b); }
  static I unpack_high_u8(I a, I b) { return _mm256_unpackhi_epi8(a, b); }
};
