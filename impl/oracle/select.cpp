// The one selection loop: named backend first, then the list of the device (w4a8_int8.md 1, wna16.md 1.3).
//
//   moe_backend is a word:  its rows are asked, in order. Nobody accepts: refused; but where the family
//                           says so and the device runs none of them, a warning, and the list decides
//   "auto":                 the rows listed for this device, in order; the first that accepts wins
//
// All rows are asked, also after the winner, so that the answer explains itself. A pure question shows
// the rows that were asked; a config also shows the rest of the list, refused by the user's word.
#include "oracle/select.h"

#include <algorithm>
#include <utility>

namespace moe {
namespace {

constexpr Reason kNotNamed(Reject::user, "user");
constexpr std::string_view kWarnDevice = "requested_backend_not_on_this_platform";
constexpr std::string_view kWarnRefused = "requested_backend_refused";
constexpr std::string_view kWarnUnknown = "requested_backend_unknown";

struct Choice {  // a row before it is asked
  const Experts* row;
  const Accepts* accepts;
  std::int32_t priority;
  bool listed, named;
};

std::vector<Choice> choices_of(const Query& q, const Family& family) {
  std::vector<Choice> all;
  std::int32_t backend = -1, place = 0;
  const Experts* previous = nullptr;
  for (const Experts& row : family.rows()) {
    const bool same = previous != nullptr && previous->backend == row.backend;
    backend += same ? 0 : 1;
    place = same ? place + 1 : 0;
    const Accepts& a = row.accepts(q.policy);
    all.push_back({&row, &a, 100 * backend + place, a.listed.has(q.platform.type),
                   !a.request.empty() && a.request == q.moe.moe_backend});
    previous = &row;
  }
  return all;
}

// One entry per kernel of the row's layout for these weights, one without a kernel where libmoe has none.
std::vector<Asked> entries_of(const Query& q, const Choice& c) {
  std::vector<Asked> entries;
  const LayoutKind layout = layout_kind(q, *c.accepts);
  for (std::size_t i = 0; i < kKernelIds.size(); ++i)
    if (layout != LayoutKind::none && kKernelIds[i].layout == layout && kKernelIds[i].act == c.accepts->act)
      entries.push_back(
          {.row = c.row, .kernel = i, .priority = c.priority + static_cast<std::int32_t>(i), .verdict = std::nullopt});
  if (entries.empty())
    entries.push_back({.row = c.row, .kernel = std::nullopt, .priority = c.priority, .verdict = std::nullopt});
  return entries;
}

class Round {
 public:
  Round(const Query& q, const Family& family) : q_(q), choices_(choices_of(q, family)) {}

  bool any(bool Choice::*which) const {
    return std::any_of(choices_.begin(), choices_.end(), [&](const Choice& c) { return c.*which; });
  }
  bool device_runs_named() const {
    return std::any_of(choices_.begin(), choices_.end(), [&](const Choice& c) {
      return c.named && device_runs(q_, {c.row, c.accepts, nullptr});
    });
  }

  // Asks the rows of one kind that were not asked before; true when one accepts.
  bool ask(bool Choice::*which, Outcome& out) {
    for (const Choice& c : choices_) {
      if (!(c.*which)) continue;
      const bool again =
          std::any_of(out.asked.begin(), out.asked.end(), [&](const Asked& a) { return a.row == c.row; });
      if (again) continue;
      for (Asked& entry : entries_of(q_, c)) {
        entry.verdict = judge(q_, {c.row, c.accepts, entry.kernel ? &kKernelIds[*entry.kernel] : nullptr});
        entry.chosen = !entry.verdict && out.winner() == nullptr;
        out.asked.push_back(std::move(entry));
      }
    }
    return out.winner() != nullptr;
  }

  // The rows of the list (of the whole table where the list is empty) that nobody asked.
  void explain_rest(Outcome& out) {
    const bool whole = !any(&Choice::listed);
    for (const Choice& c : choices_) {
      const bool seen = std::any_of(out.asked.begin(), out.asked.end(), [&](const Asked& a) { return a.row == c.row; });
      if (seen || !(c.listed || whole)) continue;
      const bool by_name = q_.moe.moe_backend != "auto" && !whole;
      for (Asked& entry : entries_of(q_, c)) {
        if (by_name)
          entry.verdict = Refusal(
              kNotNamed,
              {"moe_backend auto" + (c.accepts->request.empty() ? "" : " or " + std::string(c.accepts->request)),
               "it is " + q_.moe.moe_backend, "/moe_backend"});
        else
          entry.verdict = judge(q_, {c.row, c.accepts, entry.kernel ? &kKernelIds[*entry.kernel] : nullptr});
        out.asked.push_back(std::move(entry));
      }
    }
  }

 private:
  const Query& q_;
  std::vector<Choice> choices_;
};

// Asks the named backend. True when that settles the question, else the list decides.
bool ask_named(const Query& q, const Family& family, SelectFlags flags, Round& round, Outcome& out) {
  if (q.moe.moe_backend == "auto") return false;
  if (!round.any(&Choice::named)) {
    out.answer = Answer::unknown_backend;
    out.warning = kWarnUnknown;
    return !flags.allow_fallback;
  }
  if (family.named == OnMissingDevice::warn_and_auto && !round.device_runs_named()) {
    out.warning = kWarnDevice;
    if (q.layer != nullptr) round.ask(&Choice::named, out);  // so that a config sees why
    return false;
  }
  if (round.ask(&Choice::named, out)) {
    out.answer = Answer::accepted;
    return true;
  }
  out.answer = Answer::refused;
  out.reason = out.asked.back().verdict->code();
  out.warning = kWarnRefused;
  return !flags.allow_fallback;
}

}  // namespace

LayoutKind layout_kind(const Query& q, const Accepts& row) {
  if (q.layer == nullptr) return LayoutKind::none;
  for (const KernelId& k : kKernelIds)
    if (row.layouts.has(k.layout) && k.act == row.act && p16_element(k.layout) == weight_element(*q.layer))
      return k.layout;
  return LayoutKind::none;
}

Outcome ask(const Query& q, SelectFlags flags) {
  const Family& family = family_of(q.oracle);
  Outcome out;
  if (family.table == nullptr) {
    out.answer = Answer::not_built;
    return out;
  }
  Round round(q, family);
  const bool nobody = family.device_before_name && !round.any(&Choice::listed);
  if (nobody || !ask_named(q, family, flags, round, out)) {
    const std::size_t before = out.asked.size();
    out.answer = round.ask(&Choice::listed, out) ? Answer::accepted : Answer::none;
    const bool single = out.asked.size() == before + 1 && before == 0;
    out.reason = out.answer == Answer::none && single ? out.asked[0].verdict->code() : std::string_view();
  } else if (out.answer != Answer::accepted) {
    out.warning = "";  // an error, not a fallback
  }
  if (q.layer != nullptr) {
    round.explain_rest(out);
    std::stable_sort(out.asked.begin(), out.asked.end(),
                     [](const Asked& a, const Asked& b) { return a.priority < b.priority; });
  }
  return out;
}

std::string request_words(const Query& q) {
  std::vector<std::string_view> words;
  for (const Experts& row : family_of(q.oracle).rows()) {
    const std::string_view word = row.accepts(q.policy).request;
    if (!word.empty() && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  std::string s = "auto";
  for (const std::string_view w : words) s += ", " + std::string(w);
  return s;
}

}  // namespace moe
