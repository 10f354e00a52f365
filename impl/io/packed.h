// One layer's converted weights as one self-describing, position-independent block: header, config, list of tensors,
// hashes (XXH3, one per 4 MiB), payload. The same bytes are moe_packed_data, a saved file, the
// caller's `dst` and the input of moe_packed_load_memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/control.h"
#include "base/dtype.h"
#include "base/index.h"
#include "base/json.h"
#include "base/os/file.h"
#include "base/parallel.h"
#include "base/result.h"
#include "layouts/layout.h"

namespace moe::io {

// A tensor of a conversion that a host can ask for by name (moe_packed_get).
struct NamedOutput {
  std::string name;  // "w13_packed"
  DType dtype = DType::u8;
  std::vector<std::int64_t> shape;             // [E, ...]
  std::size_t offset = 0;                      // from the payload, of expert 0
  std::size_t expert_stride = 0;               // bytes between experts
  bool shared = false;                         // one for all experts: the shape has no E
  std::vector<std::int64_t> own_strides = {};  // strides, where they are not row-major

  std::vector<std::int64_t> strides() const;  // in elements
};

struct PackedInfo {
  std::string layout_id;
  std::string backend;                               // "CPU_INT4"
  std::string config;                                // canonical document of the config
  std::shared_ptr<const json::Value> document = {};  // the same, parsed, of a block that was read
  Layout layout;
  std::vector<std::int64_t> experts;  // the model's numbers in local order
  std::uint64_t scales_rounded = 0;
  std::uint64_t requantized_experts = 0;  // whose codes were recomputed; at most 2^24
  // Vectors of the layer that the loader found (weights/side_tensors.h). Empty: not found.
  std::vector<float> correction_bias;
  std::vector<float> expert_scale;                  // [E] or [1]
  std::vector<float> expert_norm;                   // [H]
  std::array<std::vector<float>, 2> input_factors;  // by Which: [H], [I of this rank]: what inputs are multiplied by
  std::array<std::vector<float>, 2> input_scales;   // by Which: [E] of p16 with LayoutVariant::input_scales
};

class Packed {
 public:
  PackedInfo info;
  std::vector<NamedOutput> outputs;
  std::span<const std::byte> block;    // everything
  std::span<const std::byte> payload;  // the experts; 64-byte aligned at least
  std::string memory;                  // "owned", "caller", "mmap"
  std::shared_ptr<const void> keep;    // what keeps the block alive

  // An expert of a p16 payload.
  const std::byte* expert(std::int64_t local) const {
    return payload.data() + usize(local) * info.layout.expert_stride();
  }
  std::uint64_t content_hash() const;  // of the whole payload, as stored
  std::uint64_t header_hash() const;   // of what stands before it
  std::string to_json() const;
};

constexpr std::size_t kPackedAlignment = 4096;  // of the payload within the block
constexpr std::size_t kBlockAlignment = 64;     // of a block
// Bytes of the whole block for this layout and config text. Overflow: Code::invalid_argument.
Result<std::uint64_t> packed_block_bytes(const PackedInfo& info);
// Where the payload begins in a block of this info.
std::size_t packed_payload_offset(const PackedInfo& info);
// Writes header and hashes around a payload that is already in place, and opens the result.
Result<Packed> seal_packed(const PackedInfo& info, std::span<std::byte> block, const Parallel& parallel,
                           std::string memory, std::shared_ptr<const void> keep);

struct LoadFlags {
  bool mmap = false, prefault = false, verify = false;
};
// What a file says of itself before its payload, all of which is read and checked.
struct PackedFileHead {
  std::uint64_t header_hash, content_hash;
};
Result<PackedFileHead> read_packed_head(const File& file);
// Compares the payload of a file with its hashes, a few chunks in memory at a time. The control is told the bytes.
Check verify_packed(const File& file, const Parallel& parallel, Control* control);
Check save_packed(const Packed& packed, const FileName& name, Control* control);
Result<Packed> load_packed(const File& file, LoadFlags flags, const Allocator& allocator,
                           std::shared_ptr<const void> allocator_keep, const Parallel& parallel, Control* control);
Result<Packed> load_packed(const char* path, LoadFlags flags, const Allocator& allocator,
                           std::shared_ptr<const void> allocator_keep, const Parallel& parallel, Control* control);
// `keep` ends the caller's memory; copied when data is not aligned to 64 bytes.
Result<Packed> open_packed(std::span<const std::byte> block, LoadFlags flags, std::string memory,
                           std::shared_ptr<const void> keep, const Parallel& parallel);

}  // namespace moe::io
