// Several ranks: moe_comm_*, moe_dist_*. What is wrong with the input of a collective call goes to the room dist, which
// tells the other ranks.
#include <string>
#include <utility>
#include <vector>

#include "api/apply_args.h"
#include "api/comm_ops.h"
#include "api/entry.h"
#include "base/index.h"
#include "dist/threads.h"

using moe::dist::Comm;
using moe::dist::Dist;
using moe::dist::taking_memory;
using moe::run::ApplyArgs;

namespace {

using ConfigObject = std::shared_ptr<const moe::config::Config>;

Result<ConfigObject> config_of(const moe_context* ctx, const moe_config* config, moe_dist** out) {
  MOE_CHECK(not_null({{"config", config}, {"out", out}}));
  MOE_CHECK(check_optional(ctx, "ctx"));
  MOE_CHECK(check_handle(config, "config"));
  return config->object;
}

Result<std::shared_ptr<const moe::run::Layer>> layer_of(const moe_layer* layer) {
  MOE_CHECK(check_optional(layer, "layer"));
  return object_of(layer);
}

Result<ApplyArgs> call_of(const Dist& dist, const moe_apply_args* args) {
  MOE_CHECK(not_null({{"args", args}}));
  moe::api::GivenCall given;
  MOE_CHECK(given.read(args));
  MOE_TRY(const ApplyArgs call, given.check(dist.config()));
  if (call.workspace.data() != nullptr)
    return fail(Code::unsupported, "workspace", "workspace: must be NULL, a spread layer has its own");
  return call;
}

}  // namespace

moe_status moe_comm_create(const moe_comm_ops* ops, const char* options_json, size_t options_len, moe_comm** out,
                           moe_error** err) {
  const auto given = peek_struct(ops);
  HandedOver owner;  // rule 11: its end comes whatever fails
  if (given) owner = HandedOver(given->destroy, given->user);
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"ops", ops}, {"out", out}}));
    MOE_TRY(const moe_comm_ops table, read_struct(ops, "ops"));
    MOE_CHECK(moe::api::check_comm_ops(table));
    MOE_TRY(const moe::dist::CommOptions options, moe::dist::parse_comm_options(text_of(options_json, options_len)));
    MOE_TRY(std::shared_ptr<Comm> comm, Comm::create(moe::api::make_transport(table, std::move(owner)), options));
    *out = make_handle<moe_comm>(std::move(comm));
    return ok();
  });
}

moe_status moe_comm_create_threads(int32_t size, moe_comm** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    const bool known = size >= 1 && size <= moe::dist::kMostThreadRanks;
    for (int32_t r = 0; out != nullptr && known && r < size; ++r) out[r] = nullptr;
    MOE_CHECK(not_null({{"out", out}}));
    if (!known)
      return fail(Code::invalid_argument, "size", cat("size: ", size, ", expected 1 to ", moe::dist::kMostThreadRanks));
    std::vector<std::unique_ptr<moe_comm>> made;
    for (auto& transport : moe::dist::make_threads(size)) {
      MOE_TRY(std::shared_ptr<Comm> comm, Comm::create(std::move(transport), {}));
      made.emplace_back(make_handle<moe_comm>(std::move(comm)));
    }
    for (std::size_t r = 0; r < made.size(); ++r) out[r] = made[r].release();
    return ok();
  });
}

moe_status moe_comm_set_options(moe_comm* comm, const char* options_json, size_t options_len, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"comm", comm}}));
    MOE_CHECK(check_handle(comm, "comm"));
    MOE_TRY(const moe::dist::CommOptions options, moe::dist::parse_comm_options(text_of(options_json, options_len)));
    return comm->object->set_options(options);
  });
}

int32_t moe_comm_rank(const moe_comm* comm) { return is_live(comm) ? comm->object->rank() : -1; }
int32_t moe_comm_size(const moe_comm* comm) { return is_live(comm) ? comm->object->size() : 0; }
void moe_comm_destroy(moe_comm* comm) { end_handle(comm); }

moe_status moe_dist_create(moe_context* ctx, moe_comm* comm, const moe_config* config, const char* options_json,
                           size_t options_len, moe_dist** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"comm", comm}}));
    MOE_CHECK(check_handle(comm, "comm"));
    std::unique_ptr<moe_dist> dist;  // nothing may fail here when the other ranks have theirs
    Result<ConfigObject> whole = taking_memory([&] {
      dist.reset(make_handle<moe_dist>(nullptr));
      return config_of(ctx, config, out);
    });
    MOE_TRY(dist->object, Dist::create(whole ? object_of(ctx) : nullptr, comm->object, std::move(whole),
                                       text_of(options_json, options_len)));
    *out = dist.release();
    return ok();
  });
}

moe_status moe_dist_local_config(const moe_dist* dist, moe_config** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"dist", dist}, {"out", out}}));
    MOE_CHECK(check_handle(dist, "dist"));
    MOE_TRY(ConfigObject config, dist->object->local_config());
    *out = make_handle<moe_config>(std::move(config));
    return ok();
  });
}

moe_status moe_dist_attach(moe_dist* dist, moe_layer* layer, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"dist", dist}}));
    MOE_CHECK(check_handle(dist, "dist"));
    return dist->object->attach(taking_memory([&] { return layer_of(layer); }));
  });
}

moe_status moe_dist_apply(moe_dist* dist, const moe_apply_args* args, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"dist", dist}}));
    MOE_CHECK(check_handle(dist, "dist"));
    MOE_CHECK(dist->object->begin(taking_memory([&] { return call_of(*dist->object, args); })));
    return dist->object->finish();
  });
}

moe_status moe_dist_begin(moe_dist* dist, const moe_apply_args* args, moe_dist_call** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"dist", dist}}));
    MOE_CHECK(check_handle(dist, "dist"));
    std::unique_ptr<moe_dist_call> call;
    Check begun = dist->object->begin(taking_memory([&]() -> Result<ApplyArgs> {
      MOE_CHECK(not_null({{"out", out}}));
      call.reset(make_handle<moe_dist_call>(dist->object));
      return call_of(*dist->object, args);
    }));
    if (begun) *out = call.release();
    return begun;
  });
}

moe_status moe_dist_poll(moe_dist_call* call, int32_t* done, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(done);
    MOE_CHECK(not_null({{"call", call}, {"done", done}}));
    MOE_CHECK(check_handle(call, "call"));
    *done = call->object->progress() ? 1 : 0;
    return ok();
  });
}

moe_status moe_dist_finish(moe_dist_call* call, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"call", call}}));
    MOE_CHECK(check_handle(call, "call"));
    const std::shared_ptr<Dist> dist = call->object;
    end_handle(call);
    return dist->finish();
  });
}

void moe_dist_call_destroy(moe_dist_call* call) {
  if (!is_live(call)) return;
  call->object->drop();
  end_handle(call);
}

moe_status moe_dist_to_json(const moe_dist* dist, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"dist", dist}, {"out", out}}));
    MOE_CHECK(check_handle(dist, "dist"));
    *out = make_text(dist->object->to_json());
    return ok();
  });
}

void moe_dist_destroy(moe_dist* dist) { end_handle(dist); }
