// manifest.json, read and written. See manifest.h.
#include "model/manifest.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "base/os/file.h"
#include "base/os/new_file.h"
#include "base/text.h"
#include "config/fields.h"
#include "config/quantization/foreign.h"
#include "io/hash.h"
#include "model/documents.h"
#include "oracle/backend.h"

namespace moe::model {
namespace {

using config::fields::Members;

constexpr std::string_view kFormat = "libmoe-converted";
constexpr std::int64_t kVersion = 1;
constexpr std::array<std::string_view, 9> kMembers = {
    "format", "version", "source", "quantization_from", "options", "patch", "parallel", "platform", "layers"};
constexpr std::array<std::string_view, 8> kLayerMembers = {"layer",       "file",         "layout", "bytes",
                                                           "header_hash", "content_hash", "plain",  "in_files"};
constexpr std::array<std::string_view, 2> kNameMembers = {"module", "projections"};
constexpr int kAround = 2;  // levels of the manifest around the options, which hold files of the source
constexpr config::fields::IntegerRange kNumbers = {0, 1 << 20}, kSizes = {1, INT64_MAX};
constexpr std::size_t kMostText = 512;

// A fault at a pointer of the file.
Error in_file(const std::string& path, Error e) {
  e.code = Code::format;
  e.message = cat(path, ", ", e.message);
  e.subject = path;
  return e;
}

Result<std::string> needed_text(const Members& from, std::string_view key) {
  MOE_TRY(auto text, from.text(key, kMostText));
  if (!text) return config::fields::missing(from.at(key), "a text");
  return *std::move(text);
}

Result<std::uint64_t> needed_hash(const Members& from, std::string_view key) {
  MOE_TRY(const std::string text, needed_text(from, key));
  const std::optional<std::uint64_t> hash = io::hash_from_text(text);
  if (!hash) return config::fields::unexpected(from.at(key), *from.get(key), "xxh3: and 16 hexadecimal digits");
  return *hash;
}

Result<std::int64_t> needed_integer(const Members& from, std::string_view key, config::fields::IntegerRange range) {
  MOE_TRY(const auto value, from.integer(key, range));
  if (!value) return config::fields::missing(from.at(key), config::fields::range_text(range));
  return *value;
}

Result<json::Value> object_or_empty(const Members& from, std::string_view key) {
  const json::Value* value = from.get(key);
  if (value == nullptr) return json::Value(json::Object{});
  if (value->object() == nullptr) return config::fields::unexpected(from.at(key), *value, "an object");
  return *value;
}

Result<hf::NamesInFiles> read_names(const json::Value& value, const std::string& pointer) {
  if (value.object() == nullptr) return config::fields::unexpected(pointer, value, "an object");
  MOE_TRY(const Members m, Members::open(&value, pointer, kNameMembers));
  hf::NamesInFiles names;
  MOE_TRY(names.module, needed_text(m, "module"));
  const std::string three = "three names";
  const json::Value* list = m.get("projections");
  if (list == nullptr) return config::fields::missing(m.at("projections"), three);
  if (list->array() == nullptr || list->array()->size() != 3)
    return config::fields::unexpected(m.at("projections"), *list, three);
  for (const json::Value& one : *list->array()) {
    if (one.string() == nullptr || one.string()->empty() || one.string()->size() > kMostText)
      return config::fields::unexpected(m.at("projections"), *list, three);
    names.projections.push_back(*one.string());
  }
  return names;
}

Result<StoredLayer> read_layer(const json::Value& value, const std::string& pointer) {
  if (value.object() == nullptr) return config::fields::unexpected(pointer, value, "an object");
  MOE_TRY(const Members m, Members::open(&value, pointer, kLayerMembers));
  StoredLayer l;
  MOE_TRY(l.layer, needed_integer(m, "layer", kNumbers));
  MOE_TRY(l.file, needed_text(m, "file"));
  if (l.file != layer_file_name(l.layer))
    return config::fields::unexpected(m.at("file"), *m.get("file"), layer_file_name(l.layer));
  MOE_TRY(l.layout, needed_text(m, "layout"));
  MOE_TRY(const std::int64_t bytes, needed_integer(m, "bytes", kSizes));
  l.bytes = static_cast<std::uint64_t>(bytes);
  MOE_TRY(l.header_hash, needed_hash(m, "header_hash"));
  MOE_TRY(l.content_hash, needed_hash(m, "content_hash"));
  MOE_TRY(l.plain, m.boolean("plain", false));
  if (const json::Value* names = m.get("in_files")) {
    MOE_TRY(l.in_files, read_names(*names, m.at("in_files")));
  }
  return l;
}

Result<Manifest> read_members(const json::Value& value) {
  MOE_TRY(const Members m, Members::open(&value, "", kMembers));
  Manifest out;
  MOE_TRY(out.source, needed_text(m, "source"));
  MOE_TRY(const auto from, m.word("quantization_from", kQuantizationFrom));
  if (from) out.quantization_from = kQuantizationFrom[*from];
  MOE_TRY(out.platform, needed_text(m, "platform"));
  MOE_TRY(out.options, object_or_empty(m, "options"));
  MOE_TRY(out.patch, object_or_empty(m, "patch"));
  MOE_TRY(out.parallel, object_or_empty(m, "parallel"));
  const json::Value* layers = m.get("layers");
  if (layers == nullptr || layers->array() == nullptr) return config::fields::missing("/layers", "a list");
  for (std::size_t i = 0; i < layers->array()->size(); ++i) {
    const std::string pointer = cat("/layers/", i);
    MOE_TRY(StoredLayer layer, read_layer((*layers->array())[i], pointer));
    if (!out.layers.empty() && out.layers.back().layer >= layer.layer)
      return config::fields::fault(cat(pointer, "/layer"), "layers come in ascending numbers");
    out.layers.push_back(std::move(layer));
  }
  return out;
}

Result<ManifestFound> read_manifest_text(const std::string& path, std::string_view text) {
  ManifestFound found;
  auto value = parse_file(path, text, false, kAround);
  if (!value) {
    value.error().code = Code::format;
    return std::move(value.error());
  }
  const json::Value* format = value->find("format");
  found.is_foreign = format == nullptr || format->string() == nullptr || *format->string() != kFormat;
  if (found.is_foreign) return found;
  const json::Value* version = value->find("version");
  if (version == nullptr || version->integer() == nullptr || *version->integer() != kVersion)
    return fail(Code::version, path,
                cat(path, ": version ", version == nullptr ? "is missing" : config::fields::brief(*version),
                    "; this library reads ", kVersion));
  auto manifest = read_members(*value);
  if (!manifest) return in_file(path, std::move(manifest.error()));
  found.manifest = *std::move(manifest);
  return found;
}

Result<std::string> manifest_text(const std::string& path, const Manifest& m) {
  constexpr auto kSorted = json::MemberOrder::sorted;
  json::Writer w;
  w.begin_object().member("format", kFormat).member("version", kVersion).member("source", m.source);
  w.member("quantization_from", m.quantization_from).member("platform", m.platform);
  w.key("options").value(m.options, kSorted);
  w.key("patch").value(m.patch, kSorted);
  w.key("parallel").value(m.parallel, kSorted);
  w.key("layers").begin_array();
  for (const StoredLayer& l : m.layers) {
    w.begin_object().member("layer", l.layer).member("file", l.file).member("layout", l.layout);
    w.member("bytes", l.bytes).member("header_hash", io::hash_text(l.header_hash));
    w.member("content_hash", io::hash_text(l.content_hash));
    if (l.plain) w.member("plain", true);
    if (!l.in_files.module.empty()) {
      w.key("in_files").begin_object().member("module", l.in_files.module).key("projections").begin_array();
      for (const std::string& name : l.in_files.projections) w.value(name);
      w.end_array().end_object();
    }
    w.end_object();
  }
  std::string text = w.end_array().end_object().take() + "\n";
  if (text.size() > config::kMostForeignBytes)
    return fail(Code::unsupported, path,
                cat(path, ": would have ", text.size(), " bytes, at most ", config::kMostForeignBytes,
                    " are read; give shorter options, or fewer layers"));
  return text;
}

}  // namespace

const StoredLayer* Manifest::find(std::int64_t layer) const {
  const auto it = std::lower_bound(layers.begin(), layers.end(), layer,
                                   [](const StoredLayer& l, std::int64_t number) { return l.layer < number; });
  return it != layers.end() && it->layer == layer ? &*it : nullptr;
}

void Manifest::put(StoredLayer stored) {
  const auto it = std::lower_bound(layers.begin(), layers.end(), stored.layer,
                                   [](const StoredLayer& l, std::int64_t number) { return l.layer < number; });
  if (it != layers.end() && it->layer == stored.layer)
    *it = std::move(stored);
  else
    layers.insert(it, std::move(stored));
}

std::string platform_word(const Platform& platform) {
  if (platform.type == DeviceType::cpu) return cat("cpu ", at(kArchNames, platform.arch));
  std::set<std::string_view> libs;
  for (const auto& [name, is_there] : platform.libs)
    if (is_there) libs.insert(name);
  std::string word = oracle::platform_text(platform);
  if (platform.cuda_version) word += cat(" cuda_version ", *platform.cuda_version);
  if (platform.multiprocessor_count) word += cat(" multiprocessor_count ", *platform.multiprocessor_count);
  for (const std::string_view name : libs) word += cat(" ", name);
  return word;
}

std::string layer_file_name(std::int64_t layer) {
  std::string number = std::to_string(layer);
  number.insert(0, 5 - std::min<std::size_t>(number.size(), 5), '0');
  return cat("layer-", number, ".moe");
}

Result<ManifestFound> read_manifest(const Folder& folder) {
  const FileName name(folder, kManifestName);
  MOE_TRY(const PathKind kind, path_kind(name));
  if (kind == PathKind::absent) return ManifestFound();
  MOE_TRY(const std::string text, read_text(name));
  return read_manifest_text(name.path(), text);
}

Check check_manifest_is_read(const std::string& path, const Manifest& manifest) {
  MOE_TRY(const std::string text, manifest_text(path, manifest));
  const auto again = read_manifest_text(path, text);
  if (again) return ok();
  return fail(Code::unsupported, path, cat("what would be written could not be read again: ", again.error().message));
}

Check write_manifest(const Folder& folder, const Manifest& m) {
  const FileName name(folder, kManifestName);
  MOE_TRY(const std::string text, manifest_text(name.path(), m));
  MOE_TRY(NewFile file, NewFile::create(name));
  MOE_CHECK(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace moe::model
