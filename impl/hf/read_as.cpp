// The option "architecture" (checkpoints.md 12). See read_as.h.
#include "hf/read_as.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "hf/class_names.h"
#include "hf/nearest.h"
#include "scheme/activation.h"

namespace moe::hf {
namespace {

using fields::Members;

constexpr std::array<std::string_view, 12> kMembers = {"like",     "module",     "holder",        "projections",
                                                       "gated",    "stacked",    "stacked_names", "interleaved",
                                                       "has_bias", "activation", "keys",          "routing"};
constexpr std::array<std::string_view, 7> kKeys = {"num_experts", "top_k",      "hidden_dim", "intermediate_size",
                                                   "activation",  "num_layers", "first_layer"};
// Members of the document that are made of members of a description.
struct Counterpart {
  std::string_view described, document;
};
constexpr std::array kCounterparts = {
    Counterpart{"module", "/name"},
    Counterpart{"projections", "/projection_names"},
    Counterpart{"stacked", "/stacked_weights"},
    Counterpart{"stacked_names", "/stacked_names"},
};
constexpr std::size_t kMaxModule = 512, kMaxName = 128;
constexpr std::string_view kOption = "architecture", kLayer = "{layer}";

Result<const Architecture*> row_named(std::string_view name, const std::string& pointer, Code unknown,
                                      const ModelFile* file = nullptr) {
  const NamedClass found = class_named(name);
  if (found.row != nullptr) return found.row;
  if (found.unread != nullptr)
    return fail(Code::unsupported, pointer,
                cat(pointer, ": the architecture ", in_quotes(name), " is not read: ", found.unread->why));
  return not_known(unknown, pointer, name, file);
}

// What a file leaves out is what its model_type says.
const Architecture& of_its_type(const ModelFile& file, const Architecture& row) {
  const json::Value* type = (file.text() != nullptr ? *file.text() : file.root()).get("model_type");
  return type == nullptr || type->string() == nullptr ? row : row_of_type(row, *type->string());
}

// The class of the text model inside a model that is not known, if the text model says which it is.
Result<const Architecture*> row_of_text(const ModelFile& file) {
  const Architecture* row = nullptr;
  if (file.text() == nullptr) return row;
  MOE_TRY(const auto names, file.text()->texts("architectures"));
  MOE_TRY(const auto type, file.text()->text("model_type"));
  if (!names.empty()) {
    row = class_named(names[0]).row;
  } else if (type) {
    row = class_of_model_type(*type);
  }
  return row != nullptr && row->holder.empty() ? row : nullptr;
}

// A model that takes any text model is read as its usual one only where the text does not say that it is another.
Check check_silent(const Foreign& text) {
  MOE_TRY(const auto names, text.texts("architectures"));
  if (!names.empty()) return not_known(Code::unsupported, text.at("architectures") + "/0", names[0], nullptr);
  MOE_TRY(const auto type, text.text("model_type"));
  if (type)
    return fail(Code::unsupported, text.at("model_type"),
                cat(text.at("model_type"), ": text models of the type ", in_quotes(*type),
                    " are not known; option \"architecture\" takes a known name or a description"));
  return ok();
}

// The text of a member, where it stands; "" when it is absent.
Result<std::string_view> view(const Members& from, std::string_view key, std::size_t most = kMaxName) {
  MOE_TRY(const auto text, from.text(key, most));
  if (text && text->empty()) return fields::unexpected(from.at(key), *from.get(key), "a name");
  return text ? std::string_view(*from.get(key)->string()) : std::string_view();
}

// A list of `least` to 3 texts.
Result<ProjectionNames> names(const Members& from, std::string_view key, std::size_t least) {
  const json::Value& value = *from.get(key);
  const json::Array* list = value.array();
  if (list == nullptr || list->size() < least || list->size() > ProjectionNames().size())
    return fields::unexpected(from.at(key), value, cat("a list of ", least == 3 ? "" : cat(least, " to "), "3 names"));
  ProjectionNames out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string* name = (*list)[i].string();
    if (name == nullptr || name->empty() || character_count(*name) > kMaxName)
      return fields::unexpected(cat(from.at(key), "/", i), (*list)[i], "a name of 1 to 128 characters");
    out[i] = *name;
  }
  return out;
}

// "model.layers.{layer}.mlp.experts"
Check read_module(const Members& from, Architecture& a) {
  MOE_TRY(const std::string_view module, view(from, "module", kMaxModule));
  if (module.empty()) return ok();
  const std::size_t at = module.find(kLayer);
  const std::size_t end = at + kLayer.size();
  if (at == module.npos || at < 2 || end + 1 >= module.size() || module[at - 1] != '.' || module[end] != '.' ||
      module.find(kLayer, end) != module.npos)
    return fields::unexpected(from.at("module"), *from.get("module"),
                              "the path of the experts with {layer} for the number, model.layers.{layer}.mlp.experts");
  a.layers_at = module.substr(0, at - 1);
  a.block = module.substr(end + 1);
  a.where.predicting_at = {};
  return ok();
}

Check read_stacks(const Members& from, Architecture& a) {
  if (from.has("stacked")) {
    MOE_TRY(a.stacked, from.word("stacked", config::kStackedWeightsNames, a.stacked));
    a.stacks = a.stacked != StackedWeights::none;
  }
  if (from.has("stacked_names")) {
    MOE_TRY(a.stack, names(from, "stacked_names", 2));
  }
  return ok();
}

Check read_activation(const Members& from, Architecture& a) {
  MOE_TRY(const std::string_view word, view(from, "activation"));
  if (!word.empty()) {
    if (!activation_from_name(word))
      return fields::unexpected(from.at("activation"), *from.get("activation"), "an activation of config documents");
    a.activation.otherwise = word;
  }
  MOE_TRY(const bool gated, from.boolean("gated", !a.activation.ungated));
  a.activation.ungated = !gated;
  return ok();
}

// A key, or up to three of which the first that the file has counts.
Check read_size_key(const Members& from, std::string_view key, SizeKey& out) {
  const json::Value* value = from.get(key);
  if (value == nullptr) return ok();
  out.first_counts = true;
  if (value->array() != nullptr) {
    MOE_TRY(out.keys, names(from, key, 1));
    return ok();
  }
  MOE_TRY(const std::string_view one, view(from, key));
  out.keys = {one};
  return ok();
}

Check read_keys(const Members& description, Architecture& a) {
  MOE_TRY(const Members keys, Members::open(description.get("keys"), description.at("keys"), kKeys));
  MOE_CHECK(read_size_key(keys, "num_experts", a.experts));
  MOE_CHECK(read_size_key(keys, "top_k", a.top_k));
  MOE_CHECK(read_size_key(keys, "hidden_dim", a.hidden));
  MOE_CHECK(read_size_key(keys, "intermediate_size", a.width));
  if (keys.has("intermediate_size")) a.width_is_dense_beside = {};
  MOE_TRY(const std::string_view activation, view(keys, "activation"));
  if (!activation.empty()) a.activation.key = activation;
  MOE_TRY(const std::string_view first, view(keys, "first_layer"));
  if (!first.empty())
    a.where = {.rule = Layers::from,
               .first = {{first}, 0},
               .count = a.where.count,
               .predicting = a.where.predicting,
               .predicting_at = a.where.predicting_at};
  MOE_TRY(const std::string_view count, view(keys, "num_layers"));
  if (!count.empty()) a.where.count = count;
  return ok();
}

// Nothing is guessed about an unknown class: its description must say how it routes.
Check check_routing(const Members& from, bool is_new) {
  const json::Value* routing = from.get("routing");
  if (routing != nullptr && routing->object() == nullptr)
    return fields::unexpected(from.at("routing"), *routing, "an object, members of the document's routing");
  const auto says = [&](std::string_view member) { return routing != nullptr && routing->find(member) != nullptr; };
  if (!is_new || says("method")) return ok();
  const std::string pointer = from.at("routing");
  if (!says("scoring_func"))
    return fields::missing(fields::child(pointer, "scoring_func"), "how scores are made of logits, or method");
  if (!says("renormalize"))
    return fields::missing(fields::child(pointer, "renormalize"), "whether a token's weights are divided by their sum");
  return ok();
}

Result<Architecture> described(const ModelFile& file, const json::Value& value, const std::string& pointer) {
  MOE_TRY(const Members from, Members::open(&value, pointer, kMembers));
  Architecture a;
  a.stacked = StackedWeights::none;
  a.activation.otherwise = {};
  MOE_TRY(const std::string_view like, view(from, "like"));
  if (!like.empty()) {
    MOE_TRY(const Architecture* row, row_named(like, from.at("like"), Code::invalid_config));
    a = of_its_type(file, *row);
  } else if (!from.has("module")) {
    return fields::missing(from.at("module"), "the path of the experts with {layer} for the number, or like");
  }
  MOE_CHECK(read_module(from, a));
  MOE_TRY(const std::string_view holder, view(from, "holder"));
  if (!holder.empty()) a.holder = holder;
  if (from.has("projections")) {
    MOE_TRY(a.projections, names(from, "projections", 3));
  }
  MOE_CHECK(read_activation(from, a));
  MOE_CHECK(read_stacks(from, a));
  for (const std::string_view flag : {"interleaved", "has_bias"}) MOE_CHECK(from.boolean(flag));
  MOE_CHECK(read_keys(from, a));
  MOE_CHECK(check_routing(from, like.empty()));
  return a;
}

}  // namespace

Result<ReadAs> read_as(const ModelFile& file, const Members& options) {
  if (const json::Value* option = options.get(kOption); option != nullptr) {
    const std::string pointer = options.at(kOption);
    if (option->string() != nullptr) {
      MOE_TRY(const Architecture* row, row_named(*option->string(), pointer, Code::invalid_config));
      return ReadAs{of_its_type(file, *row)};
    }
    if (option->object() == nullptr) return fields::unexpected(pointer, *option, "a name or a description");
    MOE_TRY(const Architecture row, described(file, *option, pointer));
    ModelFile inside = file;
    MOE_TRY(const bool there, inside.look_into(row.holder));
    if (!there && option->find("holder") != nullptr)
      return fields::unexpected(fields::child(pointer, "holder"), *option->find("holder"),
                                "the path of an object of the config.json, a/b: one inside");
    return ReadAs{row, option, pointer};
  }
  MOE_TRY(const auto names, file.root().texts("architectures"));
  const std::string pointer = file.root().at("architectures");
  if (names.empty()) return fields::missing(pointer, "the name of an architecture");
  const NamedClass whole = class_named(names[0]);
  if (whole.row != nullptr ? whole.row->any_text : whole.unread == nullptr) {
    MOE_TRY(const Architecture* text, row_of_text(file));
    if (text != nullptr) {
      ReadAs as{of_its_type(file, *text)};
      if (as.row.layers_at == Architecture().layers_at) as.row.layers_at = "language_model.model.layers";
      return as;
    }
  }
  MOE_TRY(const Architecture* row, row_named(names[0], pointer + "/0", Code::unsupported, &file));
  if (row->any_text && file.text() != nullptr) MOE_CHECK(check_silent(*file.text()));
  return ReadAs{of_its_type(file, *row)};
}

void put_description(const ReadAs& as, Built& built) {
  if (as.description == nullptr) return;
  const auto said = [&](std::string_view member) { return as.description->find(member); };
  const auto source = [&](std::string_view member) { return fields::child(as.pointer, member); };
  for (const Counterpart& c : kCounterparts)
    if (said(c.described) != nullptr) built.origins.push_back({std::string(c.document), source(c.described), true});
  if (said("has_bias") != nullptr) built.put("has_bias", *said("has_bias"), source("has_bias"));
  if (said("interleaved") != nullptr && !as.row.activation.ungated)
    built.put("w13_layout", *said("interleaved")->boolean() ? "interleaved" : "gate_up", source("interleaved"));
  if (said("routing") != nullptr) built.merge("routing", *said("routing"), source("routing"));
}

}  // namespace moe::hf
