// Agreement of config, layout and experts between the objects of one call. See agree.h.
#include "bind/agree.h"

#include <array>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/tensor.h"
#include "base/text.h"
#include "convert/convert.h"

namespace moe::bind {
namespace {

// Members of the canonical document that say what the packed bytes are and mean.
constexpr std::array<std::string_view, 13> kBinding = {"/num_experts",
                                                       "/hidden_dim",
                                                       "/intermediate_size_per_partition",
                                                       "/num_local_experts",
                                                       "/activation",
                                                       "/activation_params",
                                                       "/expert_norm",
                                                       "/expert_norm_eps",
                                                       "/has_bias",
                                                       "/quantization/weights",
                                                       "/quantization/input_activations",
                                                       "/activation_quant",
                                                       "/parallel"};

std::string text_at(const json::Value& document, std::string_view pointer) {
  const json::Value* v = json::at_pointer(document, pointer);
  return v == nullptr ? "null" : json::write(*v, json::Order::sorted);
}

// `side`: "packed" or "weights".
Error differs(std::string_view member, const std::string& side, const std::string& found, const std::string& expected) {
  return fail(Code::config_mismatch, std::string(member),
              cat(member, ": found ", found, " in ", side, ", the selection has ", expected),
              json::members("member", member, "expected", expected, "actual", found));
}

std::string list_text(const std::vector<std::int64_t>& list) { return shape_text(list); }

}  // namespace

Check check_winner(const Selection& selection) {
  if (selection.winner) return ok();
  return fail(Code::no_backend, "selection", "selection: no backend accepts this config",
              json::members("candidates", json::Text{candidates_to_json(selection.candidates)}));
}

Check check_built(const Selection& selection) {
  MOE_CHECK(check_winner(selection));
  if (can_write(selection.layout.kind)) return ok();
  return fail(Code::unsupported, "selection",
              cat("selection: this build cannot write the layout of backend ", selection.backend_name(), " (",
                  selection.layout_id, ")"));
}

PackedInfo packed_info(const Selection& selection) {
  PackedInfo info;
  info.layout_id = selection.layout_id;
  info.backend = selection.backend_name();
  info.config = selection.config->canonical;
  info.layout = selection.layout;
  info.experts = local_experts(*selection.config);
  return info;
}

Check check_same_config(const json::Value& theirs, const json::Value& selections, const char* side) {
  for (std::string_view pointer : kBinding) {
    const std::string found = text_at(theirs, pointer), expected = text_at(selections, pointer);
    if (found != expected) return differs(pointer, side, found, expected);
  }
  return ok();
}

Check check_same_packed(const Packed& packed, const Selection& selection) {
  // Conversion takes the layout with room where it finds groups of several sizes.
  const Layout& found = packed.info.layout;
  const bool wider = found == with_any_groups(selection.layout);
  if (packed.info.layout_id != selection.layout_id && !wider)
    return differs("layout", "packed", packed.info.layout_id, selection.layout_id);
  MOE_TRY(const json::Value config,
          json::parse(packed.info.config, {.max_bytes = std::size_t{16} << 20, .max_depth = 32}));
  MOE_CHECK(check_same_config(config, selection.config->resolved, "packed"));
  const std::vector<std::int64_t> experts = local_experts(*selection.config);
  if (packed.info.experts != experts)
    return differs("experts", "packed", list_text(packed.info.experts), list_text(experts));
  if (!(found == selection.layout) && !wider)
    return differs("layout", "packed", cat("expert stride ", found.expert_stride()),
                   cat("expert stride ", selection.layout.expert_stride()));
  return ok();
}

}  // namespace moe::bind
