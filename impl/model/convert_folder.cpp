// See convert_folder.h. The order on the disk: config.json; then for each layer its packed file, then the manifest that
// names it. Each of them appears whole under its name, so that a reader never sees a part.
#include "model/convert_folder.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/os/folder.h"
#include "base/os/new_file.h"
#include "base/text.h"
#include "bind/agree.h"
#include "config/fields.h"
#include "io/hash.h"
#include "io/packed.h"
#include "model/fingerprint.h"
#include "model/layer_file.h"
#include "model/pack.h"
#include "weights/weight_set.h"

namespace moe::model {
namespace {

constexpr const char* kLockName = ".moe-convert.lock";
constexpr std::string_view kSourceSuffix = ".safetensors";

// Where layers go: what is there of them, as far as anything is there.
struct TargetFolder {
  std::string path;
  std::optional<Manifest> manifest;
};

// A layer to be converted, and what it becomes.
struct Task {
  std::int64_t layer;
  Selection selection;
  std::uint64_t payload, block;  // bytes, as far as the selection tells
};

Error other_folder(const std::string& folder, std::string_view member, std::string_view found,
                   std::string_view expected) {
  const std::string path = cat(folder, "/", kManifestName);
  return fail(
      Code::config_mismatch, path,
      cat(path, ": ", member, " is ", found, ", this call's is ", expected,
          "; one folder holds one source and platform, one layout for each layer, and layers of one cut and the "
          "same options"),
      json::members("member", member, "actual", found, "expected", expected));
}

Check check_numbers(const Checkpoint& checkpoint, std::span<const std::int64_t> layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    MOE_TRY(const LayerFound* found, checkpoint.layer(layers[i]));
    if (found->kind == LayerKind::dense) MOE_CHECK(checkpoint.config(layers[i], ""));
    if (std::find(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(i), layers[i]) !=
        layers.begin() + static_cast<std::ptrdiff_t>(i))
      return fail(Code::invalid_argument, "layers", cat("layers: ", layers[i], " is listed twice"));
  }
  return ok();
}

// The layers that were asked for, or all that have experts. One that is not understood is passed over, unless all are.
Result<std::vector<std::int64_t>> numbers_of(const Checkpoint& checkpoint, std::span<const std::int64_t> asked) {
  MOE_CHECK(check_numbers(checkpoint, asked));
  std::vector<std::int64_t> numbers(asked.begin(), asked.end());
  const LayerFound* strange = nullptr;
  for (std::int64_t l = 0; asked.empty() && l < std::ssize(checkpoint.layers()); ++l) {
    const LayerFound& found = at(checkpoint.layers(), l);
    if (found.kind == LayerKind::experts) numbers.push_back(l);
    if (found.kind == LayerKind::other && strange == nullptr) strange = &found;
  }
  std::sort(numbers.begin(), numbers.end());
  if (!numbers.empty()) return numbers;
  if (strange != nullptr) return *strange->fault;
  return fail(Code::unsupported, checkpoint.folder(), cat(checkpoint.folder(), ": no layer of it has experts"));
}

// Everything that can be refused is refused here, before the first byte is written: also a layer without all of its
// tensors. Layers that the folder has keep their layouts, so that another machine may go on.
Result<std::vector<Task>> tasks_of(const Checkpoint& checkpoint, std::span<const std::int64_t> numbers,
                                   const FolderOptions& options, const TargetFolder& target, Control* control) {
  std::vector<Task> tasks;
  for (const std::int64_t l : numbers) {
    MOE_CHECK(report(control, 0, 0));
    const LayerFound& found = at(checkpoint.layers(), l);
    MOE_TRY(Config config, checkpoint.config(l, options.patch));
    if (found.fault) return *found.fault;
    const StoredLayer* stored = target.manifest ? target.manifest->find(l) : nullptr;
    MOE_TRY(Selection selection,
            select_for_layer(stored, target.path, std::make_shared<const Config>(std::move(config)), options.platform,
                             {.allow_fallback = options.allow_fallback}));
    MOE_CHECK(bind::check_built(selection));
    WeightSet set(selection.config);
    MOE_CHECK(set.load_entries(checkpoint.entries(), checkpoint.folder().c_str(), nullptr));
    MOE_CHECK(set.check_complete());
    MOE_TRY(const std::uint64_t block, io::packed_block_bytes(bind::packed_info(selection)));
    const std::uint64_t payload = selection.layout.payload_bytes();
    tasks.push_back({l, std::move(selection), payload, block});
  }
  return tasks;
}

// The manifest that this call alone would write, without source and layers. What it says is the same of every layer.
Result<Manifest> new_manifest(const Checkpoint& checkpoint, const FolderOptions& options, std::int64_t layer) {
  MOE_TRY(const Config config, checkpoint.config(layer, options.patch));
  MOE_TRY(const Platform platform,
          options.platform != nullptr ? Result<Platform>(*options.platform) : config::effective_platform(config));
  Manifest m;
  m.quantization_from = checkpoint.documents().quantization_from;
  m.platform = platform_word(platform);
  m.options = checkpoint.documents().options;
  if (!options.patch.empty()) {
    MOE_TRY(m.patch, json::parse(options.patch));
  }
  if (const json::Value* parallel = json::at_pointer(config.resolved, "/parallel");
      parallel != nullptr && parallel->object() != nullptr)
    m.parallel = *parallel;
  return m;
}

// All but the source.
Check check_same_folder(const std::string& folder, const Manifest& there, const Manifest& ours) {
  constexpr std::array<std::pair<std::string_view, std::string Manifest::*>, 2> kTexts = {
      {{"platform", &Manifest::platform}, {"quantization_from", &Manifest::quantization_from}}};
  for (const auto& [name, member] : kTexts)
    if (there.*member != ours.*member) return other_folder(folder, name, there.*member, ours.*member);
  const auto text_at = [](const json::Value& object, const std::string& key) {
    const json::Value* value = object.find(key);
    return value == nullptr ? "null" : json::write(*value, json::MemberOrder::sorted);
  };
  for (const json::Value* one : {&there.parallel, &ours.parallel})
    for (const auto& [key, value] : *one->object())
      if (const std::string theirs = text_at(there.parallel, key), needed = text_at(ours.parallel, key);
          theirs != needed)
        return other_folder(folder, cat("parallel/", key), theirs, needed);
  // What else they say would make layers of two kinds in one folder.
  constexpr std::array<std::pair<std::string_view, json::Value Manifest::*>, 2> kObjects = {
      {{"options", &Manifest::options}, {"patch", &Manifest::patch}}};
  for (const auto& [name, member] : kObjects) {
    const std::string theirs = json::write(there.*member, json::MemberOrder::sorted);
    const std::string needed = json::write(ours.*member, json::MemberOrder::sorted);
    if (theirs != needed) return other_folder(folder, name, theirs, needed);
  }
  return ok();
}

Result<bool> has_config(const Folder& folder, const std::string& text) {
  const FileName name(folder, kConfigName);
  MOE_TRY(const PathKind kind, path_kind(name));
  if (kind == PathKind::absent) return false;
  MOE_TRY(const std::string there, read_text(name));
  if (there == text) return true;
  return fail(Code::config_mismatch, name.path(),
              cat(name.path(), ": is not the config.json of this source; give a folder of its own"),
              json::members("member", kConfigName));
}

// A manifest that names layers without experts is not one of this library.
Check check_stored_layers(const std::string& path, const Manifest& manifest, const Checkpoint& checkpoint) {
  for (const StoredLayer& stored : manifest.layers)
    if (stored.layer >= std::ssize(checkpoint.layers()) ||
        at(checkpoint.layers(), stored.layer).kind == LayerKind::dense)
      return fail(Code::format, path, cat(path, ": layer ", stored.layer, " has no experts by config.json beside it"));
  return ok();
}

// What the folder holds, or why converted layers have no place there: sources of weights, another program's files.
Result<std::optional<Manifest>> look_into(const Folder& folder, const Checkpoint& checkpoint) {
  MOE_TRY(const std::vector<std::string> names, folder.names());
  for (const std::string& name : names)
    if (name.ends_with(kSourceSuffix))
      return fail(Code::invalid_argument, "directory",
                  cat("directory: ", folder.path(), " has ", in_quotes(name, 255),
                      ", a source of weights; converted layers need a folder of their own"));
  MOE_CHECK(has_config(folder, checkpoint.documents().text));
  MOE_TRY(ManifestFound found, read_manifest(folder));
  const std::string path = FileName(folder, kManifestName).path();
  if (found.manifest) MOE_CHECK(check_stored_layers(path, *found.manifest, checkpoint));
  if (!found.is_foreign) return std::move(found.manifest);
  return fail(Code::config_mismatch, path, cat(path, ": is another program's; give a folder of its own"),
              json::members("member", kManifestName));
}

// The same of a folder that need not be there yet.
Result<TargetFolder> target_at(const std::string& path, const Checkpoint& checkpoint) {
  TargetFolder target{path, {}};
  MOE_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::absent) return target;
  MOE_TRY(const Folder folder, Folder::open(path));
  MOE_TRY(target.manifest, look_into(folder, checkpoint));
  return target;
}

Check write_config(const Folder& folder, const std::string& text) {
  MOE_TRY(const bool is_there, has_config(folder, text));
  if (is_there) return ok();
  MOE_TRY(NewFile file, NewFile::create(FileName(folder, kConfigName)));
  MOE_CHECK(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

// A manifest that is refused after hours of conversion would take all layers with it, and so the last one that this
// call would write is read before the first layer is made.
Check check_last_manifest(const TargetFolder& target, Manifest last, const Checkpoint& checkpoint,
                          std::span<const Task> tasks) {
  last.source = cat("fast:", io::hash_text(0));
  if (target.manifest) last.layers = target.manifest->layers;
  for (const Task& task : tasks)
    last.put({.layer = task.layer,
              .file = layer_file_name(task.layer),
              .layout = task.selection.layout_id,
              .bytes = task.block,
              .plain = at(checkpoint.layers(), task.layer).plain,
              .in_files = at(checkpoint.layers(), task.layer).in_files});
  return check_manifest_is_read(cat(target.path, "/", kManifestName), last);
}

// The folder of a call that writes, and its place in it.
struct Writing {
  const Checkpoint& checkpoint;
  const Folder& folder;
  const FolderLock& lock;
  const std::shared_ptr<Context>& context;
  Control* control;
  Manifest manifest;
};

Check convert_one(Writing& to, const Task& task) {
  StoredLayer stored;
  stored.layer = task.layer;
  stored.file = layer_file_name(task.layer);
  {
    MOE_TRY(const io::Packed packed, pack_layer(to.checkpoint, task.layer, task.selection, {}, to.context, to.control));
    MOE_CHECK(io::save_packed(packed, FileName(to.folder, stored.file), to.control));
    stored.layout = packed.info.layout_id;
    stored.bytes = packed.block.size();
    stored.header_hash = packed.header_hash();
    stored.content_hash = packed.content_hash();
  }
  stored.plain = at(to.checkpoint.layers(), task.layer).plain;
  stored.in_files = at(to.checkpoint.layers(), task.layer).in_files;
  to.manifest.put(std::move(stored));
  MOE_CHECK(to.lock.still_there(to.folder, kLockName));
  return write_manifest(to.folder, to.manifest);
}

// Of a layer that is there.
Check pass_over(const Task& task, Control* control) {
  const std::uint64_t bytes = task.payload + task.block;
  begin_phase(control, Phase::save, Unit::bytes, bytes);
  return report(control, bytes, bytes);
}

Check write_layer(Writing& to, const Task& task, bool verify) {
  if (to.control != nullptr) to.control->begin_layer(task.layer);
  bool done = false;
  if (const StoredLayer* stored = to.manifest.find(task.layer); stored != nullptr) {
    if (verify) begin_phase(to.control, Phase::hash, Unit::bytes, stored->bytes);
    MOE_TRY(done, has_layer_file(to.folder, *stored, verify, parallel_of(to.context.get()), to.control));
  }
  MOE_CHECK(done ? pass_over(task, to.control) : convert_one(to, task));
  if (to.control != nullptr) to.control->end_layer();
  if (to.context == nullptr) return ok();
  const StoredLayer& stored = *to.manifest.find(task.layer);
  to.context->log().write(LogLevel::info, "convert",
                          cat("layer ", task.layer, done ? ": is there already, " : ": ", stored.file, ", ",
                              stored.bytes, " bytes, ", stored.layout));
  return ok();
}

// Of the whole call, as far as the folder tells now.
std::uint64_t bytes_of(const Checkpoint& checkpoint, std::span<const Task> tasks, const std::optional<Manifest>& there,
                       bool verify) {
  std::uint64_t bytes = fingerprint_bytes(checkpoint, false);
  for (const Task& task : tasks) {
    const StoredLayer* stored = verify && there ? there->find(task.layer) : nullptr;
    bytes += task.payload + task.block + (stored != nullptr ? stored->bytes : 0);
  }
  return bytes;
}

}  // namespace

Check convert_folder(const Checkpoint& checkpoint, const std::string& path, const FolderOptions& options,
                     const std::shared_ptr<Context>& context, Control* control) {
  begin_call(control);
  MOE_CHECK(report(control, 0, 0));
  if (checkpoint.manifest())
    return fail(Code::unsupported, checkpoint.folder(),
                cat(checkpoint.folder(), ": is converted already and has no source tensors"));
  MOE_TRY(const TargetFolder target, target_at(path, checkpoint));
  MOE_TRY(const std::vector<std::int64_t> numbers, numbers_of(checkpoint, options.layers));
  MOE_TRY(Manifest manifest, new_manifest(checkpoint, options, numbers.front()));
  if (target.manifest) MOE_CHECK(check_same_folder(path, *target.manifest, manifest));
  MOE_TRY(const std::vector<Task> tasks, tasks_of(checkpoint, numbers, options, target, control));
  MOE_CHECK(check_last_manifest(target, manifest, checkpoint, tasks));
  MOE_CHECK(make_folder(path));
  MOE_TRY(const Folder folder, Folder::open(path));
  MOE_TRY(const FolderLock lock, FolderLock::take(folder, kLockName));
  MOE_TRY(std::optional<Manifest> there, look_into(folder, checkpoint));
  begin_call(control, bytes_of(checkpoint, tasks, there, options.verify), std::ssize(tasks));
  MOE_TRY(manifest.source, fingerprint(checkpoint, false, parallel_of(context.get()), control));
  if (there) {
    if (there->source != manifest.source) return other_folder(path, "source", there->source, manifest.source);
    MOE_CHECK(check_same_folder(path, *there, manifest));
    manifest.layers = std::move(there->layers);
  }
  MOE_CHECK(write_config(folder, checkpoint.documents().text));
  Writing writing{checkpoint, folder, lock, context, control, std::move(manifest)};
  for (const Task& task : tasks) MOE_CHECK(write_layer(writing, task, options.verify));
  return ok();
}

}  // namespace moe::model
