// Layers: moe_layer_*. Binding checks that packed weights, selection and host fit together.
#include <string>
#include <vector>

#include "api/apply_args.h"
#include "api/entry.h"
#include "api/layer_options.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"
#include "bind/layer_spec.h"
#include "kernels/kernel.h"

moe_status moe_layer_create(moe_context* ctx, const moe_selection* selection, const moe_packed* packed,
                            const moe_layer_options* options, moe_layer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"selection", selection}, {"packed", packed}, {"out", out}}));
    moe::api::LayerOptions given;
    MOE_CHECK(given.read(options));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(selection, "selection"));
    MOE_CHECK(check_handle(packed, "packed"));
    MOE_CHECK(given.check(*selection->object));
    MOE_TRY(std::shared_ptr<const moe::run::Layer> layer,
            given.make_layer(object_of(ctx), *selection->object, packed->object));
    *out = make_handle<moe_layer>(std::move(layer));
    return ok();
  });
}

moe_status moe_layer_workspace_size(const moe_layer* layer, moe_apply_mode mode, int64_t num_tokens, uint64_t* bytes,
                                    uint64_t* alignment, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(bytes);
    clear(alignment);
    MOE_CHECK(not_null({{"layer", layer}, {"bytes", bytes}, {"alignment", alignment}}));
    MOE_CHECK(check_handle(layer, "layer"));
    MOE_TRY(const moe::run::ApplyMode how, moe::api::apply_mode(mode));
    MOE_CHECK(moe::run::check_num_tokens(layer->object->config(), num_tokens, "num_tokens"));
    *bytes = layer->object->workspace_bytes(how, num_tokens);
    *alignment = moe::run::kWorkspaceAlignment;
    return ok();
  });
}

moe_status moe_layer_to_json(const moe_layer* layer, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"layer", layer}, {"out", out}}));
    MOE_CHECK(check_handle(layer, "layer"));
    *out = make_text(layer->object->to_json());
    return ok();
  });
}

moe_status moe_layer_expert_counts(const moe_layer* layer, uint64_t* counts, size_t capacity, int32_t reset,
                                   moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"layer", layer}, {"counts", counts}}));
    MOE_CHECK(check_handle(layer, "layer"));
    if (reset != 0 && reset != 1)
      return fail(Code::invalid_argument, "reset", cat("reset: must be 0 or 1, got ", reset));
    const auto experts = static_cast<size_t>(layer->object->config().num_held_experts());
    if (capacity < experts)
      return fail(Code::buffer_too_small, "capacity", cat("capacity: ", experts, " counts needed, got ", capacity),
                  moe::json::members("needed", experts));
    layer->object->expert_counts({counts, experts}, reset == 1);
    return ok();
  });
}

void moe_layer_destroy(moe_layer* layer) { end_handle(layer); }
