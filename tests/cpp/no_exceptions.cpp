// The non-throwing form of moe.hpp in a file that is compiled with -fno-exceptions, in one program with files that have
// them.
#include "cpp/world.h"

#if LIBMOE_EXCEPTIONS
#error "this file is to be compiled with -fno-exceptions"
#endif

namespace cpp_test {

const char* without_exceptions(const Numbers& numbers, std::vector<float>& out) {
  auto config = libmoe::Config::try_create(kConfig);
  if (!config) return "config";
  auto selection = libmoe::Selection::try_create(*config);
  auto weights = libmoe::Weights::try_create(*config);
  if (!selection || !weights) return "selection or weights";
  if (!weights->try_set("w13_weight", {numbers.w13, {kExperts, 2 * kInner, kHidden}})) return "w13_weight";

  auto incomplete = libmoe::Packed::try_convert(*selection, *weights);
  if (incomplete || incomplete.error().status() != MOE_ERR_MISSING_WEIGHT) return "an incomplete set was converted";
  if (std::string_view(incomplete.error().what()).empty()) return "an error without a text";

  if (!weights->try_set("w2_weight", {numbers.w2, {kExperts, kHidden, kInner}})) return "w2_weight";
  std::uint64_t seen = 0;
  auto control = libmoe::Control::try_create([&seen](std::uint64_t, std::uint64_t) { return ++seen > 0; });
  if (!control) return "control";
  libmoe::ConvertOptions options;
  options.control = &*control;
  auto packed = libmoe::Packed::try_convert(*selection, *weights, {}, std::move(options));
  if (!packed || seen == 0) return "convert";
  auto layer = libmoe::Layer::try_create(*selection, *packed);
  if (!layer) return "layer";
  if (!layer->try_apply({numbers.hidden, {kTokens, kHidden}}, {numbers.logits, {kTokens, kExperts}},
                        {out, {kTokens, kHidden}}))
    return "apply";
  return "";
}

const char* checkpoint_without_exceptions(const std::string& directory, const std::string& converted,
                                          const Numbers& numbers, std::vector<float>& out) {
  auto nowhere = libmoe::Checkpoint::try_open(directory + "/nowhere");
  if (nowhere || nowhere.error().code() != std::errc::no_such_file_or_directory) return "a missing directory";
  auto model = libmoe::Checkpoint::try_open(directory);
  if (!model) return "open";
  auto info = model->try_info(0);
  if (!info || info->kind != libmoe::LayerKind::experts) return "info";
  auto config = model->try_config(0);
  auto print = model->try_fingerprint();
  auto router = model->try_tensor("model.layers.0.mlp.gate.weight");
  if (!config || !print || !router || !model->try_to_json()) return "config, fingerprint, tensor or JSON";
  auto control = libmoe::Control::try_create();
  if (!control) return "control";
  libmoe::CheckpointConvertOptions how;
  how.control = &*control;
  if (!model->try_convert(converted, {}, how)) return "convert";
  auto state = control->try_state();
  if (!state || state->bytes_done != state->bytes_total) return "state";
  auto again = libmoe::Checkpoint::try_open(converted);
  if (!again) return "open of what was converted";
  auto layer = again->try_layer(0);
  if (!layer) return "layer";
  auto selection = libmoe::Selection::try_create(*config);
  if (!selection || !again->try_packed(*selection)) return "packed";
  auto weights = libmoe::Weights::try_create(*config);
  if (!weights || !weights->try_load_checkpoint(*model)) return "weights";
  if (!layer->try_apply({numbers.hidden, {kTokens, kHidden}}, {numbers.logits, {kTokens, kExperts}},
                        {out, {kTokens, kHidden}}))
    return "apply";
  return "";
}

}  // namespace cpp_test
