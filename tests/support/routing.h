// Routing a batch in tests of the room run: configs by hand, any row of functions, results as vectors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/buffer.h"
#include "base/float_formats.h"
#include "run/route/route.h"
#include "support/rooms.h"

namespace moe::test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMaxFloat = std::numeric_limits<float>::max();

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  friend bool operator==(const Routed& a, const Routed& b) {
    return a.ids == b.ids && a.weights.size() == b.weights.size() &&
           std::memcmp(a.weights.data(), b.weights.data(), a.weights.size() * sizeof(float)) == 0;
  }
};

inline Config route_config(std::int64_t experts, std::int64_t k, bool renormalize = true) {
  Config c;
  c.num_experts = c.num_physical_experts = c.num_local_experts = experts;
  c.top_k = k;
  c.routing.renormalize = renormalize;
  c.routing.method = renormalize ? RoutingMethod::renormalize : RoutingMethod::default_;
  return c;
}

inline Config with_groups(Config c, std::int64_t groups, std::int64_t kept) {
  c.routing.num_expert_group = groups;
  c.routing.topk_group = kept;
  return c;
}

inline Config with_bias(Config c, std::vector<float> bias) {
  c.routing.has_bias = true;
  c.routing.bias = std::move(bias);
  return c;
}

// The rows of functions that this machine runs, the scalar one last.
inline std::vector<const RouteKernel*> runnable_route_kernels() {
  std::vector<const RouteKernel*> rows;
  const Platform host = *detect_platform("");
  for (const RouteKernel* row : route_kernels())
    if (host.runs(row->isa)) rows.push_back(row);
  return rows;
}

// A batch of logits of any type; rows `stride` apart.
struct Logits {
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;
  std::int64_t tokens = 0, stride = 0;
};

inline Logits logits_of(const std::vector<float>& x, std::int64_t columns, DType dtype = DType::f32) {
  Logits l{dtype, {}, static_cast<std::int64_t>(x.size()) / columns, columns};
  const std::size_t size = dtype == DType::f32 ? 4 : 2;
  l.bytes.resize(x.size() * size);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint16_t h = dtype == DType::bf16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
    std::memcpy(l.bytes.data() + i * size, size == 4 ? static_cast<const void*>(&x[i]) : &h, size);
  }
  return l;
}

// What a Logits holds, in float32.
inline std::vector<float> widened(const Logits& l) {
  const std::size_t size = l.dtype == DType::f32 ? 4 : 2;
  std::vector<float> x(l.bytes.size() / size);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint16_t h = 0;
    std::memcpy(size == 4 ? static_cast<void*>(&x[i]) : &h, l.bytes.data() + i * size, size);
    if (size == 2) x[i] = l.dtype == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
  }
  return x;
}

struct RouteHow {
  const RouteKernel* kernel = nullptr;  // null: the best of this machine
  Parallel parallel = {};
  std::vector<std::int32_t> hash_ids = {};  // [T, k]
  RouterSources bias = {};
};

inline Routed route_batch(const Config& c, const Logits& l, const RouteHow& how = {}) {
  const RouteKernel& kernel = how.kernel != nullptr ? *how.kernel : *runnable_route_kernels().front();
  const Result<Router> made = make_router(c, kernel, how.bias);
  if (!made || !check_router(*made)) {
    ADD_FAILURE() << (made ? check_router(*made).error().message : made.error().message);
    return {};
  }
  const Router& router = *made;
  const std::size_t n = static_cast<std::size_t>(l.tokens) * router.width();
  Routed r{std::vector<std::int32_t>(n, -7), std::vector<float>(n, kNaN)};
  const Buffer scratch = std::move(*Buffer::create(route_scratch_bytes(router, l.tokens)));
  const TensorView ids = row_major(DType::i32, {l.tokens, c.top_k}, const_cast<std::int32_t*>(how.hash_ids.data()));
  EXPECT_TRUE(route(router,
                    {.num_tokens = l.tokens,
                     .logits_dtype = l.dtype,
                     .logits = l.bytes.data(),
                     .row_stride = l.stride,
                     .hash_ids = &ids,
                     .ids = r.ids.data(),
                     .weights = r.weights.data(),
                     .scratch = scratch.data()},
                    how.parallel));
  return r;
}

inline Routed route_floats(const Config& c, const std::vector<float>& x, const RouteHow& how = {}) {
  return route_batch(c, logits_of(x, c.router_columns()), how);
}

enum class Draw { normal, wide, ties, odd };
constexpr Draw kDraws[] = {Draw::normal, Draw::wide, Draw::ties, Draw::odd};

inline std::vector<float> random_logits(std::mt19937& g, std::size_t n, Draw draw) {
  std::normal_distribution<float> normal(0.0f, draw == Draw::wide ? 30.0f : 2.0f);
  std::uniform_int_distribution<int> few(-2, 2), odd(0, 9);
  std::vector<float> x(n);
  for (float& v : x) {
    v = draw == Draw::ties ? static_cast<float>(few(g)) : normal(g);
    if (draw != Draw::odd) continue;
    constexpr float kOdd[] = {kNaN, kInf, -kInf, kMaxFloat, -kMaxFloat, 0.0f, -0.0f, 1e-40f};
    const int s = odd(g);
    if (s < 8) v = kOdd[s];
  }
  return x;
}

}  // namespace moe::test
