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
#include "io/packed.h"
#include "layouts/p16/p16_layout.h"
#include "model/fingerprint.h"
#include "model/pack.h"

namespace moe::model {
namespace {

constexpr const char* kLockName = ".moe-convert.lock";
constexpr std::string_view kSourceSuffix = ".safetensors";

// A layer to be converted, and what it becomes.
struct Task {
  std::int64_t layer;
  Selection selection;
  std::uint64_t payload, block;  // bytes, as far as the selection tells
  bool done = false;
};

std::string path_of(const std::string& folder, std::string_view name) { return cat(folder, "/", name); }

Error other_folder(const std::string& folder, std::string_view member, std::string_view found,
                   std::string_view expected) {
  return fail(Code::config_mismatch, path_of(folder, kManifestName),
              cat(path_of(folder, kManifestName), ": ", member, " is ", found, ", this call's is ", expected,
                  "; one folder holds one source, platform and layout, and layers of one cut and the same options"),
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

// Everything that can be refused is refused here, before the first byte is written.
Result<std::vector<Task>> tasks_of(const Checkpoint& checkpoint, const FolderOptions& options) {
  std::vector<std::int64_t> numbers(options.layers.begin(), options.layers.end());
  MOE_CHECK(check_numbers(checkpoint, numbers));
  if (numbers.empty())
    for (std::int64_t l = 0; l < std::ssize(checkpoint.layers()); ++l)
      if (const LayerFound& found = at(checkpoint.layers(), l);
          found.kind == LayerKind::experts || (found.fault && !found.predicts))
        numbers.push_back(l);
  std::sort(numbers.begin(), numbers.end());
  if (numbers.empty())
    return fail(Code::unsupported, checkpoint.folder(), cat(checkpoint.folder(), ": no layer of it has experts"));
  std::vector<Task> tasks;
  for (const std::int64_t l : numbers) {
    MOE_TRY(Config config, checkpoint.config(l, options.patch));
    MOE_TRY(Selection selection, select_for_layer(checkpoint, l, std::make_shared<const Config>(std::move(config)),
                                                  options.platform, {.allow_fallback = options.allow_fallback}));
    MOE_CHECK(bind::check_built(selection));
    MOE_TRY(const std::uint64_t block, io::packed_block_bytes(bind::packed_info(selection)));
    const std::uint64_t payload = selection.layout.payload_bytes();
    tasks.push_back({l, std::move(selection), payload, block});
  }
  return tasks;
}

// The manifest that this call alone would write, without layers.
Result<Manifest> new_manifest(const Checkpoint& checkpoint, const FolderOptions& options, const Task& first,
                              std::string source) {
  Manifest m;
  m.source = std::move(source);
  m.quantization_from = checkpoint.documents().quantization_from;
  m.platform = platform_word(first.selection.platform);
  m.options = checkpoint.documents().options;
  if (!options.patch.empty()) {
    MOE_TRY(m.patch, json::parse(options.patch));
  }
  if (const json::Value* parallel = json::at_pointer(first.selection.config->resolved, "/parallel");
      parallel != nullptr && parallel->object() != nullptr)
    m.parallel = *parallel;
  return m;
}

Check check_same_folder(const std::string& folder, const Manifest& there, const Manifest& ours) {
  if (there.source != ours.source) return other_folder(folder, "source", there.source, ours.source);
  if (there.platform != ours.platform) return other_folder(folder, "platform", there.platform, ours.platform);
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
  const std::array<std::pair<std::string_view, const json::Value Manifest::*>, 2> kMore = {
      {{"options", &Manifest::options}, {"patch", &Manifest::patch}}};
  for (const auto& [name, member] : kMore) {
    const std::string theirs = json::write(there.*member, json::MemberOrder::sorted);
    const std::string needed = json::write(ours.*member, json::MemberOrder::sorted);
    if (theirs != needed) return other_folder(folder, name, theirs, needed);
  }
  return ok();
}

Check check_layout(const std::string& folder, const Task& task, const StoredLayer& stored) {
  const Selection& s = task.selection;
  if (stored.layout == s.layout_id || stored.layout == with_any_groups(s.layout).id()) return ok();
  return other_folder(folder, cat("layout of layer ", task.layer), stored.layout, s.layout_id);
}

// Whether the file of a layer is the one that the manifest names.
Result<bool> is_there(const std::string& folder, const StoredLayer& stored, bool verify,
                      const std::shared_ptr<Context>& context, Control* control) {
  const std::string path = path_of(folder, stored.file);
  if (path_kind(path) == PathKind::absent) return false;
  const auto head = io::read_packed_head(path);
  if (!head) return head.error().code == Code::io ? Result<bool>(head.error()) : Result<bool>(false);
  if (head->bytes != stored.bytes || head->header_hash != stored.header_hash) return false;
  if (!verify) return true;
  begin_phase(control, Phase::hash, Unit::bytes, 0);
  const auto whole = io::load_packed(path.c_str(), {.mmap = false, .prefault = false, .verify = true},
                                     allocator_of(context.get()), context, parallel_of(context.get()), nullptr);
  MOE_CHECK(report(control, 0, 0));
  if (whole) return whole->content_hash() == stored.content_hash;
  return whole.error().code == Code::format ? Result<bool>(false) : Result<bool>(whole.error());
}

Check write_config(const std::string& folder, const std::string& text) {
  const std::string path = path_of(folder, "config.json");
  if (path_kind(path) != PathKind::absent) {
    MOE_TRY(const std::string there, read_text(path));
    if (there == text) return ok();
    return fail(Code::config_mismatch, path,
                cat(path, ": is not the config.json of this source; give a folder of its own"),
                json::members("member", "config.json"));
  }
  MOE_TRY(NewFile file, NewFile::create(path));
  MOE_CHECK(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

// A folder of source files is not a place for packed ones.
Check check_target(const std::string& folder) {
  MOE_TRY(const std::vector<std::string> names, directory_names(folder));
  for (const std::string& name : names)
    if (name.ends_with(kSourceSuffix))
      return fail(Code::invalid_argument, "directory",
                  cat("directory: ", folder, " has ", in_quotes(name, 255),
                      ", a source of weights; converted layers need a folder of their own"));
  return ok();
}

Check convert_one(const Checkpoint& checkpoint, const std::string& folder, const Task& task, Manifest& manifest,
                  const std::shared_ptr<Context>& context, Control* control) {
  StoredLayer stored;
  stored.layer = task.layer;
  stored.file = layer_file_name(task.layer);
  {
    MOE_TRY(const io::Packed packed, pack_layer(checkpoint, task.layer, task.selection, {}, context, control));
    MOE_CHECK(io::save_packed(packed, path_of(folder, stored.file).c_str(), control));
    stored.layout = packed.info.layout_id;
    stored.bytes = packed.block.size();
    stored.header_hash = packed.header_hash();
    stored.content_hash = packed.content_hash();
  }
  stored.plain = at(checkpoint.layers(), task.layer).plain;
  manifest.put(std::move(stored));
  return write_manifest(folder, manifest);
}

// Of a layer that is there.
Check pass_over(const Task& task, Control* control) {
  const std::uint64_t bytes = task.payload + task.block;
  begin_phase(control, Phase::save, Unit::bytes, bytes);
  return report(control, bytes, bytes);
}

void log_layer(Context& context, const Task& task, const StoredLayer& stored) {
  context.log().write(LogLevel::info, "convert",
                      cat("layer ", task.layer, task.done ? ": is there already, " : ": ", stored.file, ", ",
                          stored.bytes, " bytes, ", stored.layout));
}

}  // namespace

Check convert_folder(const Checkpoint& checkpoint, const std::string& folder, const FolderOptions& options,
                     const std::shared_ptr<Context>& context, Control* control) {
  if (checkpoint.manifest())
    return fail(Code::unsupported, checkpoint.folder(),
                cat(checkpoint.folder(), ": is converted already and has no source tensors"));
  const Parallel parallel = parallel_of(context.get());
  MOE_TRY(std::vector<Task> tasks, tasks_of(checkpoint, options));
  std::uint64_t bytes = fingerprint_bytes(checkpoint, false);
  for (const Task& t : tasks) bytes += t.payload + t.block;
  begin_call(control, bytes, std::ssize(tasks));
  MOE_CHECK(report(control, 0, 0));
  MOE_CHECK(make_folder(folder));
  MOE_TRY(const FolderLock lock, FolderLock::take(folder, kLockName));
  MOE_CHECK(check_target(folder));
  MOE_TRY(std::string source, fingerprint(checkpoint, false, parallel, control));
  MOE_TRY(Manifest manifest, new_manifest(checkpoint, options, tasks.front(), std::move(source)));
  MOE_TRY(std::optional<Manifest> there, read_manifest(folder));
  if (there) {
    MOE_CHECK(check_same_folder(folder, *there, manifest));
    manifest.layers = std::move(there->layers);
  }
  for (Task& task : tasks) {
    const StoredLayer* stored = manifest.find(task.layer);
    if (stored == nullptr) continue;
    MOE_CHECK(check_layout(folder, task, *stored));
    MOE_TRY(task.done, is_there(folder, *stored, options.verify, context, control));
  }
  MOE_CHECK(write_config(folder, checkpoint.documents().text));
  for (const Task& task : tasks) {
    if (control != nullptr) control->begin_layer(task.layer);
    if (task.done)
      MOE_CHECK(pass_over(task, control));
    else
      MOE_CHECK(convert_one(checkpoint, folder, task, manifest, context, control));
    if (control != nullptr) control->end_layer();
    if (context != nullptr) log_layer(*context, task, *manifest.find(task.layer));
  }
  return ok();
}

}  // namespace moe::model
