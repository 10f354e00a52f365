// Sixteen bytes as one value, in the vector extension of GCC and Clang: the baseline of every architecture has such
// registers, and the compilers themselves split the few operations that it lacks.
//
// Conversion is baseline code, without a version per instruction set: weights are packed once, and
// tokens are multiplied for as long as the model runs. 16 bytes are a register of SSE2 and of NEON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moe {

// No intrinsics: one source serves both architectures.
using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Words4 = std::uint32_t __attribute__((vector_size(16)));
using Ints4 = std::int32_t __attribute__((vector_size(16)));
using Floats4 = float __attribute__((vector_size(16)));

// memcpy is the portable unaligned load: compilers make one instruction of it, and rows of callers
// have any alignment.
template <class V>
inline V load16(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
inline void store16(void* p, V v) {
  std::memcpy(p, &v, sizeof v);
}

inline Words4 all(std::uint32_t x) { return Words4{x, x, x, x}; }
// Lanes are joined one by one, since the baseline has no common test of a whole register.
inline bool any(Words4 v) { return (v[0] | v[1] | v[2] | v[3]) != 0; }

// Word c of row r becomes word r of row c.
// A panel has rows in lanes, a checkpoint has columns in a row, so every p16 and Marlin writer
// turns blocks of 4 x 4 words. Two rounds of four shuffles do it: words first, then pairs of words.
inline void transpose(Words4 (&v)[4]) {
  const Words4 a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5),
               c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7), d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// Thirty-two values in [-8, 8) as sixteen bytes of two nibbles in two's complement: the first is the low one.
// The shift by 4 moves the low nibble of each odd byte into the high nibble of the even byte before
// it. The shuffle then keeps the even bytes of both halves.
inline Bytes16 pack_nibbles16(const std::int8_t* codes) {
  const auto pairs = [](Words4 x) {  // of the bytes of a half word, in its low byte
    return reinterpret_cast<Bytes16>((x & all(0x000f000fu)) | ((x >> 4) & all(0x00f000f0u)));
  };
  return __builtin_shufflevector(pairs(load16<Words4>(codes)), pairs(load16<Words4>(codes + 16)), 0, 2, 4, 6, 8, 10, 12,
                                 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

// Sixteen bytes of two nibbles, each value + 8, as signed bytes: the low nibble of a byte comes first.
// The shuffles interleave the vector of low nibbles with that of high ones. Codes in two's
// complement (TensorRT-LLM) come through the same function after an xor of 0x88 has made them value
// + 8.
inline void unpack_nibbles16(Bytes16 x, std::int8_t* out) {
  const Bytes16 low = x & 0x0f, high = x >> 4;
  const Bytes16 first = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const Bytes16 second =
      __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  store16(out, first - 8);
  store16(out + 16, second - 8);
}

}  // namespace moe
