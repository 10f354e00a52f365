// SPDX-License-Identifier: Apache-2.0
//
// Weights (source tensors by role), Source (tensors on demand), Packed (converted weights: save, load, map).
#pragma once

#include <moe/cpp/config.hpp>
#include <moe/cpp/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace libmoe {
inline namespace LIBMOE_NAMESPACE {

/// Called once when the library no longer uses memory that it was given, from any thread.
using Release = std::function<void()>;

namespace detail {
inline void MOE_CALL run_release(void* user) {
  const std::unique_ptr<Release> release(static_cast<Release*>(user));
  guarded([&](auto) -> moe_status {
    (*release)();
    return MOE_OK;
  });
}

/// Runs a call that takes `release, user`. The library calls release once, also when the call fails; when the call is
/// not made, we do. cut: the call has a text that C would not take whole.
template <class F>
auto keep(Release release, bool cut, F&& call_with) noexcept -> decltype(call_with(nullptr, nullptr)) {
  if (!release) return call_with(nullptr, nullptr);
  auto box = boxed(std::move(release));
  if (box && !cut) return call_with(run_release, static_cast<void*>(box.release()));
  guarded([&](auto) -> moe_status {
    (box ? *box : release)();
    return MOE_OK;
  });
  if (!box) return no_memory();
  return call_with(nullptr, nullptr);
}
}  // namespace detail

/// Tensors that conversion asks for one by one. Empty texts: no shard.
struct Source {
  /// One expert's tensor as for Weights::set_expert; what it does not have is MOE_ERR_MISSING_WEIGHT.
  std::function<Result<ConstTensor>(std::string_view role, std::int64_t expert, std::string_view shard)> get;
  /// Ends the use of what get gave; may be left out.
  std::function<void(std::string_view role, std::int64_t expert, std::string_view shard, const ConstTensor& tensor)>
      put{};
  bool serial = false;  ///< one call at a time
};

/// A part of a set of weights; `hold` owns the bytes when they had to be read or joined.
struct HeldTensor {
  ConstTensor tensor;
  Buffer hold;
};

class Checkpoint;

/// Source tensors of one layer. Memory given to it is kept, not copied, until `release` is called.
class Weights : public Handle<moe_weights, moe_weights_destroy> {
 public:
  using Handle::Handle;

  static Result<Weights> try_create(const Config& config) noexcept {
    return detail::make<Weights>(moe_weights_create, config.get());
  }
  static Result<Weights> try_from_source(const Config& config, Source source) noexcept {
    if (!source.get) return Error(MOE_ERR_INVALID_ARGUMENT, "source.get: expected a function, found none");
    auto box = detail::boxed(std::move(source));
    if (!box) return detail::no_memory();
    moe_weight_source_ops ops{};
    ops.struct_size = sizeof ops;
    ops.serial = box->serial;
    ops.get = give;
    ops.put = box->put ? take_back : nullptr;
    ops.destroy = detail::unbox<Source>;
    ops.user = box.release();
    return detail::make<Weights>(moe_weights_create_from_source, config.get(), &ops);
  }

  /// A stacked tensor [E, ...].
  Result<void> try_set(Text role, const ConstTensor& tensor, Release release = {}) noexcept {
    return detail::keep(std::move(release), role.cut(), [&](moe_release_fn function, void* user) noexcept {
      return detail::call(moe_weights_set, get(), role, tensor.get(), function, user);
    });
  }
  /// One expert's; shard: "w1" (gate) or "w3" (up) for half of a w13 role.
  Result<void> try_set_expert(Text role, std::int64_t expert, Text shard, const ConstTensor& tensor,
                              Release release = {}) noexcept {
    return detail::keep(
        std::move(release), role.cut() || shard.cut(), [&](moe_release_fn function, void* user) noexcept {
          return detail::call(moe_weights_set_expert, get(), role, expert, shard, tensor.get(), function, user);
        });
  }
  /// By the name in a checkpoint; false: the name is not of this layer.
  Result<bool> try_set_named(Text name, const ConstTensor& tensor, Release release = {}) noexcept {
    std::int32_t consumed = 0;
    Result<void> done = detail::keep(std::move(release), name.cut(), [&](moe_release_fn function, void* user) noexcept {
      return detail::call(moe_weights_set_named, get(), name, tensor.get(), function, user, &consumed);
    });
    if (!done) return done.error();
    return consumed != 0;
  }
  /// A file, an index or a directory; tensors are read during conversion.
  Result<void> try_load_safetensors(Text path, Text module = nullptr) noexcept {
    return detail::call(moe_weights_load_safetensors, get(), path, module);
  }
  /// From files that are open already: of a config that is one of Checkpoint::config.
  Result<void> try_load_checkpoint(const Checkpoint& checkpoint) noexcept;
  /// complete, missing, unexpected, experts, tensors
  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_weights_to_json, get()); }
  /// One expert's tensor, all with -1.
  Result<HeldTensor> try_get(Text role, std::int64_t expert) const noexcept {
    moe_tensor raw{};
    moe_buffer* hold = nullptr;
    raw.struct_size = sizeof raw;
    if (Result<void> done = detail::call(moe_weights_get, Handle::get(), role, expert, &raw, &hold); !done)
      return done.error();
    return HeldTensor{ConstTensor(raw), Buffer(hold)};
  }
  using Handle::get;

#if LIBMOE_EXCEPTIONS
  static Weights create(const Config& config) { return try_create(config).value(); }
  static Weights from_source(const Config& config, Source source) {
    return try_from_source(config, std::move(source)).value();
  }
  void set(Text role, const ConstTensor& tensor, Release release = {}) {
    try_set(role, tensor, std::move(release)).value();
  }
  void set_expert(Text role, std::int64_t expert, Text shard, const ConstTensor& tensor, Release release = {}) {
    try_set_expert(role, expert, shard, tensor, std::move(release)).value();
  }
  bool set_named(Text name, const ConstTensor& tensor, Release release = {}) {
    return try_set_named(name, tensor, std::move(release)).value();
  }
  void load_safetensors(Text path, Text module = nullptr) { try_load_safetensors(path, module).value(); }
  void load_checkpoint(const Checkpoint& checkpoint) { try_load_checkpoint(checkpoint).value(); }
  Buffer to_json() const { return try_to_json().value(); }
  HeldTensor get(Text role, std::int64_t expert) const { return try_get(role, expert).value(); }
#endif

 private:
  static moe_status MOE_CALL give(void* user, const char* role, std::int64_t expert, const char* shard, moe_tensor* out,
                                  moe_error** error) {
    return detail::guarded(
        [&](auto fail) -> moe_status {
          const Result<ConstTensor> tensor = static_cast<Source*>(user)->get(role, expert, shard ? shard : "");
          if (!tensor) return fail(tensor.error().status(), tensor.error().what());
          if (tensor->absent()) return fail(MOE_ERR_MISSING_WEIGHT, "the source gave an absent tensor");
          *out = *tensor->get();
          return MOE_OK;
        },
        error);
  }
  static void MOE_CALL take_back(void* user, const char* role, std::int64_t expert, const char* shard,
                                 const moe_tensor* tensor) {
    detail::guarded([&](auto) -> moe_status {
      static_cast<Source*>(user)->put(role, expert, shard ? shard : "", ConstTensor(*tensor));
      return MOE_OK;
    });
  }
};

/// What moe_convert_weights may be told.
struct ConvertOptions {
  bool release_sources = false;  ///< release each tensor once used; empties the set
  bool any_name = false;         ///< take weights whose config has another layer's name
  View<std::byte> dst{};         ///< memory for the result, kept by it; empty: the library's
  Release dst_release{};
  std::uint64_t max_temp_bytes = 0;  ///< 0: one expert's worth per thread
  const Control* control = nullptr;
};

/// Converted weights: immutable, shared by any number of layers.
class Packed : public Handle<moe_packed, moe_packed_destroy> {
 public:
  using Handle::Handle;

  static Result<Packed> try_convert(const Selection& selection, Weights& weights, const Context& context = {},
                                    ConvertOptions options = {}) noexcept {
    moe_convert_options raw{};
    raw.struct_size = sizeof raw;
    raw.flags =
        (options.release_sources ? MOE_CONVERT_RELEASE_SOURCES : 0) | (options.any_name ? MOE_CONVERT_ANY_NAME : 0);
    raw.dst = options.dst.data();
    raw.dst_size = options.dst.size();
    raw.max_temp_bytes = options.max_temp_bytes;
    raw.control = options.control ? options.control->get() : nullptr;
    return detail::keep(std::move(options.dst_release), false, [&](moe_release_fn function, void* user) noexcept {
      raw.dst_release = function;
      raw.dst_user = user;
      return detail::make<Packed>(moe_convert_weights, context.get(), selection.get(), weights.get(), &raw);
    });
  }
  /// flags: MOE_LOAD_...
  static Result<Packed> try_load(Text path, std::uint64_t flags = MOE_LOAD_MMAP, const Context& context = {},
                                 const Control& control = {}) noexcept {
    return detail::make<Packed>(moe_packed_load, context.get(), path, flags, control.get());
  }
  /// From a block of data(), which is kept until release is called.
  static Result<Packed> try_load_memory(View<const std::byte> block, Release release = {}, std::uint64_t flags = 0,
                                        const Context& context = {}) noexcept {
    return detail::keep(std::move(release), false, [&](moe_release_fn function, void* user) noexcept {
      const void* data = block.data();
      return detail::make<Packed>(moe_packed_load_memory, context.get(), data, block.size(), flags, function, user);
    });
  }

  Result<void> try_save(Text path, const Control& control = {}) const noexcept {
    return detail::call(moe_packed_save, get(), path, std::uint64_t{0}, control.get());
  }
  /// The whole result as one block for try_load_memory; borrowed.
  Result<View<const std::byte>> try_data() const noexcept {
    const void* data = nullptr;
    std::uint64_t size = 0;
    if (Result<void> done = detail::call(moe_packed_data, get(), &data, &size); !done) return done.error();
    return View<const std::byte>(static_cast<const std::byte*>(data), static_cast<std::size_t>(size));
  }
  /// One named output of the conversion, of one expert or (-1) all; borrowed.
  Result<ConstTensor> try_get(Text role, std::int64_t expert = -1) const noexcept {
    moe_tensor raw{};
    raw.struct_size = sizeof raw;
    if (Result<void> done = detail::call(moe_packed_get, Handle::get(), role, expert, &raw); !done) return done.error();
    return ConstTensor(raw);
  }
  /// One expert's dense numbers, for checks: role "w13_weight" or "w2_weight".
  Result<void> try_dequantize(Text role, std::int64_t expert, const Tensor& out) const noexcept {
    return detail::call(moe_packed_dequantize, get(), role, expert, out.get());
  }
  /// Layout, config, experts, named outputs, sizes, content hash.
  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_packed_to_json, get()); }
  using Handle::get;

#if LIBMOE_EXCEPTIONS
  static Packed convert(const Selection& selection, Weights& weights, const Context& context = {},
                        ConvertOptions options = {}) {
    return try_convert(selection, weights, context, std::move(options)).value();
  }
  static Packed load(Text path, std::uint64_t flags = MOE_LOAD_MMAP, const Context& context = {},
                     const Control& control = {}) {
    return try_load(path, flags, context, control).value();
  }
  static Packed load_memory(View<const std::byte> block, Release release = {}, std::uint64_t flags = 0,
                            const Context& context = {}) {
    return try_load_memory(block, std::move(release), flags, context).value();
  }
  void save(Text path, const Control& control = {}) const { try_save(path, control).value(); }
  View<const std::byte> data() const { return try_data().value(); }
  ConstTensor get(Text role, std::int64_t expert = -1) const { return try_get(role, expert).value(); }
  void dequantize(Text role, std::int64_t expert, const Tensor& out) const {
    try_dequantize(role, expert, out).value();
  }
  Buffer to_json() const { return try_to_json().value(); }
#endif
};

}  // namespace LIBMOE_NAMESPACE
}  // namespace libmoe
