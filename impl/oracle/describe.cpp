// moe_describe("oracle"): the pinned answer of an oracle as JSON, or its failure (describe.md 2).
#include "base/index.h"
#include "base/text.h"
#include "oracle/select.h"

namespace moe::oracle {
namespace {

std::optional<std::string_view> experts_of(const BackendRow& row) {
  return row.name.empty() ? std::nullopt : std::optional(row.name);
}

void write_candidates(json::Writer& w, const Outcome& out) {
  w.key("candidates").begin_array();
  for (const Considered& a : out.asked) {
    w.begin_object().member("backend", a.row->backend).member("experts", experts_of(*a.row));
    w.member("accepted", !a.verdict);
    if (a.verdict)
      w.member("reason", a.verdict->code()).member("detail", a.verdict->detail());
    else
      w.key("reason").null().member("detail", "");
    w.end_object();
  }
  w.end_array();
}

std::string first_details(const Outcome& out) {
  std::string s;
  std::string_view backend;
  for (const Considered& a : out.asked) {
    if (!a.verdict || a.row->backend == backend) continue;
    backend = a.row->backend;
    s += cat(s.empty() ? ": " : "; ", backend, " ", a.verdict->detail());
  }
  return s;
}

Error failure(const Query& q, const Outcome& out) {
  const std::string oracle(oracle_name(q.oracle));
  if (out.answer == Answer::not_built)
    return fail(Code::unsupported, "/oracle",
                cat("oracle ", oracle, " is not built; this build has ", built_oracles()));
  if (out.answer == Answer::unknown_backend)
    return fail(Code::invalid_config, "/moe/moe_backend",
                cat("moe_backend ", in_quotes(q.moe.moe_backend), " is no backend of oracle ", oracle,
                    "; expected one of ", request_words(q)),
                json::members("error", "unknown_backend"));
  const bool refused = out.answer == Answer::refused;
  json::Writer w;
  w.member("error", refused ? "refused" : "none");
  if (!out.reason.empty()) w.member("reason", out.reason);
  if (!out.refused.kind.empty()) w.member("kind", out.refused.kind);
  if (!out.warning.empty()) w.member("warning", out.warning);
  write_candidates(w, out);
  const std::string details = w.take();
  if (out.refused.any())
    return fail(Code::no_backend, "", cat("oracle ", oracle, " refuses: ", out.refused.why), details);
  std::string who = cat("no backend of oracle ", oracle, " accepts");
  if (refused)
    who = (q.moe.moe_backend == "auto" ? "the one backend that oracle " + oracle + " asks"
                                       : "moe_backend " + q.moe.moe_backend) +
          " refuses";
  return fail(Code::no_backend, "", cat(who, " this on ", platform_text(q.platform), first_details(out)), details);
}

// What is not known is not answered: oracles of floats were read as of May 2026, those of November for CPUs alone.
Check check_profile(const Query& q) {
  const bool integers = q.oracle == OracleId::int_wna16 || q.oracle == OracleId::w4a8_int8;
  if (q.profile == Profile::april_2026 && !integers)
    return fail(Code::unsupported, "/profile",
                cat("profile 2026-04 is known of int_wna16 and w4a8_int8; oracle ", oracle_name(q.oracle),
                    " has 2026-05 and 2026-11"));
  if (q.profile == Profile::november_2026 && q.platform.type != DeviceType::cpu)
    return fail(
        Code::unsupported, "/profile",
        cat("profile 2026-11 is known for platform cpu; for ", at(kDeviceNames, q.platform.type), " there is 2026-05"));
  return ok();
}

}  // namespace

Result<std::string> describe_oracle(const json::Value& query) {
  MOE_TRY(const Query q, parse_query(query));
  MOE_CHECK(check_profile(q));
  const Outcome out = ask(q, SelectFlags{});
  if (out.answer != Answer::accepted) return failure(q, out);
  json::Writer w;
  w.begin_object().member("oracle", oracle_name(q.oracle)).member("backend", out.winner()->row->backend);
  w.member("experts", experts_of(*out.winner()->row));
  if (!out.warning.empty()) w.member("warning", out.warning);
  write_candidates(w, out);
  return w.end_object().take();
}

}  // namespace moe::oracle
