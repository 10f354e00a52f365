// One matrix of one expert in a float layout (layouts/floats/float_layout.h), part by part.
//
// Called expert by expert from all threads; what depends on all experts comes later (finish_...).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/index.h"
#include "base/result.h"
#include "layouts/floats/float_layout.h"
#include "layouts/rows.h"

namespace moe {

// First byte of each part for one expert; nullptr: the layout has none. Parts that follow from all experts
// (input_scale, alpha) are not touched here.
// By part and not by name: a name is looked up once per expert, a part many times.
template <class Byte>
struct FloatBytes {
  std::array<Byte*, kLayoutParts> part{};
  DType bias = DType::invalid;  // the type of that part
  Byte* operator[](LayoutPart p) const { return at(part, p); }
};

// `rows`: all rows of the checkpoint, which may be spoiled.
// Spoiled, because sharing a scale changes codes, and a copy of a whole matrix would be large.
Check write_float_matrix(const FloatMatrix& m, CanonicalRows& rows, const FloatBytes<std::byte>& out);
void read_float_matrix(const FloatMatrix& m, const FloatBytes<const std::byte>& in, CanonicalRows& rows);

// Marlin's scales of NVFP4, once those of all experts are written: bytes of e4m3 become bytes of 5 bits of exponent and
// 3 of mantissa, all multiplied by a power of two that `global`, the second scales, are divided by. `type`: of the
// activations, f16 or bf16. How many scales above 0 became 0.
// Marlin multiplies in the type of the activations. e4m3's sign bit is free in a scale, so a fifth
// bit of exponent takes its place, and a byte shifted left by 7 is the fp16 number without a
// conversion. The common power of two keeps small scales above 0 there; those that become 0 in
// spite of it are counted.
std::uint64_t finish_marlin_nvfp4(DType type, std::span<std::byte> scales, std::span<std::byte> global);
// The second scale that stands for a number of finish_marlin_nvfp4's.
float marlin_nvfp4_scale(DType type, float global);

// --- weights of e2m1: float4_weights.cpp --------------------------------------------------------------

// A row of codes as bytes, two codes each, and back.
// The even column is the low nibble: so do checkpoints and every engine here.
void pack_codes(const std::int8_t* codes, std::int64_t count, std::byte* out);
void unpack_codes(const std::byte* in, std::int64_t count, std::int8_t* codes);
void write_hopper(const FloatMatrix& m, const CanonicalRows& rows, std::byte* out);
void read_hopper(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows);
void write_blocks32(const FloatMatrix& m, const CanonicalRows& rows, std::byte* out);
void read_blocks32(const FloatMatrix& m, const std::byte* in, CanonicalRows& rows);

}  // namespace moe
