// One safetensors file: header grammar and checks. See safetensors.h.
#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/index.h"
#include "base/tensor.h"
#include "base/text.h"
#include "io/hash.h"
#include "io/json_cursor.h"

namespace moe::io {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kMaxName = 1024;
constexpr std::uint64_t kPointer = 0x206e6f6973726576;  // "version ", no length of a header
constexpr std::string_view kComplex = "C64";            // of tables beside the weights
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

Error format_error(const std::string& path, const std::string& what) {
  return fail(Code::format, path, cat(path, ": ", what));
}

std::string tensor_text(std::string_view name) { return "tensor " + in_quotes(name, kMaxName); }

void read_shape(JsonCursor& c, SafetensorsEntry& e) {
  c.expect('[');
  for (bool first = true; c.next(']', first);) {
    const std::int64_t d = c.integer();
    if (d > kMaxExtent) return c.fail("extent above 2^40");
    if (e.ndim == std::ssize(e.dims)) return c.fail("more than 8 dimensions");
    at(e.dims, e.ndim++) = d;
  }
}

// data_offsets, still relative to the data section.
void read_offsets(JsonCursor& c, SafetensorsEntry& e) {
  c.expect('[');
  const std::int64_t begin = c.integer();
  c.expect(',');
  const std::int64_t end = c.integer();
  c.expect(']');
  if (c.ok() && end < begin) return c.fail("data_offsets that run backwards");
  e.offset = static_cast<std::uint64_t>(begin);
  e.bytes = static_cast<std::uint64_t>(end - begin);
}

void read_entry(JsonCursor& c, SafetensorsEntry& e) {
  unsigned seen = 0;
  const auto once = [&](unsigned bit) {
    if (seen & bit) c.fail("a member given twice");
    seen |= bit;
  };
  c.expect('{');
  for (bool first = true; c.next('}', first);) {
    const std::string member = c.key();
    if (member == "dtype") {
      once(1);
      const std::string name = c.string();
      e.dtype = dtype_from_safetensors(name);
      e.bits = name == kComplex ? 64 : dtype_bits(e.dtype);
      if (e.bits == 0) c.fail("unknown dtype " + in_quotes(name));
    } else if (member == "shape") {
      once(2);
      read_shape(c, e);
    } else if (member == "data_offsets") {
      once(4);
      read_offsets(c, e);
    } else {
      c.fail("unknown member " + in_quotes(member));
    }
  }
  if (c.ok() && seen != 7) c.fail("dtype, shape or data_offsets missing");
}

void read_metadata(JsonCursor& c) {
  std::vector<std::string> keys;
  c.expect('{');
  for (bool first = true; c.next('}', first);) {
    if (keys.size() == kMaxTensors) c.fail("more than 1000000 keys in __metadata__");
    keys.push_back(c.key());
    (void)c.string();
  }
  std::sort(keys.begin(), keys.end());
  if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) c.fail("a key of __metadata__ given twice");
}

Result<std::vector<SafetensorsEntry>> parse_header(const std::string& path, std::string_view text) {
  std::vector<SafetensorsEntry> entries;
  JsonCursor c(text);
  SafetensorsEntry e;
  bool metadata = false;
  if (text.empty() || text[0] != '{') c.fail("expected '{'");
  c.expect('{');
  for (bool first = true; c.next('}', first);) {
    e = {};
    e.name = c.key();
    if (e.name == "__metadata__") {
      if (std::exchange(metadata, true)) c.fail("__metadata__ given twice");
      read_metadata(c);
      continue;
    }
    if (e.name.size() > kMaxName) c.fail("a name of more than 1024 bytes");
    if (e.name.find('\0') != std::string::npos) c.fail("a NUL in a name");
    read_entry(c, e);
    if (entries.size() == kMaxTensors) c.fail("more than 1000000 tensors");
    if (c.ok()) entries.push_back(std::move(e));
  }
  c.end();
  if (!c.ok()) {  // an entry that was taken has no name any more
    const std::string& name = e.name.empty() && !entries.empty() ? entries.back().name : e.name;
    return format_error(path, cat("header", name.empty() ? std::string() : ", " + tensor_text(name), ": ", c.fault()));
  }
  return entries;
}

// Bytes of a shape, nullopt when they overflow or are no whole number.
std::optional<std::uint64_t> shape_bytes(const SafetensorsEntry& e) {
  std::int64_t bits = e.bits;
  for (std::int64_t d : e.shape()) {
    const auto product = checked_mul({bits, d});
    if (!product) return std::nullopt;
    bits = *product;
  }
  if (bits % 8 != 0) return std::nullopt;
  return static_cast<std::uint64_t>(bits / 8);
}

Check check_ranges(const std::string& path, std::span<const SafetensorsEntry> entries, std::uint64_t data_bytes) {
  std::vector<const SafetensorsEntry*> order;
  order.reserve(entries.size());
  for (const SafetensorsEntry& e : entries) {
    const auto bytes = shape_bytes(e);
    if (!bytes || *bytes != e.bytes)
      return format_error(path, cat(tensor_text(e.name), ": ", e.bytes, " bytes for shape ", shape_text(e.shape()),
                                    " of ", dtype_name(e.dtype)));
    if (e.offset > data_bytes || e.bytes > data_bytes - e.offset)
      return format_error(path, cat(tensor_text(e.name), ": data_offsets [", e.offset, ", ", e.offset + e.bytes,
                                    ") reach past the ", data_bytes, " bytes of data (an incomplete download?)"));
    if (e.bytes != 0) order.push_back(&e);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
      return format_error(path, cat(tensor_text(order[i]->name), " and ", tensor_text(order[i - 1]->name), " overlap"));
  return ok();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(std::string path, const NameFilter& filter) {
  static_assert(std::endian::native == std::endian::little);
  SafetensorsFile f;
  MOE_TRY(f.file_, File::open(std::move(path)));
  const std::uint64_t size = f.file_.size();
  if (size < 8)
    return format_error(
        f.path(), cat("a safetensors file has at least 8 bytes, this one has ", size, " (an incomplete download?)"));
  std::uint64_t n = 0;
  MOE_CHECK(f.file_.read(0, std::as_writable_bytes(std::span(&n, 1))));
  if (n == kPointer) return format_error(f.path(), "is a Git LFS pointer, `git lfs pull` gets the file itself");
  if (n > kMaxHeader || n > size - 8)
    return format_error(f.path(),
                        cat("the header says it has ", n, " bytes; the file has ", size, ", and the limit is 100 MB"));
  std::string text(usize(n), '\0');
  MOE_CHECK(f.file_.read(8, std::as_writable_bytes(std::span(text))));
  MOE_TRY(f.entries_, parse_header(f.path(), text));
  MOE_CHECK(check_ranges(f.path(), f.entries_, size - 8 - n));
  std::sort(f.entries_.begin(), f.entries_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < f.entries_.size(); ++i)
    if (f.entries_[i - 1].name == f.entries_[i].name)
      return format_error(f.path(), tensor_text(f.entries_[i].name) + " is there twice");
  std::erase_if(f.entries_, [&](const SafetensorsEntry& e) { return !filter.wants(e.name); });
  f.entries_.shrink_to_fit();
  f.data_offset_ = 8 + n;
  f.header_hash_ = xxh3(std::as_bytes(std::span(text)));
  for (SafetensorsEntry& e : f.entries_) e.offset += f.data_offset_;
  return f;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const auto& e, std::string_view n) { return e.name < n; });
  return it != entries_.end() && it->name == name ? &*it : nullptr;
}

Check SafetensorsFile::read(const SafetensorsEntry& entry, std::uint64_t begin, std::span<std::byte> out) const {
  Check c = file_.read(entry.offset + begin, out);
  if (!c) c.error().message += ", in " + tensor_text(entry.name);
  return c;
}

}  // namespace moe::io
