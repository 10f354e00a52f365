// Routing alone: moe_route.
#include <array>
#include <cstring>

#include "api/apply_args.h"
#include "api/correction_bias.h"
#include "api/entry.h"
#include "base/index.h"
#include "base/text.h"
#include "run/route/plan.h"
#include "run/route/route.h"

using moe::DType;
using moe::usize;
using moe::api::kFloats;
using moe::api::kIds;
using moe::api::kTokens;
using moe::api::TensorParam;

namespace {

enum Row : std::size_t { kLogits, kBias, kIdsOut, kWeightsOut, kRows };
using Rows = std::array<TensorParam, kRows>;

Rows rows_of(const moe_route_args& a) {
  Rows r{};
  r[kLogits] = {.name = "router_logits", .given = a.router_logits, .dtypes = kFloats, .ndim = 2, .letters = "[T, G]"};
  r[kBias] = moe::api::bias_param(a.correction_bias);
  r[kIdsOut] = moe::api::topk_ids_out(a.out_topk_ids, kIds);
  r[kWeightsOut] = moe::api::topk_weights_out(a.out_topk_weights);
  return r;
}

Check check_overlap(const Rows& r) {
  for (const Row out : {kIdsOut, kWeightsOut})
    for (std::size_t i = 0; i < out; ++i)
      if (r[i].given != nullptr && moe::api::overlaps(r[out].view, r[i].view))
        return fail(Code::invalid_argument, r[out].name, cat(r[out].name, ": shares memory with ", r[i].name));
  return ok();
}

// Dense results into the caller's tensors, of any row stride and i32 or i64; ids from column `first` on.
void scatter(const std::int32_t* ids, const float* weights, const TensorView& out_ids, const TensorView& out_weights,
             std::int64_t first) {
  const std::int64_t width = out_ids.shape[1];
  const std::size_t id_size = out_ids.dtype == DType::i64 ? sizeof(std::int64_t) : sizeof(std::int32_t);
  for (std::int64_t t = 0; t < out_ids.shape[0]; ++t) {
    std::memcpy(out_weights.data + usize(t * out_weights.strides[0]) * sizeof(float), weights + t * width,
                usize(width) * sizeof(float));
    for (std::int64_t j = first; j < width; ++j) {
      const std::int64_t id = ids[t * width + j];
      const auto id32 = static_cast<std::int32_t>(id);
      std::byte* to = out_ids.data + usize(t * out_ids.strides[0] + j) * id_size;
      if (id_size == sizeof id)
        std::memcpy(to, &id, sizeof id);
      else
        std::memcpy(to, &id32, sizeof id32);
    }
  }
}

// The call with its results and scratch in memory of its own, so that a failure has written nothing.
Check route_into(const moe::run::Router& router, const Rows& rows, std::int64_t tokens, moe_context* ctx) {
  const TensorView &logits = rows[kLogits].view, &ids = rows[kIdsOut].view, &weights = rows[kWeightsOut].view;
  const std::size_t slots = usize(tokens) * router.width();
  struct Memory {
    std::int32_t* ids;
    float* weights;
    std::byte* scratch;
    std::size_t bytes;
  };
  const auto carve = [&](std::byte* base) {
    moe::run::Carver c(base);
    Memory m{c.take<std::int32_t>(slots), c.take<float>(slots),
             c.take<std::byte>(moe::run::route_scratch_bytes(router, tokens)), 0};
    m.bytes = c.used();
    return m;
  };
  MOE_TRY(const moe::Buffer own, moe::Buffer::create(carve(nullptr).bytes));
  const Memory m = carve(own.data());
  const bool hash = router.rule == moe::run::RouteRule::hash;
  MOE_CHECK(moe::run::route(router,
                            {.num_tokens = tokens,
                             .logits_dtype = logits.dtype,
                             .logits = logits.data,
                             .row_stride = logits.strides[0],
                             .hash_ids = &ids,
                             .ids = m.ids,
                             .weights = m.weights,
                             .scratch = m.scratch},
                            moe::run::parallel_of(object_of(ctx).get())));
  scatter(m.ids, m.weights, ids, weights, hash ? static_cast<std::int64_t>(router.k) : 0);
  return ok();
}

}  // namespace

moe_status moe_route(moe_context* ctx, const moe_config* config, const moe_route_args* args, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"config", config}, {"args", args}}));
    MOE_TRY(const moe_route_args a, read_struct(args, "args"));
    MOE_CHECK(not_null({{"router_logits", a.router_logits},
                        {"out_topk_ids", a.out_topk_ids},
                        {"out_topk_weights", a.out_topk_weights}}));
    Rows rows = rows_of(a);
    MOE_CHECK(moe::api::read_structs(rows));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(config, "config"));
    MOE_CHECK(reserved_zero(a.reserved0, "args"));
    const moe::config::Config& c = *config->object;
    rows[kLogits].shape = {kTokens, c.logit_columns()};
    rows[kIdsOut].shape = rows[kWeightsOut].shape = {kTokens, c.slots_per_token()};
    moe::api::expect_bias(rows[kBias], c);
    MOE_TRY(const std::int64_t tokens, moe::api::check_tensors(rows));
    MOE_CHECK(check_overlap(rows));
    MOE_CHECK(moe::run::check_num_tokens(c, tokens, "router_logits"));
    MOE_TRY(const std::vector<float> bias, moe::api::bias_values(rows[kBias]));
    MOE_TRY(const moe::Platform host, moe::detect_platform());
    MOE_TRY(const moe::run::Router router, moe::run::make_router(c, moe::kernels::route_kernel_for(host),
                                                                 {.option = bias, .loaded = {}, .scale = {}}));
    MOE_CHECK(moe::run::check_router(router));
    if (router.rule == moe::run::RouteRule::hash)
      MOE_CHECK(moe::run::check_hash_ids(router, rows[kIdsOut].view, "out_topk_ids"));
    return tokens == 0 ? ok() : route_into(router, rows, tokens, ctx);
  });
}
