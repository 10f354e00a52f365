// See layer_options.h.
#include "api/layer_options.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/correction_bias.h"
#include "api/struct_io.h"
#include "base/text.h"
#include "bind/layer_spec.h"
#include "kernels/kernel.h"

namespace moe::api {
namespace {

void log_other_kernel(Context* context, const LayerSpec& spec) {
  if (context == nullptr || spec.kernel->id->name == spec.selected_kernel) return;
  const std::optional<std::size_t> selected = kernels::kernel_index(spec.selected_kernel);
  const bool refuses_groups =
      selected && !kernels::kKernelIds[*selected].takes_groups(kernels::needs_of(spec.packed->info.layout));
  const std::string why = refuses_groups ? spec.selected_kernel + " does not take groups of several sizes"
                                         : cat("the system refuses ", spec.selected_kernel, " its registers");
  context->log().write(LogLevel::warn, "layer", cat(why, "; this layer runs ", spec.kernel->id->name));
}

// [G] places in [E, ...] or -1, each place at most once.
Result<std::vector<std::int32_t>> map_values(const TensorView& view, std::int64_t held) {
  std::vector<std::int32_t> map(static_cast<std::size_t>(view.shape[0]));
  std::vector<std::int64_t> taken(static_cast<std::size_t>(held), -1);
  for (std::size_t g = 0; g < map.size(); ++g) {
    std::memcpy(&map[g], view.data + g * static_cast<std::size_t>(view.strides[0]) * sizeof(std::int32_t),
                sizeof(std::int32_t));
    if (map[g] == -1) continue;
    const std::string at = cat("expert_map[", g, "]");
    if (map[g] < 0 || map[g] >= held)
      return fail(Code::invalid_argument, at, cat(at, ": ", map[g], " is neither -1 nor a place in [0, ", held, ")"));
    std::int64_t& owner = taken[static_cast<std::size_t>(map[g])];
    if (owner != -1)
      return fail(Code::invalid_argument, at, cat(at, ": place ", map[g], " is taken by expert ", owner));
    owner = static_cast<std::int64_t>(g);
  }
  return map;
}

}  // namespace

LayerOptions::LayerOptions()
    : rows_{bias_param(nullptr),
            TensorParam{
                .name = "expert_map", .given = nullptr, .dtypes = dtype_bit(DType::i32), .ndim = 1, .letters = "[G]"}} {
}

Check LayerOptions::read(const moe_layer_options* options) {
  if (options != nullptr) {
    MOE_TRY(given_, read_struct(options, "options"));
  }
  rows_[0] = bias_param(given_.correction_bias);
  rows_[1].given = given_.expert_map;
  return read_structs(rows_);
}

Check LayerOptions::check(const Selection& selection) {
  MOE_CHECK(reserved_zero(given_.reserved0, "options"));
  MOE_CHECK(known_flags(given_.flags, MOE_LAYER_ANY_NAME));
  rows_[1].shape = {selection.config->num_weight_experts(), 0};
  expect_bias(rows_[0], *selection.config);
  MOE_CHECK(check_tensors(rows_));
  return ok();
}

Result<std::shared_ptr<const Layer>> LayerOptions::make_layer(const std::shared_ptr<Context>& context,
                                                              const Selection& selection,
                                                              const std::shared_ptr<const Packed>& packed) const {
  const bool any_name = (given_.flags & MOE_LAYER_ANY_NAME) != 0;
  MOE_TRY(LayerSpec spec, bind::layer_spec(packed, selection, context, any_name));
  if (given_.expert_map != nullptr) {
    MOE_TRY(spec.expert_map, map_values(rows_[1].view, selection.layout.experts));
  }
  MOE_TRY(spec.correction_bias, bias_values(rows_[0]));
  log_other_kernel(context.get(), spec);
  return Layer::create(std::move(spec));
}

}  // namespace moe::api
