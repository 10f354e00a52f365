// moe_select_backend: a config and a platform -> backend, kernel and layout, with every candidate's reason.
#include "oracle/selection.h"

#include <utility>

#include "base/text.h"
#include "oracle/backend.h"
#include "oracle/select.h"

namespace moe::oracle {
namespace {

constexpr Reason kOracleNotBuilt(Reject::not_built, "oracle");

// A described CPU without an architecture is one like the machine this library was compiled for.
Platform complete(const Platform& given) {
  Platform p = given;
  if (p.type == DeviceType::automatic) p.type = DeviceType::cpu;
  if (p.type == DeviceType::cpu && p.arch == Arch::automatic) p.arch = native_arch();
  return p;
}

void record(Candidate& c, const Verdict& verdict) {
  if (!verdict) return;
  c.reason = verdict->reject();
  c.detail = verdict->detail();
  c.subject = verdict->subject();
}

Candidate candidate_of(const Considered& a) {
  Candidate c;
  c.backend = a.row->backend;
  c.kernel = a.kernel ? kKernelIds[*a.kernel].name : a.row->name.empty() ? a.row->backend : a.row->name;
  c.experts = a.row->name;
  c.priority = a.priority;
  c.chosen = a.chosen;
  record(c, a.verdict);
  return c;
}

// Stands for all backends of an oracle that has no table here.
Candidate not_built_candidate(const Query& q) {
  Candidate c;
  c.backend = oracle_name(q.oracle);
  const std::string found =
      q.oracle == OracleId::no_oracle ? "this pair of weights and activations has no oracle (" : "this build has (";
  record(c, Refusal(kOracleNotBuilt, {cat("a table for weights ", weight_scheme_word(q.layer->quantization),
                                          " with activations ", activation_scheme_word(q.layer->quantization)),
                                      cat(found, built_oracles(), ")"), "/quantization"}));
  return c;
}

void fill_winner(Selection& s, const Query& q, const Outcome& out) {
  for (std::size_t i = 0; i < out.asked.size(); ++i)
    if (out.asked[i].chosen) s.winner = i;
  const Considered* won = out.winner();
  if (won == nullptr) return;
  s.kernel = won->kernel;
  s.layout = layout_of(q, won->row->accepts(q.policy));
  s.layout_id = s.layout.id();
}

Error failure(const Selection& s, const Query& q, const Outcome& out) {
  std::string reasons(out.refused.why);
  std::string_view backend;
  for (const Candidate& c : s.candidates) {
    if (c.backend == backend) continue;
    backend = c.backend;
    reasons += cat(reasons.empty() ? "" : "; ", c.backend, " ", c.detail);
  }
  const std::string candidates = candidates_to_json(s.candidates);
  if (out.answer == Answer::unknown_backend)
    return fail(Code::invalid_config, "/moe_backend",
                cat("moe_backend ", in_quotes(q.moe.moe_backend), " is no backend of oracle ", s.oracle,
                    "; expected one of ", request_words(q)),
                json::members("error", "unknown_backend", "candidates", json::Text{candidates}));
  json::Writer w;
  w.member("error", out.answer == Answer::refused ? "refused" : "none");
  if (!out.reason.empty()) w.member("reason", out.reason);
  if (!out.refused.kind.empty()) w.member("kind", out.refused.kind);
  if (!s.warning.empty()) w.member("warning", s.warning);
  w.member("candidates", json::Text{candidates});
  return fail(Code::no_backend, "", cat("no backend takes this config on ", platform_text(s.platform), ": ", reasons),
              w.take());
}

}  // namespace

const char* reject_name(Reject r) {
  switch (r) {
#define MOE_REJECT(id, name) \
  case Reject::id:           \
    return "MOE_REJECT_" #name;
#include "oracle/rejects.inc"
  }
  return "MOE_REJECT_UNKNOWN";
}

Result<Selection> select_backend(std::shared_ptr<const Config> config, const Platform& platform, SelectFlags flags) {
  Selection s;
  s.config = std::move(config);
  s.platform = complete(platform);
  const Query q = query_of(*s.config, s.platform);
  const Outcome out = ask(q, flags);
  s.oracle = oracle_name(q.oracle);
  s.weight_scheme = weight_scheme_word(s.config->quantization);
  s.activation_scheme = activation_scheme_word(s.config->quantization);
  s.batched = q.moe.parallel.batched();
  s.warning = out.warning;
  for (const Considered& a : out.asked) s.candidates.push_back(candidate_of(a));
  if (out.answer == Answer::not_built) s.candidates.push_back(not_built_candidate(q));
  fill_winner(s, q, out);
  if (!s.winner && !flags.explain_only) return failure(s, q, out);
  return s;
}

}  // namespace moe::oracle
