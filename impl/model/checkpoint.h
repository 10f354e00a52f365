// A model's directory: its documents and files, opened and checked once, and what is known of each layer.
//
// The directory is Hugging Face's, or one that convert_folder (convert_folder.h) wrote. The latter has a manifest,
// packed files and config.json, and no source tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/control.h"
#include "base/os/file.h"
#include "base/parallel.h"
#include "base/result.h"
#include "config/config.h"
#include "hf/hf.h"
#include "io/safetensors.h"
#include "model/documents.h"
#include "model/manifest.h"
#include "scheme/tensor_source.h"

namespace moe::model {

// Numbers of moe_layer_kind in moe.h (the api room checks that).
enum class LayerKind : std::int32_t { other = 0, experts = 1, dense = 2 };

// One layer, whole: before any cut.
struct LayerFound {
  LayerKind kind = LayerKind::dense;
  bool predicts = false;  // for multi-token prediction
  bool converted = false;
  bool plain = false;              // its experts are not quantized, though a document says that the model is
  hf::NamesInFiles in_files = {};  // where they differ from the config's
  std::int64_t top_k = 0, num_experts = 0, hidden = 0, intermediate = 0;
  std::string name;    // of its experts, ""
  std::string format;  // of their quantization
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;  // of its experts in the files; converted: of the packed file
  std::vector<std::string> routers, shared_experts;
  std::optional<Error> fault;  // why no config can be made of it, why its tensors or packed file cannot be used

  // Its message becomes fit for people: paths may be any bytes.
  void note(Error e);
};

class Checkpoint {
 public:
  static Result<std::shared_ptr<const Checkpoint>> open(std::string folder, std::string_view options,
                                                        const Parallel& parallel, Control* control);

  const std::string& folder() const { return folder_.path(); }
  const Folder& open_folder() const { return folder_; }
  const Documents& documents() const { return documents_; }
  const std::string& class_name() const { return class_name_; }
  const std::vector<LayerFound>& layers() const { return layers_; }
  io::SortedEntries entries() const { return entries_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }

  // invalid_argument past the end.
  Result<const LayerFound*> layer(std::int64_t number) const;
  // patch: members of moe_config_create's document that win; "" for none. "reason" in an error's details:
  // "past_the_end", "dense_layer", "not_understood".
  Result<Config> config(std::int64_t number, std::string_view patch) const;
  // The layer of a config that config() made.
  Result<std::int64_t> layer_of(const Config& config) const;
  std::string to_json() const;
  // Any tensor of the files, read.
  Result<TensorLease> tensor(std::string_view name) const;

 private:
  Checkpoint() = default;
  Check read_layers(const Parallel& parallel, Control* control);
  Result<Config> config_without_cut(std::int64_t number, bool plain, const hf::NamesInFiles& in_files) const;
  Check look_at(std::int64_t number, LayerFound& out) const;
  Check check_names() const;
  Check look_at_rivals(std::int64_t number, const Config& config, const hf::NamesInFiles& in_files) const;
  Check look_at_packed(const StoredLayer& stored, LayerFound& out) const;
  Check check_manifest() const;

  Folder folder_;
  std::string class_name_, dtype_;
  Documents documents_;
  std::vector<io::CheckpointEntry> entries_;  // all tensors, by name
  std::optional<Manifest> manifest_;          // of a converted one
  std::vector<LayerFound> layers_;
};

}  // namespace moe::model
