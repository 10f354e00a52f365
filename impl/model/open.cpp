// Opening a directory, and what is found of each layer. See checkpoint.h.
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/each_expert.h"
#include "base/index.h"
#include "base/text.h"
#include "config/fields.h"
#include "hf/hf.h"
#include "hf/layers.h"
#include "model/checkpoint.h"
#include "model/layer_file.h"
#include "weights/survey.h"

namespace moe::model {
namespace {

constexpr std::string_view kOverrides = "overrides", kQuantization = "quantization";
constexpr std::size_t kMostName = 512;

// The options of a layer whose experts stayed plain. (null is a value of an override: not quantized.)
json::Value without_quantization(const json::Value& options) {
  json::Value all = options;
  if (all.find(kOverrides) == nullptr) all.set(std::string(kOverrides), json::Object{});
  all.find(kOverrides)->set(std::string(kQuantization), json::Value());
  return all;
}

std::string quantization_text(const Config& config) {
  const json::Value* q = json::at_pointer(config.resolved, "/quantization");
  return q == nullptr ? "null" : json::write(*q, json::MemberOrder::sorted);
}

void note_sizes(const Config& c, LayerFound& out) {
  out.top_k = c.top_k;
  out.num_experts = c.num_experts;
  out.hidden = c.hidden_dim;
  out.intermediate = c.intermediate_size;
  out.name = c.name;
  out.format = at(kFormatNames, c.quantization.format);
}

// Asks the control once more, of the files that are open. A look at thousands of layers takes seconds.
Check ask_again(Control* control) {
  return control == nullptr ? ok() : control->report(control->done(), control->total());
}

// "bfloat16"; "" where no member says so.
std::string dtype_of(const json::Value& hf) {
  for (const json::Value* place : {&hf, hf.find("text_config")})
    for (const std::string_view key : {"torch_dtype", "dtype"})
      if (const json::Value* value = place == nullptr ? nullptr : place->find(key);
          value != nullptr && value->string() != nullptr)
        return *value->string();
  return "";
}

bool is_of_options(const Error& e) { return e.subject.starts_with(hf::kOptions); }

// The quantization object of a tool's file is read as an option: its faults are the file's.
Error in_own_words(Error e, const Documents& documents) {
  constexpr std::string_view kRead = "options:/quantization_config";
  if (!documents.is_of_tool() || !e.subject.starts_with(kRead)) return e;
  const std::string place = cat(documents.quantization_from, ":", std::string_view(e.subject).substr(kRead.size()));
  return hf::moved(std::move(e), place);
}

// A quantization object that cannot be the experts': of a tool whose tensors are not read, or of groups that do not fit
// them. The experts may be plain then.
bool may_be_plain(const Error& e) {
  const bool has_scales_in_it = e.subject.ends_with("/export/weight_format");  // Quark's dense weights
  const bool fits = e.code != Code::unsupported && e.code != Code::invalid_config;
  return !fits && e.subject.find("quantization_config") != std::string::npos && !is_of_options(e) && !has_scales_in_it;
}

std::vector<std::string> projections_of(const Config& c) {
  return {c.projection_names.begin(), c.projection_names.end()};
}

// One patch behind another as one patch: a null stays, since it says something to the document that is patched.
json::Value joined(const json::Value& first, const json::Value& second) {
  if (first.object() == nullptr || second.object() == nullptr) return second;
  json::Value all = first;
  for (const auto& [key, value] : *second.object()) {
    const json::Value* there = first.find(key);
    all.set(key, there == nullptr ? value : joined(*there, value));
  }
  return all;
}

// Options that the caller gives win over those that the folder was converted with: overrides member by member, another
// option as a whole.
json::Value merged_options(const json::Value& stored, const json::Value& given) {
  json::Value all = stored;
  for (const auto& [key, value] : *given.object()) {
    const json::Value* there = key == kOverrides ? stored.find(key) : nullptr;
    all.set(key, there == nullptr ? value : joined(*there, value));
  }
  return all;
}

Result<Folder> open_model_folder(std::string path) {
  MOE_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::absent) MOE_CHECK(File::open(cat(path, "/", kConfigName)));  // its error says what is missed
  auto folder = Folder::open(std::move(path));
  if (!folder) folder.error().message += "; give the directory that has config.json";
  return folder;
}

}  // namespace

void LayerFound::note(Error e) {
  e.message = printable(e.message);
  fault = std::move(e);
}

Check Checkpoint::look_at_rivals(std::int64_t number, const Config& config, const hf::NamesInFiles& in_files) const {
  for (const Documents::Rival& rival : documents_.rivals) {
    const auto theirs = hf::config_of_layer(documents_.hf, rival.options, number, in_files);
    const std::string ours = quantization_text(config);
    const std::string others = theirs ? quantization_text(*theirs) : std::string();
    if (theirs && ours == others) continue;
    const std::string path = cat(folder(), "/", rival.file);
    return fail(Code::invalid_config, path,
                cat(path, ": does not say what ", documents_.quantization_from, " says of the experts of layer ",
                    number, ": ", theirs ? others : theirs.error().message, "; ", documents_.quantization_from,
                    " says ", ours, "; the option quantization_config says which is right"),
                json::members("actual", theirs ? others : "", "expected", ours, "reason", "two_quantizations"));
  }
  return ok();
}

Result<Config> Checkpoint::config_without_cut(std::int64_t number, bool plain, const hf::NamesInFiles& in_files) const {
  const json::Value& options = documents_.options;
  auto config = hf::config_of_layer(documents_.hf, plain ? without_quantization(options) : options, number, in_files);
  if (!config) return in_own_words(std::move(config.error()), documents_);
  return config;
}

// What a layer with experts is; its fault is noted, and only faults of the whole directory are returned.
Check Checkpoint::look_at(std::int64_t number, LayerFound& out) const {
  auto config = config_without_cut(number, out.plain, out.in_files);
  // The files tell where the experts are, of which the quantization may depend, and whether they stayed plain.
  if (const auto known = config || entries_.empty() ? config : config_without_cut(number, true, {});
      known && !entries_.empty()) {
    weights::Survey found = weights::survey_layer(std::make_shared<const Config>(*known), entries_);
    hf::NamesInFiles there{found.prefix, found.projections};
    if (there.projections.empty()) there.projections = projections_of(*known);
    if (found.tensors > 0 && there != hf::NamesInFiles{known->name, projections_of(*known)}) {
      out.in_files = std::move(there);
      config = config_without_cut(number, out.plain, out.in_files);
      if (config) found = weights::survey_layer(std::make_shared<const Config>(*config), entries_);
    }
    const bool quantized = config ? config->quantization.format != Format::none : may_be_plain(config.error());
    if (quantized && documents_.quantization_from != kOfOptions && found.tensors > 0 && found.only_floats) {
      out.plain = true;
      config = config_without_cut(number, out.plain, {});
    }
    if (config) {
      out.tensors = found.tensors;
      out.bytes = found.bytes;
      out.routers = std::move(found.routers);
      out.shared_experts = std::move(found.shared_experts);
    }
  }
  std::shared_ptr<const Config> shared = config ? std::make_shared<const Config>(*std::move(config)) : nullptr;
  if (shared == nullptr) {
    if (config.error().code == Code::out_of_memory || is_of_options(config.error())) return config.error();
    out.kind = LayerKind::other;
    out.note(std::move(config.error()));
    return ok();
  }
  if (!out.plain) MOE_CHECK(look_at_rivals(number, *shared, out.in_files));
  const bool lacks = !manifest_ && out.tensors == 0;
  if (lacks && out.predicts) {
    out.kind = LayerKind::other;
    out.note(fail(Code::unsupported, "layer",
                  cat("layer: the files have no tensors of layer ", number, ", which is for multi-token prediction")));
    return ok();
  }
  note_sizes(*shared, out);
  out.kind = LayerKind::experts;
  if (lacks)
    out.note(
        fail(Code::missing_weight, out.name,
             cat(out.name, ": the files of ", folder(), " have no tensor of its experts (an incomplete download?)")));
  return ok();
}

// A name tells whose tensors and packed weights are meant.
Check Checkpoint::check_names() const {
  std::map<std::string_view, std::int64_t> numbers;
  for (std::int64_t l = 0; l < std::ssize(layers_); ++l) {
    if (at(layers_, l).kind != LayerKind::experts) continue;
    const auto [other, is_new] = numbers.try_emplace(at(layers_, l).name, l);
    if (!is_new)
      return config::fields::fault("/name", cat("layers ", other->second, " and ", l, " of ", folder(), " are both ",
                                                in_quotes(other->first, kMostName)));
  }
  return ok();
}

Check Checkpoint::look_at_packed(const StoredLayer& stored, LayerFound& out) const {
  const auto look = [&]() -> Check {
    MOE_TRY(const File file, open_layer_file(folder_, stored));
    return check_layer_head(file, stored);
  };
  out.plain = stored.plain;
  out.in_files = stored.in_files;
  out.bytes = stored.bytes;
  Check found = look();
  out.converted = static_cast<bool>(found);
  if (found) return ok();
  if (found.error().code == Code::out_of_memory) return found;
  if (!out.fault) out.note(std::move(found.error()));
  return ok();
}

// What a manifest says of configs, read without the caller's options: its faults are the file's.
Check Checkpoint::check_manifest() const {
  const std::string path = cat(folder(), "/", kManifestName);
  const auto in_manifest = [&](const Error& e) { return fail(Code::format, path, cat(path, ", ", e.message)); };
  MOE_TRY(const Documents documents, read_documents(folder_, manifest_->options));
  if (const Check told = check_options(manifest_->options); !told) return in_manifest(told.error());
  const auto model = hf::model_layers(documents.hf, documents.options);
  if (!model) return is_of_options(model.error()) ? Check(in_manifest(model.error())) : ok();
  for (const StoredLayer& stored : manifest_->layers) {
    if (stored.layer >= model->rule.count || !model->rule.has_experts(stored.layer))
      return in_manifest(
          fail(Code::format, "", cat("layer ", stored.layer, " has no experts by config.json beside it")));
    if (stored.layer != manifest_->layers.front().layer) continue;  // the same options and patch for all
    const json::Value options = stored.plain ? without_quantization(documents.options) : documents.options;
    const auto config = hf::config_of_layer(documents.hf, options, stored.layer, stored.in_files);
    if (!config && is_of_options(config.error())) return in_manifest(config.error());
    if (!config || manifest_->patch.object()->empty()) continue;
    const auto patched = merge_config(*config, json::write(manifest_->patch));
    if (!patched) return in_manifest(patched.error());
    if (patched->name != config->name) return in_manifest(config::fields::fault("/name", "patch renames the layer"));
  }
  return ok();
}

Check Checkpoint::read_layers(const Parallel& parallel, Control* control) {
  auto model = hf::model_layers(documents_.hf, documents_.options);
  if (!model) {
    model.error() = in_own_words(std::move(model.error()), documents_);
    if (model.error().code == Code::out_of_memory || is_of_options(model.error())) return model.error();
    layers_.resize(usize(hf::told_layers(documents_.hf)));
    if (layers_.empty()) return model.error();  // no layer is there that could say it
    for (LayerFound& layer : layers_) {
      layer.kind = LayerKind::other;
      layer.note(model.error());
    }
    return ok();
  }
  class_name_ = std::move(model->class_name);
  const hf::LayerRule& rule = model->rule;
  layers_.resize(usize(rule.count));
  for (std::int64_t l = 0; l < rule.count; ++l) at(layers_, l).predicts = l >= rule.count - rule.predicted;
  const auto look = [&](std::size_t, std::int64_t l) -> Check {
    LayerFound& layer = at(layers_, l);
    const StoredLayer* stored = manifest_ ? manifest_->find(l) : nullptr;
    if (stored != nullptr) layer.plain = stored->plain, layer.in_files = stored->in_files;
    if (rule.has_experts(l)) MOE_CHECK(look_at(l, layer));
    if (manifest_ && stored == nullptr) layer.format.clear();  // experts that stayed plain are known by their tensors
    return stored != nullptr ? look_at_packed(*stored, layer) : ok();
  };
  constexpr std::int64_t kEach = 8;  // layers of a thread between two looks at the control
  const std::size_t workers = workers_for(rule.count, parallel);
  const std::int64_t round = kEach * static_cast<std::int64_t>(workers);
  for (std::int64_t begin = 0; begin < rule.count; begin += round) {
    MOE_CHECK(each_expert(begin, std::min(rule.count, begin + round), workers, parallel, control, look));
    MOE_CHECK(ask_again(control));
  }
  return check_names();
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(std::string folder, std::string_view options_text,
                                                           const Parallel& parallel, Control* control) {
  const std::shared_ptr<Checkpoint> c(new Checkpoint);
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  begin_phase(control, Phase::open, Unit::files, 0);
  MOE_CHECK(report(control, 0, 0));
  MOE_TRY(json::Value options, parse_options(options_text));
  MOE_TRY(c->folder_, open_model_folder(std::move(folder)));
  MOE_TRY(ManifestFound manifest, read_manifest(c->folder_));
  c->manifest_ = std::move(manifest.manifest);
  const bool decided = decides_quantization(options);
  if (c->manifest_) {
    MOE_CHECK(c->check_manifest());
    options = merged_options(c->manifest_->options, options);
  }
  MOE_TRY(c->documents_, read_documents(c->folder_, std::move(options)));
  if (c->manifest_) {
    if (!decided) c->documents_.quantization_from = c->manifest_->quantization_from;
  } else {
    MOE_TRY(c->entries_, io::open_checkpoint(c->folder(), io::NameFilter(""), parallel, control));
  }
  c->dtype_ = dtype_of(c->documents_.hf);
  MOE_CHECK(c->read_layers(parallel, control));
  return std::shared_ptr<const Checkpoint>(c);
}

Result<const LayerFound*> Checkpoint::layer(std::int64_t number) const {
  if (number >= 0 && number < std::ssize(layers_)) return &at(layers_, number);
  return fail(Code::invalid_argument, "layer",
              cat("layer: found ", number, ", the model has ", layers_.size(), " layers"),
              json::members("reason", "past_the_end", "actual", number, "expected", layers_.size()));
}

Result<Config> Checkpoint::config(std::int64_t number, std::string_view patch) const {
  MOE_TRY(const LayerFound* found, layer(number));
  if (found->kind == LayerKind::dense)
    return fail(Code::invalid_config, "layer", cat("layer: layer ", number, " has no experts, it is a dense layer"),
                json::members("reason", "dense_layer"));
  if (found->kind == LayerKind::other) {
    Error e = *found->fault;
    e.details = cat(json::members("reason", "not_understood"), e.details.empty() ? "" : ",", e.details);
    return e;
  }
  MOE_TRY(Config config, config_without_cut(number, found->plain, found->in_files));
  if (manifest_ && !manifest_->patch.object()->empty()) {
    MOE_TRY(config, merge_config(config, json::write(manifest_->patch)));
  }
  if (!patch.empty()) {
    MOE_TRY(config, merge_config(config, patch));
  }
  if (config.name == found->name) return config;
  return config::fields::fault(
      "/name", cat("the experts of layer ", number, " are ", in_quotes(found->name, kMostName), ", found ",
                   in_quotes(config.name, kMostName), "; a patch cannot rename them, leave the member out"));
}

Result<std::int64_t> Checkpoint::layer_of(const Config& config) const {
  for (std::int64_t l = 0; l < std::ssize(layers_); ++l)
    if (at(layers_, l).kind == LayerKind::experts && at(layers_, l).name == config.name) return l;
  return fail(Code::config_mismatch, "/name",
              cat("/name: no layer of ", folder(), " has experts of the name ", in_quotes(config.name, kMostName),
                  "; the selection must be of a config of moe_checkpoint_config"),
              json::members("member", "/name", "actual", config.name));
}

}  // namespace moe::model
