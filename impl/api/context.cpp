// Contexts: moe_context_*. The caller's functions are checked and copied here; run/context/context.h uses them.
#include <algorithm>
#include <string>

#include "api/entry.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/source.h"
#include "kernels/kernel.h"
#include "layouts/families.h"
#include "layouts/p16/p16_layout.h"
#include "oracle/backend.h"

namespace {

// What the struct hands over ends here unless the context takes it.
struct Handed {
  HandedOver log, parallel, allocator;
};

// A context and, ended after it and all that uses it, the functions it calls; last what late threads of the caller
// find.
struct Lent {
  std::shared_ptr<moe::run::HostThreads> threads;
  Handed functions;
  std::shared_ptr<moe::run::Context> context;
};

template <class T>
std::optional<T> nested(const std::optional<moe_context_callbacks>& callbacks,
                        const T* moe_context_callbacks::*member) {
  return callbacks ? peek_struct((*callbacks).*member) : std::nullopt;
}

Check check_parallel(const moe_parallel_ops& ops) {
  MOE_CHECK(callback_given(ops.parallel_for != nullptr, "parallel_for"));
  if (ops.num_threads < 1)
    return fail(Code::invalid_argument, "num_threads", cat("num_threads: must be at least 1, got ", ops.num_threads));
  return ok();
}

Check check_allocator(const moe_allocator_ops& ops) {
  MOE_CHECK(callback_given(ops.allocate != nullptr, "allocate"));
  MOE_CHECK(callback_given(ops.deallocate != nullptr, "deallocate"));
  return reserved_zero(ops.reserved0, "allocator");
}

// All structs first, then their members.
Result<moe::run::ContextHooks> hooks_of(const moe_context_callbacks* given) {
  moe::run::ContextHooks hooks;
  if (given == nullptr) return hooks;
  MOE_TRY(const moe_context_callbacks callbacks, read_struct(given, "callbacks"));
  moe_parallel_ops parallel{};
  moe_allocator_ops allocator{};
  if (callbacks.parallel != nullptr) {
    MOE_TRY(parallel, read_struct(callbacks.parallel, "parallel"));
  }
  if (callbacks.allocator != nullptr) {
    MOE_TRY(allocator, read_struct(callbacks.allocator, "allocator"));
  }
  MOE_CHECK(reserved_zero(callbacks.reserved0, "callbacks"));
  if (callbacks.parallel != nullptr) MOE_CHECK(check_parallel(parallel));
  if (callbacks.allocator != nullptr) MOE_CHECK(check_allocator(allocator));
  hooks.log = {callbacks.log, callbacks.log_user};
  if (callbacks.parallel != nullptr)
    hooks.threads = std::make_shared<moe::run::HostThreads>(
        moe::run::HostParallel{parallel.num_threads, parallel.user, parallel.parallel_for});
  if (callbacks.allocator != nullptr) hooks.allocator = {allocator.user, allocator.allocate, allocator.deallocate};
  return hooks;
}

// "p16/int4" of p16/int4-g32/1, "kai" of the named ones.
std::string begin_of_id(moe::LayoutKind kind) {
  const moe::LayoutShape shape{
      .experts = 1, .hidden = 64, .intermediate = 64, .groups = {}, .gated = true, .has_bias = false};
  const bool ours = moe::p16_element(kind).has_value();
  const std::string id = ours ? moe::p16_layout(kind, shape).id() : moe::make_named_layout(kind, shape).id();
  const std::size_t first = id.find('/');
  return id.substr(0, ours ? id.find_first_of("-/", first + 1) : first);
}

bool serves(const moe::oracle::Accepts& row, const moe::kernels::KernelId& kernel) {
  const bool named = std::any_of(row.other_layouts.begin(), row.other_layouts.end(),
                                 [&](const moe::oracle::NamedChoice& c) { return c.layout == kernel.layout; });
  return row.acts.has(kernel.act) && (named || row.layouts.has(kernel.layout));
}

void write_kernel(moe::json::Writer& w, const moe::kernels::Kernel& k) {
  const moe::FeatureSet features = moe::isa_features(k.id->isa);
  w.begin_object().member("kernel", k.id->name).member("layout", begin_of_id(k.id->layout));
  w.member("isa", moe::at(moe::kIsaNames, k.id->isa)).key("needs").begin_array();
  for (std::size_t i = 0; i < moe::kFeatureNames.size(); ++i)
    if (features.test(i)) w.value(moe::kFeatureNames[i]);
  w.end_array().member("exact", k.exact).end_object();
}

void write_backend(moe::json::Writer& w, moe::oracle::OracleId oracle, const moe::oracle::BackendRow& experts) {
  const moe::oracle::Accepts& accepts = experts.accepts(moe::config::Policy::libmoe);
  const auto can_read = [](moe::Format format) {
    return std::ranges::any_of(
        moe::tensor_sets(), [&](const auto& set) { return set.format == format && moe::convert::can_read(set.codes); });
  };
  w.begin_object().member("backend", experts.backend).member("oracle", moe::oracle::oracle_name(oracle));
  w.member("experts", experts.name).key("formats").begin_array();
  for (std::size_t f = 0; f < moe::kFormatNames.size(); ++f)
    if (const auto format = static_cast<moe::Format>(f);
        accepts.checkpoints.has(moe::read_as(format)) && can_read(format))
      w.value(moe::kFormatNames[f]);
  w.end_array().key("kernels").begin_array();
  for (const moe::kernels::Kernel* k : moe::kernels::built_kernels())
    if (serves(accepts, *k->id)) write_kernel(w, *k);
  w.end_array().end_object();
}

// Every row of the oracles whose layout this build writes; without kernels: for other devices.
void write_backends(moe::json::Writer& w) {
  w.begin_array();
  for (const moe::oracle::Family* family : moe::oracle::families())
    for (const moe::oracle::BackendRow& experts : family->rows)
      if (experts.accepts(moe::config::Policy::libmoe).writes()) write_backend(w, family->id, experts);
  w.end_array();
}

}  // namespace

moe_status moe_context_create(const char* options_json, size_t options_len, const moe_context_callbacks* callbacks,
                              moe_context** out, moe_error** err) {
  const auto given = peek_struct(callbacks);
  const auto parallel = nested(given, &moe_context_callbacks::parallel);
  const auto allocator = nested(given, &moe_context_callbacks::allocator);
  Handed handed;
  if (given) handed.log = HandedOver(given->log_destroy, given->log_user);
  if (parallel) handed.parallel = HandedOver(parallel->destroy, parallel->user);
  if (allocator) handed.allocator = HandedOver(allocator->destroy, allocator->user);
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"out", out}}));
    MOE_TRY(moe::run::ContextHooks hooks, hooks_of(callbacks));
    auto lent = std::make_shared<Lent>();
    lent->threads = hooks.threads;
    MOE_TRY(lent->context, moe::run::Context::create(text_of(options_json, options_len), hooks));
    lent->functions = std::move(handed);
    *out = make_handle<moe_context>(std::shared_ptr<moe::run::Context>(lent, lent->context.get()));
    return ok();
  });
}

moe_status moe_context_to_json(const moe_context* ctx, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"ctx", ctx}, {"out", out}}));
    MOE_CHECK(check_handle(ctx, "ctx"));
    moe::json::Writer w;
    w.begin_object().members({ctx->object->options_json()});
    write_backends(w.key("backends"));
    *out = make_text(w.end_object().take());
    return ok();
  });
}

moe_status moe_context_take_log(moe_context* ctx, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"ctx", ctx}, {"out", out}}));
    MOE_CHECK(check_handle(ctx, "ctx"));
    *out = make_text(ctx->object->take_log());
    return ok();
  });
}

void moe_context_destroy(moe_context* ctx) { end_handle(ctx); }
