// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint: all layers of a model's directory, as it was downloaded or as convert() wrote it.
#pragma once

#include <moe/cpp/layer.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace libmoe {
inline namespace LIBMOE_NAMESPACE {

/// What stands at a layer's place.
enum class LayerKind : moe_layer_kind {
  other = MOE_LAYER_OTHER,  ///< not understood, also by this header: see `problem`
  experts = MOE_LAYER_EXPERTS,
  dense = MOE_LAYER_DENSE
};

/// One layer, whole, before any cut. Texts are borrowed from the checkpoint.
struct LayerInfo {
  std::int64_t layer;  ///< its number
  LayerKind kind;
  bool is_mtp;        ///< for multi-token prediction, not in the model's pass
  bool is_converted;  ///< its packed file is here
  std::int64_t num_experts, top_k, hidden_dim, intermediate_size;
  std::uint64_t bytes;       ///< of its experts in the files
  std::string_view name;     ///< "model.layers.3.mlp.experts", "" without experts
  std::string_view problem;  ///< "", or why it cannot be used, or why its packed file is not
};

/// What Checkpoint::layer may be told.
struct CheckpointLayerOptions {
  std::string patch_json{};                  ///< members of the config that win: {"parallel":{..}} of one rank
  const Platform* platform = nullptr;        ///< null: the config's
  std::uint64_t load_flags = MOE_LOAD_MMAP;  ///< MOE_LOAD_..., of a converted checkpoint
  bool allow_fallback = false;               ///< the backend named in the config is a wish
  LayerOptions layer{};
  const Control* control = nullptr;
};

/// The model's numbers of layers; by default all that have experts. A list that came out empty is an error, as in
/// moe.h.
class LayerNumbers {
 public:
  LayerNumbers() = default;
  LayerNumbers(std::initializer_list<std::int64_t> numbers) : LayerNumbers(std::vector<std::int64_t>(numbers)) {}
  LayerNumbers(std::vector<std::int64_t> numbers) : all_(false), numbers_(std::move(numbers)) {}

  /// For moe_checkpoint_options; null: all.
  const std::int64_t* data() const noexcept {
    static constexpr std::int64_t none = 0;
    return all_ ? nullptr : numbers_.empty() ? &none : numbers_.data();
  }
  std::size_t size() const noexcept { return numbers_.size(); }

 private:
  bool all_ = true;
  std::vector<std::int64_t> numbers_;
};

/// What Checkpoint::convert may be told.
struct CheckpointConvertOptions {
  LayerNumbers layers{};               ///< by default all that have experts
  std::string patch_json{};            ///< as in CheckpointLayerOptions
  const Platform* platform = nullptr;  ///< null: the config's
  bool verify = false;                 ///< compare the hashes of files that are there
  bool allow_fallback = false;         ///< the backend named in the config is a wish
  const Control* control = nullptr;
};

/// The layers of a model. Its files stay open until the last object that uses them ends, and must not change.
class Checkpoint : public Handle<moe_checkpoint, moe_checkpoint_destroy> {
 public:
  using Handle::Handle;

  /// Reads and checks every header, and no weight. options: those of Config::from_hf without layer_index and module.
  static Result<Checkpoint> try_open(Text directory, const Context& context = {}, std::string_view options_json = {},
                                     const Control& control = {}) noexcept {
    return detail::make<Checkpoint>(moe_checkpoint_open, context.get(), directory,
                                    options_json.empty() ? nullptr : options_json.data(), options_json.size(),
                                    control.get());
  }

  /// Of all kinds; those of multi-token prediction come last.
  std::int64_t layer_count() const noexcept { return moe_checkpoint_layer_count(get()); }
  Result<LayerInfo> try_info(std::int64_t layer) const noexcept {
    moe_layer_info raw{};
    raw.struct_size = sizeof raw;
    if (Result<void> done = detail::call(moe_checkpoint_layer_info, get(), layer, &raw); !done) return done.error();
    return LayerInfo{layer,
                     detail::known(raw.kind, LayerKind::dense, LayerKind::other),
                     (raw.flags & MOE_LAYER_IS_MTP) != 0,
                     (raw.flags & MOE_LAYER_IS_CONVERTED) != 0,
                     raw.num_experts,
                     raw.top_k,
                     raw.hidden_dim,
                     raw.intermediate_size,
                     raw.bytes,
                     raw.name,
                     raw.problem};
  }
  /// Class, quantization, and all of each layer, with names that look like its router's.
  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_checkpoint_to_json, get()); }
  /// The config of a layer. The "reason" in the details: "past_the_end", "dense_layer", "not_understood".
  Result<Config> try_config(std::int64_t layer, std::string_view patch_json = {}) const noexcept {
    return detail::make<Config>(moe_checkpoint_config, get(), layer, patch_json.empty() ? nullptr : patch_json.data(),
                                patch_json.size());
  }
  /// A layer that is ready to run: converted now, or of a converted checkpoint loaded.
  Result<Layer> try_layer(std::int64_t layer, const Context& context = {},
                          const CheckpointLayerOptions& options = {}) const noexcept {
    const moe_layer_options of_layer = detail::raw_options(options.layer);
    moe_checkpoint_options raw = raw_options(options);
    raw.load_flags = options.load_flags;
    raw.layer = &of_layer;
    return detail::make<Layer>(moe_checkpoint_layer, context.get(), get(), layer, &raw);
  }
  /// Converted weights for a selection of one of its configs. load_flags: MOE_LOAD_..., of a converted checkpoint.
  Result<Packed> try_packed(const Selection& selection, const Context& context = {},
                            std::uint64_t load_flags = MOE_LOAD_MMAP, const Control& control = {}) const noexcept {
    moe_checkpoint_options raw{};
    raw.struct_size = sizeof raw;
    raw.load_flags = load_flags;
    raw.control = control.get();
    return detail::make<Packed>(moe_checkpoint_packed, context.get(), get(), selection.get(), &raw);
  }
  /// Converts layers into a directory that open() takes, which holds whole layers at any time: a later call goes on.
  Result<void> try_convert(Text directory, const Context& context = {},
                           const CheckpointConvertOptions& options = {}) const noexcept {
    moe_checkpoint_options raw = raw_options(options);
    raw.load_flags = options.verify ? MOE_LOAD_VERIFY : 0;
    raw.layers = options.layers.data();
    raw.num_layers = options.layers.size();
    return detail::call(moe_checkpoint_convert, context.get(), get(), directory, &raw);
  }
  /// Any tensor of the files by its name, such as a router's matrix; `hold` owns its bytes.
  Result<HeldTensor> try_tensor(Text name) const noexcept {
    moe_tensor raw{};
    moe_buffer* hold = nullptr;
    raw.struct_size = sizeof raw;
    if (Result<void> done = detail::call(moe_checkpoint_tensor, get(), name, &raw, &hold); !done) return done.error();
    return HeldTensor{ConstTensor(raw), Buffer(hold)};
  }
  /// Which weights these are: "fast:" and a hash of headers and samples; full: "full:" and a hash of all.
  Result<Buffer> try_fingerprint(bool full = false, const Context& context = {},
                                 const Control& control = {}) const noexcept {
    return detail::text(moe_checkpoint_fingerprint, context.get(), get(), std::int32_t{full}, control.get());
  }

#if LIBMOE_EXCEPTIONS
  static Checkpoint open(Text directory, const Context& context = {}, std::string_view options_json = {},
                         const Control& control = {}) {
    return try_open(directory, context, options_json, control).value();
  }
  LayerInfo info(std::int64_t layer) const { return try_info(layer).value(); }
  /// What all layers are.
  std::vector<LayerInfo> layers() const {
    std::vector<LayerInfo> all;
    for (std::int64_t i = 0; i < layer_count(); ++i) all.push_back(info(i));
    return all;
  }
  Buffer to_json() const { return try_to_json().value(); }
  Config config(std::int64_t layer, std::string_view patch_json = {}) const {
    return try_config(layer, patch_json).value();
  }
  Layer layer(std::int64_t layer, const Context& context = {}, const CheckpointLayerOptions& options = {}) const {
    return try_layer(layer, context, options).value();
  }
  Packed packed(const Selection& selection, const Context& context = {}, std::uint64_t load_flags = MOE_LOAD_MMAP,
                const Control& control = {}) const {
    return try_packed(selection, context, load_flags, control).value();
  }
  void convert(Text directory, const Context& context = {}, const CheckpointConvertOptions& options = {}) const {
    try_convert(directory, context, options).value();
  }
  HeldTensor tensor(Text name) const { return try_tensor(name).value(); }
  Buffer fingerprint(bool full = false, const Context& context = {}, const Control& control = {}) const {
    return try_fingerprint(full, context, control).value();
  }
#endif

 private:
  /// What both kinds of options have.
  template <class Options>
  static moe_checkpoint_options raw_options(const Options& options) noexcept {
    moe_checkpoint_options raw{};
    raw.struct_size = sizeof raw;
    raw.select_flags = options.allow_fallback ? MOE_SELECT_ALLOW_FALLBACK : 0;
    raw.platform = options.platform ? options.platform->get() : nullptr;
    raw.patch_json = options.patch_json.empty() ? nullptr : options.patch_json.data();
    raw.patch_len = options.patch_json.size();
    raw.control = options.control ? options.control->get() : nullptr;
    return raw;
  }
};

inline Result<void> Weights::try_load_checkpoint(const Checkpoint& checkpoint) noexcept {
  return detail::call(moe_weights_load_checkpoint, get(), checkpoint.get());
}

}  // namespace LIBMOE_NAMESPACE
}  // namespace libmoe
