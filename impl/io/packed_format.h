// The bytes of a packed block, version 1. Little endian; every byte is determined by the content.
//
//   0        PackedHead (fixed size)
//   ...      sections, one after another, each at a multiple of 8: layout id, backend, config (text), tensors (text:
//            JSON, what moe_packed_get knows and where it lies in the payload), experts (i64), correction bias (f32),
//            chunk hashes (u64: XXH3 of each 4 MiB of the payload)
//   ...      zeros up to a multiple of 4096
//   payload  the experts (scheme/layout.h), up to the end of the block
//
// head.header_hash is the XXH3 of all bytes between itself and the payload. The layout is stored as
// numbers and as its id; a reader computes everything else from the numbers and wants the stored sizes to
// be the same, so that no address taken from a block that opened can lie outside of it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "io/packed.h"

namespace moe {

constexpr std::array<char, 8> kPackedMagic = {'\x89', 'M', 'O', 'E', 'p', 'k', '\n', '\x1a'};
constexpr std::uint32_t kPackedVersion = 1;
constexpr std::uint64_t kHashChunk = std::uint64_t{4} << 20;

struct StoredMatrix {
  std::int64_t half_rows, halves, k, group;
  // k and group: the checkpoint's, with any_sizes the number of groups.
  // 1: bias, 2: zero points, 4: lists, 8: any_sizes, 256 * Scales of the kinds w4 and w8 and of named layouts, whose
  // Element is here too, * 16
  std::int64_t flags;
};

enum PackedSection {
  kLayoutId,
  kBackend,
  kConfigText,
  kTensorList,
  kExperts,
  kCorrectionBias,
  kChunkHashes,
  kSectionCount
};

struct StoredSection {
  std::uint64_t offset, bytes;
};

struct PackedHead {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t header_hash;
  std::uint64_t block_bytes, payload_offset, payload_bytes, chunk_bytes;
  std::uint64_t layout_kind, experts, expert_stride, scales_rounded;
  std::int64_t variant;  // of named layouts
  StoredMatrix w13, w2;
  std::array<StoredSection, kSectionCount> sections;
};
static_assert(sizeof(StoredMatrix) == 40 && sizeof(PackedHead) == 24 + 72 + 80 + 112);
constexpr std::size_t kHashedFrom = 24;  // the first byte behind header_hash

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

}  // namespace moe
