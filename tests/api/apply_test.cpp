// Calls of a layer: every refusal leaves the output untouched; strides, aliases, workspaces, routing.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::apply_test {
namespace {

class Apply : public testing::Test {
 protected:
  Model m = random_model();
  Steps s = four_steps(m, "{\"threads\":2}");

  Failure run(const moe_apply_args& a) {
    return failure([&](moe_error** e) { return moe_apply(s.layer.get(), &a, e); });
  }
  std::vector<std::byte> plain() {
    Call c(m);
    EXPECT_EQ(run(c.args).status, MOE_OK);
    return c.out;
  }
};

struct Refusal {
  const char* what;
  moe_status status;
  const char* subject;
  void (*spoil)(Call&);
};

// clang-format off
const Refusal kRefusals[] = {
    {"no hidden",          MOE_ERR_INVALID_ARGUMENT, "hidden",        [](Call& c) { c.args.hidden = nullptr; }},
    {"no out",             MOE_ERR_INVALID_ARGUMENT, "out",           [](Call& c) { c.args.out = nullptr; }},
    {"no ids",             MOE_ERR_INVALID_ARGUMENT, "topk_ids",      [](Call& c) { c.args.topk_ids = nullptr; }},
    {"no weights",         MOE_ERR_INVALID_ARGUMENT, "topk_weights",  [](Call& c) { c.args.topk_weights = nullptr; }},
    {"args size",          MOE_ERR_INVALID_ARGUMENT, "args",          [](Call& c) { c.args.struct_size = 8; }},
    {"ids struct",         MOE_ERR_INVALID_ARGUMENT, "topk_ids",      [](Call& c) { c.ids.struct_size = 8; }},
    {"mode unknown",       MOE_ERR_INVALID_ARGUMENT, "mode",          [](Call& c) { c.args.mode = 3; }},
    {"mode negative",      MOE_ERR_INVALID_ARGUMENT, "mode",          [](Call& c) { c.args.mode = INT32_MIN; }},
    {"mode batched",       MOE_ERR_UNSUPPORTED,      "mode",          [](Call& c) { c.args.mode = 2; }},
    {"flags",              MOE_ERR_INVALID_ARGUMENT, "flags",         [](Call& c) { c.args.flags = 4; }},
    {"expert_tokens",      MOE_ERR_UNSUPPORTED,      "expert_tokens", [](Call& c) { c.args.expert_tokens = &c.ids; }},
    {"logits in TOPK",     MOE_ERR_INVALID_ARGUMENT, "router_logits", [](Call& c) { c.args.router_logits = &c.logits; }},
    {"ids in LOGITS",      MOE_ERR_INVALID_ARGUMENT, "topk_ids",      [](Call& c) { c.args.mode = 0; c.args.router_logits = &c.logits; }},
    {"no logits",          MOE_ERR_INVALID_ARGUMENT, "router_logits", [](Call& c) { c.args.mode = 0; }},
    {"chosen ids in TOPK", MOE_ERR_INVALID_ARGUMENT, "out_topk_ids",  [](Call& c) { c.args.out_topk_ids = &c.ids; }},
    {"hidden dtype",       MOE_ERR_DTYPE,            "hidden",        [](Call& c) { c.hidden.dtype = MOE_DTYPE_BF16; }},
    {"out dtype",          MOE_ERR_DTYPE,            "out",           [](Call& c) { c.result.dtype = MOE_DTYPE_F16; }},
    {"ids dtype",          MOE_ERR_DTYPE,            "topk_ids",      [](Call& c) { c.ids.dtype = MOE_DTYPE_U32; }},
    {"weights dtype",      MOE_ERR_DTYPE,            "topk_weights",  [](Call& c) { c.weights.dtype = MOE_DTYPE_I32; }},
    {"hidden rank",        MOE_ERR_SHAPE,            "hidden",        [](Call& c) { c.hidden.ndim = 1; }},
    {"hidden width",       MOE_ERR_SHAPE,            "hidden",        [](Call& c) { c.hidden.shape[1] = 63; }},
    {"out tokens",         MOE_ERR_SHAPE,            "out",           [](Call& c) { c.result.shape[0] = 4; }},
    {"ids per token",      MOE_ERR_SHAPE,            "topk_ids",      [](Call& c) { c.ids.shape[1] = 1; }},
    {"negative tokens",    MOE_ERR_SHAPE,            "hidden",        [](Call& c) { c.hidden.shape[0] = -1; }},
    {"huge tokens",        MOE_ERR_SHAPE,            "hidden",        [](Call& c) { c.hidden.shape[0] = INT64_MAX / 2; }},
    {"hidden strides",     MOE_ERR_SHAPE,            "hidden",        [](Call& c) { c.hidden.strides[0] = 64; c.hidden.strides[1] = 2; }},
    {"out rows overlap",   MOE_ERR_SHAPE,            "out",           [](Call& c) { c.result.strides[0] = 32; c.result.strides[1] = 1; }},
    {"hidden bytes",       MOE_ERR_SHAPE,            "hidden",        [](Call& c) { c.hidden.nbytes = 1; }},
    {"hidden address",     MOE_ERR_INVALID_ARGUMENT, "hidden",        [](Call& c) { c.hidden.data = static_cast<char*>(c.hidden.data) + 1; }},
    {"out is hidden",      MOE_ERR_INVALID_ARGUMENT, "out",           [](Call& c) { c.result.data = c.hidden.data; }},
    {"out in hidden",      MOE_ERR_INVALID_ARGUMENT, "out",           [](Call& c) { c.hidden.data = static_cast<float*>(c.result.data) - 64; }},
    {"in place elsewhere", MOE_ERR_INVALID_ARGUMENT, "out",           [](Call& c) { c.args.flags = MOE_APPLY_IN_PLACE; }},
    {"out on weights",     MOE_ERR_INVALID_ARGUMENT, "out",           [](Call& c) { c.weights.data = c.result.data; }},
    {"workspace address",  MOE_ERR_INVALID_ARGUMENT, "workspace",     [](Call& c) { c.args.workspace = reinterpret_cast<void*>(72); c.args.workspace_size = 1; }},
    {"workspace size",     MOE_ERR_BUFFER_TOO_SMALL, "workspace_size",[](Call& c) { c.args.workspace = reinterpret_cast<void*>(64); c.args.workspace_size = 1; }},
    {"an id of no expert", MOE_ERR_INVALID_ARGUMENT, "topk_ids[4,1]", [](Call& c) { static_cast<std::int32_t*>(c.ids.data)[9] = 4; }},
    {"an id below -1",     MOE_ERR_INVALID_ARGUMENT, "topk_ids[0,0]", [](Call& c) { static_cast<std::int32_t*>(c.ids.data)[0] = -2; }},
    {"a foreign control",  MOE_ERR_INVALID_HANDLE,   "control",       [](Call& c) { c.args.control = reinterpret_cast<moe_control*>(c.result.data); }},
};
// clang-format on

TEST_F(Apply, RefusalsLeaveTheOutputUntouched) {
  const auto want = plain();
  for (const Refusal& r : kRefusals) {
    Model copy = m;
    Call c(copy);
    r.spoil(c);
    const Failure f = run(c.args);
    EXPECT_EQ(f.status, r.status) << r.what << ": " << f.message;
    EXPECT_EQ(f.subject, r.subject) << r.what << ": " << f.message;
    EXPECT_TRUE(c.untouched()) << r.what;
  }
  EXPECT_EQ(plain(), want);  // the layer is as before
}

TEST_F(Apply, NoTokens) {
  Call c(m);
  for (moe_tensor* t : {&c.hidden, &c.ids, &c.weights, &c.result}) {
    t->shape[0] = 0;
    t->data = nullptr;
  }
  EXPECT_EQ(run(c.args).status, MOE_OK);
  EXPECT_EQ(moe_apply_flat(s.layer.get(), 0, MOE_DTYPE_F32, nullptr, 0, nullptr, nullptr, nullptr, MOE_DTYPE_F32,
                           nullptr, nullptr),
            MOE_OK);
  c.hidden.dtype = MOE_DTYPE_F16;
  EXPECT_EQ(run(c.args).status, MOE_ERR_DTYPE);
}

TEST_F(Apply, FlatGivesTheSame) {
  const auto want = plain();
  Call c(m);
  const auto flat = [&](moe_dtype in, const void* logits, const std::int32_t* ids, const float* w) {
    return failure([&](moe_error** e) {
      return moe_apply_flat(s.layer.get(), m.T, in, m.x.data(), MOE_DTYPE_F32, logits, ids, w, MOE_DTYPE_F32,
                            c.out.data(), e);
    });
  };
  EXPECT_EQ(flat(MOE_DTYPE_F32, nullptr, m.ids.data(), m.weights.data()).status, MOE_OK);
  EXPECT_EQ(c.out, want);
  EXPECT_EQ(flat(MOE_DTYPE_F32, m.logits.data(), nullptr, nullptr).status, MOE_OK);
  const std::vector<std::byte> routed = c.out;
  Call d(m);
  d.args.mode = MOE_APPLY_ROUTER_LOGITS;
  d.args.router_logits = &d.logits;
  d.args.topk_ids = d.args.topk_weights = nullptr;
  EXPECT_EQ(run(d.args).status, MOE_OK);
  EXPECT_EQ(d.out, routed);
  EXPECT_EQ(flat(MOE_DTYPE_F16, nullptr, m.ids.data(), m.weights.data()).subject, "hidden");
  EXPECT_EQ(flat(-1, nullptr, m.ids.data(), m.weights.data()).status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(flat(MOE_DTYPE_F32, nullptr, nullptr, m.weights.data()).subject, "topk_ids");
  EXPECT_EQ(flat(MOE_DTYPE_F32, m.logits.data(), m.ids.data(), nullptr).subject, "topk_ids");
  EXPECT_EQ(moe_apply_flat(s.layer.get(), -1, 1, m.x.data(), 1, nullptr, m.ids.data(), m.weights.data(), 1,
                           c.out.data(), nullptr),
            MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(moe_apply_flat(s.layer.get(), INT64_MAX, 1, m.x.data(), 1, nullptr, m.ids.data(), m.weights.data(), 1,
                           c.out.data(), nullptr),
            MOE_ERR_SHAPE);
}

TEST_F(Apply, RoutingInsideIsRoutingOutside) {
  std::vector<std::int32_t> ids(10), ids_inside(10);
  std::vector<std::int64_t> wide(10);
  std::vector<float> weights(10), weights_inside(10);
  const auto route = [&](moe_dtype type, void* to) {
    const moe_tensor logits = tensor(MOE_DTYPE_F32, {m.T, m.E}, m.logits.data()), i = tensor(type, {m.T, m.K}, to),
                     w = tensor(MOE_DTYPE_F32, {m.T, m.K}, weights.data());
    const moe_route_args args{sizeof args, 0, &logits, nullptr, &i, &w};
    return moe_route(s.context.get(), s.config.get(), &args, nullptr);
  };
  ASSERT_EQ(route(MOE_DTYPE_I64, wide.data()), MOE_OK);
  ASSERT_EQ(route(MOE_DTYPE_I32, ids.data()), MOE_OK);
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), wide.begin()));
  Call inside(m);
  const moe_tensor i = tensor(MOE_DTYPE_I32, {m.T, m.K}, ids_inside.data()),
                   w = tensor(MOE_DTYPE_F32, {m.T, m.K}, weights_inside.data());
  inside.args.mode = MOE_APPLY_ROUTER_LOGITS;
  inside.args.router_logits = &inside.logits;
  inside.args.topk_ids = inside.args.topk_weights = nullptr;
  inside.args.out_topk_ids = &i;
  inside.args.out_topk_weights = &w;
  ASSERT_EQ(run(inside.args).status, MOE_OK);
  EXPECT_EQ(ids_inside, ids);
  EXPECT_EQ(weights_inside, weights);
  m.ids = ids;
  m.weights = weights;
  EXPECT_EQ(inside.out, plain());
}

TEST_F(Apply, StridedTensors) {
  const auto want = plain();
  const auto width = static_cast<std::size_t>(m.H), wide = width + 16;
  std::vector<float> x(static_cast<std::size_t>(m.T) * wide, 99.0f), y(x.size(), -7.0f);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(m.T * 3), 1000);
  for (std::size_t t = 0; t < static_cast<std::size_t>(m.T); ++t) {
    std::memcpy(&x[t * wide], m.x.data() + t * width * 4, width * 4);
    for (std::size_t j = 0; j < 2; ++j) ids[t * 3 + j] = m.ids[t * 2 + j];
  }
  Call c(m);
  c.hidden.data = x.data();
  c.result.data = y.data();
  c.ids = tensor(MOE_DTYPE_I64, {m.T, m.K}, ids.data());
  c.hidden.strides[0] = c.result.strides[0] = static_cast<std::int64_t>(wide);
  c.ids.strides[0] = 3;
  c.hidden.strides[1] = c.result.strides[1] = c.ids.strides[1] = 1;
  ASSERT_EQ(run(c.args).status, MOE_OK);
  for (std::size_t t = 0; t < static_cast<std::size_t>(m.T); ++t) {
    EXPECT_EQ(std::memcmp(&y[t * wide], want.data() + t * width * 4, width * 4), 0) << t;
    for (std::size_t j = width; j < wide; ++j) ASSERT_EQ(y[t * wide + j], -7.0f);  // the gap is not ours
  }
}

TEST_F(Apply, InPlaceAndAccumulate) {
  const auto want = plain();
  Model copy = m;
  Call c(copy);
  c.result.data = c.hidden.data;
  c.args.flags = MOE_APPLY_IN_PLACE;
  ASSERT_EQ(run(c.args).status, MOE_OK);
  EXPECT_EQ(copy.x, want);
  Call a(m);
  std::fill(a.out.begin(), a.out.end(), std::byte{0});
  a.args.flags = MOE_APPLY_ACCUMULATE;
  ASSERT_EQ(run(a.args).status, MOE_OK);
  EXPECT_EQ(a.out, want);
}

TEST_F(Apply, AWorkspaceOfTheCaller) {
  const auto want = plain();
  std::uint64_t bytes = 0, alignment = 0;
  ASSERT_EQ(moe_layer_workspace_size(s.layer.get(), MOE_APPLY_TOPK, m.T, &bytes, &alignment, nullptr), MOE_OK);
  const BufferPtr memory =
      make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_buffer_create(bytes + 64, alignment, o, e); });
  auto* end = static_cast<unsigned char*>(moe_buffer_data(memory.get())) + bytes;
  std::memset(end, 0xa5, 64);
  Call c(m);
  c.args.workspace = moe_buffer_data(memory.get());
  c.args.workspace_size = bytes;
  ASSERT_EQ(run(c.args).status, MOE_OK);
  EXPECT_EQ(c.out, want);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(end[i], 0xa5);
  c.args.workspace_size = bytes - 1;
  const Failure f = run(c.args);
  EXPECT_EQ(f.status, MOE_ERR_BUFFER_TOO_SMALL);
  EXPECT_EQ(f.details["needed"], bytes);
  c.args.workspace = c.result.data = moe_buffer_data(memory.get());
  c.args.workspace_size = bytes;
  EXPECT_EQ(run(c.args).subject, "workspace");
}

TEST_F(Apply, CancelledBefore) {
  const ControlPtr control = make<ControlPtr>(
      [](moe_control** o, moe_error** e) { return moe_control_create(nullptr, nullptr, nullptr, o, e); });
  moe_control_cancel(control.get());
  Call c(m);
  c.args.control = control.get();
  EXPECT_EQ(run(c.args).status, MOE_ERR_CANCELLED);
}

TEST_F(Apply, ManyThreadsAtOnce) {
  const auto want = plain();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        Call c(m);
        wrong[t] += moe_apply(s.layer.get(), &c.args, nullptr) != MOE_OK || c.out != want;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace moe::test::apply_test
