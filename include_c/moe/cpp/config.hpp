// SPDX-License-Identifier: Apache-2.0
//
// Config (the layer), Platform (the machine), Selection (which backend and kernel), describe (pure questions).
#pragma once

#include <moe/cpp/context.hpp>

#include <cstdint>
#include <vector>

namespace libmoe {
inline namespace LIBMOE_NAMESPACE {

/// The checked description of one layer; immutable.
class Config : public Handle<moe_config, moe_config_destroy> {
 public:
  using Handle::Handle;

  static Result<Config> try_create(std::string_view json) noexcept {
    return detail::make<Config>(moe_config_create, json.data(), json.size());
  }
  /// From the text of a model's config.json; options: {"layer_index":3, ...}.
  static Result<Config> try_from_hf(std::string_view config_json, std::string_view options_json = {}) noexcept {
    return detail::make<Config>(moe_config_create_from_hf, config_json.data(), config_json.size(), options_json.data(),
                                options_json.size());
  }
  /// A new one: this document with a JSON merge patch.
  Result<Config> try_merge(std::string_view patch_json) const noexcept {
    return detail::make<Config>(moe_config_merge, get(), patch_json.data(), patch_json.size());
  }
  /// The resolved document: defaults written out.
  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_config_to_json, get()); }
  /// A number, truth value or text of the resolved document by JSON pointer: "/num_experts".
  Result<std::int64_t> try_get_int(Text pointer) const noexcept {
    std::int64_t value = 0;
    if (Result<void> done = detail::call(moe_config_get_int, get(), pointer, &value); !done) return done.error();
    return value;
  }
  Result<double> try_get_float(Text pointer) const noexcept {
    double value = 0;
    if (Result<void> done = detail::call(moe_config_get_float, get(), pointer, &value); !done) return done.error();
    return value;
  }
  /// Borrowed from this config.
  Result<std::string_view> try_get_string(Text pointer) const noexcept {
    const char* value = nullptr;
    if (Result<void> done = detail::call(moe_config_get_string, get(), pointer, &value); !done) return done.error();
    return std::string_view(value);
  }
  /// JSON Schema of the document.
  static std::string_view schema_json() noexcept { return moe_config_schema_json(); }

#if LIBMOE_EXCEPTIONS
  static Config create(std::string_view json) { return try_create(json).value(); }
  static Config from_hf(std::string_view config_json, std::string_view options_json = {}) {
    return try_from_hf(config_json, options_json).value();
  }
  Config merge(std::string_view patch_json) const { return try_merge(patch_json).value(); }
  Buffer to_json() const { return try_to_json().value(); }
  std::int64_t get_int(Text pointer) const { return try_get_int(pointer).value(); }
  double get_float(Text pointer) const { return try_get_float(pointer).value(); }
  std::string_view get_string(Text pointer) const { return try_get_string(pointer).value(); }
#endif
};

/// A machine: this one, or one that is described; immutable.
class Platform : public Handle<moe_platform, moe_platform_destroy> {
 public:
  using Handle::Handle;

  /// Without a text: this machine.
  static Result<Platform> try_create(std::string_view json = {}) noexcept {
    return detail::make<Platform>(moe_platform_create, json.data(), json.size());
  }
  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_platform_to_json, get()); }
  /// "avx512_vnni", "i8mm"
  bool has(Text feature) const noexcept { return !feature.cut() && moe_platform_has(get(), feature.get()) != 0; }

#if LIBMOE_EXCEPTIONS
  static Platform create(std::string_view json = {}) { return try_create(json).value(); }
  Buffer to_json() const { return try_to_json().value(); }
#endif
};

/// Bytes and alignment of memory that the caller may bring.
struct Size {
  std::uint64_t bytes, alignment;
};

/// The backend and kernel for a config, and why each other candidate is not it; immutable.
class Selection : public Handle<moe_selection, moe_selection_destroy> {
 public:
  using Handle::Handle;

  /// An empty platform: the config's, by default this machine. flags: MOE_SELECT_...
  static Result<Selection> try_create(const Config& config, const Context& context = {}, const Platform& platform = {},
                                      std::uint64_t flags = 0) noexcept {
    return detail::make<Selection>(moe_select_backend, context.get(), config.get(), platform.get(), flags);
  }

  /// "" when no backend accepts (MOE_SELECT_EXPLAIN_ONLY).
  std::string_view backend() const noexcept { return moe_selection_backend(get()); }
  std::string_view kernel() const noexcept { return moe_selection_kernel(get()); }
  /// Identity of the packed layout.
  std::string_view layout() const noexcept { return moe_selection_layout(get()); }
  std::size_t candidate_count() const noexcept { return moe_selection_candidate_count(get()); }
  /// Its strings are borrowed from this selection.
  Result<moe_candidate> try_candidate(std::size_t index) const noexcept {
    moe_candidate candidate{};
    candidate.struct_size = sizeof candidate;
    if (Result<void> done = detail::call(moe_selection_candidate, get(), index, &candidate); !done) return done.error();
    return candidate;
  }
  /// What the converted weights will take.
  Result<Size> try_packed_size() const noexcept {
    Size size{};
    if (Result<void> done = detail::call(moe_selection_packed_size, get(), &size.bytes, &size.alignment); !done)
      return done.error();
    return size;
  }
  /// What was asked for and what runs.
  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_selection_to_json, get()); }

#if LIBMOE_EXCEPTIONS
  static Selection create(const Config& config, const Context& context = {}, const Platform& platform = {},
                          std::uint64_t flags = 0) {
    return try_create(config, context, platform, flags).value();
  }
  moe_candidate candidate(std::size_t index) const { return try_candidate(index).value(); }
  /// All, in the order in which they are tried.
  std::vector<moe_candidate> candidates() const {
    std::vector<moe_candidate> all;
    for (std::size_t i = 0; i < candidate_count(); ++i) all.push_back(candidate(i));
    return all;
  }
  Size packed_size() const { return try_packed_size().value(); }
  Buffer to_json() const { return try_to_json().value(); }
#endif
};

/// Answers one question as JSON, without weights: moe_describe lists the topics.
inline Result<Buffer> try_describe(Text topic, std::string_view query_json) noexcept {
  return detail::text(moe_describe, topic, query_json.data(), query_json.size());
}
#if LIBMOE_EXCEPTIONS
inline Buffer describe(Text topic, std::string_view query_json) { return try_describe(topic, query_json).value(); }
#endif

}  // namespace LIBMOE_NAMESPACE
}  // namespace libmoe
