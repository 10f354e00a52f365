// Which files a checkpoint consists of: one file, the files of an index, or a directory. See safetensors.h.
//
// The index is not trusted: its file names must be plain, and a tensor must be in the file that
// the index names for it. Files of other formats are named with what makes .safetensors of them.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>

#include "base/each_expert.h"
#include "base/index.h"
#include "base/os/file.h"
#include "base/text.h"
#include "io/json_cursor.h"
#include "io/safetensors.h"

namespace moe::io {
namespace {

constexpr std::uint64_t kMaxIndex = 100'000'000;  // as of a header: 200 000 tensors have more than 16 MiB
constexpr std::size_t kShown = 1024;              // characters of a name in a message
constexpr std::string_view kSuffix = ".safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

// Checkpoints that are not read, the likeliest first: names, and what converts them.
struct OtherFormat {
  std::string_view begin, end;
  const char* cure;
};
constexpr const char* kTransformers =
    "transformers' from_pretrained and save_pretrained(..., safe_serialization=True) write .safetensors of it";
constexpr std::array kOtherFormats = {
    OtherFormat{"", ".gguf",
                "transformers' from_pretrained(..., gguf_file=...) and save_pretrained write .safetensors of it"},
    OtherFormat{"consolidated", ".pth",
                "the convert_..._weights_to_hf.py of its model in transformers writes .safetensors of it"},
    OtherFormat{"pytorch_model", ".bin", kTransformers},
    OtherFormat{"", ".pth", kTransformers},
    OtherFormat{"", ".pt", kTransformers},
    OtherFormat{"", ".ckpt", kTransformers},
    OtherFormat{"", ".bin", kTransformers},
    OtherFormat{"", ".h5", kTransformers},
    OtherFormat{"", ".msgpack", kTransformers},
};

using Entries = std::vector<CheckpointEntry>;

Error format_error(const std::string& path, const std::string& what) {
  return fail(Code::format, path, cat(path, ": ", what));
}

bool is_plain_file_name(std::string_view name) {
  return name.size() > kSuffix.size() && name.size() <= 255 && name.ends_with(kSuffix) && name[0] != '.' &&
         name.find_first_of(std::string_view("/\\:\0", 4)) == std::string_view::npos &&
         name.find("..") == std::string_view::npos;
}

Result<std::shared_ptr<const SafetensorsFile>> open_shared(std::string path, const NameFilter& filter) {
  MOE_TRY(SafetensorsFile file, SafetensorsFile::open(std::move(path), filter));
  return std::shared_ptr<const SafetensorsFile>(std::make_shared<SafetensorsFile>(std::move(file)));
}

void add_all(Entries& out, const std::shared_ptr<const SafetensorsFile>& file) {
  for (const SafetensorsEntry& e : file->entries()) out.push_back({file, &e});
}

// What is opened, and how.
struct Opening {
  const NameFilter& filter;
  const Parallel& parallel;
  Control* control;
};

// All files, on all threads; the first that is at fault decides.
Result<std::vector<std::shared_ptr<const SafetensorsFile>>> open_files(const std::vector<std::string>& paths,
                                                                       const Opening& how) {
  std::vector<std::shared_ptr<const SafetensorsFile>> files(paths.size());
  const auto count = std::ssize(paths);
  const std::size_t workers = workers_for(count, how.parallel);
  constexpr std::int64_t kEach = 8;  // files of a thread between two looks at the control
  const auto open = [&](std::size_t, std::int64_t i) -> Check {
    MOE_TRY(at(files, i), open_shared(at(paths, i), how.filter));
    return ok();
  };
  const std::int64_t round = kEach * static_cast<std::int64_t>(workers);
  for (std::int64_t begin = 0; begin < count; begin += round) {
    const std::int64_t end = std::min(count, begin + round);
    MOE_CHECK(each_expert(begin, end, workers, how.parallel, how.control, open));
    MOE_CHECK(report(how.control, usize(end), usize(count)));
  }
  return files;
}

// Reads an index: `pair(name, file)` for each wanted tensor, in the order of the text.
template <class Pair>
Check read_weight_map(const std::string& path, std::string_view text, const NameFilter& filter, const Pair& pair) {
  JsonCursor c(text);
  c.expect('{');
  bool found = false;
  std::size_t wanted = 0;
  for (bool first = true; c.next('}', first);) {
    if (c.key() != "weight_map") {
      c.skip_value();
      continue;
    }
    if (std::exchange(found, true)) c.fail("weight_map given twice");
    c.expect('{');
    for (bool inner = true; c.next('}', inner);) {
      const std::string name = c.key();
      const std::string file_name = c.string();
      if (!c.ok()) break;
      if (!is_plain_file_name(file_name))
        return format_error(path, cat("weight_map, tensor ", in_quotes(name, kShown), ": ",
                                      in_quotes(file_name, kShown), " is not a plain name of a .safetensors file"));
      if (!filter.wants(name)) continue;
      if (++wanted > kMaxTensors) c.fail("more than 1000000 tensors");
      if (c.ok()) MOE_CHECK(pair(name, file_name));
    }
  }
  c.end();
  if (c.ok() && !found) c.fail("no weight_map");
  if (!c.ok()) return format_error(path, c.fault());
  return ok();
}

// Of a shard that the index names.
Error of_index(const std::string& index, Error e) {
  const auto kind = path_kind(e.subject);
  if (e.code == Code::io && (!kind || *kind == PathKind::absent))
    e.message = cat(e.subject, ": is not there, but ", index, " names it (an incomplete download?)");
  return e;
}

Result<Entries> open_index(const std::string& path, const Opening& how) {
  MOE_TRY(const File index, File::open(path));
  if (index.size() > kMaxIndex)
    return format_error(path, cat("an index has at most 100 MB, this one has ", index.size(), " bytes"));
  std::string text(usize(index.size()), '\0');
  MOE_CHECK(index.read(0, std::as_writable_bytes(std::span(text))));
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);

  // The text is read twice, so that the names of all tensors are not kept beside those of the headers.
  std::map<std::string, std::size_t, std::less<>> places;
  std::size_t names = 0;
  const auto note_file = [&](const std::string&, const std::string& file) -> Check {
    places.try_emplace(file, places.size());
    ++names;
    return ok();
  };
  MOE_CHECK(read_weight_map(path, text, how.filter, note_file));
  std::vector<std::string> paths(places.size());
  for (const auto& [file, place] : places) paths[place] = folder + file;
  auto files = open_files(paths, how);
  if (!files) return of_index(path, std::move(files.error()));

  Entries out;
  out.reserve(names);
  std::vector<std::size_t> next(paths.size());  // an index and its files mostly have the same order
  const auto find = [&](const std::string& name, const std::string& file_name) -> Check {
    const std::size_t place = places.find(file_name)->second;
    const std::shared_ptr<const SafetensorsFile>& file = (*files)[place];
    const std::span<const SafetensorsEntry> entries = file->entries();
    const bool follows = next[place] < entries.size() && entries[next[place]].name == name;
    const SafetensorsEntry* entry = follows ? &entries[next[place]] : file->find(name);
    if (entry == nullptr)
      return format_error(file->path(), cat("has no tensor ", in_quotes(name, kShown), ", but ", path,
                                            " says so (files of two downloads or versions?)"));
    next[place] = usize(entry - entries.data()) + 1;
    out.push_back({file, entry});
    return ok();
  };
  MOE_CHECK(read_weight_map(path, text, how.filter, find));
  return out;
}

const OtherFormat* other_format(std::string_view name) {
  const auto it = std::find_if(kOtherFormats.begin(), kOtherFormats.end(), [&](const OtherFormat& f) {
    return name.starts_with(f.begin) && name.ends_with(f.end);
  });
  return it == kOtherFormats.end() ? nullptr : &*it;
}

Error no_safetensors(const std::string& path, const std::vector<std::string>& names) {
  std::string found;
  const OtherFormat* likeliest = nullptr;
  for (const std::string& name : names)
    if (const OtherFormat* format = other_format(name); format != nullptr && (!likeliest || format < likeliest)) {
      likeliest = format;
      found = cat(", but ", in_quotes(name, kShown), ": ", format->cure);
    }
  return fail(Code::io, path, cat(path, ": no .safetensors file in this directory", found));
}

Result<Entries> open_directory(const std::string& path, const Opening& how) {
  const std::string folder = path.ends_with('/') ? path : path + "/";
  MOE_TRY(const PathKind index, path_kind(folder + kIndexName));
  if (index != PathKind::absent) return open_index(folder + kIndexName, how);
  MOE_TRY(const PathKind whole, path_kind(folder + "model.safetensors"));
  std::vector<std::string> names;
  if (whole != PathKind::absent) {
    names.emplace_back("model.safetensors");
  } else {
    MOE_TRY(const std::vector<std::string> all, directory_names(path));
    std::copy_if(all.begin(), all.end(), std::back_inserter(names), is_plain_file_name);
    if (names.empty()) return no_safetensors(path, all);
  }
  for (std::string& name : names) name.insert(0, folder);
  MOE_TRY(const auto files, open_files(names, how));
  Entries out;
  for (const auto& file : files) add_all(out, file);
  return out;
}

Result<Entries> open_file(const std::string& path, const Opening& how) {
  const auto file = open_shared(path, how.filter);
  if (!file) {
    const OtherFormat* other = other_format(std::string_view(path).substr(path.rfind('/') + 1));
    if (other == nullptr || file.error().code != Code::format) return file.error();
    return format_error(path, cat("is no .safetensors file: ", other->cure));
  }
  Entries out;
  add_all(out, *file);
  return out;
}

}  // namespace

Result<Entries> open_checkpoint(const std::string& path, const NameFilter& filter, const Parallel& parallel,
                                Control* control) {
  const Opening how{filter, parallel, control};
  MOE_TRY(const PathKind kind, path_kind(path));
  const bool directory = kind == PathKind::directory;
  auto found = directory                 ? open_directory(path, how)
               : path.ends_with(".json") ? open_index(path, how)
                                         : open_file(path, how);
  if (!found) return found;
  const auto before = [](const auto& a, const auto& b) { return a.entry->name < b.entry->name; };
  if (!std::is_sorted(found->begin(), found->end(), before)) std::stable_sort(found->begin(), found->end(), before);
  for (std::size_t i = 1; i < found->size(); ++i) {
    const CheckpointEntry &a = (*found)[i - 1], &b = (*found)[i];
    if (a.entry == b.entry)
      return format_error(path, cat("weight_map, tensor ", in_quotes(b.entry->name, kShown), ": given twice"));
    if (a.entry->name == b.entry->name)
      return format_error(b.file->path(),
                          cat("tensor ", in_quotes(b.entry->name, kShown), " is also in ", a.file->path()));
  }
  return found;
}

const CheckpointEntry* find_entry(SortedEntries entries, std::string_view name) {
  const auto it = std::lower_bound(entries.begin(), entries.end(), name,
                                   [](const CheckpointEntry& e, std::string_view n) { return e.entry->name < n; });
  return it != entries.end() && it->entry->name == name ? &*it : nullptr;
}

SortedEntries entries_below(SortedEntries entries, std::string_view prefix) {
  const auto head = [&](const CheckpointEntry& e) { return std::string_view(e.entry->name).substr(0, prefix.size()); };
  const auto begin = std::lower_bound(entries.begin(), entries.end(), prefix,
                                      [&](const CheckpointEntry& e, std::string_view p) { return head(e) < p; });
  const auto end = std::upper_bound(begin, entries.end(), prefix,
                                    [&](std::string_view p, const CheckpointEntry& e) { return p < head(e); });
  return {begin, end};
}

}  // namespace moe::io
