// What a converted folder says of itself: manifest.json (converted.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/os/file.h"
#include "base/platform.h"
#include "base/result.h"
#include "hf/hf.h"

namespace moe::model {

constexpr const char* kManifestName = "manifest.json";

// A packed file of the folder.
struct StoredLayer {
  std::int64_t layer = 0;  // the model's number
  std::string file;        // its name in the folder
  std::string layout;
  std::uint64_t bytes = 0, header_hash = 0, content_hash = 0;
  bool plain = false;              // LayerFound::plain
  hf::NamesInFiles in_files = {};  // LayerFound::in_files
};

struct Manifest {
  std::string source;  // fingerprint of what was converted
  std::string quantization_from;
  std::string platform;                   // platform_word
  json::Value options = json::Object{};   // of moe_checkpoint_open
  json::Value patch = json::Object{};     // of the configs: the cut of a rank
  json::Value parallel = json::Object{};  // member of every layer's resolved config
  std::vector<StoredLayer> layers;        // in ascending numbers

  const StoredLayer* find(std::int64_t layer) const;
  // In the place of an older one.
  void put(StoredLayer layer);
};

// "cpu x86_64", "cuda 9.0 cuda_version 12080 flashinfer": what packed layouts are made for. Of accelerators it has
// every fact that decides a layout, so that one folder never gets two. Instruction sets are no part of it: the layouts
// tell.
std::string platform_word(const Platform& platform);
std::string layer_file_name(std::int64_t layer);

struct ManifestFound {
  bool is_foreign = false;  // another program's
  std::optional<Manifest> manifest;
};
Result<ManifestFound> read_manifest(const Folder& folder);
// unsupported: read_manifest would not take this one from the file at `path`. Nothing is written.
Check check_manifest_is_read(const std::string& path, const Manifest& manifest);
// The file is replaced as a whole.
Check write_manifest(const Folder& folder, const Manifest& manifest);

}  // namespace moe::model
