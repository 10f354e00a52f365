// See pack.h.
#include "model/pack.h"

#include <utility>

#include "base/text.h"
#include "bind/agree.h"
#include "bind/conversion.h"
#include "config/config.h"
#include "model/layer_file.h"
#include "weights/weight_set.h"

namespace moe::model {
namespace {

Result<Packed> load_layer(const Checkpoint& checkpoint, std::int64_t layer, const Selection& selection, LoadFlags flags,
                          const std::shared_ptr<Context>& context, Control* control) {
  MOE_TRY(const LayerFound* found, checkpoint.layer(layer));
  const StoredLayer* stored = checkpoint.manifest()->find(layer);
  if (stored == nullptr)
    return fail(Code::missing_weight, found->name,
                cat(found->name, ": layer ", layer, " is not converted in ", checkpoint.folder(), ", which has ",
                    checkpoint.manifest()->layers.size(), " layers; moe_checkpoint_convert of its source goes on"));
  if (!found->converted) return *found->fault;
  MOE_TRY(const File file, open_layer_file(checkpoint.open_folder(), *stored));
  MOE_TRY(Packed packed,
          load_packed(file, flags, allocator_of(context.get()), context, parallel_of(context.get()), control));
  if (packed.header_hash() != stored->header_hash || packed.content_hash() != stored->content_hash)
    return fail(Code::format, file.path(),
                cat(file.path(), ": is not the file that ", kManifestName,
                    " names; it was replaced after the checkpoint was opened"));
  MOE_CHECK(bind::check_same_packed(packed, selection));
  return packed;
}

}  // namespace

Result<Selection> select_for_layer(const StoredLayer* stored, const std::string& folder,
                                   std::shared_ptr<const Config> config, const Platform* platform, SelectFlags flags) {
  MOE_TRY(const Platform where,
          platform != nullptr ? Result<Platform>(*platform) : config::effective_platform(*config));
  if (stored == nullptr) return select_backend(std::move(config), where, flags);
  flags.layout = stored->layout;
  auto selection = select_backend(config, where, flags);
  if (selection || selection.error().code != Code::no_backend) return selection;
  flags.layout = {};
  const auto own = select_backend(std::move(config), where, flags);
  const std::string layout = own ? own->layout_id : "";
  Error e = std::move(selection.error());
  e.message += cat("; packed as ", stored->layout, " in ", folder, own ? "; this machine would take " : "", layout);
  const auto keeps_scales = [](std::string_view id) { return id.find("-inputs/") != std::string_view::npos; };
  if (own && keeps_scales(stored->layout) != keeps_scales(layout))
    e.message +=
        "; compute decides whether scales of inputs are packed (-inputs): convert the model with this compute, or "
        "ask for the one that the folder was made with";
  e.details =
      cat(json::members("stored_layout", stored->layout, "layout", layout), e.details.empty() ? "" : ",", e.details);
  return e;
}

Result<Packed> pack_layer(const Checkpoint& checkpoint, std::int64_t layer, const Selection& selection, LoadFlags flags,
                          const std::shared_ptr<Context>& context, Control* control) {
  MOE_CHECK(bind::check_built(selection));
  if (checkpoint.manifest()) return load_layer(checkpoint, layer, selection, flags, context, control);
  const Parallel parallel = parallel_of(context.get());
  WeightSet set(selection.config);
  MOE_CHECK(set.load_entries(checkpoint.entries(), checkpoint.folder().c_str(), nullptr));
  MOE_TRY(bind::Conversion conversion, bind::conversion_of(selection, set, false, 0, parallel, control));
  MOE_TRY(const std::uint64_t bytes, packed_block_bytes(conversion.info));
  MOE_TRY(bind::BlockMemory block, bind::own_block(bytes, context));
  return bind::convert_into(std::move(conversion), set, std::move(block), parallel, control);
}

}  // namespace moe::model
