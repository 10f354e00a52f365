// A model's directory: moe_checkpoint_*, and weights from its files.
#include <string>
#include <utility>

#include "api/entry.h"
#include "api/layer_options.h"
#include "api/load_flags.h"
#include "base/index.h"
#include "base/text.h"
#include "model/convert_folder.h"
#include "model/fingerprint.h"
#include "model/pack.h"

using moe::api::Access;
using moe::api::Use;
using moe::model::Checkpoint;
using moe::model::LayerFound;

static_assert(static_cast<int>(moe::model::LayerKind::experts) == MOE_LAYER_EXPERTS &&
              static_cast<int>(moe::model::LayerKind::dense) == MOE_LAYER_DENSE);

namespace {

// `directory` of a call: never empty.
Check check_path(const char* directory) {
  if (*directory != 0) return ok();
  return fail(Code::invalid_argument, "directory", "directory: must not be empty");
}

Result<moe_checkpoint_options> read_options(const moe_checkpoint_options* options) {
  if (options == nullptr) return moe_checkpoint_options{};
  return read_struct(options, "options");
}

// What a call reads of moe_checkpoint_options.
struct Reads {
  const char* call;
  uint64_t load_flags, select_flags;
  bool patch, platform, layer, layers;
};
constexpr Reads kPacked = {"moe_checkpoint_packed", moe::api::kLoadFlags, 0, false, false, false, false};
constexpr Reads kLayer = {
    "moe_checkpoint_layer", moe::api::kLoadFlags, MOE_SELECT_ALLOW_FALLBACK, true, true, true, false};
// One struct may serve conversion and what follows it, so convert takes all flags of loading.
constexpr Reads kConvert = {
    "moe_checkpoint_convert", moe::api::kLoadFlags, MOE_SELECT_ALLOW_FALLBACK, true, true, false, true};

// What is checked of all options, after the handles of the call. What a call does not read would be lost in silence.
Check check_options(const moe_checkpoint_options& given, const Reads& reads) {
  MOE_CHECK(check_optional(given.platform, "platform"));
  MOE_CHECK(check_optional(given.control, "control"));
  MOE_CHECK(reserved_zero(given.reserved0, "options"));
  const struct {
    const char* name;
    uint64_t given, read;
  } members[] = {{"load_flags", given.load_flags, reads.load_flags},
                 {"select_flags", given.select_flags, reads.select_flags},
                 {"patch_json", given.patch_json != nullptr, reads.patch},
                 {"patch_len", given.patch_len != 0, reads.patch},
                 {"platform", given.platform != nullptr, reads.platform},
                 {"layer", given.layer != nullptr, reads.layer},
                 {"layers", given.layers != nullptr, reads.layers},
                 {"num_layers", given.num_layers != 0, reads.layers}};
  for (const auto& m : members)
    if ((m.given & ~m.read) != 0)
      return fail(Code::invalid_argument, m.name,
                  m.read == 0 ? cat(m.name, ": ", reads.call, " does not read it, it must be 0 or NULL")
                              : cat(m.name, ": unknown bits ", m.given & ~m.read, "; ", reads.call, " reads ", m.read));
  if ((given.patch_json == nullptr) != (given.patch_len == 0))
    return fail(Code::invalid_argument, "patch_len",
                given.patch_json == nullptr
                    ? cat("patch_len: is ", given.patch_len, ", but patch_json is NULL; 0 means no patch")
                    : std::string("patch_len: is 0, but patch_json is given; it is MOE_NUL_TERMINATED or a length"));
  if ((given.layers == nullptr) != (given.num_layers == 0))
    return fail(Code::invalid_argument, "num_layers",
                given.layers == nullptr
                    ? cat("num_layers: is ", given.num_layers, ", but layers is NULL; 0 and NULL mean all with experts")
                    : std::string("num_layers: is 0; layers NULL means all that have experts"));
  return ok();
}

std::string_view patch_of(const moe_checkpoint_options& given) { return text_of(given.patch_json, given.patch_len); }

// The problem's text as the checkpoint keeps it: for people, with its place.
const char* problem_of(const LayerFound& layer) { return layer.fault ? layer.fault->message.c_str() : ""; }

Check no_sources(const Checkpoint& checkpoint) {
  if (!checkpoint.manifest()) return ok();
  return fail(Code::unsupported, checkpoint.folder(),
              cat(checkpoint.folder(), ": is a converted checkpoint, which has no source tensors"));
}

}  // namespace

moe_status moe_checkpoint_open(moe_context* ctx, const char* directory, const char* options_json, size_t options_len,
                               moe_control* control, moe_checkpoint** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"directory", directory}, {"out", out}}));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_optional(control, "control"));
    MOE_CHECK(check_path(directory));
    moe::begin_call(moe::api::control_of(control));
    MOE_TRY(std::shared_ptr<const Checkpoint> checkpoint,
            Checkpoint::open(directory, text_of(options_json, options_len), moe::run::parallel_of(object_of(ctx).get()),
                             moe::api::control_of(control)));
    *out = make_handle<moe_checkpoint>(std::move(checkpoint));
    return ok();
  });
}

moe_status moe_checkpoint_to_json(const moe_checkpoint* checkpoint, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"checkpoint", checkpoint}, {"out", out}}));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    *out = make_text(checkpoint->object->to_json());
    return ok();
  });
}

int64_t moe_checkpoint_layer_count(const moe_checkpoint* checkpoint) {
  return is_live(checkpoint) ? std::ssize(checkpoint->object->layers()) : 0;
}

moe_status moe_checkpoint_layer_info(const moe_checkpoint* checkpoint, int64_t layer, moe_layer_info* out,
                                     moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"checkpoint", checkpoint}, {"out", out}}));
    MOE_CHECK(check_struct_size(out, "out"));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    MOE_TRY(const LayerFound* found, checkpoint->object->layer(layer));
    uint32_t flags = 0;
    if (found->predicts) flags |= MOE_LAYER_IS_MTP;
    if (found->converted) flags |= MOE_LAYER_IS_CONVERTED;
    write_struct(out, moe_layer_info{.struct_size = sizeof(moe_layer_info),
                                     .kind = static_cast<moe_layer_kind>(found->kind),
                                     .flags = flags,
                                     .top_k = static_cast<int32_t>(found->top_k),
                                     .num_experts = found->num_experts,
                                     .hidden_dim = found->hidden,
                                     .intermediate_size = found->intermediate,
                                     .bytes = found->bytes,
                                     .name = found->name.c_str(),
                                     .problem = problem_of(*found)});
    return ok();
  });
}

moe_status moe_checkpoint_config(const moe_checkpoint* checkpoint, int64_t layer, const char* patch_json,
                                 size_t patch_len, moe_config** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"checkpoint", checkpoint}, {"out", out}}));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    MOE_TRY(moe::config::Config config, checkpoint->object->config(layer, text_of(patch_json, patch_len)));
    *out = make_handle<moe_config>(std::make_shared<const moe::config::Config>(std::move(config)));
    return ok();
  });
}

moe_status moe_weights_load_checkpoint(moe_weights* weights, const moe_checkpoint* checkpoint, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"weights", weights}, {"checkpoint", checkpoint}}));
    MOE_CHECK(check_handle(weights, "weights"));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    const Checkpoint& from = *checkpoint->object;
    MOE_CHECK(no_sources(from));
    MOE_TRY(const Use use, Use::begin(*weights->object, Access::exclusive));
    return weights->object->set.load_entries(from.entries(), from.folder().c_str(), nullptr);
  });
}

moe_status moe_checkpoint_packed(moe_context* ctx, const moe_checkpoint* checkpoint, const moe_selection* selection,
                                 const moe_checkpoint_options* options, moe_packed** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"checkpoint", checkpoint}, {"selection", selection}, {"out", out}}));
    MOE_TRY(const moe_checkpoint_options given, read_options(options));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    MOE_CHECK(check_handle(selection, "selection"));
    MOE_CHECK(check_options(given, kPacked));
    MOE_TRY(const int64_t layer, checkpoint->object->layer_of(*selection->object->config));
    moe::Control* control = moe::api::control_of(given.control);
    moe::begin_call(control);
    if (control != nullptr) control->begin_layer(layer);
    MOE_CHECK(moe::report(control, 0, 0));
    MOE_TRY(moe::io::Packed packed,
            moe::model::pack_layer(*checkpoint->object, layer, *selection->object,
                                   moe::api::load_flags(given.load_flags), object_of(ctx), control));
    *out = make_handle<moe_packed>(std::make_shared<const moe::io::Packed>(std::move(packed)));
    return ok();
  });
}

moe_status moe_checkpoint_layer(moe_context* ctx, const moe_checkpoint* checkpoint, int64_t layer,
                                const moe_checkpoint_options* options, moe_layer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"checkpoint", checkpoint}, {"out", out}}));
    MOE_TRY(const moe_checkpoint_options given, read_options(options));
    moe::api::LayerOptions of_layer;
    MOE_CHECK(of_layer.read(given.layer));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    MOE_CHECK(check_options(given, kLayer));
    const Checkpoint& from = *checkpoint->object;
    MOE_TRY(moe::config::Config config, from.config(layer, patch_of(given)));
    const moe::oracle::SelectFlags how{.allow_fallback = (given.select_flags & MOE_SELECT_ALLOW_FALLBACK) != 0};
    MOE_TRY(const moe::oracle::Selection selection,
            moe::model::select_for_layer(from.manifest() ? from.manifest()->find(layer) : nullptr, from.folder(),
                                         std::make_shared<const moe::config::Config>(std::move(config)),
                                         object_of(given.platform).get(), how));
    MOE_CHECK(of_layer.check(selection));
    moe::Control* control = moe::api::control_of(given.control);
    moe::begin_call(control);
    if (control != nullptr) control->begin_layer(layer);
    MOE_CHECK(moe::report(control, 0, 0));
    MOE_TRY(moe::io::Packed packed,
            moe::model::pack_layer(from, layer, selection, moe::api::load_flags(given.load_flags), object_of(ctx),
                                   control));
    MOE_TRY(std::shared_ptr<const moe::run::Layer> made,
            of_layer.make_layer(object_of(ctx), selection, std::make_shared<const moe::io::Packed>(std::move(packed))));
    *out = make_handle<moe_layer>(std::move(made));
    return ok();
  });
}

moe_status moe_checkpoint_convert(moe_context* ctx, const moe_checkpoint* checkpoint, const char* directory,
                                  const moe_checkpoint_options* options, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"checkpoint", checkpoint}, {"directory", directory}}));
    MOE_TRY(const moe_checkpoint_options given, read_options(options));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    MOE_CHECK(check_options(given, kConvert));
    if (const std::size_t most = checkpoint->object->layers().size(); given.num_layers > most)
      return fail(Code::invalid_argument, "num_layers",
                  cat("num_layers: is ", given.num_layers, ", the model has ", most, " layers"));
    MOE_CHECK(check_path(directory));
    const moe::model::FolderOptions how{.platform = object_of(given.platform).get(),
                                        .patch = patch_of(given),
                                        .layers = {given.layers, given.num_layers},
                                        .allow_fallback = (given.select_flags & MOE_SELECT_ALLOW_FALLBACK) != 0,
                                        .verify = (given.load_flags & MOE_LOAD_VERIFY) != 0};
    return moe::model::convert_folder(*checkpoint->object, directory, how, object_of(ctx),
                                      moe::api::control_of(given.control));
  });
}

moe_status moe_checkpoint_tensor(const moe_checkpoint* checkpoint, const char* name, moe_tensor* out, moe_buffer** hold,
                                 moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(hold);
    MOE_CHECK(not_null({{"checkpoint", checkpoint}, {"name", name}, {"out", out}, {"hold", hold}}));
    MOE_CHECK(check_struct_size(out, "out"));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    MOE_CHECK(no_sources(*checkpoint->object));
    MOE_TRY(moe::TensorLease lease, checkpoint->object->tensor(name));
    const TensorView view = lease.view;
    *hold = make_handle<moe_buffer>(std::make_shared<moe::api::OwnedBytes>(lease.take_buffer()));
    write_struct(out, tensor_of(view));
    return ok();
  });
}

moe_status moe_checkpoint_fingerprint(moe_context* ctx, const moe_checkpoint* checkpoint, int32_t full,
                                      moe_control* control, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"checkpoint", checkpoint}, {"out", out}}));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(checkpoint, "checkpoint"));
    MOE_CHECK(check_optional(control, "control"));
    if (full != 0 && full != 1) return fail(Code::invalid_argument, "full", cat("full: must be 0 or 1, got ", full));
    moe::begin_call(moe::api::control_of(control));
    MOE_TRY(std::string text,
            moe::model::fingerprint(*checkpoint->object, full == 1, moe::run::parallel_of(object_of(ctx).get()),
                                    moe::api::control_of(control)));
    *out = make_text(std::move(text));
    return ok();
  });
}

void moe_checkpoint_destroy(moe_checkpoint* checkpoint) { end_handle(checkpoint); }
