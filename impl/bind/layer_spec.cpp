// See layer_spec.h.
#include "bind/layer_spec.h"

#include "bind/agree.h"
#include "bind/emulate.h"
#include "bind/kernel_here.h"

namespace moe::bind {

Result<LayerSpec> layer_spec(const std::shared_ptr<const Packed>& packed, const Selection& selection,
                             const std::shared_ptr<Context>& context, bool any_name) {
  MOE_CHECK(check_built(selection));
  LayerSpec spec{.config = selection.config,
                 .packed = packed,
                 .context = context,
                 .backend = selection.backend_name(),
                 .selected_kernel = selection.candidates[*selection.winner].kernel};
  if (is_emulation(selection)) {
    MOE_TRY(const Machine machine, this_machine());
    MOE_TRY(const Emulated emulated, emulate(packed, selection, context, machine));
    spec.packed = emulated.weights;
    spec.panels = emulated.panels;
    spec.kernel = emulated.kernel;
    spec.selected_kernel = emulated.kernel->id->name;
  } else {
    MOE_CHECK(check_same_packed(*packed, selection));
    MOE_TRY(spec.kernel, kernel_for(selection, packed->info.layout));
  }
  if (!any_name) MOE_CHECK(check_packed_layer(*packed, selection));
  return spec;
}

}  // namespace moe::bind
