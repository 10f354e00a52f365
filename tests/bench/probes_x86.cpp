// The x86 loops of the probes: reading with prefetch; and one multiplying instruction on registers, on as many
// independent sums as hide its latency. See probes.h.
#if defined(__x86_64__)
#include "bench/probes_x86.h"

#include <immintrin.h>

#include <cstring>

#include "kernels/target.h"
#include "support/rooms.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_*
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace moe::bench {
namespace {

// Keeps what a loop has summed up, and the loop with it.
template <class T>
inline void keep(const T& sums) {
  asm volatile("" : : "r"(&sums) : "memory");
}

}  // namespace

constexpr std::size_t kReadAhead = 8192;

MOE_TARGET_BEGIN("avx2,fma")
void read_avx2(const std::byte* p, std::size_t n) {
  __m256i a = _mm256_setzero_si256(), b = a;
  for (std::size_t i = 0; i < n; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i + kReadAhead), _MM_HINT_T0);
    a = _mm256_xor_si256(a, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i)));
    b = _mm256_xor_si256(b, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 32)));
  }
  const __m256i sum = _mm256_xor_si256(a, b);
  keep(sum);
}
MOE_TARGET_END

MOE_TARGET_BEGIN("avx512f,avx512vnni")
void read_avx512(const std::byte* p, std::size_t n) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (std::size_t i = 0; i < n; i += 256) {
    for (std::size_t k = 0; k < 256; k += 64)
      _mm_prefetch(reinterpret_cast<const char*>(p + i + k + kReadAhead), _MM_HINT_T0);
    a = _mm512_xor_si512(a, _mm512_load_si512(p + i));
    b = _mm512_xor_si512(b, _mm512_load_si512(p + i + 64));
    c = _mm512_xor_si512(c, _mm512_load_si512(p + i + 128));
    d = _mm512_xor_si512(d, _mm512_load_si512(p + i + 192));
  }
  const __m512i sum = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
  keep(sum);
}
MOE_TARGET_END

// One instruction on registers 2-13 in turn, with registers 0 and 1 of equal words. In assembler because a compiler
// sees that all sums are equal and keeps one, or keeps them in memory.
#define MOE_REGISTER_LOOP(name, reg, word, instructions)                                                           \
  void name(std::int64_t rounds) {                                                                                 \
    const std::uint32_t operand = word;                                                                            \
    asm volatile(                                                                                                  \
        ".irp s, 2,3,4,5,6,7,8,9,10,11,12,13\n\tvpxor %%xmm\\s, %%xmm\\s, %%xmm\\s\n\t.endr\n\t"                   \
        "vpbroadcastd %1, %%" reg "0\n\tvpbroadcastd %1, %%" reg                                                   \
        "1\n"                                                                                                      \
        "1:\n\t.irp s, 2,3,4,5,6,7,8,9,10,11,12,13\n\t" instructions "\n\t.endr\n\tdec %0\n\tjnz 1b\n\tvzeroupper" \
        : "+r"(rounds)                                                                                             \
        : "m"(operand)                                                                                             \
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",  \
          "xmm12", "xmm13", "xmm14");                                                                              \
  }

constexpr std::uint32_t kBytes1 = 0x01010101u, kFloat1 = 0x3f800000u, kBf16s1 = 0x3f803f80u;
// No sums of its own: the 16-bit add that every use of vpmaddubsw needs is part of the loop.
MOE_REGISTER_LOOP(loop_maddubs, "ymm", kBytes1,
                  "vpmaddubsw %%ymm1, %%ymm0, %%ymm14\n\tvpaddw %%ymm14, %%ymm\\s, %%ymm\\s")
MOE_REGISTER_LOOP(loop_fma256, "ymm", kFloat1, "vfmadd231ps %%ymm1, %%ymm0, %%ymm\\s")
MOE_REGISTER_LOOP(loop_vnni256, "ymm", kBytes1, "%{vex%} vpdpbusd %%ymm1, %%ymm0, %%ymm\\s")
MOE_REGISTER_LOOP(loop_vnni512, "zmm", kBytes1, "vpdpbusd %%zmm1, %%zmm0, %%zmm\\s")
MOE_REGISTER_LOOP(loop_fma512, "zmm", kFloat1, "vfmadd231ps %%zmm1, %%zmm0, %%zmm\\s")
MOE_REGISTER_LOOP(loop_dpbf16, "zmm", kBf16s1, "vdpbf16ps %%zmm1, %%zmm0, %%zmm\\s")

MOE_TARGET_BEGIN("amx-tile,amx-int8,amx-bf16")
namespace {

// Eight full tiles: 0-3 sums, 4 and 5 one operand, 6 and 7 the other. Each product of two operand tiles has its own
// sum, so that four instructions are under way and none waits for memory.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void load_tiles(const void* operand) {
  const TileConfig config;
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operand, 64);
  _tile_loadd(5, operand, 64);
  _tile_loadd(6, operand, 64);
  _tile_loadd(7, operand, 64);
}

void keep_tiles(void* out) {
  _tile_stored(0, out, 64);
  _tile_stored(1, out, 64);
  _tile_stored(2, out, 64);
  _tile_stored(3, out, 64);
  _tile_release();
  asm volatile("" : : "r"(out) : "memory");
}

}  // namespace

void loop_amx_int8(std::int64_t rounds) {
  alignas(64) std::uint8_t memory[1024];
  std::memset(memory, 1, sizeof memory);
  load_tiles(memory);
  for (std::int64_t i = 0; i < rounds; ++i) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  keep_tiles(memory);
}

void loop_amx_bf16(std::int64_t rounds) {
  alignas(64) std::uint16_t memory[512];
  for (std::uint16_t& x : memory) x = 0x3f80;  // 1
  load_tiles(memory);
  for (std::int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  keep_tiles(memory);
}
MOE_TARGET_END

}  // namespace moe::bench
#endif
