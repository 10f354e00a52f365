// Adapter of moe_weight_source_ops. See callback_source.h.
#include "api/callback_source.h"

#include <memory>
#include <string>

#include "api/tensor_check.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::api {
namespace {

constexpr const char* kHalfNames[] = {nullptr, "w1", "w3"};  // by Half

const char* half_text(Half s) { return at(kHalfNames, s); }

// "w13_weight[17]", with the half if it is not the whole role: "w13_weight[17].w1"
std::string place_name(const Place& p) {
  std::string name = cat(role_name(p.role), "[", p.expert, "]");
  if (p.half != Half::whole) name += cat(".", half_text(p.half));
  return name;
}

struct EndError {
  void operator()(moe_error* e) const { moe_error_destroy(e); }
};
using OwnedError = std::unique_ptr<moe_error, EndError>;

Error failure_of(moe_status status, const moe_error* error, const std::string& place) {
  const std::string subject = moe_error_subject(error);
  const std::string text = (subject.empty() ? "" : subject + ": ") + moe_error_message(error);
  if (status == MOE_ERR_MISSING_WEIGHT)
    return fail(Code::missing_weight, place, place + ": the source does not have it");
  if (status == MOE_ERR_CANCELLED)
    return fail(Code::cancelled, place, text.empty() ? "the weight source cancelled the call" : text);
  std::string message = cat(place, ": the weight source failed with ", moe_status_name(status), " (", status, ")");
  if (!text.empty()) message += ": " + text;
  json::Writer details;
  details.key("cause");
  if (error != nullptr)
    details.value(json::Text{moe_error_details_json(error)});
  else
    details.begin_object().member("status", moe_status_name(status)).member("status_code", status).end_object();
  return fail(Code::callback, place, std::move(message), details.take());
}

}  // namespace

CallbackSource::CallbackSource(const moe_weight_source_ops& ops, HandedOver owner)
    : ops_(ops), owner_(std::move(owner)) {}

std::unique_lock<std::recursive_mutex> CallbackSource::lock() const {
  return ops_.serial != 0 ? std::unique_lock(mutex_) : std::unique_lock<std::recursive_mutex>();
}

Result<TensorLease> CallbackSource::get(const Place& place) const {
  const std::string name = place_name(place);
  moe_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  moe_error* raw = nullptr;
  moe_status status;
  {
    const auto held = lock();
    status = ops_.get(ops_.user, role_name(place.role), place.expert, half_text(place.half), &tensor, &raw);
  }
  const OwnedError error(raw);
  if (status != MOE_OK) return failure_of(status, raw, name);
  const auto view = view_of(tensor, name.c_str());
  if (view && tensor.flags == 0) return TensorLease(*view, this, place);
  if (ops_.put != nullptr) {
    const auto held = lock();
    ops_.put(ops_.user, role_name(place.role), place.expert, half_text(place.half), &tensor);
  }
  if (!view) return view.error();
  return fail(Code::invalid_argument, name, cat(name, ": flags must be 0, got ", tensor.flags));
}

void CallbackSource::put(const Place& place, const TensorView& view) const {
  if (ops_.put == nullptr) return;
  const moe_tensor tensor = tensor_of(view);
  const auto held = lock();
  ops_.put(ops_.user, role_name(place.role), place.expert, half_text(place.half), &tensor);
}

}  // namespace moe::api
