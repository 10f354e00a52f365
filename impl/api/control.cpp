// Cancellation and progress: moe_control_*.
#include "api/entry.h"

using moe::api::ControlBox;

static_assert(static_cast<int>(moe::Phase::apply) == MOE_PHASE_APPLY &&
              static_cast<int>(moe::Unit::bytes) == MOE_UNIT_BYTES);

moe_status moe_control_create(moe_progress_fn progress, void* user, moe_release_fn destroy, moe_control** out,
                              moe_error** err) {
  HandedOver owner(destroy, user);
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"out", out}}));
    auto box = std::make_shared<ControlBox>(progress, user);
    moe_control* handle = make_handle<moe_control>(box);
    box->owner = std::move(owner);  // last: until here a failure ends `user` by the local owner
    *out = handle;
    return ok();
  });
}

void moe_control_cancel(moe_control* control) {
  if (is_live(control)) control->object->control.cancel();
}

void moe_control_progress(const moe_control* control, uint64_t* done, uint64_t* total) {
  clear(done);
  clear(total);
  if (!is_live(control)) return;
  if (done != nullptr) *done = control->object->control.done();
  if (total != nullptr) *total = control->object->control.total();
}

moe_status moe_control_state(const moe_control* control, moe_progress* out, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"control", control}, {"out", out}}));
    MOE_CHECK(check_struct_size(out, "out"));
    MOE_CHECK(check_handle(control, "control"));
    const moe::Progress now = control->object->control.state();
    write_struct(out, moe_progress{.struct_size = sizeof(moe_progress),
                                   .phase = static_cast<moe_phase>(now.phase),
                                   .unit = static_cast<moe_unit>(now.unit),
                                   .reserved0 = 0,
                                   .done = now.done,
                                   .total = now.total,
                                   .layer = now.layer,
                                   .layers_done = now.layers_done,
                                   .layers_total = now.layers_total,
                                   .bytes_done = now.bytes_done,
                                   .bytes_total = now.bytes_total});
    return ok();
  });
}

moe_status moe_control_report(moe_control* control, uint64_t done, uint64_t total) {
  return guard(nullptr, [&]() -> Check {
    MOE_CHECK(check_optional(control, "control"));
    return control == nullptr ? ok() : control->object->control.report_callers(done, total);
  });
}

void moe_control_destroy(moe_control* control) { end_handle(control); }
