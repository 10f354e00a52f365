// The bytes of a packed block (packed_file.md). Little endian; every byte is determined by the content.
//
//   0        PackedHead (fixed size)
//   ...      sections, one after another, each at a multiple of 8
//   ...      zeros up to a multiple of 4096
//   payload  the experts (layouts/layout.h), up to the end of the block
//
// The layout is stored as numbers and as its id. A reader computes everything else from the numbers and wants the
// stored sizes to be the same, so that no address taken from a block that opened can lie outside of it.
//
// Stored; never renumber, move or resize anything in this file: tests/vectors/packed holds files that every later
// build reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "io/packed.h"

namespace moe::io {

constexpr std::array<char, 8> kPackedMagic = {'\x89', 'M', 'O', 'E', 'p', 'k', '\n', '\x1a'};
constexpr std::uint32_t kPackedVersion = 2;
constexpr std::uint64_t kHashChunk = std::uint64_t{4} << 20;

struct StoredMatrix {
  std::int64_t half_rows, k;  // the checkpoint's
  std::int64_t group;         // columns that share a scale; 0 where any_sizes
  std::int64_t groups;        // the checkpoint's
  std::uint8_t halves;        // 2: gate and up
  std::uint8_t element;       // Element
  std::uint8_t scales;        // Scales
  // 0 or 1, as in Matrix
  std::uint8_t has_bias, has_zeros, has_order, any_sizes;
  std::uint8_t scale_panels;  // Matrix::scale_rows: 0: 1, 255: kAllRows, else in panels

  friend bool operator==(const StoredMatrix&, const StoredMatrix&) = default;
};

// LayoutVariant. All 0 for the layouts that have none.
struct StoredVariant {
  std::uint8_t input;  // MarlinInput
  std::uint8_t awq, bit_compat_vllm, channel_wise;
  std::int32_t zero_shift;
  std::int32_t bias, number;  // moe_dtype
  std::int64_t multiprocessors;
  std::uint8_t input_scales, gate_up_pairs, fnuz;
  std::uint8_t reserved;  // 0
  // Not of the layout: what the conversion said (PackedInfo).
  std::uint32_t requantized_experts;

  friend bool operator==(const StoredVariant&, const StoredVariant&) = default;
};

enum PackedSection {
  kLayoutId = 0,        // text
  kBackend = 1,         // text
  kConfigText = 2,      // JSON
  kTensorList = 3,      // JSON: what moe_packed_get knows and where it lies in the payload
  kExperts = 4,         // i64: the model's numbers in local order
  kCorrectionBias = 5,  // f32; then the scales of experts, the norm of their output, factors and scales of inputs
  kChunkHashes = 6,     // u64: XXH3 of each 4 MiB of the payload
  kSectionCount = 7
};

struct StoredSection {
  std::uint64_t offset, bytes;
};

struct PackedHead {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t side_floats;  // of section kCorrectionBias: kHasNorm, and how many are scales of experts
  std::uint64_t header_hash;  // XXH3 of all bytes between itself and the payload, and side_floats in every bit
  std::uint64_t block_bytes, payload_offset, payload_bytes, chunk_bytes;
  std::uint64_t layout_kind, experts, expert_stride, scales_rounded;
  StoredVariant variant;
  StoredMatrix w13, w2;
  std::array<StoredSection, kSectionCount> sections;
};
static_assert(sizeof(StoredMatrix) == 40 && sizeof(StoredVariant) == 32 && sizeof(PackedHead) == 312);
static_assert(offsetof(PackedHead, block_bytes) == 24 && offsetof(PackedHead, layout_kind) == 56 &&
              offsetof(PackedHead, variant) == 88 && offsetof(PackedHead, w13) == 120 &&
              offsetof(PackedHead, sections) == 200);
static_assert(offsetof(StoredMatrix, halves) == 32 && offsetof(StoredMatrix, any_sizes) == 38 &&
              offsetof(StoredVariant, zero_shift) == 4 && offsetof(StoredVariant, multiprocessors) == 16);
constexpr std::uint32_t kHasNorm = std::uint32_t{1} << 31, kHasInputs = std::uint32_t{1} << 30,
                        kHasMiddle = std::uint32_t{1} << 29;  // input_factors of w13 and of w2
constexpr std::size_t kHashedFrom = 24;                       // the first byte behind header_hash
// Of a whole header, side_floats included.
std::uint64_t header_hash_of(std::span<const std::byte> header, std::uint32_t side_floats);

// Scales of inputs that a block has for each matrix.
std::int64_t input_scale_count(const Layout& layout);
// What section kCorrectionBias holds.
std::vector<float> side_floats(const PackedInfo& info);
// Sizes and places of a block for `info`; nullopt when they overflow or the layout is no valid one.
std::optional<PackedHead> plan_block(const PackedInfo& info);
// What a layout gives out by name.
std::vector<NamedOutput> outputs_of(const Layout& layout);
std::string outputs_json(const std::vector<NamedOutput>& outputs);

// The fixed part of a block: magic, version, sizes. `total`: bytes of the block or file.
Result<PackedHead> read_head(std::span<const std::byte> first, std::uint64_t total, const std::string& subject);
// Everything before the payload; `header` ends at head.payload_offset at least.
Result<PackedInfo> read_info(const PackedHead& head, std::span<const std::byte> header, const std::string& subject);
// Compares the hash of every chunk.
Check verify_payload(const PackedHead& head, std::span<const std::byte> block, const std::string& subject,
                     const Parallel& parallel);

std::span<const std::byte> section(const PackedHead& head, std::span<const std::byte> block, PackedSection which);

}  // namespace moe::io
