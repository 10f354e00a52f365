// Packed blocks in memory: sealing, opening, description. Files: packed_file.cpp; bytes: packed_format.h.
#include "io/packed.h"

#include <algorithm>
#include <cstring>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "io/hash.h"
#include "io/packed_format.h"
#include "layouts/floats/float_layout.h"
#include "layouts/p16/p16_layout.h"
#include "layouts/wna16/wna16_layout.h"

namespace moe::io {
namespace {

// A block that has been checked.
Packed packed_over(PackedInfo info, const PackedHead& head, std::span<const std::byte> block, std::string memory,
                   std::shared_ptr<const void> keep) {
  Packed p;
  p.outputs = outputs_of(info.layout);
  p.info = std::move(info);
  p.block = block;
  p.payload = block.subspan(usize(head.payload_offset));
  p.memory = std::move(memory);
  p.keep = std::move(keep);
  return p;
}

PackedHead head_of(std::span<const std::byte> block) {
  PackedHead h{};
  std::memcpy(&h, block.data(), sizeof h);
  return h;
}

}  // namespace

std::uint64_t Packed::content_hash() const {
  return block.empty() ? 0 : xxh3(section(head_of(block), block, kChunkHashes));
}

std::uint64_t Packed::header_hash() const { return block.empty() ? 0 : head_of(block).header_hash; }

std::string Packed::to_json() const {
  json::Writer w;
  w.begin_object().member("layout", info.layout_id).member("backend", info.backend);
  w.member("config", json::Text{info.config}).key("experts").array(info.experts);
  w.member("outputs", json::Text{outputs_json(outputs)});
  if (is_wna16_kind(info.layout.kind)) {
    w.key("absent").array(wna16_absent(info.layout));
    // All rows of scales of w2 are here: a layer with activation order is not cut.
    if (info.layout.w13.has_order) w.member("is_k_full", true);
  }
  if (is_float_kind(info.layout.kind) || may_share_scales(info.layout))
    w.member("requantized_experts", info.requantized_experts);
  if (is_float_kind(info.layout.kind)) {
    w.member("padded_hidden_size", padded_hidden(info.layout));
    w.member("padded_intermediate_size", padded_intermediate(info.layout));
    if (const std::string_view word = w13_rows_word(info.layout); !word.empty()) w.member("w13_layout", word);
    if (const auto needs = needs_of_host(info.layout); !needs.empty()) w.key("needs").array(needs);
  }
  w.member("bytes", block.size()).member("payload_bytes", payload.size()).member("alignment", 64);
  w.member("content_hash", hash_text(content_hash()));
  w.member("scales_rounded", info.scales_rounded).member("memory", memory);
  return w.end_object().take();
}

Result<std::uint64_t> packed_block_bytes(const PackedInfo& info) {
  const auto head = plan_block(info);
  if (!head)
    return fail(Code::invalid_argument, "layout",
                cat("packed weights of the layout '", info.layout.id(), "' cannot have this size"));
  return head->block_bytes;
}

std::size_t packed_payload_offset(const PackedInfo& info) {
  const auto head = plan_block(info);
  return head ? usize(head->payload_offset) : 0;
}

Result<Packed> seal_packed(const PackedInfo& info, std::span<std::byte> block, const Parallel& parallel,
                           std::string memory, std::shared_ptr<const void> keep) {
  auto head = plan_block(info);
  if (!head)
    return fail(Code::invalid_argument, "layout",
                cat("packed weights of the layout '", info.layout.id(), "' cannot have this size"));
  if (block.size() < head->block_bytes)
    return fail(Code::buffer_too_small, "dst", cat("the block needs ", head->block_bytes, " bytes, got ", block.size()),
                json::members("needed", head->block_bytes));
  block = block.first(usize(head->block_bytes));
  const auto payload = block.subspan(usize(head->payload_offset));
  std::memset(block.data(), 0, usize(head->payload_offset));
  const auto put = [&](PackedSection which, const void* data) {
    const StoredSection& s = head->sections[which];
    if (s.bytes != 0) std::memcpy(block.data() + s.offset, data, usize(s.bytes));
  };
  put(kLayoutId, info.layout_id.data());
  put(kBackend, info.backend.data());
  put(kConfigText, info.config.data());
  put(kTensorList, outputs_json(outputs_of(info.layout)).data());
  put(kExperts, info.experts.data());
  put(kCorrectionBias, side_floats(info).data());
  std::byte* hashes = block.data() + head->sections[kChunkHashes].offset;
  auto body = [&](std::size_t i) {
    const std::size_t at = i * kHashChunk;
    const std::uint64_t h = xxh3(payload.subspan(at, std::min<std::size_t>(kHashChunk, payload.size() - at)));
    std::memcpy(hashes + i * 8, &h, 8);
  };
  MOE_CHECK(parallel.each(head->sections[kChunkHashes].bytes / 8, body));
  std::memcpy(block.data(), &*head, sizeof *head);
  head->header_hash = header_hash_of(block.first(usize(head->payload_offset)), head->side_floats);
  std::memcpy(block.data(), &*head, sizeof *head);
  // Read back what was written: a block that could not be loaded again must not come into being.
  MOE_TRY(PackedInfo read, read_info(*head, block, ""));
  return packed_over(std::move(read), *head, block, std::move(memory), std::move(keep));
}

Result<Packed> open_packed(std::span<const std::byte> block, LoadFlags flags, std::string memory,
                           std::shared_ptr<const void> keep, const Parallel& parallel) {
  MOE_TRY(const PackedHead head, read_head(block, block.size(), ""));
  MOE_TRY(PackedInfo info, read_info(head, block, ""));
  if (flags.verify) MOE_CHECK(verify_payload(head, block, "", parallel));
  if (reinterpret_cast<std::uintptr_t>(block.data()) % kBlockAlignment != 0) {
    MOE_TRY(Buffer copy, Buffer::create(block.size()));
    std::memcpy(copy.data(), block.data(), block.size());
    auto owner = std::make_shared<const Buffer>(std::move(copy));
    block = owner->bytes();
    keep = std::move(owner);
    memory = "owned";
  }
  return packed_over(std::move(info), head, block, std::move(memory), std::move(keep));
}

}  // namespace moe::io
