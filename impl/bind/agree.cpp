// Agreement of config, layout and experts between the objects of one call. See agree.h.
#include "bind/agree.h"

#include <array>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/tensor.h"
#include "base/text.h"
#include "convert/convert.h"
#include "layouts/p16/p16_layout.h"
#include "weights/expert_places.h"

namespace moe::bind {
namespace {

constexpr std::string_view kParallel = "/parallel";
// Members of the canonical document that say what the packed bytes are and mean.
constexpr std::array<std::string_view, 13> kBinding = {"/num_experts",
                                                       "/hidden_dim",
                                                       kParallel,
                                                       "/intermediate_size_per_partition",
                                                       "/num_local_experts",
                                                       "/activation",
                                                       "/activation_params",
                                                       "/expert_norm",
                                                       "/expert_norm_eps",
                                                       "/has_bias",
                                                       "/quantization/weights",
                                                       "/quantization/input_activations",
                                                       "/activation_quant"};

// Without scale_format: how a layer rounds the scales of its activations changes no packed byte.
std::string text_at(const json::Value& document, std::string_view pointer) {
  const json::Value* v = json::at_pointer(document, pointer);
  if (v == nullptr) return "null";
  if (v->object() == nullptr || v->find("scale_format") == nullptr) return json::write(*v, json::MemberOrder::sorted);
  json::Object kept;
  for (const auto& member : *v->object())
    if (member.first != "scale_format") kept.push_back(member);
  return json::write(json::Value(std::move(kept)), json::MemberOrder::sorted);
}

// For messages: numbers of a vector are too many.
std::string shown_at(const json::Value& document, std::string_view pointer) {
  const json::Value* v = json::at_pointer(document, pointer);
  return v != nullptr && v->array() != nullptr ? cat(v->array()->size(), " numbers") : text_at(document, pointer);
}

// "tp_rank is 0 in packed, the selection's is 1"
std::string members_that_differ(const json::Object& theirs, const json::Value& selections, const std::string& side) {
  std::string s;
  for (const auto& [key, value] : theirs) {
    const std::string place = cat("/", json::escape_pointer(key));
    const std::string found = json::write(value, json::MemberOrder::sorted), expected = text_at(selections, place);
    if (found == expected) continue;
    const bool first = s.empty();
    s += cat(first ? "" : ", ", key, " is ", found, first ? cat(" in ", side, ", the selection's is ") : ", not ",
             expected);
  }
  return s;
}

// `side`: "packed" or "weights".
Error differs(std::string_view member, const std::string& side, const std::string& found, const std::string& expected) {
  return fail(Code::config_mismatch, std::string(member),
              cat(member, ": found ", found, " in ", side, ", the selection has ", expected),
              json::members("member", member, "expected", expected, "actual", found));
}

Check check_same_member(const json::Value& theirs, const json::Value& selections, std::string_view pointer,
                        const char* side) {
  if (text_at(theirs, pointer) == text_at(selections, pointer)) return ok();
  Error e = differs(pointer, side, shown_at(theirs, pointer), shown_at(selections, pointer));
  const json::Value *found = json::at_pointer(theirs, pointer), *expected = json::at_pointer(selections, pointer);
  if (found != nullptr && expected != nullptr && found->object() != nullptr && expected->object() != nullptr)
    if (const std::string members = members_that_differ(*found->object(), *expected, side); !members.empty())
      e.message = cat(pointer, ": ", members);
  if (pointer == kParallel)
    e.message += "; a folder of converted layers is of one rank: open this one's, or convert it";
  return e;
}

constexpr std::size_t kMostName = 512;  // characters, as many as a config takes

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
  if (p16_element(info.layout.kind) && info.layout.variant.input_scales)
    for (std::vector<float>& scales : info.input_scales) scales.resize(usize(info.layout.experts));
  return info;
}

Check check_same_config(const json::Value& theirs, const json::Value& selections, const char* side) {
  for (std::string_view pointer : kBinding) MOE_CHECK(check_same_member(theirs, selections, pointer, side));
  return ok();
}

Check check_same_layer(std::string_view theirs, const Config& selections, bool guessed, const char* side,
                       std::string_view way_out) {
  const std::string& ours = selections.name;
  if (ours.empty() || theirs.empty() || may_be_one_layer(theirs, ours, guessed)) return ok();
  if (!selections.other_name.empty() && may_be_one_layer(theirs, selections.other_name, guessed)) return ok();
  Error e = differs("/name", side, in_quotes(theirs, kMostName), in_quotes(ours, kMostName));
  e.message += cat("; ", way_out, " takes weights of another layer");
  return e;
}

Check check_packed_layer(const Packed& packed, const Selection& selection) {
  const json::Value* name = packed.info.document->find("name");
  const std::string* text = name == nullptr ? nullptr : name->string();
  const Config& c = *selection.config;
  return check_same_layer(text == nullptr ? "" : *text, c, !c.named_by_class.empty(), "packed",
                          "MOE_LAYER_ANY_NAME (flags of moe_layer_options)");
}

Check check_same_model(const Packed& packed, const Selection& selection) {
  MOE_CHECK(check_same_config(*packed.info.document, selection.config->resolved, "packed"));
  const std::vector<std::int64_t> experts = local_experts(*selection.config);
  if (packed.info.experts == experts) return ok();
  return differs("experts", "packed", list_text(packed.info.experts), list_text(experts));
}

Check check_same_packed(const Packed& packed, const Selection& selection) {
  // The cut comes first: it also changes layouts.
  MOE_CHECK(check_same_member(*packed.info.document, selection.config->resolved, kParallel, "packed"));
  // Conversion takes the layout of groups of any sizes where it finds several sizes.
  const Layout& found = packed.info.layout;
  const bool wider = found == with_any_groups(selection.layout);
  if (packed.info.layout_id != selection.layout_id && !wider) {
    Error e = differs("layout", "packed", packed.info.layout_id, selection.layout_id);
    if (found.variant.input_scales != selection.layout.variant.input_scales)
      e.message +=
          "; compute decides whether scales of inputs are packed: convert with this config, or take the compute "
          "that the weights were packed for";
    return e;
  }
  MOE_CHECK(check_same_model(packed, selection));
  if (!(found == selection.layout) && !wider)
    return differs("layout", "packed", cat("expert stride ", found.expert_stride()),
                   cat("expert stride ", selection.layout.expert_stride()));
  return ok();
}

}  // namespace moe::bind
