// 16 float lanes for body/*.inl. Included inside a target region and a namespace.
// The same names as in vector_avx2.inl, with the same bits per lane. Masks are registers of their
// own here.
struct V {
  static constexpr std::int64_t kLanes = 16;
  using F = __m512;
  using I = __m512i;
  using M = __mmask16;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static I set_i(std::int32_t x) { return _mm512_set1_epi32(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F min_or_b(F a, F b) { return _mm512_min_ps(a, b); }  // b when unordered
  static F max_or_b(F a, F b) { return _mm512_max_ps(a, b); }
  // A mask is 16 bits, one per lane: bits_of() in the routing file needs no movemask.
  static M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M greater_equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  static M is_nan(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
  static F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
  static I select_i(M m, I yes, I no) { return _mm512_mask_blend_epi32(m, no, yes); }

  static I bits(F x) { return _mm512_castps_si512(x); }
  static F from_bits(I x) { return _mm512_castsi512_ps(x); }
  static I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub_i(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I and_i(I a, I b) { return _mm512_and_si512(a, b); }
  // One instruction: 0xea is the truth table of (a & mask) | b.
  static I and_or(I a, I mask, I b) { return _mm512_ternarylogic_epi32(a, mask, b, 0xea); }
  static I or_i(I a, I b) { return _mm512_or_si512(a, b); }
  template <int S>
  static I shl(I a) {
    return _mm512_slli_epi32(a, S);
  }
  template <int S>
  static I shr(I a) {
    return _mm512_srli_epi32(a, S);
  }
  static I min_i(I a, I b) { return _mm512_min_epi32(a, b); }
  static I max_i(I a, I b) { return _mm512_max_epi32(a, b); }
  static I truncate(F x) { return _mm512_cvttps_epi32(x); }
  // The rounding is in the instruction, whatever MXCSR says.
  static I nearest_even(F x) { return _mm512_cvt_roundps_epi32(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }

  // Reductions have no rounding: integers, or minimum and maximum.
  static std::int32_t sum(I x) { return _mm512_reduce_add_epi32(x); }
  static std::int32_t max_of(I x) { return _mm512_reduce_max_epi32(x); }
  static float min_of(F x) { return _mm512_reduce_min_ps(x); }
  static float max_of(F x) { return _mm512_reduce_max_ps(x); }

  // vpmovdb truncates; values are in range.
  static void store_i8(std::int8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
  }
  static I load_u16(const std::byte* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static I load_u8(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // Scales of a byte: powers of two (2^-127, code 0, is a subnormal), and e4m3, whose bits are those of a fp16 2^8
  // times as small.
  // As in vector_avx2.inl: byte 0 is 2^-127, whose bits are 0x00400000, and every other byte is an
  // exponent.
  static F load_e8m0(const std::byte* p) { return from_bits(max_i(shl<23>(load_u8(p)), set_i(0x00400000))); }
  static F load_e4m3(const std::byte* p) {
    const __m256i h = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return mul(_mm512_cvtph_ps(_mm256_slli_epi16(h, 7)), set(256.0f));
  }
  static void store_u16(std::byte* p, I x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x));
  }
  static I load_i(const std::byte* p) { return _mm512_loadu_si512(p); }
  static F widen_f16(I x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
  static F load_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_f16(std::byte* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static F round_f16(F x) { return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }

  // Of bytes and words; `unpack`, `shuffle` and `repeated` see 16 bytes at a time.
  // Tables of 16 bytes, four times, because vpshufb looks within 16 bytes.
  static I repeated(const std::uint8_t* bytes) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  static I set_u8(std::uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static I shuffle_u8(I table, I index) { return _mm512_shuffle_epi8(table, index); }  // 0 where the index has bit 7
  // Of 16 numbers that which the low four bits of a lane choose.
  // vpermps takes four bits of an index, so a table of 16 floats is one register.
  static F choose(const float* numbers, I index) { return _mm512_permutexvar_ps(index, load(numbers)); }
  static I add_u8(I a, I b) { return _mm512_add_epi8(a, b); }
  static I xor_i(I a, I b) { return _mm512_xor_si512(a, b); }
  // 0x6a is (a & mask) ^ b.
  static I and_xor(I a, I mask, I b) { return _mm512_ternarylogic_epi32(a, mask, b, 0x6a); }
  template <int S>
  static I shl_u16(I a) {
    return _mm512_slli_epi16(a, S);
  }
  template <int S>
  static I shr_u16(I a) {
    return _mm512_srli_epi16(a, S);
  }
  static I unpack_low_u8(I a, I b) { return _mm512_unpacklo_epi8(a, b); }
  static I unpack_high_u8(I a, I b) { return _mm512_unpackhi_epi8(a, b); }
};
