// The failure of a progress callback. See control.h.
#include "base/control.h"

#include "base/json.h"

namespace moe {

Error Control::callback_failed(std::int32_t status) {
  const std::string cause = json::Writer().begin_object().member("status", status).end_object().take();
  return fail(Code::callback, "progress", cat("the progress callback failed with status ", status),
              json::members("cause", json::Text{cause}));
}

}  // namespace moe
