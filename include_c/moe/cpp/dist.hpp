// SPDX-License-Identifier: Apache-2.0
//
// Comm, Dist, DistCall: a layer over several ranks. What is collective: see moe.h.
#pragma once

#include <moe/cpp/layer.hpp>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace libmoe {
inline namespace LIBMOE_NAMESPACE {

/// One rank's end of a transport.
class Comm : public Handle<moe_comm, moe_comm_destroy> {
 public:
  using Handle::Handle;

  /// Of the caller's functions, whose `destroy` is called whatever comes of it.
  static Result<Comm> try_create(const moe_comm_ops& ops, std::string_view options_json = {}) noexcept {
    return detail::make<Comm>(moe_comm_create, &ops, options_json.empty() ? nullptr : options_json.data(),
                              options_json.size());
  }
  /// For the threads of this process: handles for ranks 0 to size - 1, which the caller owns, into `out`.
  static Result<void> try_create_threads(std::int32_t size, moe_comm** out) noexcept {
    return detail::call(moe_comm_create_threads, size, out);
  }
  /// Of a communicator that was made without.
  Result<void> try_set_options(std::string_view options_json) noexcept {
    return detail::call(moe_comm_set_options, get(), options_json.data(), options_json.size());
  }

  std::int32_t rank() const noexcept { return moe_comm_rank(get()); }
  std::int32_t size() const noexcept { return moe_comm_size(get()); }

#if LIBMOE_EXCEPTIONS
  static Comm create(const moe_comm_ops& ops, std::string_view options_json = {}) {
    return try_create(ops, options_json).value();
  }
  void set_options(std::string_view options_json) { try_set_options(options_json).value(); }
  static std::vector<Comm> create_threads(std::int32_t size) {
    std::vector<moe_comm*> raw(size > 0 ? static_cast<std::size_t>(size) : 1);
    std::vector<Comm> comms(raw.size());
    try_create_threads(size, raw.data()).value();
    for (std::size_t r = 0; r < raw.size(); ++r) comms[r] = Comm(raw[r]);
    return comms;
  }
#endif
};

/// A call under way. finish() says how it went; without it the destructor drops the call.
class DistCall : public Handle<moe_dist_call, moe_dist_call_destroy> {
 public:
  using Handle::Handle;

  /// Goes on without a wait; true when finish() would not wait.
  Result<bool> try_poll() noexcept {
    std::int32_t done = 0;
    if (Result<void> asked = detail::call(moe_dist_poll, get(), &done); !asked) return asked.error();
    return done != 0;
  }
  Result<void> try_finish() noexcept { return detail::call(moe_dist_finish, release()); }

#if LIBMOE_EXCEPTIONS
  bool poll() { return try_poll().value(); }
  void finish() { try_finish().value(); }
#endif
};

/// A layer that is spread over the ranks of a communicator.
class Dist : public Handle<moe_dist, moe_dist_destroy> {
 public:
  using Handle::Handle;

  static Result<Dist> try_create(const Comm& comm, const Config& config, const Context& context = {},
                                 std::string_view options_json = {}) noexcept {
    return detail::make<Dist>(moe_dist_create, context.get(), comm.get(), config.get(),
                              options_json.empty() ? nullptr : options_json.data(), options_json.size());
  }
  /// Of this rank's part.
  Result<Config> try_local_config() const noexcept { return detail::make<Config>(moe_dist_local_config, get()); }
  /// An empty layer where this rank holds no expert.
  Result<void> try_attach(const Layer& layer) noexcept { return detail::call(moe_dist_attach, get(), layer.get()); }
  Result<void> try_apply(const Apply& call) noexcept {
    const moe_apply_args args = detail::raw_args(call);
    return detail::call(moe_dist_apply, get(), &args);
  }
  /// What the tensors view stays valid until finish().
  Result<DistCall> try_begin(const Apply& call) noexcept {
    const moe_apply_args args = detail::raw_args(call);
    return detail::make<DistCall>(moe_dist_begin, get(), &args);
  }
  /// Options, experts, memory, what was sent.
  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_dist_to_json, get()); }

#if LIBMOE_EXCEPTIONS
  static Dist create(const Comm& comm, const Config& config, const Context& context = {},
                     std::string_view options_json = {}) {
    return try_create(comm, config, context, options_json).value();
  }
  Config local_config() const { return try_local_config().value(); }
  void attach(const Layer& layer) { try_attach(layer).value(); }
  void apply(const Apply& call) { try_apply(call).value(); }
  DistCall begin(const Apply& call) { return try_begin(call).value(); }
  Buffer to_json() const { return try_to_json().value(); }
#endif
};

}  // namespace LIBMOE_NAMESPACE
}  // namespace libmoe
