// See layer_file.h.
#include "model/layer_file.h"

#include "base/text.h"

namespace moe::model {
namespace {

constexpr std::string_view kWayOut = "; moe_checkpoint_convert of its source makes it again";

// Faults of the file itself, which a file that is made again does not have.
bool is_damage(const Error& e) { return e.code == Code::format || e.code == Code::version; }

}  // namespace

Result<File> open_layer_file(const Folder& folder, const StoredLayer& stored) {
  const FileName name(folder, stored.file);
  const std::string& path = name.path();
  MOE_TRY(const PathKind kind, path_kind(name));
  if (kind == PathKind::absent)
    return fail(Code::missing_weight, path, cat(path, ": is not there, but ", kManifestName, " names it", kWayOut));
  MOE_TRY(File file, File::open(name));
  if (file.size() == stored.bytes) return file;
  return fail(file.size() < stored.bytes ? Code::io : Code::format, path,
              cat(path, ": has ", file.size(), " bytes, ", kManifestName, " says ", stored.bytes,
                  file.size() < stored.bytes ? " (an incomplete copy?)" : "", kWayOut),
              json::members("actual", file.size(), "expected", stored.bytes));
}

Check check_layer_head(const File& file, const StoredLayer& stored) {
  MOE_TRY(const io::PackedFileHead head, io::read_packed_head(file));
  const bool header = head.header_hash == stored.header_hash;
  if (header && head.content_hash == stored.content_hash) return ok();
  return fail(Code::format, file.path(),
              cat(file.path(), ": has ", header ? "weights of another hash" : "another header", " than ", kManifestName,
                  " says", kWayOut));
}

Result<bool> has_layer_file(const Folder& folder, const StoredLayer& stored, bool verify, const Parallel& parallel,
                            Control* control) {
  const FileName name(folder, stored.file);
  MOE_TRY(const PathKind kind, path_kind(name));
  if (kind == PathKind::absent) return false;
  MOE_TRY(const File file, File::open(name));
  if (file.size() != stored.bytes) return false;
  Check found = check_layer_head(file, stored);
  if (found && verify) found = io::verify_packed(file, parallel, control);
  if (found) return true;
  return is_damage(found.error()) ? Result<bool>(false) : Result<bool>(std::move(found.error()));
}

}  // namespace moe::model
