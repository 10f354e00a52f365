// A selection as JSON: what moe_selection_to_json promises in moe.h, and what is really run beside what was asked for:
// the quantization config (describe.md 3), the routing method, the types inside the kernel, the shard and the experts
// of this rank, platform and config. A fallback that is not in here does not exist.
#include <algorithm>
#include <array>

#include "base/index.h"
#include "oracle/backend.h"
#include "oracle/query.h"
#include "oracle/selection.h"
#include "vllm/topics.h"

namespace moe::oracle {
namespace {

void write_candidate(json::Writer& w, const Candidate& c) {
  w.begin_object().member("backend", c.backend).member("kernel", c.kernel).member("experts", c.experts);
  w.member("priority", c.priority).member("accepted", c.reason == Reject::none).member("chosen", c.chosen);
  w.member("reason", reject_name(c.reason)).member("reason_code", static_cast<std::int32_t>(c.reason));
  w.member("subject", c.subject).member("detail", c.detail).end_object();
}

void write_placement(json::Writer& w, const Config& c) {
  const auto word = [](Placement p) { return p == Placement::linear ? "linear" : "round_robin"; };
  w.begin_object().member("strategy", word(effective_placement(c)));
  w.member("requested", word(c.parallel.expert_placement_strategy));
  w.member("ep_size", c.parallel.ep_size).member("ep_rank", c.parallel.ep_rank);
  w.key("experts").array(local_experts(c)).end_object();
}

// This rank's part of the experts' width: rows of w13 halves, columns of w2.
void write_shard(json::Writer& w, const Config& c) {
  const std::int64_t width = c.intermediate_size_per_partition, begin = c.parallel.tp_rank * width;
  w.begin_object().member("tp_size", c.parallel.tp_size).member("tp_rank", c.parallel.tp_rank);
  w.member("intermediate_begin", begin).member("intermediate_end", begin + width).end_object();
}

// By ActFormat; of e2m1 and e4m3 the config says more.
constexpr std::array<std::string_view, 8> kActWords = {"int8_per_token", "int8_block32", "int16_block128", "float4",
                                                       "float8",         "bfloat16",     "float16",        "float32"};
static_assert(usize(ActFormat::f32) + 1 == kActWords.size());

std::string act_word(const Config& c, ActFormat act) {
  if (act == ActFormat::e2m1) return c.quantization.is_nvfp4() ? "nvfp4_block16" : "mxfp4_block32";
  const std::optional<FloatActs> floats = c.float8_acts();
  if (act != ActFormat::e4m3 || !floats) return std::string(at(kActWords, act));
  switch (floats->scale) {
    case FloatScale::tensor:
      return "float8_e4m3_per_tensor";
    case FloatScale::token:
      return "float8_e4m3_per_token";
    case FloatScale::group:
      return cat("float8_e4m3_", floats->ue8m0 ? "ue8m0_" : "", "block", floats->columns);
    case FloatScale::mx:
      break;
  }
  return cat("mxfp8_block", floats->columns);
}

// The types that the kernel multiplies; null where this library runs nothing.
void write_runs_as(json::Writer& w, const Selection& s) {
  if (!s.kernel) {
    w.null();
    return;
  }
  w.begin_object().member("weights", row_of(s.layout.w13.element).word);
  w.member("activations", act_word(*s.config, kKernelIds[*s.kernel].act)).end_object();
}

// The quantization config of the oracle; null where vLLM makes none.
void write_quant_config(json::Writer& w, const Selection& s) {
  const Family& family = family_named(s.oracle);
  if (family.quant_config != nullptr)
    if (const Result<QuantConfig> q = family.quant_config(*s.config, s.backend_name())) {
      w.begin_object();
      write_members(w, *q);
      w.end_object();
      return;
    }
  w.null();
}

}  // namespace

std::string candidates_to_json(const std::vector<Candidate>& candidates) {
  json::Writer w;
  w.begin_array();
  for (const Candidate& c : candidates) write_candidate(w, c);
  return w.end_array().take();
}

std::string selection_to_json(const Selection& s) {
  const Candidate none;
  const Candidate& won = s.winner ? s.candidates[*s.winner] : none;
  json::Writer w;
  w.begin_object().member("oracle", s.oracle);
  w.member("selection_policy", s.config->selection_policy == Policy::vllm ? "vllm" : "libmoe");
  w.member("backend", won.backend).member("kernel", won.kernel).member("experts", won.experts);
  w.member("layout", s.layout_id);
  w.member("weight_scheme", s.weight_scheme).member("activation_scheme", s.activation_scheme);
  write_runs_as(w.key("runs_as"), s);
  write_quant_config(w.key("quant_config"), s);
  w.member("routing_method", routing_method_name(s.config->routing.method));
  w.member("activation_format", s.batched ? "batched" : "standard");
  w.member("warning", s.warning);
  write_shard(w.key("shard"), *s.config);
  write_placement(w.key("expert_placement"), *s.config);
  w.member("candidates", json::Text{candidates_to_json(s.candidates)});
  w.member("platform", json::Text{platform_to_json(s.platform)}).member("config", json::Text{s.config->canonical});
  return w.end_object().take();
}

}  // namespace moe::oracle
