// Names and reading of the vectors beside a layer's experts. See side_tensors.h.
#include "weights/side_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/index.h"
#include "base/number_at.h"
#include "base/tensor.h"
#include "base/text.h"

namespace moe::weights {
namespace {

// Below the module that holds router and experts.
struct KnownName {
  Side side;
  std::string_view name;
};
constexpr std::array kNames = {
    KnownName{Side::correction_bias, "gate.e_score_correction_bias"},         // DeepSeek-V3, GLM-4, Kimi, dots1
    KnownName{Side::correction_bias, "e_score_correction_bias"},              // MiniMax-M2
    KnownName{Side::correction_bias, "moe_statics.e_score_correction_bias"},  // Ernie-4.5
    KnownName{Side::correction_bias, "router.e_score_correction_bias"},       // LongCat-Flash
    KnownName{Side::correction_bias, "experts.e_score_correction_bias"},      // Laguna
    KnownName{Side::correction_bias, "gate.expert_bias"},                     // Bailing
    KnownName{Side::correction_bias, "gate.balancing_biases"},                // Zaya
    KnownName{Side::correction_bias, "router.expert_bias"},                   // Kolibri
    KnownName{Side::correction_bias, "expert_bias"},                          // LFM2
    KnownName{Side::correction_bias, "router_bias"},                          // Step-3.5
    KnownName{Side::expert_scale, "router.per_expert_scale"},                 // Gemma-4
    KnownName{Side::expert_scale, "gate.global_scale"},                       // Inkling
    KnownName{Side::expert_norm, "experts.post_expert_norm.weight"},          // MuseSpark
};

// DeepSeek-V4's; elsewhere a gate's bias is its own.
constexpr std::string_view kFfnName = "gate.bias";

// The router's matrix, alone or in a module of the gate, and what it has itself: its caller makes the logits.
constexpr auto kMatrices = std::to_array<std::string_view>(
    {"gate", "router", "gate.wg", "router.layer", "router.linear", "router.proj", "router.classifier", "gate.linear"});
constexpr auto kOfMatrix = std::to_array<std::string_view>({"weight", "bias", "weight_scale", "weight_scale_inv",
                                                            "weight_zero_point", "weight_packed", "scales", "qzeros",
                                                            "SCB", "_weight_scale", "_weight_zero_point"});
// Where a layer has a router beside its other modules, not in one of the experts, names of it begin so.
constexpr auto kBesideLayer = std::to_array<std::string_view>({"router", "gate", "expert"});

// "model.layers.0.", or no module at all.
bool is_layer(std::string_view router) {
  if (router.empty()) return true;
  const std::string_view module = router.substr(0, router.size() - 1), word = module.substr(module.rfind('.') + 1);
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_of_matrix(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const auto has = [](const auto& list, std::string_view s) {
    return std::find(list.begin(), list.end(), s) != list.end();
  };
  return dot != std::string_view::npos && has(kMatrices, name.substr(0, dot)) && has(kOfMatrix, name.substr(dot + 1));
}

struct Wanted {
  Side side;
  bool wanted;
  std::string_view name;  // that the config gives its tensor
};
std::array<Wanted, 3> wanted_by(const Config& c) {
  const RoutingConfig& r = c.routing;
  return {{{Side::correction_bias, r.has_bias, r.correction_bias_name},
           {Side::expert_scale, r.expert_scale.wanted(), r.expert_scale.name},
           {Side::expert_norm, c.expert_norm.wanted(), c.expert_norm.name}}};
}

// Whether the layer could use one: else it is no loss. Routing by the caller or by chance uses no tensor of a router,
// and where the caller gives the ids a bias chooses nothing.
bool could_use(const RoutingConfig& r, Side side) {
  if (side == Side::expert_norm) return true;
  if (r.hash_routing && side == Side::correction_bias) return false;
  return r.method != RoutingMethod::custom && r.method != RoutingMethod::simulated;
}

struct Rows {
  const char* what;
  const char* member;
};
Rows rows_of(Side side) {
  constexpr std::array kRows = {Rows{"correction bias", "/routing/e_score_correction_bias"},
                                Rows{"scale of the experts' weights", "/routing/expert_scale"},
                                Rows{"norm of the experts' output", "/expert_norm"}};
  return at(kRows, side);
}

}  // namespace

std::string router_prefix(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(module.substr(0, dot + 1));
}

std::optional<Side> side_of(const Config& config, std::string_view name, std::string_view router,
                            std::string_view layer) {
  for (const Wanted& w : wanted_by(config)) {
    const std::string_view within = layer.empty() ? router : layer;
    if (w.name.empty() || !name.starts_with(within) || !name.ends_with(w.name)) continue;
    const std::size_t before = name.size() - w.name.size();
    if (before == 0 || name[before - 1] == '.') return w.side;
  }
  if (!name.starts_with(router)) return std::nullopt;
  const std::string_view own = name.substr(router.size());
  for (const KnownName& known : kNames)
    if (known.name == own) return known.side;
  if (own == kFfnName && router.ends_with("ffn.")) return Side::correction_bias;
  return std::nullopt;
}

Result<bool> is_wanted(const Config& config, Side side, const std::string& name) {
  if (at(wanted_by(config), side).wanted) return true;
  if (!could_use(config.routing, side)) return false;
  const Rows rows = rows_of(side);
  const bool bias = side == Side::correction_bias;
  return fail(Code::unexpected_weight, name,
              cat(name, ": the checkpoint has a ", rows.what, ", and ",
                  bias ? config.member_text(rows.member) + " is false: routing would leave it out"
                       : "the config has no use for it: it would be left out",
                  "; ignored_tensors of the config says that it may"),
              cat(R"("member":")", rows.member, "\""));
}

Check check_known_vector(const Config& config, const SafetensorsEntry& entry, const RouterPlace& place) {
  // DeepSeek-V4's table of experts by the token's number: a layer that has it does not choose by its logits.
  if (entry.name == cat(place.router, "gate.tid2eid") && !config.routing.hash_routing &&
      could_use(config.routing, Side::correction_bias))
    return fail(
        Code::unexpected_weight, entry.name,
        cat(entry.name, ": a table of the experts of each token, but ", config.member_text("/routing/hash_routing"),
            " is false; ignored_tensors says that it may be left out"));
  const auto shape = entry.shape();
  if (shape.empty() || shape.size() > 2 || (shape.size() == 2 && shape[0] != 1) || shape.back() < 2) return ok();
  if (shape.back() != config.num_experts && shape.back() != config.router_columns()) return ok();
  if (!could_use(config.routing, Side::expert_scale) || !entry.name.starts_with(place.router)) return ok();
  const std::string_view name = std::string_view(entry.name).substr(place.router.size());
  const bool beside =
      is_layer(place.router) && std::none_of(kBesideLayer.begin(), kBesideLayer.end(),
                                             [&](std::string_view begin) { return name.starts_with(begin); });
  if (beside || is_of_matrix(name) || name.starts_with("shared") || name.find(".shared") != std::string_view::npos)
    return ok();
  return fail(Code::unexpected_weight, entry.name,
              cat(entry.name,
                  ": a vector with a value for each expert that the config does not know: it would be left "
                  "out. routing.correction_bias_name or routing.expert_scale of the config says what it "
                  "is, ignored_tensors that it may be left out"));
}

Result<std::vector<float>> read_side(const CheckpointEntry& from, const Config& config, Side side) {
  const SafetensorsEntry& e = *from.entry;
  const std::int64_t count = side == Side::correction_bias ? config.router_columns()
                             : side == Side::expert_scale  ? config.num_experts
                                                           : config.hidden_dim;
  if (e.dtype != DType::f32 && e.dtype != DType::f16 && e.dtype != DType::bf16)
    return fail(Code::dtype, e.name, cat(e.name, ": expected F32, F16 or BF16, got ", dtype_name(e.dtype)));
  const auto shape = e.shape();
  const bool row = shape.size() == 2 && shape[0] == 1;
  const bool one = side == Side::expert_scale && (shape.empty() || (shape.size() == 1 && shape[0] == 1));
  if (!one && ((shape.size() != 1 && !row) || shape.back() != count))
    return fail(Code::shape, e.name,
                cat(e.name, ": expected shape [", count, "] or [1, ", count, "], got ", shape_text(shape)));
  std::vector<std::byte> bytes(usize(e.bytes));
  MOE_CHECK(from.file->read(e, 0, bytes));
  std::vector<float> values(one ? 1 : usize(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_float(e.dtype, bytes.data() + i * (bytes.size() / values.size()));
    if (std::isfinite(values[i])) continue;
    const std::string place = cat(e.name, "[", i, "]");
    return fail(Code::invalid_argument, place, place + ": must be a finite number");
  }
  return values;
}

}  // namespace moe::weights
