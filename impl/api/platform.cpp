// Machines, detected or described: moe_platform_*.
#include "api/entry.h"

moe_status moe_platform_create(const char* json, size_t json_len, moe_platform** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"out", out}}));
    MOE_TRY(moe::Platform platform,
            json == nullptr ? moe::detect_platform() : moe::config::platform_from_text(text_of(json, json_len)));
    *out = make_handle<moe_platform>(std::make_shared<const moe::Platform>(std::move(platform)));
    return ok();
  });
}

moe_status moe_platform_to_json(const moe_platform* platform, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"platform", platform}, {"out", out}}));
    MOE_CHECK(check_handle(platform, "platform"));
    *out = make_text(moe::config::platform_to_json(*platform->object));
    return ok();
  });
}

int32_t moe_platform_has(const moe_platform* platform, const char* feature) {
  if (!is_live(platform) || feature == nullptr) return 0;
  const auto known = moe::feature_from_name(feature);
  return known && moe::has(platform->object->features, *known) ? 1 : 0;
}

void moe_platform_destroy(moe_platform* platform) { end_handle(platform); }
