// Running a layer: moe_apply, moe_apply_flat.
//
// The tensors of a call are rows of TensorParam; after the common checks the outputs are held against
// every other piece of memory of the call. This file allocates nothing on the way to a successful moe_apply.
#include <array>
#include <cstring>
#include <string>

#include "api/apply_args.h"
#include "api/entry.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::api {
namespace {

constexpr uint64_t kApplyFlags = MOE_APPLY_ACCUMULATE | MOE_APPLY_IN_PLACE;
using Rows = std::array<TensorParam, kApplyRows>;

Rows rows_of(const moe_apply_args& a) {
  Rows r{};
  r[kHidden] = {.name = "hidden", .given = a.hidden, .ndim = 2, .letters = "[T, H]"};
  r[kLogits] = {.name = "router_logits", .given = a.router_logits, .dtypes = kFloats, .ndim = 2, .letters = "[T, G]"};
  r[kTopkIds] = {.name = "topk_ids", .given = a.topk_ids, .dtypes = kIds, .ndim = 2, .letters = "[T, K]"};
  r[kTopkWeights] = {
      .name = "topk_weights", .given = a.topk_weights, .dtypes = dtype_bit(DType::f32), .ndim = 2, .letters = "[T, K]"};
  r[kOut] = {.name = "out", .given = a.out, .ndim = 2, .letters = "[T, H]", .writable = true};
  r[kOutIds] = topk_ids_out(a.out_topk_ids, dtype_bit(DType::i32));
  r[kOutWeights] = topk_weights_out(a.out_topk_weights);
  return r;
}

// Hash routing takes the ids beside the logits.
bool takes_ids(const Config& c, ApplyMode mode) { return mode == ApplyMode::topk || c.routing.hash_routing; }

// What the config fixes: types of hidden and out, all extents but T.
void expect(Rows& r, const Config& c, ApplyMode mode) {
  r[kHidden].dtypes = dtype_bit(c.in_dtype);
  r[kOut].dtypes = dtype_bit(c.out_dtype);
  r[kHidden].shape = r[kOut].shape = {kTokens, c.hidden_dim};
  r[kLogits].shape = {kTokens, c.logit_columns()};
  for (ApplyRow i : {kTopkIds, kTopkWeights, kOutIds, kOutWeights}) r[i].shape = {kTokens, c.slots_per_token()};
  if (mode == ApplyMode::router_logits) r[kTopkIds].shape = {kTokens, c.top_k};
}

Check must_be_absent(const void* pointer, const char* name, const char* why) {
  if (pointer == nullptr) return ok();
  return fail(Code::invalid_argument, name, cat(name, ": must be NULL ", why));
}

Error shared_memory(const char* out, const char* with) {
  return fail(Code::invalid_argument, out, cat(out, ": shares memory with ", with));
}

ApplyArgs call_of(const Rows& r, ApplyMode mode, std::int64_t tokens) {
  ApplyArgs call;
  call.mode = mode;
  call.num_tokens = tokens;
  call.hidden = r[kHidden].view;
  call.router_logits = r[kLogits].view;
  call.topk_ids = r[kTopkIds].view;
  call.topk_weights = r[kTopkWeights].view;
  call.out = r[kOut].view;
  if (r[kOutIds].given != nullptr) call.out_topk_ids = r[kOutIds].view;
  if (r[kOutWeights].given != nullptr) call.out_topk_weights = r[kOutWeights].view;
  return call;
}

}  // namespace

Result<ApplyMode> apply_mode(moe_apply_mode mode) {
  constexpr moe_apply_mode kBatched = 2;
  if (mode == MOE_APPLY_ROUTER_LOGITS || mode == MOE_APPLY_TOPK) return static_cast<ApplyMode>(mode);
  if (mode == kBatched)
    return fail(Code::unsupported, "mode", "mode: batched activations are not built in this version");
  return fail(Code::invalid_argument, "mode", cat("mode: unknown value ", mode));
}

// Which tensors a mode takes.
Check GivenCall::check_presence(const Config& c, ApplyMode mode) const {
  const moe_apply_args& a = args_;
  if (a.expert_tokens != nullptr)
    return fail(Code::unsupported, "expert_tokens", "expert_tokens: batched activations are not built in this version");
  if (mode == ApplyMode::router_logits) {
    MOE_CHECK(not_null({{"router_logits", a.router_logits}}));
    if (takes_ids(c, mode) && a.topk_ids == nullptr)
      return fail(
          Code::invalid_argument, "topk_ids",
          "topk_ids: must not be NULL: routing.hash_routing of the config says that a table of the token's number "
          "(gate.tid2eid of the checkpoint) gives the experts, and the logits only their weights");
    if (!takes_ids(c, mode)) MOE_CHECK(must_be_absent(a.topk_ids, "topk_ids", "when router_logits are given"));
    return must_be_absent(a.topk_weights, "topk_weights", "when router_logits are given");
  }
  MOE_CHECK(not_null({{"topk_ids", a.topk_ids}, {"topk_weights", a.topk_weights}}));
  MOE_CHECK(must_be_absent(a.router_logits, "router_logits", "in mode MOE_APPLY_TOPK"));
  MOE_CHECK(must_be_absent(a.out_topk_ids, "out_topk_ids", "in mode MOE_APPLY_TOPK"));
  return must_be_absent(a.out_topk_weights, "out_topk_weights", "in mode MOE_APPLY_TOPK");
}

// Each output against everything else. The one exception: out is exactly hidden, with MOE_APPLY_IN_PLACE.
Check GivenCall::check_overlap(bool in_place) const {
  const Rows& r = rows_;
  if (in_place && !same_tensor(r[kHidden].view, r[kOut].view))
    return fail(Code::invalid_argument, "out", "out: MOE_APPLY_IN_PLACE is set, but out is not exactly hidden");
  for (ApplyRow o : {kOut, kOutIds, kOutWeights}) {
    if (r[o].given == nullptr) continue;
    for (std::size_t i = 0; i < kApplyRows; ++i) {
      if (i == o || r[i].given == nullptr || (in_place && o == kOut && i == kHidden)) continue;
      if (overlaps(r[o].view, r[i].view)) return shared_memory(r[o].name, r[i].name);
    }
  }
  return ok();
}

Check GivenCall::check_workspace() const {
  if (args_.workspace == nullptr) return ok();
  if (reinterpret_cast<std::uintptr_t>(args_.workspace) % kWorkspaceAlignment != 0)
    return fail(Code::invalid_argument, "workspace",
                cat("workspace: must be aligned to ", kWorkspaceAlignment, " bytes"));
  for (const TensorParam& p : rows_)
    if (p.given != nullptr && overlaps(p.view, args_.workspace, usize(args_.workspace_size)))
      return shared_memory("workspace", p.name);
  return ok();
}

Check GivenCall::read(const moe_apply_args* args) {
  MOE_TRY(args_, read_struct(args, "args"));
  MOE_CHECK(not_null({{"hidden", args_.hidden}, {"out", args_.out}}));
  rows_ = rows_of(args_);
  return read_structs(rows_);
}

Result<ApplyArgs> GivenCall::check(const Config& config) {
  const moe_apply_args& a = args_;
  MOE_CHECK(check_optional(a.control, "control"));
  MOE_TRY(const ApplyMode mode, apply_mode(a.mode));
  MOE_CHECK(known_flags(a.flags, kApplyFlags));
  MOE_CHECK(check_presence(config, mode));
  expect(rows_, config, mode);
  MOE_TRY(const std::int64_t tokens, check_tensors(rows_));
  MOE_CHECK(check_overlap((a.flags & MOE_APPLY_IN_PLACE) != 0));
  MOE_CHECK(check_workspace());
  ApplyArgs call = call_of(rows_, mode, tokens);
  call.accumulate = (a.flags & MOE_APPLY_ACCUMULATE) != 0;
  call.control = control_of(a.control);
  if (a.workspace != nullptr) call.workspace = {static_cast<std::byte*>(a.workspace), usize(a.workspace_size)};
  return call;
}

}  // namespace moe::api

namespace {

Check run(const moe_layer* layer, const moe_apply_args* args) {
  MOE_CHECK(not_null({{"layer", layer}, {"args", args}}));
  moe::api::GivenCall given;
  MOE_CHECK(given.read(args));
  MOE_CHECK(check_handle(layer, "layer"));
  const moe::run::Layer& l = *layer->object;
  MOE_TRY(const moe::run::ApplyArgs call, given.check(l.config()));
  return l.apply(call);
}

// A dense [rows, columns] argument of moe_apply_flat as a struct; NULL stays absent.
moe_tensor dense(moe_dtype dtype, const void* data, std::int64_t rows, std::int64_t columns) {
  moe_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.ndim = 2;
  t.data = const_cast<void*>(data);
  t.shape[0] = rows;
  t.shape[1] = columns;
  return t;
}

}  // namespace

moe_status moe_apply(const moe_layer* layer, const moe_apply_args* args, moe_error** err) {
  return guard(err, [&] { return run(layer, args); });
}

moe_status moe_apply_flat(const moe_layer* layer, int64_t num_tokens, moe_dtype hidden_dtype, const void* hidden,
                          moe_dtype logits_dtype, const void* router_logits, const int32_t* topk_ids,
                          const float* topk_weights, moe_dtype out_dtype, void* out, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"layer", layer}}));
    // Without tokens there are no bytes to point to.
    const bool routes = router_logits != nullptr;
    if (num_tokens != 0) {
      MOE_CHECK(not_null({{"hidden", hidden}, {"out", out}}));
      if (!routes) MOE_CHECK(not_null({{"topk_ids", topk_ids}, {"topk_weights", topk_weights}}));
    }
    MOE_CHECK(check_handle(layer, "layer"));
    const moe::config::Config& c = layer->object->config();
    if (num_tokens < 0)
      return fail(Code::invalid_argument, "num_tokens", cat("num_tokens: must not be negative, got ", num_tokens));
    const moe_tensor x = dense(hidden_dtype, hidden, num_tokens, c.hidden_dim),
                     y = dense(out_dtype, out, num_tokens, c.hidden_dim);
    const moe_tensor logits = dense(logits_dtype, router_logits, num_tokens, c.logit_columns());
    const moe_tensor ids = dense(MOE_DTYPE_I32, topk_ids, num_tokens, routes ? c.top_k : c.slots_per_token()),
                     weights = dense(MOE_DTYPE_F32, topk_weights, num_tokens, c.slots_per_token());
    moe_apply_args args{};
    args.struct_size = sizeof args;
    args.hidden = &x;
    args.out = &y;
    args.mode = routes ? MOE_APPLY_ROUTER_LOGITS : MOE_APPLY_TOPK;
    args.router_logits = routes ? &logits : nullptr;
    args.topk_ids = !routes || topk_ids != nullptr ? &ids : nullptr;
    args.topk_weights = !routes || topk_weights != nullptr ? &weights : nullptr;
    return run(layer, &args);
  });
}
