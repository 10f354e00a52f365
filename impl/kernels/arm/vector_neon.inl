// 4 float lanes for body/*.inl, of what its elementwise part uses. Included inside a namespace.
// Only what elementwise.inl asks for: gemm and the quantizer of Arm are written in intrinsics.
struct V {
  static constexpr std::int64_t kLanes = 4;
  using F = float32x4_t;
  using I = int32x4_t;
  using M = uint32x4_t;

  static F load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static F set(float x) { return vdupq_n_f32(x); }
  static I set_i(std::int32_t x) { return vdupq_n_s32(x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  // vfmaq takes the sum first.
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  // Not vminq: FMIN gives NaN when either operand is one, minps the second operand.
  static F min_or_b(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }  // b when unordered
  static F max_or_b(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static M less(F a, F b) { return vcltq_f32(a, b); }
  static M greater_equal(F a, F b) { return vcgeq_f32(a, b); }
  static M is_nan(F a) { return vmvnq_u32(vceqq_f32(a, a)); }
  static F select(M m, F yes, F no) { return vbslq_f32(m, yes, no); }
  static I select_i(M m, I yes, I no) { return vbslq_s32(m, yes, no); }

  static I bits(F x) { return vreinterpretq_s32_f32(x); }
  static F from_bits(I x) { return vreinterpretq_f32_s32(x); }
  static I add_i(I a, I b) { return vaddq_s32(a, b); }
  static I and_i(I a, I b) { return vandq_s32(a, b); }
  static I and_or(I a, I mask, I b) { return vorrq_s32(vandq_s32(a, mask), b); }
  static I or_i(I a, I b) { return vorrq_s32(a, b); }
  template <int S>
  static I shl(I a) {
    return vshlq_n_s32(a, S);
  }
  template <int S>
  // Signed vectors shift arithmetically, so it goes by way of unsigned ones.
  static I shr(I a) {
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), S));
  }
  // FCVTZS saturates where x86 gives 0x80000000; callers stay within int32.
  static I truncate(F x) { return vcvtq_s32_f32(x); }
  static F to_float(I x) { return vcvtq_f32_s32(x); }

  static I load_u16(const std::byte* p) {
    return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p))));
  }
  static void store_u16(std::byte* p, I x) {  // values in [0, 65535]
    vst1_u16(reinterpret_cast<std::uint16_t*>(p), vmovn_u32(vreinterpretq_u32_s32(x)));
  }
  static F load_f16(const std::byte* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p))));
  }
  static void store_f16(std::byte* p, F x) {
    vst1_u16(reinterpret_cast<std::uint16_t*>(p), vreinterpret_u16_f16(vcvt_f16_f32(x)));
  }
  static F round_f16(F x) { return vcvt_f32_f16(vcvt_f16_f32(x)); }
};
