// Which layers of a model have experts. See layers.h.
#include "hf/layers.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::hf {
namespace {

constexpr fields::IntegerRange kLayers = {0, kMostLayers};

Result<std::int64_t> integer(const ModelFile& file, std::string_view key, std::int64_t otherwise,
                             std::int64_t low = 0) {
  if (key.empty()) return otherwise;
  MOE_TRY(const auto value, file.holder(key).integer(key, {low, kMostLayers}));
  return value.value_or(otherwise);
}
Result<std::int64_t> integer(const ModelFile& file, const SizeKey& key) {
  return integer(file, key.keys[0], key.otherwise.value_or(0));
}

// A word for each layer. (Lists may go on with the layers of multi-token prediction.)
Result<std::vector<bool>> listed(const ModelFile& file, std::string_view key, std::string_view word) {
  MOE_TRY(const auto words, file.holder(key).texts(key));
  std::vector<bool> all;
  for (const std::string_view w : words) all.push_back(w == word);
  return all;
}

// moe_layer_freq: a number, or 0 and 1 for each layer.
Check read_step(const ModelFile& file, std::string_view key, LayerRule& r) {
  if (key.empty()) return ok();
  const Foreign& holder = file.holder(key);
  const json::Value* value = holder.get(key);
  if (value != nullptr && value->array() != nullptr) {
    MOE_TRY(const auto flags, holder.integers(key, {0, 1}));
    for (const std::int64_t f : flags) r.listed.push_back(f != 0);
    return ok();
  }
  MOE_TRY(r.step, integer(file, key, 1, 1));
  return ok();
}

// [3, 4] or "3,4": the layers that have experts.
Check read_numbers(const ModelFile& file, std::string_view key, LayerRule& r) {
  const Foreign& holder = file.holder(key);
  r.listed.assign(usize(r.count), false);
  const auto add = [&](std::int64_t l) {
    if (l < r.count) r.listed[usize(l)] = true;
  };
  if (holder.get(key)->string() == nullptr) {
    MOE_TRY(const auto layers, holder.integers(key, kLayers));
    for (const std::int64_t l : layers) add(l);
    return ok();
  }
  std::string_view text = *holder.get(key)->string();
  while (!text.empty()) {
    std::int64_t l = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), l);
    const auto used = static_cast<std::size_t>(end - text.data());
    if (fault != std::errc() || l < 0 || (used < text.size() && text[used] != ','))
      return fields::unexpected(holder.at(key), *holder.get(key), "numbers of layers with commas between them");
    add(l);
    text.remove_prefix(std::min(used + 1, text.size()));
  }
  return ok();
}

Check read_all(const ModelFile&, const LayerKeys&, LayerRule&) { return ok(); }

Check read_words(const ModelFile& file, const LayerKeys& keys, LayerRule& r) {
  MOE_TRY(r.listed, listed(file, keys.list, keys.word));
  if (!r.listed.empty()) return ok();
  if (!keys.numbers.empty() && file.holder(keys.numbers).has(keys.numbers)) return read_numbers(file, keys.numbers, r);
  MOE_TRY(r.first, integer(file, keys.first));
  return read_step(file, keys.step, r);
}

Check read_from(const ModelFile& file, const LayerKeys& keys, LayerRule& r) {
  MOE_TRY(r.first, integer(file, keys.first));
  return read_step(file, keys.step, r);
}

Check read_jamba(const ModelFile& file, const LayerKeys&, LayerRule& r) {
  MOE_TRY(r.step, integer(file, "expert_layer_period", 2, 1));
  MOE_TRY(r.first, integer(file, "expert_layer_offset", 1));
  r.shift = (r.step - r.first % r.step) % r.step;
  return ok();
}

Check read_nemotron(const ModelFile& file, const LayerKeys&, LayerRule& r) {
  for (const std::string_view key : {"layers_block_type", "layer_types"}) {
    MOE_TRY(r.listed, listed(file, key, "moe"));
    if (!r.listed.empty()) break;
  }
  if (r.listed.empty()) {
    constexpr std::string_view kPattern = "hybrid_override_pattern";
    MOE_TRY(const auto pattern, file.holder(kPattern).text(kPattern));
    if (!pattern)
      return fields::missing(file.holder(kPattern).at(kPattern), "a letter for each layer, or layers_block_type");
    for (const char c : *pattern) r.listed.push_back(c == 'E');
  }
  r.count = std::ssize(r.listed);
  return ok();
}

Check read_llama4(const ModelFile& file, const LayerKeys&, LayerRule& r) {
  constexpr std::string_view kList = "moe_layers", kStep = "interleave_moe_layer_step";
  if (file.holder(kList).has(kList)) {
    MOE_TRY(const auto layers, file.holder(kList).integers(kList, kLayers));
    r.listed.assign(usize(r.count), false);
    for (const std::int64_t l : layers)
      if (l < r.count) r.listed[usize(l)] = true;
    return ok();
  }
  MOE_TRY(r.step, integer(file, kStep, 1, 1));
  r.shift = 1;
  return ok();
}

Check read_ernie(const ModelFile& file, const LayerKeys&, LayerRule& r) {
  MOE_TRY(r.step, integer(file, "moe_layer_interval", 1, 1));
  r.shift = 1;
  MOE_TRY(r.first, integer(file, "moe_layer_start_index", 1));
  MOE_TRY(const auto last, file.holder("moe_layer_end_index").integer("moe_layer_end_index", {-1, kMostLayers}));
  r.last = last.value_or(-1) < 0 ? r.count - 1 : *last;
  return ok();
}

Check read_qwen(const ModelFile& file, const LayerKeys& keys, LayerRule& r) {
  r.shift = 1;
  MOE_TRY(r.step, integer(file, keys.step, 1, 1));
  MOE_TRY(r.dense, file.holder("mlp_only_layers").integers("mlp_only_layers", kLayers));
  std::sort(r.dense.begin(), r.dense.end());
  if (!file.holder("mlp_only_layers").has("mlp_only_layers")) r.first = keys.first.otherwise.value_or(0);
  return ok();
}

}  // namespace

bool LayerRule::has_experts(std::int64_t l) const {
  if (std::binary_search(dense.begin(), dense.end(), l)) return false;
  if (!listed.empty()) return l < std::ssize(listed) && listed[usize(l)] && l >= first;
  return l >= first && l <= last && (l + shift) % step == 0;
}

namespace {

// [8, 0, 8]: what the other entries say is read with the layer.
void add_layers_of_no_expert(const ModelFile& file, const SizeKey& experts, LayerRule& r) {
  for (const std::string_view key : experts.keys) {
    const json::Value* value = key.empty() ? nullptr : file.holder(key).get(key);
    const json::Array* list = value == nullptr ? nullptr : value->array();
    if (list == nullptr) continue;
    for (std::int64_t l = 0; l < std::ssize(*list); ++l)
      if ((*list)[usize(l)] == json::Value(0)) r.dense.push_back(l);
  }
  std::sort(r.dense.begin(), r.dense.end());
}

}  // namespace

Result<LayerRule> layer_rule(const ModelFile& file, const LayerKeys& keys, const SizeKey& experts) {
  using Read = Check (*)(const ModelFile&, const LayerKeys&, LayerRule&);
  static constexpr std::array<Read, 8> kReaders = {read_all,   read_words, read_from,   read_qwen,
                                                   read_jamba, read_ernie, read_llama4, read_nemotron};
  LayerRule r;
  if (keys.rule != Layers::nemotron) {
    const bool alias = !keys.count_alias.empty() && !file.holder(keys.count).has(keys.count);
    const std::string_view key = alias ? keys.count_alias : keys.count;
    const Foreign& holder = file.holder(key);
    const bool told = holder.value().find(key) != nullptr || !keys.layers;
    MOE_TRY(r.count, told ? holder.need_integer(key, {1, kMostLayers}) : Result<std::int64_t>(*keys.layers));
  }
  MOE_CHECK(at(kReaders, keys.rule)(file, keys, r));
  add_layers_of_no_expert(file, experts, r);
  if (keys.predicting) {
    MOE_TRY(const std::int64_t more, integer(file, "num_nextn_predict_layers", 0));
    if (!r.listed.empty()) r.listed.resize(usize(std::max(r.count + more, std::ssize(r.listed))), true);
    r.count += more;
    r.predicted = more;
  }
  if (!keys.enabled_by_enable_moe_block) return r;
  MOE_TRY(const auto on, file.holder("enable_moe_block").boolean("enable_moe_block"));
  if (!on.value_or(false)) r.listed.assign(1, false);
  return r;
}

namespace {

// A fault with a word for programs (checkpoints.md 10).
Error no_layer(const std::string& pointer, const char* reason, const std::string& message) {
  Error e = fields::fault(pointer, message);
  e.details = json::members("reason", reason);
  return e;
}

}  // namespace

Result<std::int64_t> layer_index(const ModelFile& file, const LayerRule& rule, std::optional<std::int64_t> asked,
                                 const std::string& asked_pointer) {
  if (!asked) {
    for (std::int64_t l = 0; l < rule.count; ++l)
      if (rule.has_experts(l)) return l;
    const std::string pointer = file.holder("num_hidden_layers").at("num_hidden_layers");
    return no_layer(pointer, "dense_model", cat("none of the ", rule.count, " layers has experts"));
  }
  if (*asked >= rule.count)
    return no_layer(asked_pointer, "no_such_layer", cat("found ", *asked, ", the model has ", rule.count, " layers"));
  if (!rule.has_experts(*asked))
    return no_layer(asked_pointer, "dense_layer", cat("layer ", *asked, " has no experts, it is a dense layer"));
  return *asked;
}

}  // namespace moe::hf
