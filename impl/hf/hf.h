// Models' own config.json (checkpoints.md 2-6): one layer of it as a document of ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "config/config.h"
#include "config/quantization/foreign.h"

namespace moe::hf {

// config.json (+ options of moe_config_create_from_hf) -> the document for config_from_document.
Result<json::Value> document_from_hf(const json::Value& hf, const json::Value& options);
// moe_config_create_from_hf. options_text may be empty. Faults of the options have the subject prefix "options:".
Result<Config> config_from_hf(std::string_view hf_text, std::string_view options_text);
// moe_describe("checkpoint", query): the forms of describe.md 10, the answer as JSON text.
Result<std::string> describe_checkpoint(const json::Value& query);

// --- models.cpp ---------------------------------------------------------------------------------------------------

// A config.json; multimodal ones keep the members of the language model inside text_config (InternVL's own llm_config).
class ModelFile {
 public:
  static Result<ModelFile> open(const json::Value& document);

  const Foreign& root() const { return root_; }
  // The language model's part, nullptr: the root is one.
  const Foreign* text() const { return text_ ? &*text_ : nullptr; }
  // The object that holds the language model's `key`: the one named by the architecture, else text_config, else the
  // root. If text_config exists, the root is not searched; missing members take the class's default. A member of
  // per_layer_config for the current layer comes first.
  const Foreign& holder(std::string_view key) const {
    for (const std::optional<Foreign>* nearer : {&layer_, &inner_})
      if (*nearer && (*nearer)->value().find(key) != nullptr) return **nearer;
    return text_ ? *text_ : root_;
  }
  // Wherever it is: members of a whole model may stand in either.
  const Foreign& anywhere(std::string_view key) const { return holder(key).has(key) ? holder(key) : root_; }
  // All of them, the first that counts first.
  std::vector<const Foreign*> places() const {
    std::vector<const Foreign*> all;
    for (const std::optional<Foreign>* inner : {&inner_, &text_})
      if (*inner) all.push_back(&**inner);
    all.push_back(&root_);
    return all;
  }
  // Those that holder() looks at, the first that counts first.
  std::vector<const Foreign*> places_read() const {
    std::vector<const Foreign*> all;
    for (const std::optional<Foreign>* nearer : {&layer_, &inner_})
      if (*nearer) all.push_back(&**nearer);
    all.push_back(text_ ? &*text_ : &root_);
    return all;
  }
  // Members of one layer, where per_layer_config has some.
  Check look_at_layer(std::int64_t layer);
  bool is_of_layer(const Foreign& place) const { return layer_ && &place == &*layer_; }
  // An object, "a/b", is looked into first; a file that lacks it may have its members elsewhere.
  Result<bool> look_into(std::string_view path);

 private:
  ModelFile(Foreign root, std::optional<Foreign> text) : root_(std::move(root)), text_(std::move(text)) {}

  Foreign root_;
  std::optional<Foreign> text_, inner_, layer_;
};

// A document for config_from_document, and where its members come from: faults are reported there.
// Where the files of a checkpoint have a layer's experts, which may be elsewhere than its class does; empty: not known.
struct NamesInFiles {
  std::string module;
  std::vector<std::string> projections;  // gate, up, down
  bool operator==(const NamesInFiles&) const = default;
};

struct Origin {
  std::string document, source;  // pointers
  bool same_below;               // the source has the same structure from here on
};
struct Built {
  json::Value document = json::Object{};
  std::vector<Origin> origins;
  std::optional<std::string> file_method;           // Quantization::file_method, which the document cannot say
  std::string named_by_class, other_name, assumed;  // of Config, too
  // How the tensors of all experts lie. This goes into the document once it is known that nothing is quantized.
  StackedWeights stacked = StackedWeights::none;
  std::vector<std::string> stacked_names;
  bool stacks = false;            // the class writes that form
  bool quantized_stacks = false;  // of quantized weights, too

  // Sets /key or /key/member; `source` "" when it is fixed by the architecture.
  void put(std::string_view key, json::Value value, std::string source);
  void put(std::string_view key, std::string_view member, json::Value value, std::string source);
  // Patches /key (RFC 7396).
  void merge(std::string_view key, const json::Value& patch, const std::string& source);
  // A fault of config_from_document, moved to the origin of the member.
  Error relocate(Error e) const;
  // The document, checked.
  Result<Config> config() const;
};

// The subject prefix of faults of the options.
constexpr std::string_view kOptions = "options:";

struct Architecture;  // architecture.h
// What the caller asked for that changes what is read: whose routing it is where vLLM's class and transformers' differ,
// and the overrides.
struct Asked {
  Policy compat = Policy::libmoe;
  const json::Value* overridden = nullptr;
  bool describes_routing = false;  // the option architecture does

  bool overrides(std::string_view member) const;
  // A member of a section of the document, or the whole section by something that is no object.
  bool overrides(std::string_view section, std::string_view member) const;
};
// A word of a file under a member of the document, in our words.
json::Value in_our_words(std::string_view member, const json::Value& theirs);
// Name, projections, sizes, activation, dtype and routing of the layer with this index, default the
// first with experts. `layer_pointer`: where the index was given.
Result<Built> describe_layer(const ModelFile& file, const Architecture& row, std::optional<std::int64_t> layer,
                             const std::string& layer_pointer, const Asked& asked);

// --- document.cpp -------------------------------------------------------------------------------------------------
Result<Built> build_document(const json::Value& hf, const json::Value& options, const NamesInFiles& in_files = {});

// `e` with its subject moved to `pointer`, which the message names too.
Error moved(Error e, const std::string& pointer);

}  // namespace moe::hf
