// Cancellation and progress: moe_control_*.
#include "api/entry.h"

using moe::api::ControlBox;

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

moe_status moe_control_report(moe_control* control, uint64_t done, uint64_t total) {
  return guard(nullptr, [&]() -> Check {
    MOE_CHECK(check_optional(control, "control"));
    return moe::report(moe::api::control_of(control), done, total);
  });
}

void moe_control_destroy(moe_control* control) { end_handle(control); }
