// moe_describe("oracle"): the pinned answer of an oracle as JSON, or its failure (describe.md 2).
#include "base/text.h"
#include "oracle/select.h"

namespace moe {
namespace {

json::Value experts_of(const BackendRow& row) { return row.name.empty() ? json::Value() : json::Value(row.name); }

json::Value candidates_of(const Outcome& out) {
  json::Array list;
  for (const Considered& a : out.asked) {
    json::Value c;
    c.set("backend", a.row->backend);
    c.set("experts", experts_of(*a.row));
    c.set("accepted", !a.verdict);
    c.set("reason", a.verdict ? json::Value(a.verdict->code()) : json::Value());
    c.set("detail", a.verdict ? json::Value(a.verdict->detail()) : json::Value(""));
    list.push_back(std::move(c));
  }
  return list;
}

std::string first_details(const Outcome& out) {
  std::string s;
  std::string_view backend;
  for (const Considered& a : out.asked) {
    if (!a.verdict || a.row->backend == backend) continue;
    backend = a.row->backend;
    s += (s.empty() ? ": " : "; ") + std::string(backend) + " " + a.verdict->detail();
  }
  return s;
}

Error failure(const Query& q, const Outcome& out) {
  const std::string oracle(oracle_name(q.oracle));
  if (out.answer == Answer::not_built)
    return fail(Code::unsupported, "/oracle", "oracle " + oracle + " is not built; this build has " + built_oracles());
  if (out.answer == Answer::unknown_backend)
    return fail(Code::invalid_config, "/moe/moe_backend",
                "moe_backend " + in_quotes(q.moe.moe_backend) + " is no backend of oracle " + oracle +
                    "; expected one of " + request_words(q),
                "\"error\":\"unknown_backend\"");
  const bool refused = out.answer == Answer::refused;
  std::string details = std::string("\"error\":\"") + (refused ? "refused" : "none") + "\"";
  if (!out.reason.empty()) details += ",\"reason\":" + json::quote(out.reason);
  if (!out.refused.kind.empty()) details += ",\"kind\":" + json::quote(out.refused.kind);
  if (!out.warning.empty()) details += ",\"warning\":" + json::quote(out.warning);
  details += ",\"candidates\":" + json::write(candidates_of(out));
  if (out.refused.any())
    return fail(Code::no_backend, "", "oracle " + oracle + " refuses: " + std::string(out.refused.why), details);
  std::string who = "no backend of oracle " + oracle + " accepts";
  if (refused)
    who = (q.moe.moe_backend == "auto" ? "the one backend that oracle " + oracle + " asks"
                                       : "moe_backend " + q.moe.moe_backend) +
          " refuses";
  return fail(Code::no_backend, "", who + " this on " + platform_text(q.platform) + first_details(out), details);
}

}  // namespace

Result<std::string> describe_oracle(const json::Value& query) {
  MOE_TRY(const Query q, parse_query(query));
  const Outcome out = ask(q, SelectFlags{});
  if (out.answer != Answer::accepted) return failure(q, out);
  json::Value answer;
  answer.set("oracle", oracle_name(q.oracle));
  answer.set("backend", out.winner()->row->backend);
  answer.set("experts", experts_of(*out.winner()->row));
  if (!out.warning.empty()) answer.set("warning", out.warning);
  answer.set("candidates", candidates_of(out));
  return json::write(answer);
}

}  // namespace moe
