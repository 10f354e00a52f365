// safetensors files: the header is read and checked when a file is opened, tensor bytes on demand.
//
//   u64 N | N bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end)}, "__metadata__": {..}} | data
//
// A file is refused as a whole unless every entry has a known type, at most 8 dimensions, exactly the bytes
// of its shape, and a range inside the file that no other entry touches; gaps are accepted. Checked before
// anything is allocated for it. Names and shapes are the file's: whether they fit a layer is for the caller.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/control.h"
#include "base/dtype.h"
#include "base/index.h"
#include "base/os/file.h"
#include "base/parallel.h"
#include "base/result.h"

namespace moe::io {

constexpr std::size_t kMaxTensors = 1'000'000;  // of a file, and of an index those that are wanted

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::invalid;  // also of a type that no weights have
  int bits = 0;                  // of an element
  int ndim = 0;
  std::array<std::int64_t, 8> dims{};
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;

  std::span<const std::int64_t> shape() const { return {dims.data(), usize(ndim)}; }
};

// Which names the caller wants.
class NameFilter {
 public:
  NameFilter(const char* begin) : wants_([begin](std::string_view name) { return name.starts_with(begin); }) {}
  explicit NameFilter(std::function<bool(std::string_view)> wants) : wants_(std::move(wants)) {}
  bool wants(std::string_view name) const { return wants_(name); }

 private:
  std::function<bool(std::string_view)> wants_;
};

class SafetensorsFile {
 public:
  // Entries with other names are checked and then forgotten.
  static Result<SafetensorsFile> open(std::string path, const NameFilter& filter);

  const std::string& path() const { return file_.path(); }
  std::span<const SafetensorsEntry> entries() const { return entries_; }  // by name
  const SafetensorsEntry* find(std::string_view name) const;
  std::uint64_t size() const { return file_.size(); }
  std::uint64_t data_offset() const { return data_offset_; }  // behind the header
  std::uint64_t header_hash() const { return header_hash_; }  // XXH3 of its text
  // Bytes [begin, begin + out.size()) of the file.
  Check read_bytes(std::uint64_t begin, std::span<std::byte> out) const { return file_.read(begin, out); }
  // Bytes [begin, begin + out.size()) of a tensor; the range must lie inside it.
  Check read(const SafetensorsEntry& entry, std::uint64_t begin, std::span<std::byte> out) const;

 private:
  File file_;
  std::uint64_t data_offset_ = 0, header_hash_ = 0;
  std::vector<SafetensorsEntry> entries_;
};

struct CheckpointEntry {
  std::shared_ptr<const SafetensorsFile> file;
  const SafetensorsEntry* entry;
};

// The tensors with such names in a file, an index of files ("*.index.json") or a directory: its
// model.safetensors.index.json, else model.safetensors, else all *.safetensors by name. Of the
// files of an index only those that it names for them are opened, on the threads of `parallel`. Sorted by tensor name.
// The control is told how many files are open.
Result<std::vector<CheckpointEntry>> open_checkpoint(const std::string& path, const NameFilter& filter,
                                                     const Parallel& parallel = {}, Control* control = nullptr);

// Tensors by name, of files that are open.
using SortedEntries = std::span<const CheckpointEntry>;
const CheckpointEntry* find_entry(SortedEntries entries, std::string_view name);
// Those whose names begin so.
SortedEntries entries_below(SortedEntries entries, std::string_view prefix);

}  // namespace moe::io
