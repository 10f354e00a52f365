// SPDX-License-Identifier: Apache-2.0
//
// Layer (apply) and route (routing alone).
#pragma once

#include <moe/cpp/weights.hpp>

#include <cstdint>

namespace libmoe {
inline namespace LIBMOE_NAMESPACE {

/// The arguments of moe_apply. Router logits route inside; without them ids and weights are the caller's.
struct Apply {
  ConstTensor hidden;                      ///< [T, H]
  ConstTensor router_logits{};             ///< [T, G]
  ConstTensor topk_ids{}, topk_weights{};  ///< [T, K]
  Tensor out{};                            ///< [T, H]
  std::uint64_t flags = 0;                 ///< MOE_APPLY_...
  View<std::byte> workspace{};             ///< empty: the library's
  const Control* control = nullptr;
  Tensor out_topk_ids{}, out_topk_weights{};  ///< what routing chose, if wanted
};

/// What a layer may be given instead of the config's and the checkpoint's.
struct LayerOptions {
  ConstTensor correction_bias{}, expert_map{};
  std::uint64_t flags = 0;  ///< MOE_LAYER_...
};

namespace detail {
inline moe_layer_options raw_options(const LayerOptions& options) noexcept {
  return {sizeof(moe_layer_options), 0, options.correction_bias.get(), options.expert_map.get(), options.flags};
}
}  // namespace detail

namespace detail {

inline moe_apply_args raw_args(const Apply& call) noexcept {
  moe_apply_args args{};
  args.struct_size = sizeof args;
  args.mode = call.router_logits.absent() ? MOE_APPLY_TOPK : MOE_APPLY_ROUTER_LOGITS;
  args.flags = call.flags;
  args.hidden = call.hidden.get();
  args.router_logits = call.router_logits.get();
  args.topk_ids = call.topk_ids.get();
  args.topk_weights = call.topk_weights.get();
  args.out = call.out.get();
  args.workspace = call.workspace.data();
  args.workspace_size = call.workspace.size();
  args.control = call.control ? call.control->get() : nullptr;
  args.out_topk_ids = call.out_topk_ids.get();
  args.out_topk_weights = call.out_topk_weights.get();
  return args;
}

}  // namespace detail

/// Converted weights bound to a kernel. Several threads may apply one layer at once.
class Layer : public Handle<moe_layer, moe_layer_destroy> {
 public:
  using Handle::Handle;

  static Result<Layer> try_create(const Selection& selection, const Packed& packed, const Context& context = {},
                                  const LayerOptions& options = {}) noexcept {
    const moe_layer_options raw = detail::raw_options(options);
    return detail::make<Layer>(moe_layer_create, context.get(), selection.get(), packed.get(), &raw);
  }

  Result<void> try_apply(const Apply& call) const noexcept {
    const moe_apply_args args = detail::raw_args(call);
    return detail::call(moe_apply, get(), &args);
  }
  Result<void> try_apply(const ConstTensor& hidden, const ConstTensor& router_logits,
                         const Tensor& out) const noexcept {
    Apply call;
    call.hidden = hidden;
    call.router_logits = router_logits;
    call.out = out;
    return try_apply(call);
  }
  Result<void> try_apply_topk(const ConstTensor& hidden, const ConstTensor& topk_ids, const ConstTensor& topk_weights,
                              const Tensor& out) const noexcept {
    Apply call;
    call.hidden = hidden;
    call.topk_ids = topk_ids;
    call.topk_weights = topk_weights;
    call.out = out;
    return try_apply(call);
  }
  /// Plain pointers to arrays without gaps, whose lengths are not checked: see moe_apply_flat.
  Result<void> try_apply_flat(std::int64_t num_tokens, moe_dtype hidden_dtype, const void* hidden,
                              moe_dtype logits_dtype, const void* router_logits, const std::int32_t* topk_ids,
                              const float* topk_weights, moe_dtype out_dtype, void* out) const noexcept {
    return detail::call(moe_apply_flat, get(), num_tokens, hidden_dtype, hidden, logits_dtype, router_logits, topk_ids,
                        topk_weights, out_dtype, out);
  }

  /// Of a call with so many tokens; mode: MOE_APPLY_...
  Result<Size> try_workspace_size(std::int64_t num_tokens,
                                  moe_apply_mode mode = MOE_APPLY_ROUTER_LOGITS) const noexcept {
    Size size{};
    if (Result<void> done =
            detail::call(moe_layer_workspace_size, get(), mode, num_tokens, &size.bytes, &size.alignment);
        !done)
      return done.error();
    return size;
  }
  /// Tokens that went to each expert of this rank since the last reset.
  Result<void> try_expert_counts(View<std::uint64_t> counts, bool reset = false) const noexcept {
    return detail::call(moe_layer_expert_counts, get(), counts.data(), counts.size(), std::int32_t{reset});
  }
  /// Config, kernel, threads, memory.
  Result<Buffer> try_to_json() const noexcept { return detail::text(moe_layer_to_json, get()); }

#if LIBMOE_EXCEPTIONS
  static Layer create(const Selection& selection, const Packed& packed, const Context& context = {},
                      const LayerOptions& options = {}) {
    return try_create(selection, packed, context, options).value();
  }
  void apply(const Apply& call) const { try_apply(call).value(); }
  void apply(const ConstTensor& hidden, const ConstTensor& router_logits, const Tensor& out) const {
    try_apply(hidden, router_logits, out).value();
  }
  void apply_topk(const ConstTensor& hidden, const ConstTensor& topk_ids, const ConstTensor& topk_weights,
                  const Tensor& out) const {
    try_apply_topk(hidden, topk_ids, topk_weights, out).value();
  }
  void apply_flat(std::int64_t num_tokens, moe_dtype hidden_dtype, const void* hidden, moe_dtype logits_dtype,
                  const void* router_logits, const std::int32_t* topk_ids, const float* topk_weights,
                  moe_dtype out_dtype, void* out) const {
    try_apply_flat(num_tokens, hidden_dtype, hidden, logits_dtype, router_logits, topk_ids, topk_weights, out_dtype,
                   out)
        .value();
  }
  Size workspace_size(std::int64_t num_tokens, moe_apply_mode mode = MOE_APPLY_ROUTER_LOGITS) const {
    return try_workspace_size(num_tokens, mode).value();
  }
  void expert_counts(View<std::uint64_t> counts, bool reset = false) const { try_expert_counts(counts, reset).value(); }
  Buffer to_json() const { return try_to_json().value(); }
#endif
};

/// Routing alone, with the config's method: logits [T, G] -> ids and weights [T, K].
inline Result<void> try_route(const Config& config, const ConstTensor& router_logits, const Tensor& out_topk_ids,
                              const Tensor& out_topk_weights, const ConstTensor& correction_bias = {},
                              const Context& context = {}) noexcept {
  const moe_route_args args{sizeof args,           0, router_logits.get(), correction_bias.get(), out_topk_ids.get(),
                            out_topk_weights.get()};
  return detail::call(moe_route, context.get(), config.get(), &args);
}
#if LIBMOE_EXCEPTIONS
inline void route(const Config& config, const ConstTensor& router_logits, const Tensor& out_topk_ids,
                  const Tensor& out_topk_weights, const ConstTensor& correction_bias = {},
                  const Context& context = {}) {
  try_route(config, router_logits, out_topk_ids, out_topk_weights, correction_bias, context).value();
}
#endif

}  // namespace LIBMOE_NAMESPACE
}  // namespace libmoe
