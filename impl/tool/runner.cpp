// Calls of layers on made-up tokens.
#include "tool/runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace moe_tool {
namespace {

std::size_t words_of(std::int64_t count, moe_dtype type) {
  const std::int64_t bytes = moe_tensor_nbytes(type, 1, &count);
  if (bytes < 0) throw Failure(kNo, "a batch that is too large");
  return static_cast<std::size_t>(bytes) / sizeof(std::uint32_t) + 1;
}

moe_tensor view_of(moe_dtype type, void* data, std::int64_t rows, std::int64_t columns) {
  auto out = sized<moe_tensor>();
  out.dtype = type;
  out.ndim = 2;
  out.data = data;
  out.shape[0] = rows;
  out.shape[1] = columns;
  return out;
}

double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10U & 0x1fU;
  const double fraction = bits & 0x3ffU;
  double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31)
    size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return (bits & 0x8000U) != 0 ? -size : size;
}

double element(const std::vector<std::uint32_t>& words, moe_dtype type, std::int64_t index) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(words.data());
  if (type == MOE_DTYPE_F32) {
    float value;
    std::memcpy(&value, bytes + 4 * index, sizeof value);
    return static_cast<double>(value);
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes + 2 * index, sizeof bits);
  if (type == MOE_DTYPE_F16) return half_value(bits);
  const std::uint32_t wide = std::uint32_t{bits} << 16U;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return static_cast<double>(value);
}

}  // namespace

CallSizes sizes_of(const Json& config) {
  const Json& routing = config.at("routing");
  const auto optional = [&](const char* name) {
    return routing.contains(name) && routing[name].is_number() ? routing[name].get<std::int64_t>() : 0;
  };
  CallSizes out;
  out.hidden = config.at("hidden_dim");
  out.experts = config.at("num_experts");
  out.logits = out.experts + optional("num_zero_experts") + optional("num_shared_logits");
  out.with_weights = out.experts + optional("num_fused_shared_experts");
  out.chosen = config.at("top_k").get<std::int64_t>() + optional("num_fused_shared_experts");
  out.in = moe_dtype_from_name(config.at("in_dtype").get<std::string>().c_str());
  out.out = moe_dtype_from_name(config.at("out_dtype").get<std::string>().c_str());
  out.routes = routing.value("method", "") != "Custom" && !routing.value("hash_routing", false);
  return out;
}

double memory_of_batch(const CallSizes& sizes, std::int64_t tokens) {
  const auto width = [](moe_dtype type) { return type == MOE_DTYPE_F32 ? 4.0 : 2.0; };
  const double hidden = static_cast<double>(sizes.hidden) * (width(sizes.in) + width(sizes.out));
  const double routing = 4 * static_cast<double>(sizes.logits) + 8 * static_cast<double>(sizes.chosen);
  return static_cast<double>(tokens) * (hidden + routing);
}

std::uint64_t Random::bits() {  // xorshift64*
  state_ ^= state_ >> 12U;
  state_ ^= state_ << 25U;
  state_ ^= state_ >> 27U;
  return state_ * 0x2545f4914f6cdd1d;
}

TokenBatch::TokenBatch(const CallSizes& sizes, std::int64_t tokens, std::uint64_t seed)
    : sizes_(sizes), tokens_(tokens), random_(seed) {
  const std::int64_t numbers = tokens * sizes.hidden;
  hidden_.resize(words_of(numbers, sizes.in));
  out_.resize(words_of(numbers, sizes.out));
  // Signs and fractions are random, sizes from 0.5 to 1 (bf16: to 2).
  const std::uint32_t keep = sizes.in == MOE_DTYPE_F32   ? 0x807fffffU
                             : sizes.in == MOE_DTYPE_F16 ? 0x83ff83ffU
                                                         : 0x80ff80ffU;
  const std::uint32_t set = sizes.in == MOE_DTYPE_F32   ? 0x3f000000U
                            : sizes.in == MOE_DTYPE_F16 ? 0x38003800U
                                                        : 0x3f003f00U;
  for (std::uint32_t& word : hidden_) word = (static_cast<std::uint32_t>(random_.bits() >> 32U) & keep) | set;
  logits_.resize(static_cast<std::size_t>(tokens * sizes.logits));
  ids_.resize(static_cast<std::size_t>(tokens * sizes.chosen));
  weights_.resize(ids_.size(), 1.0F / static_cast<float>(sizes.chosen));
  choose_again();
}

void TokenBatch::choose_again() {
  if (sizes_.routes) {
    for (float& logit : logits_) logit = static_cast<float>(random_.uniform() * 8 - 4);
    return;
  }
  const auto chosen = static_cast<std::size_t>(sizes_.chosen);
  const auto experts = static_cast<std::uint64_t>(sizes_.experts);
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens_); ++token) {
    const auto begin = ids_.begin() + static_cast<std::ptrdiff_t>(token * chosen);
    for (std::size_t j = 0; j < chosen; ++j) {
      auto id = static_cast<std::int32_t>(random_.bits() % experts);
      while (std::find(begin, begin + static_cast<std::ptrdiff_t>(j), id) != begin + static_cast<std::ptrdiff_t>(j))
        id = static_cast<std::int32_t>((static_cast<std::uint64_t>(id) + 1) % experts);
      begin[static_cast<std::ptrdiff_t>(j)] = id;
    }
  }
}

void TokenBatch::run(const moe_layer* layer, moe_control* control) {
  const moe_tensor hidden = view_of(sizes_.in, hidden_.data(), tokens_, sizes_.hidden);
  const moe_tensor out = view_of(sizes_.out, out_.data(), tokens_, sizes_.hidden);
  const moe_tensor logits = view_of(MOE_DTYPE_F32, logits_.data(), tokens_, sizes_.logits);
  const moe_tensor ids = view_of(MOE_DTYPE_I32, ids_.data(), tokens_, sizes_.chosen);
  const moe_tensor weights = view_of(MOE_DTYPE_F32, weights_.data(), tokens_, sizes_.chosen);
  auto args = sized<moe_apply_args>();
  args.hidden = &hidden;
  args.out = &out;
  args.control = control;
  if (sizes_.routes) {
    args.mode = MOE_APPLY_ROUTER_LOGITS;
    args.router_logits = &logits;
    args.out_topk_ids = &ids;
    args.out_topk_weights = &weights;
  } else {
    args.mode = MOE_APPLY_TOPK;
    args.topk_ids = &ids;
    args.topk_weights = &weights;
  }
  call(moe_apply, layer, &args);
}

std::optional<std::vector<std::int32_t>> TokenBatch::route(moe_context* context, const moe_config* config) const {
  std::vector<std::int32_t> ids(ids_.size());
  std::vector<float> weights(ids_.size());
  std::vector<float> copy = logits_;  // a tensor's data is not const, though it is only read
  const moe_tensor logits = view_of(MOE_DTYPE_F32, copy.data(), tokens_, sizes_.logits);
  const moe_tensor out_ids = view_of(MOE_DTYPE_I32, ids.data(), tokens_, sizes_.chosen);
  const moe_tensor out_weights = view_of(MOE_DTYPE_F32, weights.data(), tokens_, sizes_.chosen);
  auto args = sized<moe_route_args>();
  args.router_logits = &logits;
  args.out_topk_ids = &out_ids;
  args.out_topk_weights = &out_weights;
  try {
    call(moe_route, context, config, &args);
  } catch (const Failure& failure) {
    if (failure.status() == MOE_ERR_MISSING_WEIGHT) return std::nullopt;
    throw;
  }
  return ids;
}

double TokenBatch::hidden(std::int64_t token, std::int64_t column) const {
  return element(hidden_, sizes_.in, token * sizes_.hidden + column);
}

double TokenBatch::out(std::int64_t token, std::int64_t column) const {
  return element(out_, sizes_.out, token * sizes_.hidden + column);
}

}  // namespace moe_tool
