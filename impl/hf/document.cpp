// config.json and the options of moe_config_create_from_hf -> a document of moe_config_create.
//
//   architecture row -> + parallel options -> + overrides (they win) -> + quantization in the strict form
//
// Every member remembers where it came from, so that a fault found by config_from_document is reported
// in the file, or with the prefix "options:", in the options.
#include <algorithm>
#include <array>

#include "base/index.h"
#include "base/text.h"
#include "config/quantization/foreign.h"
#include "config/quantization/quantization.h"
#include "config/sections.h"
#include "config/settings.h"
#include "hf/hf.h"
#include "hf/layers.h"
#include "hf/read_as.h"

namespace moe::hf {
namespace {

using fields::Members;

constexpr std::array<std::string_view, 9> kOptionNames = {
    "layer_index", "module",  "architecture", "quantization_config", "overrides", "tp_size",
    "tp_rank",     "ep_size", "ep_rank"};
constexpr std::size_t kMaxModule = 512, kMaxProjection = 64;

bool is_below(std::string_view pointer, std::string_view ancestor) {
  return pointer.starts_with(ancestor) && (pointer.size() == ancestor.size() || pointer[ancestor.size()] == '/');
}

// tp_* and ep_* (checkpoints.md 11): expert parallelism is tp_* of the document with its switch on.
Check put_parallel(const Members& options, Built& b) {
  constexpr fields::IntegerRange kSizes = {1, 65536}, kRanks = {0, 65535};
  MOE_TRY(const auto tp_size, options.integer("tp_size", kSizes));
  MOE_TRY(const auto tp_rank, options.integer("tp_rank", kRanks));
  MOE_TRY(const auto ep_size, options.integer("ep_size", kSizes));
  MOE_TRY(const std::int64_t ep_rank, options.integer("ep_rank", kRanks, 0));
  const auto put = [&](std::string_view member, json::Value value, std::string_view option) {
    b.put("parallel", member, std::move(value), options.at(option));
  };
  if (ep_rank >= ep_size.value_or(1))
    return fields::fault(options.at("ep_rank"),
                         cat("found ", ep_rank, ", expected less than ep_size, ", ep_size.value_or(1)));
  if (ep_size.value_or(1) > 1) {
    if (tp_size.value_or(1) > 1 || tp_rank.value_or(0) > 0)
      return fields::fault(options.at("ep_size"),
                           cat("found ", *ep_size, ", but tensor parallelism is asked for too; use overrides"));
    put("tp_size", *ep_size, "ep_size");
    put("tp_rank", ep_rank, "ep_rank");
    put("enable_expert_parallel", true, "ep_size");
    return ok();
  }
  if (tp_size) put("tp_size", *tp_size, "tp_size");
  if (tp_rank) put("tp_rank", *tp_rank, "tp_rank");
  return ok();
}

void erase_member(json::Value& object, std::string_view key) {
  if (json::Object* members = object.object())
    std::erase_if(*members, [&](const json::Member& m) { return m.first == key; });
}

void note_origins(const json::Value& value, const std::string& document, const std::string& source, Built& b) {
  b.origins.push_back({document, source, true});
  if (value.object() == nullptr) return;
  for (const auto& [key, member] : *value.object()) {
    note_origins(member, fields::child(document, key), fields::child(source, key), b);
  }
}

Check apply_overrides(const Members& options, Built& b) {
  const json::Value* overrides = options.get("overrides");
  if (overrides == nullptr) return ok();
  const std::string pointer = options.at("overrides");
  if (overrides->object() == nullptr) return fields::unexpected(pointer, *overrides, "an object");
  for (const auto& [key, value] : *overrides->object()) {
    // An override of one name takes the place of the others.
    if (const Setting* setting = kSettings.find(key); setting != nullptr && setting->count > 1)
      for (const std::string_view name : setting->names()) erase_member(b.document, name);
  }
  for (const auto& [key, value] : *overrides->object()) b.merge(key, value, fields::child(pointer, key));
  return ok();
}

// A wrong value is refused with the other overrides.
Asked asked_by(const Members& options) {
  const json::Value* overrides = options.get("overrides");
  const json::Value* compat = overrides == nullptr ? nullptr : overrides->find("bit_compat");
  const bool vllm = compat != nullptr && compat->string() != nullptr && *compat->string() == "vllm";
  const json::Value* described = options.get("architecture");
  const bool routing = described != nullptr && described->find("routing") != nullptr;
  return {vllm ? Policy::vllm : Policy::libmoe, overrides, routing};
}

// null counts: it says that the layer is not quantized.
bool overrides_quantization(const Members& options) {
  const json::Value* overrides = options.get("overrides");
  return overrides != nullptr &&
         (overrides->find("quantization") != nullptr || overrides->find("hf_quantization_config") != nullptr);
}

struct QuantizationSource {
  const json::Value* value = nullptr;
  std::string pointer;
};

constexpr std::string_view kQuantization = "quantization_config";
constexpr std::string_view kOlderQuantization = "compression_config";  // of llm-compressor once

QuantizationSource quantization_in(const ModelFile& file) {
  for (const std::string_view key : {kQuantization, kOlderQuantization}) {
    const Foreign& holder = file.root().has(key) ? file.root() : file.anywhere(key);
    if (holder.has(key)) return {holder.get(key), holder.at(key)};
  }
  return {};
}

QuantizationSource quantization_source(const ModelFile& file, const Members& options) {
  if (options.has(kQuantization)) return {options.get(kQuantization), options.at(kQuantization)};
  return quantization_in(file);
}

// The strict form: what the canonical document shows, without its nulls.
json::Value without_nulls(json::Value value) {
  if (json::Object* members = value.object()) {
    std::erase_if(*members, [](const json::Member& m) { return m.second.is_null(); });
    for (auto& [key, member] : *members) member = without_nulls(std::move(member));
  }
  return value;
}

// DeepSeek-V4's files say fp8, which their experts need not be: a key beside that object tells what they are, and it is
// read as a member of it. A file without the key has what its model type had when it was published.
Check say_expert_dtype(const ModelFile& file, std::string_view key, json::Value& object, Built& b) {
  const json::Value* method = object.find("quant_method");
  if (key.empty() || method == nullptr || method->string() == nullptr || *method->string() != "fp8") return ok();
  MOE_TRY(const auto type, file.root().text("model_type"));
  const Foreign& holder = file.holder(key);
  MOE_TRY(const auto given, holder.text(key));
  const json::Value* inside = object.find(config::kExpertDtype);
  const bool told = inside != nullptr && !inside->is_null();
  if (given && !config::expert_dtype(*given))
    return fields::unexpected(holder.at(key), *holder.get(key), config::kExpertDtypes);
  if (given && told && inside->string() != nullptr &&
      config::expert_dtype(*inside->string()) != config::expert_dtype(*given))
    return fields::fault(holder.at(key), cat("found ", fields::brief(*holder.get(key)),
                                             ", but quantization_config says ", fields::brief(*inside)));
  if (given) object.set(std::string(config::kExpertDtype), *given);
  if (given || told) return ok();
  const std::string_view word = type && type->starts_with("deepseek_v4") ? "fp4" : "fp8";
  object.set(std::string(config::kExpertDtype), word);
  b.assumed =
      cat("config.json has no ", key, ", which says what the experts of this class are: ", word, " was assumed");
  return ok();
}

// Two answers about a layer, faults among them.
bool is_same(const config::Resolved& a, const config::Resolved& b) {
  if (!a || !b) return !a && !b && a.error().message == b.error().message;
  return config::same_scheme(*a, *b);
}

// Tools call modules as their files do, transformers as its code does. Where these differ, the names count of which the
// object says something.
config::Resolved resolve(const json::Value& object, const NamesInFiles& given, std::int64_t experts,
                         const NamesInFiles& in_files) {
  const auto of = [&](const NamesInFiles& names) {
    return resolve_hf_quantization(object, names.module, names.projections, experts);
  };
  if (in_files.module.empty() || in_files == given) return of(given);
  const NamesInFiles of_no_model{"no.module", {"of", "any", "model"}};
  config::Resolved there = of(in_files);
  if (!is_same(there, of(of_no_model))) return there;
  config::Resolved ours = of(given);
  return ours ? std::move(ours) : std::move(there);
}

// After the overrides, which may have renamed the layer whose quantization is asked for.
Check put_quantization(const ModelFile& file, const QuantizationSource& source, std::string_view expert_dtype,
                       const NamesInFiles& in_files, Built& b) {
  if (source.value == nullptr) return ok();
  constexpr fields::IntegerRange kExperts = {1, 65536};
  const json::Value *name = b.document.find("name"), *given = b.document.find("projection_names"),
                    *count = b.document.find("num_experts");
  std::vector<std::string> projections;
  if (given != nullptr && given->array() != nullptr)
    for (const json::Value& p : *given->array())
      if (p.string() != nullptr && p.string()->size() <= 4 * kMaxProjection) projections.push_back(*p.string());
  // Names and numbers of a wrong kind or size can only be overrides; config_from_document refuses them.
  if (name == nullptr || name->string() == nullptr || name->string()->size() > 4 * kMaxModule ||
      projections.size() != 3)
    return ok();
  const auto experts = count == nullptr ? Result<std::int64_t>(1) : fields::integer_value(*count, "", kExperts);
  if (!experts) return ok();
  json::Value object = *source.value;
  MOE_CHECK(say_expert_dtype(file, expert_dtype, object, b));
  auto resolved = resolve(object, {*name->string(), std::move(projections)}, *experts, in_files);
  if (!resolved) {
    constexpr std::string_view kBase = "/hf_quantization_config";
    const std::string rest = resolved.error().subject.substr(kBase.size());
    return moved(std::move(resolved.error()), source.pointer + rest);
  }
  if (!*resolved || !((*resolved)->quantization.is_fp8() || (*resolved)->quantization.is_mxfp4())) b.assumed.clear();
  if (!*resolved) return ok();
  if ((*resolved)->quantization.hf == "fp8" && (*resolved)->quantization.is_mxfp4()) {
    b.document.set("quantization", json::Object{{"scheme", "MXFP4A16"}});
    b.origins.push_back({"/quantization", source.pointer, false});
    return ok();
  }
  (*resolved)->quantization.hf.reset();
  b.file_method = (*resolved)->quantization.file_method;
  b.quantized_stacks = b.stacks && file_sets((*resolved)->quantization, b.stacked).size() > 1;
  b.document.set("quantization", without_nulls(quantization_value((*resolved)->quantization)));
  b.origins.push_back({"/quantization", source.pointer, false});
  return ok();
}

// The class's epsilon is of its own way of routing: another one that the caller asks for has no use for it.
void drop_epsilon(Built& b) {
  json::Value* routing = b.document.find("routing");
  if (routing == nullptr) return;
  const json::Value *method = routing->find("method"), *hashed = routing->find("hash_routing");
  const bool other = method != nullptr && *method != json::Value("auto");
  const bool by_hash = hashed != nullptr && *hashed == json::Value(true);
  const auto drop = [&](std::string_view member) {
    const std::string pointer = fields::child("/routing", member);
    const auto is_said = [&](const Origin& o) { return o.document == pointer; };
    if (std::none_of(b.origins.begin(), b.origins.end(), is_said)) erase_member(*routing, member);
  };
  if (other) drop("renormalize_eps");
  if (other || by_hash) drop("renormalize_min");
}

// Tensors of all experts, as far as the overrides leave them and nothing is quantized.
void put_stacks(Built& b) {
  const json::Value* quantization = b.document.find("quantization");
  const bool plain = quantization == nullptr && b.document.find("hf_quantization_config") == nullptr;
  if ((!plain && !b.quantized_stacks) || b.stacked == StackedWeights::none ||
      b.document.find("stacked_weights") != nullptr)
    return;
  b.document.set("stacked_weights", at(config::kStackedWeightsNames, b.stacked));
  const std::vector<std::string>& names = b.stacked_names;
  if (names != Config().stacked_names && b.document.find("stacked_names") == nullptr)
    b.document.set("stacked_names", json::Array(names.begin(), names.end()));
}

}  // namespace

bool Asked::overrides(std::string_view member) const {
  if (overridden == nullptr) return false;
  const Setting* setting = kSettings.find(member);
  if (setting == nullptr) return overridden->find(member) != nullptr;
  const auto names = setting->names();
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return overridden->find(name) != nullptr; });
}

bool Asked::overrides(std::string_view section, std::string_view member) const {
  const json::Value* all = overridden == nullptr ? nullptr : overridden->find(section);
  return all != nullptr && (all->object() == nullptr || all->find(member) != nullptr);
}

Error moved(Error e, const std::string& pointer) {
  if (!e.subject.empty() && e.message.starts_with(e.subject)) e.message.replace(0, e.subject.size(), pointer);
  e.subject = pointer;
  return e;
}

void Built::put(std::string_view key, json::Value value, std::string source) {
  document.set(std::string(key), std::move(value));
  if (!source.empty()) origins.push_back({fields::child("", key), std::move(source), false});
}

void Built::put(std::string_view key, std::string_view member, json::Value value, std::string source) {
  if (document.find(key) == nullptr) document.set(std::string(key), json::Object{});
  document.find(key)->set(std::string(member), std::move(value));
  if (!source.empty()) origins.push_back({fields::child(fields::child("", key), member), std::move(source), false});
}

void Built::merge(std::string_view key, const json::Value& patch, const std::string& source) {
  note_origins(patch, fields::child("", key), source, *this);
  json::merge_patch(document, json::Object{{std::string(key), patch}});
}

Error Built::relocate(Error e) const {
  const Origin* best = nullptr;  // the longest, and of equals the last: overrides come after what they replace
  for (const Origin& o : origins)
    if (is_below(e.subject, o.document) && (best == nullptr || o.document.size() >= best->document.size())) best = &o;
  if (best == nullptr) return e;
  std::string pointer = best->source;
  if (best->same_below) pointer += e.subject.substr(best->document.size());
  return moved(std::move(e), pointer);
}

Result<Config> Built::config() const {
  auto made = config_from_document(document);
  if (!made) return relocate(std::move(made.error()));
  if (file_method) made->quantization.file_method = file_method;
  made->named_by_class = named_by_class;
  if (!named_by_class.empty()) made->other_name = other_name;
  for (const Origin& o : origins)  // of the layer and its sections
    if (!o.source.empty() && std::count(o.document.begin(), o.document.end(), '/') <= 2)
      made->file_keys.emplace_back(o.document, o.source);
  made->assumed = assumed;
  return made;
}

Result<Built> build_document(const json::Value& hf, const json::Value& options_value, const NamesInFiles& in_files) {
  MOE_TRY(const Members options, Members::open(&options_value, std::string(kOptions), kOptionNames));
  MOE_TRY(const auto layer, options.integer("layer_index", {0, 1 << 24}));
  MOE_TRY(const auto module, options.text("module", kMaxModule));
  MOE_TRY(const ModelFile file, ModelFile::open(hf));
  const Result<ReadAs> read = read_as(file, options);  // a large row, once on the stack
  if (!read) return read.error();
  const ReadAs& as = *read;
  const Asked asked = asked_by(options);
  MOE_TRY(Built b, describe_layer(file, as.row, layer, options.at("layer_index"), asked));
  put_description(as, b);
  if (module) b.put("name", *module, options.at("module"));
  const bool described = as.description != nullptr && as.description->find("module") != nullptr;
  if (!module && !described && !asked.overrides("name")) b.named_by_class = as.row.name;
  MOE_CHECK(put_parallel(options, b));
  MOE_CHECK(apply_overrides(options, b));
  drop_epsilon(b);
  if (!overrides_quantization(options))
    MOE_CHECK(put_quantization(file, quantization_source(file, options), as.row.expert_dtype, in_files, b));
  put_stacks(b);
  return b;
}

Result<json::Value> document_from_hf(const json::Value& hf, const json::Value& options) {
  MOE_TRY(Built built, build_document(hf, options));
  return std::move(built.document);
}

Result<Config> config_from_hf(std::string_view hf_text, std::string_view options_text) {
  MOE_TRY(const json::Value hf_value, json::parse(hf_text, {.max_bytes = config::kMostForeignBytes, .python = true}));
  json::Value options = json::Object{};
  if (!options_text.empty()) {
    auto parsed = json::parse(options_text, {.max_bytes = config::kMostForeignBytes});
    if (!parsed) {
      parsed.error().subject = kOptions;
      return std::move(parsed.error());
    }
    options = *std::move(parsed);
  }
  MOE_TRY(Built built, build_document(hf_value, options));
  return built.config();
}

Result<ModelLayers> model_layers(const json::Value& hf, const json::Value& options_value) {
  MOE_TRY(const Members options, Members::open(&options_value, std::string(kOptions), kOptionNames));
  MOE_TRY(ModelFile file, ModelFile::open(hf));
  const Result<ReadAs> read = read_as(file, options);
  if (!read) return read.error();
  const Architecture& row = read->row;
  if (!row.holder.empty()) {
    MOE_TRY([[maybe_unused]] const bool there, file.look_into(row.holder));
  }
  ModelLayers layers;
  MOE_TRY(layers.rule, layer_rule(file, row.where, row.experts));
  MOE_TRY(const auto names, file.root().texts("architectures"));
  layers.class_name = names.empty() ? row.name : names[0];
  return layers;
}

std::int64_t told_layers(const json::Value& hf) {
  const Result<ModelFile> file = ModelFile::open(hf);
  if (!file) return 0;
  for (const std::string_view key : {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}) {
    const auto told = file->anywhere(key).integer(key, {0, kMostLayers});
    if (told && *told) return **told;
  }
  return 0;
}

Result<Config> config_of_layer(const json::Value& hf, const json::Value& options, std::int64_t layer,
                               const NamesInFiles& in_files) {
  json::Value all = options;
  all.set("layer_index", layer);
  MOE_TRY(Built built, build_document(hf, all, in_files));
  return built.config();
}

bool tells_quantization(const json::Value& hf) {
  const Result<ModelFile> file = ModelFile::open(hf);
  return file && quantization_in(*file).value != nullptr;
}

}  // namespace moe::hf
