// Packed blocks as files: replaced as a whole when saved; read into memory or mapped. A mapped file is read lazily:
// only its header is touched unless more is asked for.
#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/each_expert.h"
#include "base/index.h"
#include "base/os/file.h"
#include "base/os/new_file.h"
#include "base/text.h"
#include "io/hash.h"
#include "io/packed.h"
#include "io/packed_format.h"

namespace moe::io {
namespace {

constexpr std::size_t kPiece = std::size_t{8} << 20;  // between two looks at the control

struct Block {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;
};

Result<Block> map_file(const File& file, bool prefault) {
  MOE_TRY(Mapping mapping, Mapping::create(file, prefault));
  auto owner = std::make_shared<const Mapping>(std::move(mapping));
  return Block{owner->bytes(), owner};
}

Result<Block> read_file(const File& file, const Allocator& allocator, std::shared_ptr<const void> allocator_keep,
                        Control* control) {
  const std::size_t size = usize(file.size());
  MOE_TRY(Buffer buffer, Buffer::create(size, kPackedAlignment, allocator, std::move(allocator_keep)));
  for (std::size_t at = 0; at < size; at += kPiece) {
    MOE_CHECK(report(control, at, size));
    MOE_CHECK(file.read(at, buffer.bytes().subspan(at, std::min(kPiece, size - at))));
  }
  MOE_CHECK(report(control, size, size));
  auto owner = std::make_shared<const Buffer>(std::move(buffer));
  return Block{owner->bytes(), owner};
}

}  // namespace

namespace {

// The fixed part: nothing is mapped or allocated for a file that is not ours.
Result<PackedHead> head_of(const File& file) {
  std::array<std::byte, sizeof(PackedHead)> first{};
  const std::size_t known = usize(std::min<std::uint64_t>(first.size(), file.size()));
  MOE_CHECK(file.read(0, std::span(first).first(known)));
  return read_head(std::span(first).first(known), file.size(), file.path());
}

}  // namespace

namespace {

struct Header {
  PackedHead head;
  std::vector<std::byte> bytes;
  PackedInfo info;

  std::span<const std::byte> chunk_hashes() const { return section(head, bytes, kChunkHashes); }
};

Result<Header> header_of(const File& file) {
  MOE_TRY(const PackedHead head, head_of(file));
  std::vector<std::byte> bytes(usize(head.payload_offset));
  MOE_CHECK(file.read(0, bytes));
  MOE_TRY(PackedInfo info, read_info(head, bytes, file.path()));
  return Header{head, std::move(bytes), std::move(info)};
}

}  // namespace

Result<PackedFileHead> read_packed_head(const File& file) {
  MOE_TRY(const Header header, header_of(file));
  return PackedFileHead{header.head.header_hash, xxh3(header.chunk_hashes())};
}

Check verify_packed(const File& file, const Parallel& parallel, Control* control) {
  MOE_TRY(const Header header, header_of(file));
  const std::uint64_t begin = header.head.payload_offset, size = header.head.payload_bytes;
  const auto chunks = static_cast<std::int64_t>(ceil_div(size, kHashChunk));
  const std::size_t workers = workers_for(chunks, parallel);
  std::vector<std::vector<std::byte>> memory(workers);
  const auto compare = [&](std::size_t worker, std::int64_t i) -> Check {
    const std::uint64_t at = usize(i) * kHashChunk;
    std::vector<std::byte>& bytes = memory[worker];
    bytes.resize(usize(std::min(kHashChunk, size - at)));
    MOE_CHECK(file.read(begin + at, bytes));
    std::uint64_t expected = 0;
    std::memcpy(&expected, header.chunk_hashes().data() + usize(i) * 8, 8);
    if (xxh3(bytes) == expected) return ok();
    return fail(Code::format, file.path(), cat(file.path(), ": chunk ", i, " of its weights is damaged"));
  };
  const std::int64_t round = 2 * static_cast<std::int64_t>(workers);
  for (std::int64_t i = 0; i < chunks; i += round) {
    const std::int64_t end = std::min(chunks, i + round);
    MOE_CHECK(each_expert(i, end, workers, parallel, control, compare));
    MOE_CHECK(report(control, begin + std::min(size, usize(end) * kHashChunk), file.size()));
  }
  return ok();
}

Check save_packed(const Packed& packed, const FileName& name, Control* control) {
  const std::size_t size = packed.block.size();
  begin_phase(control, Phase::save, Unit::bytes, size);
  MOE_CHECK(report(control, 0, size));
  MOE_TRY(NewFile file, NewFile::create(name));
  for (std::size_t at = 0; at < size; at += kPiece) {
    MOE_CHECK(file.write(packed.block.subspan(at, std::min(kPiece, size - at))));
    MOE_CHECK(report(control, std::min(at + kPiece, size), size));
  }
  return file.commit();
}

Result<Packed> load_packed(const char* path, LoadFlags flags, const Allocator& allocator,
                           std::shared_ptr<const void> allocator_keep, const Parallel& parallel, Control* control) {
  MOE_TRY(const File file, File::open(path));
  return load_packed(file, flags, allocator, std::move(allocator_keep), parallel, control);
}

Result<Packed> load_packed(const File& file, LoadFlags flags, const Allocator& allocator,
                           std::shared_ptr<const void> allocator_keep, const Parallel& parallel, Control* control) {
  MOE_CHECK(head_of(file));
  begin_phase(control, Phase::load, Unit::bytes, file.size());
  MOE_CHECK(report(control, 0, file.size()));

  auto got =
      flags.mmap ? map_file(file, flags.prefault) : read_file(file, allocator, std::move(allocator_keep), control);
  if (!got) return std::move(got.error());
  auto packed = open_packed(got->bytes, flags, flags.mmap ? "mmap" : "owned", got->keep, parallel);
  if (packed && flags.mmap) MOE_CHECK(report(control, file.size(), file.size()));
  if (!packed) {  // say which file
    Error& e = packed.error();
    e.subject = file.path();
    e.message = cat(file.path(), ": ", e.message);
    return std::move(e);
  }
  return packed;
}

}  // namespace moe::io
