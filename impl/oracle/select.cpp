// The one selection loop: named backend first, then the list of the device (w4a8_int8.md 1, wna16.md 1.3,
// float_oracles.md 2).
//
//   moe_backend is a word:  its rows are asked, in order. Nobody accepts: refused; but where the family
//                           says so and the device runs none of them, a warning, and the list decides
//   "auto":                 the rows listed for this device, in order; the first that accepts wins. A switch of
//                           vLLM may ask for one backend as if by name, or change the list (Steering)
//   none accepts:           the steering may name a last one, which is asked as if by name
//   only choice:            where a device has one implementation, moe_backend is not read
//
// All rows are asked, also after the winner, so that the answer explains itself. A pure question shows
// the rows that were asked; a config also shows the rest of the list, refused by the user's word.
#include "oracle/select.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "config/fields.h"
#include "layouts/p16/p16_layout.h"

namespace moe::oracle {
namespace {

constexpr Reason kNotNamed(Reject::user, "user");
constexpr Reason kOtherLayout(Reject::weight_layout, "packed_layout");
constexpr std::string_view kWarnDevice = "requested_backend_not_on_this_platform";
constexpr std::string_view kWarnRefused = "requested_backend_refused";
constexpr std::string_view kWarnUnknown = "requested_backend_unknown";
constexpr std::string_view kWarnNotRead = "requested_backend_not_read_on_this_platform";

struct Choice {  // a row before it is asked
  const BackendRow* row;
  const Accepts* accepts;
  std::int32_t priority;
  bool listed, named, last;
};

// What is asked, and why: a word of the config, a switch, or nothing in particular.
struct Request {
  Steering steering;
  std::optional<std::string_view> word;  // of moe_backend; none = auto
  std::string_view unread;               // a word that the device does not read
  bool by_switch() const { return !word && !steering.needed.empty(); }
};

Request request_of(const Query& q, const Family& family) {
  Request r;
  if (family.steer != nullptr) r.steering = family.steer(q);
  if (q.moe.moe_backend != "auto") r.word = q.moe.moe_backend;
  if (r.steering.word_unread) {
    const std::optional<std::string_view> word = std::exchange(r.word, std::nullopt);
    if (word != fields::lower_ascii(r.steering.needed)) r.unread = word.value_or("");
  }
  for (const BackendRow& row : family.rows) {
    const Accepts& a = row.accepts(q.policy);
    if (!a.only_choice || !a.listed.has(q.platform.type)) continue;
    const std::optional<std::string_view> word = std::exchange(r.word, std::nullopt);
    if (word != fields::lower_ascii(row.backend)) r.unread = word.value_or("");
    r.steering = Steering{.order = {row.backend}};
  }
  if (!r.steering.unchecked.empty()) r.word.reset();
  return r;
}

bool is_named(const Query& q, const Request& r, const BackendRow& row, const Accepts& a) {
  if (r.by_switch()) return row.backend == r.steering.needed;
  if (!r.word || !answers_to(q, a, *r.word)) return false;
  const std::optional<std::vector<std::string_view>>& meant = r.steering.named;
  return !meant || std::find(meant->begin(), meant->end(), row.backend) != meant->end();
}

std::vector<Choice> choices_of(const Query& q, const Family& family, const Request& r) {
  std::vector<Choice> all;
  const std::vector<std::string_view>& order = r.steering.order;
  const auto place_of = [&](const Choice& c) {
    return std::find(order.begin(), order.end(), c.row->backend) - order.begin();
  };
  for (const BackendRow& row : family.rows) {
    const Accepts& a = row.accepts(q.policy);
    all.push_back({&row, &a, 0, a.listed.has(q.platform.type), is_named(q, r, row, a),
                   !r.steering.last.empty() && row.backend == r.steering.last});
    if (family.steer != nullptr) all.back().listed = place_of(all.back()) != static_cast<std::ptrdiff_t>(order.size());
  }
  if (family.steer != nullptr)
    std::stable_sort(all.begin(), all.end(),
                     [&](const Choice& a, const Choice& b) { return place_of(a) < place_of(b); });
  std::int32_t backend = -1, place = 0;
  const BackendRow* previous = nullptr;
  for (Choice& c : all) {
    const bool same = previous != nullptr && previous->backend == c.row->backend;
    backend += same ? 0 : 1;
    place = same ? place + 1 : 0;
    c.priority = 100 * backend + place;
    previous = c.row;
  }
  return all;
}

// One entry per kernel of the row's layout for these weights, one without a kernel where libmoe has none.
std::vector<Considered> entries_of(const Query& q, const Choice& c) {
  std::vector<Considered> entries;
  const LayoutKind layout = layout_kind(q, *c.accepts);
  const auto entry = [&](std::optional<std::size_t> kernel) {
    const auto place = static_cast<std::int32_t>(kernel.value_or(0));
    entries.push_back({.row = c.row, .kernel = kernel, .priority = c.priority + place, .verdict = std::nullopt});
  };
  if (layout != LayoutKind::none) {
    const KernelNeeds needs = needs_of(*q.layer, *c.accepts, layout);
    const auto everywhere = [](std::size_t) { return true; };
    for (std::optional<std::size_t> i = pick(needs); i; i = pick(needs, everywhere, *i + 1)) entry(i);
  }
  if (entries.empty()) entry(std::nullopt);
  return entries;
}

class Round {
 public:
  Round(const Query& q, const Family& family, const Request& request, std::string_view layout)
      : q_(q), own_(q), request_(request), layout_(layout), choices_(choices_of(q, family, request)) {
    own_.activation_key.reset();
    for (const Choice& c : choices_) by_table_.push_back(&c);
    std::sort(by_table_.begin(), by_table_.end(), [](const Choice* a, const Choice* b) { return a->row < b->row; });
  }

  bool any(bool Choice::*which) const {
    return std::any_of(choices_.begin(), choices_.end(), [&](const Choice& c) { return c.*which; });
  }
  bool device_runs_named() const {
    return std::any_of(choices_.begin(), choices_.end(), [&](const Choice& c) {
      return c.named && device_runs(q_, {c.row, c.accepts, nullptr});
    });
  }

  // Asks the rows of one kind that were not asked before; true when one accepts. Rows that are asked for are
  // asked in the order of the table, whatever the list's.
  bool ask(bool Choice::*which, Outcome& out) {
    const bool own = request_.steering.own_key && (which == &Choice::last || request_.by_switch());
    const Query& q = own ? own_ : q_;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const Choice& c = which == &Choice::listed ? choices_[i] : *by_table_[i];
      if (!(c.*which)) continue;
      const bool again =
          std::any_of(out.asked.begin(), out.asked.end(), [&](const Considered& a) { return a.row == c.row; });
      if (again) continue;
      for (Considered& entry : entries_of(q, c)) {
        entry.verdict = verdict_of(q, c, entry);
        entry.chosen = !entry.verdict && out.winner() == nullptr;
        out.asked.push_back(std::move(entry));
      }
    }
    return out.winner() != nullptr;
  }

  // The backend serves whatever the rules say.
  void take(std::string_view backend, Outcome& out) const {
    for (const Choice& c : choices_)
      if (c.row->backend == backend)
        out.asked.push_back(
            {.row = c.row, .kernel = std::nullopt, .priority = c.priority, .verdict = {}, .chosen = true});
  }

  // The rows of the list (of the whole table if the list is empty) that were not asked.
  void explain_rest(Outcome& out) {
    const bool whole = !any(&Choice::listed);
    for (const Choice& c : choices_) {
      const bool seen =
          std::any_of(out.asked.begin(), out.asked.end(), [&](const Considered& a) { return a.row == c.row; });
      if (seen || !(c.listed || whole)) continue;
      for (Considered& entry : entries_of(q_, c)) {
        if (whole || !passed_over())
          entry.verdict = verdict_of(q_, c, entry);
        else
          entry.verdict = Refusal(kNotNamed, why_passed_over(*c.accepts));
        out.asked.push_back(std::move(entry));
      }
    }
  }

 private:
  Verdict verdict_of(const Query& q, const Choice& c, const Considered& entry) const {
    Verdict no = judge(q, {c.row, c.accepts, entry.kernel ? &kKernelIds[*entry.kernel] : nullptr});
    if (no || layout_.empty()) return no;
    // Conversion may have taken the wider of a row's two layouts.
    const Layout own = layout_of(q, *c.accepts);
    if (own.id() == layout_ || with_any_groups(own).id() == layout_) return std::nullopt;
    return Refusal(kOtherLayout, {cat("weights in its layout, ", own.id()), cat("they are packed as ", layout_), ""});
  }
  // The config asks for another backend.
  bool passed_over() const { return request_.word || request_.by_switch() || request_.steering.refused.any(); }
  Why why_passed_over(const Accepts& a) const {
    if (request_.word)
      return {cat("moe_backend auto", a.request.empty() ? "" : " or ", a.request), cat("it is ", *request_.word),
              "/moe_backend"};
    if (request_.by_switch())
      return {"vllm_env that leaves the choice open", cat("its switches ask for ", request_.steering.needed),
              "/vllm_env"};
    return {"a question that the oracle takes", std::string(request_.steering.refused.why), "/vllm_env"};
  }

  const Query& q_;
  Query own_;  // without an activation key, so that every row answers with its own
  const Request& request_;
  std::string_view layout_;  // of packed weights; "": none yet
  std::vector<Choice> choices_;
  std::vector<const Choice*> by_table_;
};

// Asks the named backend. True when that settles the question, else the list decides.
bool ask_named(const Query& q, const Family& family, const Request& r, SelectFlags flags, Round& round, Outcome& out) {
  if (!r.word && !r.by_switch()) return false;
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

// What needs no rule: an unchecked backend, or a question that cannot be served.
bool settled_before_rules(const Request& r, Round& round, Outcome& out) {
  if (!r.steering.unchecked.empty()) {
    round.take(r.steering.unchecked, out);
    out.answer = Answer::accepted;
    return true;
  }
  if (!r.steering.refused.any()) return false;
  out.answer = Answer::refused;
  out.refused = r.steering.refused;
  out.reason = out.refused.reason;
  return true;
}

// The list of the device, then what the steering has left.
void ask_list(const Request& r, Round& round, Outcome& out) {
  const std::size_t before = out.asked.size();
  out.refused = {};
  out.reason = {};
  out.answer = round.ask(&Choice::listed, out) ? Answer::accepted : Answer::none;
  if (out.answer == Answer::none && !r.steering.last.empty()) {
    out.answer = round.ask(&Choice::last, out) ? Answer::accepted : Answer::refused;
    for (const Considered& a : out.asked)
      if (out.answer == Answer::refused && a.row->backend == r.steering.last) out.reason = a.verdict->code();
  } else if (out.answer == Answer::none && before == 0 && out.asked.size() == 1) {
    out.reason = out.asked[0].verdict->code();
  }
}

}  // namespace

Outcome ask(const Query& q, SelectFlags flags) {
  const Family& family = family_of(q);
  Outcome out;
  if (family.rows.empty()) {
    out.answer = Answer::not_built;
    return out;
  }
  const Request request = request_of(q, family);
  Round round(q, family, request, flags.layout);
  const bool none_listed = family.device_before_name && !round.any(&Choice::listed);
  if (settled_before_rules(request, round, out)) {
    if (request.word && flags.allow_fallback && out.answer == Answer::refused) {
      out.warning = kWarnRefused;
      ask_list(request, round, out);
    }
  } else if (none_listed || !ask_named(q, family, request, flags, round, out)) {
    ask_list(request, round, out);
  } else if (out.answer != Answer::accepted) {
    out.warning = "";  // an error, not a fallback
  }
  if (q.layer != nullptr) {
    if (!request.unread.empty()) out.warning = kWarnNotRead;
    round.explain_rest(out);
    std::stable_sort(out.asked.begin(), out.asked.end(),
                     [](const Considered& a, const Considered& b) { return a.priority < b.priority; });
  }
  return out;
}

std::string request_words(const Query& q) {
  std::vector<std::string_view> words;
  for (const BackendRow& row : family_of(q).rows) {
    const Accepts& a = row.accepts(q.policy);
    for (const std::string_view word : {a.request, a.request_too})
      if (!word.empty() && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  std::string s = "auto";
  for (const std::string_view w : words) s += cat(", ", w);
  return s;
}

}  // namespace moe::oracle
