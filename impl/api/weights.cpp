// Source weights: moe_weights_*. Roles, shapes and completeness are the business of weights/.
#include <string>

#include "api/callback_source.h"
#include "api/entry.h"
#include "base/nearest.h"
#include "base/text.h"
#include "weights/tensor_bytes.h"

using moe::api::Access;
using moe::api::Use;
using moe::api::WeightsBox;

namespace {

Result<moe::NamedRole> role_of(const char* name) {
  const auto role = moe::named_role(name);
  if (!role)
    return fail(Code::invalid_argument, "role",
                cat("role: unknown role ", moe::in_quotes(name), moe::did_you_mean(name, moe::role_names())));
  return *role;
}

// NULL and the role's own name mean the whole role; w1 and w3 are halves of w13.
Result<moe::Half> half_of(const char* name, const moe::NamedRole& as) {
  const moe::Role role = as.role;
  const std::string_view s = name == nullptr ? "" : name;
  if (name == nullptr || s == (moe::is_w13(role) ? "w13" : "w2")) return moe::Half::whole;
  if (moe::is_w13(role) && s == "w1") return moe::Half::w1;
  if (moe::is_w13(role) && s == "w3") return moe::Half::w3;
  return fail(Code::invalid_argument, "shard", cat("shard: ", moe::in_quotes(s), " is no part of ", as.name));
}

Check check_set(const moe_weights* weights, const char* name_of_text, const char* text, const moe_tensor* tensor) {
  MOE_CHECK(not_null({{"weights", weights}, {name_of_text, text}, {"tensor", tensor}}));
  MOE_CHECK(moe::api::read_tensor_struct(tensor, "tensor"));
  return check_handle(weights, "weights");
}

}  // namespace

moe_status moe_weights_create(const moe_config* config, moe_weights** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"config", config}, {"out", out}}));
    MOE_CHECK(check_handle(config, "config"));
    *out = make_handle<moe_weights>(std::make_shared<WeightsBox>(config->object));
    return ok();
  });
}

moe_status moe_weights_create_from_source(const moe_config* config, const moe_weight_source_ops* ops, moe_weights** out,
                                          moe_error** err) {
  const auto given = peek_struct(ops);
  HandedOver owner = given ? HandedOver(given->destroy, given->user) : HandedOver();
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"config", config}, {"ops", ops}, {"out", out}}));
    MOE_TRY(const moe_weight_source_ops table, read_struct(ops, "ops"));
    MOE_CHECK(callback_given(table.get != nullptr, "get"));
    MOE_CHECK(check_handle(config, "config"));
    if (table.serial != 0 && table.serial != 1)
      return fail(Code::invalid_argument, "serial", cat("serial: must be 0 or 1, got ", table.serial));
    auto source = std::make_shared<const moe::api::CallbackSource>(table, std::move(owner));
    *out = make_handle<moe_weights>(std::make_shared<WeightsBox>(config->object, std::move(source)));
    return ok();
  });
}

moe_status moe_weights_set(moe_weights* weights, const char* role, const moe_tensor* tensor, moe_release_fn release,
                           void* user, moe_error** err) {
  HandedOver owner(release, user);
  return guard(err, [&]() -> Check {
    MOE_CHECK(check_set(weights, "role", role, tensor));
    MOE_TRY(const moe::NamedRole r, role_of(role));
    MOE_TRY(const TensorView view, read_tensor(tensor, "tensor"));
    MOE_TRY(const Use use, Use::begin(*weights->object, Access::exclusive));
    return weights->object->set.set(r, view, std::move(owner));
  });
}

moe_status moe_weights_set_expert(moe_weights* weights, const char* role, int64_t expert, const char* shard,
                                  const moe_tensor* tensor, moe_release_fn release, void* user, moe_error** err) {
  HandedOver owner(release, user);
  return guard(err, [&]() -> Check {
    MOE_CHECK(check_set(weights, "role", role, tensor));
    MOE_TRY(const moe::NamedRole r, role_of(role));
    MOE_TRY(const moe::Half s, half_of(shard, r));
    MOE_TRY(const TensorView view, read_tensor(tensor, "tensor"));
    MOE_TRY(const Use use, Use::begin(*weights->object, Access::exclusive));
    return weights->object->set.set_expert(r, expert, s, view, std::move(owner));
  });
}

moe_status moe_weights_set_named(moe_weights* weights, const char* name, const moe_tensor* tensor,
                                 moe_release_fn release, void* user, int32_t* consumed, moe_error** err) {
  HandedOver owner(release, user);
  return guard(err, [&]() -> Check {
    clear(consumed);
    MOE_CHECK(not_null({{"consumed", consumed}}));
    MOE_CHECK(check_set(weights, "name", name, tensor));
    MOE_TRY(const TensorView view, read_tensor(tensor, "tensor"));
    MOE_TRY(const Use use, Use::begin(*weights->object, Access::exclusive));
    MOE_TRY(const bool ours, weights->object->set.set_named(name, view, std::move(owner)));
    *consumed = ours ? 1 : 0;
    return ok();
  });
}

moe_status moe_weights_load_safetensors(moe_weights* weights, const char* path, const char* module, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"weights", weights}, {"path", path}}));
    MOE_CHECK(check_handle(weights, "weights"));
    MOE_TRY(const Use use, Use::begin(*weights->object, Access::exclusive));
    return weights->object->set.load_safetensors(path, module);
  });
}

moe_status moe_weights_to_json(const moe_weights* weights, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"weights", weights}, {"out", out}}));
    MOE_CHECK(check_handle(weights, "weights"));
    MOE_TRY(const Use use, Use::begin(*weights->object, Access::shared));
    *out = make_text(weights->object->set.to_json());
    return ok();
  });
}

moe_status moe_weights_get(const moe_weights* weights, const char* role, int64_t expert, moe_tensor* out,
                           moe_buffer** hold, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(hold);
    MOE_CHECK(not_null({{"weights", weights}, {"role", role}, {"out", out}, {"hold", hold}}));
    MOE_CHECK(check_struct_size(out, "out"));
    MOE_CHECK(check_handle(weights, "weights"));
    MOE_TRY(const moe::NamedRole r, role_of(role));
    MOE_TRY(const Use use, Use::begin(*weights->object, Access::shared));
    MOE_TRY(moe::TensorLease lease, weights->object->set.tensor(r.role, expert));
    // What ends with the lease is copied: the caller may keep the tensor longer.
    MOE_TRY(moe::TensorLease kept, lease.ends_with_lease() ? moe::weights::dense_copy(lease.view)
                                                           : Result<moe::TensorLease>(std::move(lease)));
    if (kept.owns()) *hold = make_handle<moe_buffer>(std::make_shared<moe::api::OwnedBytes>(kept.take_buffer()));
    write_struct(out, tensor_of(kept.view));
    return ok();
  });
}

void moe_weights_destroy(moe_weights* weights) { end_handle(weights); }
