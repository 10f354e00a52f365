// Hashes of a directory's files. See fingerprint.h; converted.md 3 has the bytes that are hashed.
#include "model/fingerprint.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/each_expert.h"
#include "base/index.h"
#include "base/text.h"
#include "io/hash.h"

namespace moe::model {
namespace {

using Files = std::vector<std::shared_ptr<const io::SafetensorsFile>>;

constexpr std::int64_t kPieces = 16;
constexpr std::size_t kPiece = 4096;
constexpr std::size_t kChunk = std::size_t{4} << 20;  // of a full hash

// Each file once, by path.
Files files_of(const Checkpoint& checkpoint) {
  std::map<std::string, std::shared_ptr<const io::SafetensorsFile>> by_path;
  for (const io::CheckpointEntry& e : checkpoint.entries()) by_path.try_emplace(e.file->path(), e.file);
  Files files;
  for (auto& [path, file] : by_path) files.push_back(std::move(file));
  return files;
}

std::uint64_t hash_of(std::string_view text) { return io::xxh3(std::as_bytes(std::span(text))); }

// Of the names that the checkpoint takes from a file, where it does not take all: an index says of which file a tensor
// is that two files have.
std::map<const io::SafetensorsFile*, std::uint64_t> chosen_names(const Checkpoint& checkpoint) {
  std::map<const io::SafetensorsFile*, std::vector<std::uint64_t>> names;
  for (const io::CheckpointEntry& e : checkpoint.entries()) names[e.file.get()].push_back(hash_of(e.entry->name));
  std::map<const io::SafetensorsFile*, std::uint64_t> out;
  for (const auto& [file, hashes] : names)
    if (hashes.size() < file->entries().size()) out[file] = io::xxh3(std::as_bytes(std::span(hashes)));
  return out;
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void append(std::vector<std::byte>& out, std::uint64_t number) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&number);
  out.insert(out.end(), bytes, bytes + sizeof number);
}

// Of a file's data: pieces at equal distances, the first and the last byte in one each.
Result<std::uint64_t> hash_of_pieces(const io::SafetensorsFile& file) {
  const std::uint64_t begin = file.data_offset(), size = file.size() - begin;
  std::vector<std::byte> all(usize(std::min<std::uint64_t>(size, kPieces * kPiece)));
  if (size <= all.size()) {
    MOE_CHECK(file.read_bytes(begin, all));
    return io::xxh3(all);
  }
  for (std::int64_t i = 0; i < kPieces; ++i) {
    const std::uint64_t gap = (size - kPiece) / (kPieces - 1), place = usize(i) * gap;
    const std::uint64_t at = i + 1 == kPieces ? size - kPiece : place;
    MOE_CHECK(file.read_bytes(begin + at, std::span(all).subspan(usize(i) * kPiece, kPiece)));
  }
  return io::xxh3(all);
}

// Of a whole file: the hash of the hashes of its chunks.
Result<std::uint64_t> hash_of_all(const io::SafetensorsFile& file, const Parallel& parallel, Control* control,
                                  std::uint64_t& done, std::uint64_t total) {
  const auto chunks = static_cast<std::int64_t>((file.size() + kChunk - 1) / kChunk);
  std::vector<std::uint64_t> hashes(usize(chunks));
  const std::size_t workers = workers_for(chunks, parallel);
  std::vector<std::vector<std::byte>> memory(workers);
  const auto hash = [&](std::size_t worker, std::int64_t i) -> Check {
    std::vector<std::byte>& bytes = memory[worker];
    const std::uint64_t at = usize(i) * kChunk;
    bytes.resize(usize(std::min<std::uint64_t>(kChunk, file.size() - at)));
    MOE_CHECK(file.read_bytes(at, bytes));
    hashes[usize(i)] = io::xxh3(bytes);
    return ok();
  };
  const std::int64_t round = 8 * static_cast<std::int64_t>(workers);
  for (std::int64_t begin = 0; begin < chunks; begin += round) {
    const std::int64_t end = std::min(chunks, begin + round);
    MOE_CHECK(each_expert(begin, end, workers, parallel, control, hash));
    const std::uint64_t read = std::min<std::uint64_t>(file.size(), usize(end) * kChunk) - usize(begin) * kChunk;
    MOE_CHECK(report(control, done += read, total));
  }
  return io::xxh3(std::as_bytes(std::span(hashes)));
}

}  // namespace

std::uint64_t fingerprint_bytes(const Checkpoint& checkpoint, bool full) {
  std::uint64_t total = 0;
  for (const auto& file : files_of(checkpoint))
    total += full ? file->size() : std::min<std::uint64_t>(file->size(), kPieces * kPiece);
  return total;
}

Result<std::string> fingerprint(const Checkpoint& checkpoint, bool full, const Parallel& parallel, Control* control) {
  const std::string_view kind = full ? "full:" : "fast:";
  if (const std::optional<Manifest>& manifest = checkpoint.manifest())
    return manifest->source.starts_with(kind) ? manifest->source : std::string();
  const Files files = files_of(checkpoint);
  const std::uint64_t total = fingerprint_bytes(checkpoint, full);
  std::uint64_t done = 0;
  begin_phase(control, Phase::hash, Unit::bytes, total);
  MOE_CHECK(report(control, 0, total));
  std::vector<std::uint64_t> hashes(files.size());
  if (full) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      MOE_TRY(hashes[i], hash_of_all(*files[i], parallel, control, done, total));
    }
  } else {
    const auto hash = [&](std::size_t, std::int64_t i) -> Check {
      MOE_TRY(hashes[usize(i)], hash_of_pieces(*files[usize(i)]));
      return ok();
    };
    const auto count = std::ssize(files);
    MOE_CHECK(each_expert(0, count, workers_for(count, parallel), parallel, control, hash));
    MOE_CHECK(report(control, total, total));
  }
  std::vector<std::byte> all;
  append(all, hash_of(checkpoint.documents().text));
  for (const Documents::ToolText& tool : checkpoint.documents().tools) {
    append(all, hash_of(tool.name));
    append(all, hash_of(tool.text));
  }
  const auto chosen = chosen_names(checkpoint);
  for (std::size_t i = 0; i < files.size(); ++i) {
    append(all, hash_of(name_of(files[i]->path())));
    append(all, files[i]->size());
    append(all, files[i]->header_hash());
    append(all, hashes[i]);
    if (const auto names = chosen.find(files[i].get()); names != chosen.end()) append(all, names->second);
  }
  return cat(kind, io::hash_text(io::xxh3(all)));
}

}  // namespace moe::model
