// Layers: moe_layer_*. Binding checks that packed weights, selection and host fit together.
#include <string>
#include <vector>

#include "api/apply_args.h"
#include "api/correction_bias.h"
#include "api/entry.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"
#include "bind/layer_spec.h"
#include "kernels/kernel.h"

namespace {

void log_other_kernel(moe_context* ctx, const moe::run::LayerSpec& spec) {
  if (ctx == nullptr || spec.kernel->id->name == spec.selected_kernel) return;
  const std::optional<size_t> selected = moe::kernels::kernel_index(spec.selected_kernel);
  const bool refuses_groups =
      selected && !moe::kernels::kKernelIds[*selected].takes_groups(moe::kernels::needs_of(spec.packed->info.layout));
  const std::string why = refuses_groups ? spec.selected_kernel + " does not take groups of several sizes"
                                         : cat("the system refuses ", spec.selected_kernel, " its registers");
  ctx->object->log().write(moe::LogLevel::warn, "layer", cat(why, "; this layer runs ", spec.kernel->id->name));
}

// [G] places in [E, ...] or -1, each place at most once.
Result<std::vector<std::int32_t>> map_values(const TensorView& view, std::int64_t held) {
  std::vector<std::int32_t> map(static_cast<size_t>(view.shape[0]));
  std::vector<std::int64_t> taken(static_cast<size_t>(held), -1);
  for (size_t g = 0; g < map.size(); ++g) {
    std::memcpy(&map[g], view.data + g * static_cast<size_t>(view.strides[0]) * sizeof(std::int32_t),
                sizeof(std::int32_t));
    if (map[g] == -1) continue;
    const std::string at = cat("expert_map[", g, "]");
    if (map[g] < 0 || map[g] >= held)
      return fail(Code::invalid_argument, at, cat(at, ": ", map[g], " is neither -1 nor a place in [0, ", held, ")"));
    std::int64_t& owner = taken[static_cast<size_t>(map[g])];
    if (owner != -1)
      return fail(Code::invalid_argument, at, cat(at, ": place ", map[g], " is taken by expert ", owner));
    owner = static_cast<std::int64_t>(g);
  }
  return map;
}

}  // namespace

moe_status moe_layer_create(moe_context* ctx, const moe_selection* selection, const moe_packed* packed,
                            const moe_layer_options* options, moe_layer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"selection", selection}, {"packed", packed}, {"out", out}}));
    moe_layer_options given{};
    if (options != nullptr) {
      MOE_TRY(given, read_struct(options, "options"));
    }
    moe::api::TensorParam rows[] = {moe::api::bias_param(given.correction_bias),
                                    {.name = "expert_map",
                                     .given = given.expert_map,
                                     .dtypes = moe::api::dtype_bit(moe::DType::i32),
                                     .ndim = 1,
                                     .letters = "[G]"}};
    moe::api::TensorParam &bias = rows[0], &map = rows[1];
    MOE_CHECK(moe::api::read_structs(rows));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(selection, "selection"));
    MOE_CHECK(check_handle(packed, "packed"));
    MOE_CHECK(reserved_zero(given.reserved0, "options"));
    MOE_CHECK(known_flags(given.flags, MOE_LAYER_ANY_NAME));
    const moe::oracle::Selection& s = *selection->object;
    map.shape = {s.config->num_weight_experts(), 0};
    moe::api::expect_bias(bias, *s.config);
    MOE_CHECK(moe::api::check_tensors(rows));
    const bool any_name = (given.flags & MOE_LAYER_ANY_NAME) != 0;
    MOE_TRY(moe::run::LayerSpec spec, moe::bind::layer_spec(packed->object, s, object_of(ctx), any_name));
    if (given.expert_map != nullptr) {
      MOE_TRY(spec.expert_map, map_values(map.view, s.layout.experts));
    }
    MOE_TRY(spec.correction_bias, moe::api::bias_values(bias));
    log_other_kernel(ctx, spec);
    MOE_TRY(std::shared_ptr<const moe::run::Layer> layer, moe::run::Layer::create(std::move(spec)));
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
