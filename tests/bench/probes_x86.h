// The x86 loops of the probes, each for processors that have its instructions. See probes.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/rooms.h"

namespace moe::bench {

// Read n bytes, a multiple of 256, of 64-byte aligned memory.
void read_avx2(const std::byte* p, std::size_t n);
void read_avx512(const std::byte* p, std::size_t n);

void loop_maddubs(std::int64_t rounds);   // 12 vpmaddubsw ymm + vpaddw a round
void loop_fma256(std::int64_t rounds);    // 12 vfmadd ymm
void loop_vnni256(std::int64_t rounds);   // 12 vpdpbusd ymm, VEX
void loop_vnni512(std::int64_t rounds);   // 12 vpdpbusd zmm
void loop_fma512(std::int64_t rounds);    // 12 vfmadd zmm
void loop_dpbf16(std::int64_t rounds);    // 12 vdpbf16ps zmm
void loop_amx_int8(std::int64_t rounds);  // 4 tdpbsud
void loop_amx_bf16(std::int64_t rounds);  // 4 tdpbf16ps

}  // namespace moe::bench
