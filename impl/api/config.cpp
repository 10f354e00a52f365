// Layer configs: moe_config_*. Getters are JSON pointers into the canonical document.
#include <string>

#include "api/entry.h"
#include "base/json.h"
#include "base/text.h"
#include "hf/hf.h"

namespace {

moe_config* config_handle(moe::config::Config config) {
  return make_handle<moe_config>(std::make_shared<const moe::config::Config>(std::move(config)));
}

const char* kind_of(const moe::json::Value& v) {
  if (v.is_null()) return "null";
  if (v.boolean() != nullptr) return "a boolean";
  if (v.integer() != nullptr) return "an integer";
  if (v.real() != nullptr) return "a number";
  if (v.string() != nullptr) return "a string";
  return v.array() != nullptr ? "an array" : "an object";
}

// The value at a pointer of a checked config.
Result<const moe::json::Value*> value_at(const moe_config* config, const char* pointer, const char* wanted) {
  const moe::json::Value* v = moe::json::at_pointer(config->object->resolved, pointer);
  if (v == nullptr)
    return fail(Code::invalid_argument, pointer, cat(pointer, ": the config has no such member, expected ", wanted));
  return v;
}

moe::Error wrong_kind(const char* pointer, const char* wanted, const moe::json::Value& found) {
  return fail(Code::invalid_argument, pointer,
              cat(*pointer != 0 ? pointer : "the config", ": expected ", wanted, ", found ", kind_of(found)));
}

// What all getters check.
template <class T>
Check check_getter(const moe_config* config, const char* pointer, T* out) {
  MOE_CHECK(not_null({{"config", config}, {"pointer", pointer}, {"out", out}}));
  return check_handle(config, "config");
}

}  // namespace

moe_status moe_config_create(const char* json, size_t json_len, moe_config** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"json", json}, {"out", out}}));
    MOE_TRY(moe::config::Config config, moe::config::parse_config(text_of(json, json_len)));
    *out = config_handle(std::move(config));
    return ok();
  });
}

moe_status moe_config_create_from_hf(const char* hf_json, size_t hf_len, const char* options_json, size_t options_len,
                                     moe_config** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"hf_json", hf_json}, {"out", out}}));
    MOE_TRY(moe::config::Config config,
            moe::hf::config_from_hf(text_of(hf_json, hf_len), text_of(options_json, options_len)));
    *out = config_handle(std::move(config));
    return ok();
  });
}

moe_status moe_config_merge(const moe_config* config, const char* patch_json, size_t patch_len, moe_config** out,
                            moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"config", config}, {"patch_json", patch_json}, {"out", out}}));
    MOE_CHECK(check_handle(config, "config"));
    MOE_TRY(moe::config::Config merged, moe::config::merge_config(*config->object, text_of(patch_json, patch_len)));
    *out = config_handle(std::move(merged));
    return ok();
  });
}

moe_status moe_config_to_json(const moe_config* config, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"config", config}, {"out", out}}));
    MOE_CHECK(check_handle(config, "config"));
    *out = make_text(config->object->canonical);
    return ok();
  });
}

moe_status moe_config_get_int(const moe_config* config, const char* pointer, int64_t* out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(check_getter(config, pointer, out));
    MOE_TRY(const moe::json::Value* v, value_at(config, pointer, "an integer or a boolean"));
    if (v->integer() == nullptr && v->boolean() == nullptr) return wrong_kind(pointer, "an integer or a boolean", *v);
    *out = v->integer() != nullptr ? *v->integer() : static_cast<int64_t>(*v->boolean());
    return ok();
  });
}

moe_status moe_config_get_float(const moe_config* config, const char* pointer, double* out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(check_getter(config, pointer, out));
    MOE_TRY(const moe::json::Value* v, value_at(config, pointer, "a number"));
    if (v->integer() == nullptr && v->real() == nullptr) return wrong_kind(pointer, "a number", *v);
    *out = v->real() != nullptr ? *v->real() : static_cast<double>(*v->integer());
    return ok();
  });
}

moe_status moe_config_get_string(const moe_config* config, const char* pointer, const char** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(check_getter(config, pointer, out));
    MOE_TRY(const moe::json::Value* v, value_at(config, pointer, "a string"));
    if (v->string() == nullptr) return wrong_kind(pointer, "a string", *v);
    *out = v->string()->c_str();
    return ok();
  });
}

const char* moe_config_schema_json(void) { return moe::config::config_schema_text(); }
void moe_config_destroy(moe_config* config) { end_handle(config); }
