// Patterns of "re:" targets and gptq `dynamic` rules, which come from files of strangers: a Thompson
// automaton walked with a set of states, O(program x text), no backtracking.
//
//   pattern -> program of Inst with relative jumps (a repetition copies its operand) -> simulation
//
// The language is the part of Python's re that such files use: literals, escaped punctuation, `.`,
// [classes], \d \D \w \W \s \S, ( ) and (?: ), |, * + ? {m} {m,} {m,n} (lazy forms match the same), ^ $.
// Matching is anchored at the start only. Text is compared by code points; outside ASCII every one
// counts as a letter. The rest of re's language is Code::unsupported. (Above 400 lines: a compiler and
// a machine that nobody else needs, kept together.)
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/text.h"
#include "config/config.h"
#include "config/foreign.h"

namespace moe::config {
namespace {

constexpr std::size_t kMaxPatternBytes = 1024;
constexpr std::size_t kMaxProgram = 2048;
constexpr int kMaxNesting = 32;

enum class Op : std::uint8_t { literal, any, set, split, jump, at_start, at_end, match };

struct Inst {
  Op op;
  char32_t literal = 0;       // Op::literal
  std::size_t set = 0;        // Op::set: index into Program::sets
  std::int32_t x = 0, y = 0;  // Op::split, Op::jump (x): relative targets
};
using Fragment = std::vector<Inst>;

struct CharSet {
  using Range = std::pair<char32_t, char32_t>;  // inclusive
  bool negated = false;
  std::vector<Range> ranges;

  // Sorted and disjoint, so that a look-up costs log(ranges).
  void normalise() {
    std::sort(ranges.begin(), ranges.end());
    std::vector<Range> merged;
    for (const Range& r : ranges) {
      if (merged.empty() || r.first > merged.back().second)
        merged.push_back(r);
      else
        merged.back().second = std::max(merged.back().second, r.second);
    }
    ranges = std::move(merged);
  }
  bool has(char32_t c) const {
    const auto above = std::upper_bound(ranges.begin(), ranges.end(), Range{c, ~char32_t{0}});
    return (above != ranges.begin() && c <= std::prev(above)->second) != negated;
  }
};

struct Program {
  Fragment code;
  std::vector<CharSet> sets;
};

constexpr char32_t kLast = 0x10FFFF;

// UTF-8 to code points; a stray byte stands for itself.
std::u32string code_points(std::string_view s) {
  std::u32string out;
  out.reserve(s.size());
  for (std::size_t i = 0; i < s.size();) {
    const auto byte = [&](std::size_t j) { return static_cast<unsigned char>(s[j]); };
    const unsigned lead = byte(i);
    const std::size_t extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    char32_t c = extra == 3 ? lead & 0x07 : extra == 2 ? lead & 0x0F : extra == 1 ? lead & 0x1F : lead;
    bool good = i + extra < s.size();
    for (std::size_t j = 1; good && j <= extra; ++j) {
      good = (byte(i + j) & 0xC0) == 0x80;
      c = c << 6 | (byte(i + j) & 0x3FU);
    }
    out.push_back(good ? c : static_cast<char32_t>(lead));
    i += good ? extra + 1 : 1;
  }
  return out;
}

// \d \w \s as ranges, false for other letters.
bool add_shorthand(CharSet& set, char32_t letter) {
  switch (letter) {
    case U'd':
      set.ranges.insert(set.ranges.end(), {{U'0', U'9'}});
      return true;
    case U'w':
      set.ranges.insert(set.ranges.end(), {{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}, {0x80, kLast}});
      return true;
    case U's':
      set.ranges.insert(set.ranges.end(), {{U'\t', U'\r'}, {0x1C, U' '}});
      return true;
    case U'D':
      set.ranges.insert(set.ranges.end(), {{0, U'/'}, {U':', kLast}});
      return true;
    case U'W':
      set.ranges.insert(set.ranges.end(), {{0, U'/'}, {U':', U'@'}, {U'[', U'^'}, {U'`', U'`'}, {U'{', 0x7F}});
      return true;
    case U'S':
      set.ranges.insert(set.ranges.end(), {{0, 0x08}, {0x0E, 0x1B}, {U'!', kLast}});
      return true;
    default:
      return false;
  }
}

// The character meant by `\` and c, nullopt for escapes that are no single character of the subset.
std::optional<char32_t> escaped_literal(char32_t c) {
  switch (c) {
    case U't':
      return U'\t';
    case U'n':
      return U'\n';
    case U'r':
      return U'\r';
    case U'f':
      return U'\f';
    case U'v':
      return U'\v';
    default:
      break;
  }
  const bool letter_or_digit = (c >= U'0' && c <= U'9') || (c >= U'A' && c <= U'Z') || (c >= U'a' && c <= U'z');
  if (letter_or_digit) return std::nullopt;
  return c;
}

class Compiler {
 public:
  explicit Compiler(std::string_view pattern) : pattern_(pattern), in_(code_points(pattern)) {}

  Result<Program> run() {
    MOE_TRY(program_.code, alternatives(0));
    if (!done()) return malformed("unbalanced )");
    MOE_CHECK(append(program_.code, {{.op = Op::match}}));
    return std::move(program_);
  }

 private:
  bool done() const { return at_ == in_.size(); }
  bool next_is(char32_t c) const { return !done() && in_[at_] == c; }
  bool take(char32_t c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }

  Error refuse(Code code, std::string_view what) const {
    return fail(code, "", cat("pattern ", in_quotes(pattern_, 256), ": ", what, " at character ", at_));
  }
  Error malformed(std::string_view what) const { return refuse(Code::invalid_config, what); }
  Error beyond(std::string_view what) const { return refuse(Code::unsupported, what); }

  Check append(Fragment& to, const Fragment& more) const {
    if (to.size() + more.size() > kMaxProgram)
      return beyond(cat("its repetitions need more than ", kMaxProgram, " states,"));
    to.insert(to.end(), more.begin(), more.end());
    return ok();
  }

  //  split 1, next | branch | jump end | ... | last branch
  Result<Fragment> alternatives(int depth) {
    if (depth > kMaxNesting) return beyond(cat("groups are nested deeper than ", kMaxNesting));
    std::vector<Fragment> branches;
    std::size_t total = 0;
    do {
      MOE_TRY(Fragment branch, sequence(depth));
      total += branch.size() + 2;
      if (total > kMaxProgram) return beyond("too many alternatives");
      branches.push_back(std::move(branch));
    } while (take(U'|'));
    Fragment whole = std::move(branches.back());
    for (std::size_t i = branches.size() - 1; i-- > 0;) {
      Fragment joined = {{.op = Op::split, .x = 1, .y = static_cast<std::int32_t>(branches[i].size() + 2)}};
      MOE_CHECK(append(joined, branches[i]));
      MOE_CHECK(append(joined, {{.op = Op::jump, .x = static_cast<std::int32_t>(whole.size() + 1)}}));
      MOE_CHECK(append(joined, whole));
      whole = std::move(joined);
    }
    return whole;
  }

  Result<Fragment> sequence(int depth) {
    Fragment all;
    while (!done() && in_[at_] != U'|' && in_[at_] != U')') {
      MOE_TRY(Fragment item, repeated(depth));
      MOE_CHECK(append(all, item));
    }
    return all;
  }

  struct Bounds {
    std::size_t min = 0;
    std::optional<std::size_t> max;
  };

  // A quantifier at the read position; nullopt when there is none ("{" that opens none is a literal).
  Result<std::optional<Bounds>> quantifier() {
    if (take(U'*')) return std::optional(Bounds{0, std::nullopt});
    if (take(U'+')) return std::optional(Bounds{1, std::nullopt});
    if (take(U'?')) return std::optional(Bounds{0, 1});
    if (!next_is(U'{')) return std::optional<Bounds>();
    const std::size_t start = at_++;
    const auto low = number();
    const bool comma = take(U',');
    const auto high = comma ? number() : low;
    if ((!low && !comma) || !take(U'}')) {
      at_ = start;
      return std::optional<Bounds>();
    }
    if (high && *high < low.value_or(0)) return malformed("a repetition whose upper bound is below the lower one");
    return std::optional(Bounds{low.value_or(0), high});
  }

  std::optional<std::size_t> number() {
    std::optional<std::size_t> value;
    for (; !done() && in_[at_] >= U'0' && in_[at_] <= U'9'; ++at_)
      value = std::min(value.value_or(0) * 10 + (in_[at_] - U'0'), kMaxProgram + 1);  // more copies never fit
    return value;
  }

  Result<Fragment> repeated(int depth) {
    MOE_TRY(const auto stray, quantifier());
    if (stray) return malformed("nothing to repeat");
    const bool assertion = next_is(U'^') || next_is(U'$');
    MOE_TRY(Fragment item, atom(depth));
    MOE_TRY(const auto bounds, quantifier());
    if (!bounds) return item;
    if (assertion) return malformed("nothing to repeat");
    if (next_is(U'+')) return beyond("possessive repetition");
    take(U'?');
    MOE_TRY(const auto second, quantifier());
    if (second) return malformed("multiple repeat");
    return repeat(item, *bounds);
  }

  //  item{min} item* = split 1, end | item | jump back      item{0,n} = split 1, end | item | split 1, end | item ...
  Result<Fragment> repeat(const Fragment& item, const Bounds& bounds) {
    Fragment all;
    if (item.empty()) return all;
    for (std::size_t i = 0; i < bounds.min; ++i) MOE_CHECK(append(all, item));
    const auto step = static_cast<std::int32_t>(item.size());
    if (!bounds.max) {
      MOE_CHECK(append(all, {{.op = Op::split, .x = 1, .y = step + 2}}));
      MOE_CHECK(append(all, item));
      MOE_CHECK(append(all, {{.op = Op::jump, .x = -step - 1}}));
      return all;
    }
    for (std::size_t left = *bounds.max - bounds.min; left > 0; --left) {
      const auto rest = static_cast<std::int32_t>(left * (item.size() + 1));
      MOE_CHECK(append(all, {{.op = Op::split, .x = 1, .y = rest}}));
      MOE_CHECK(append(all, item));
    }
    return all;
  }

  Result<Fragment> atom(int depth) {
    const char32_t c = in_[at_++];
    switch (c) {
      case U'(':
        return group(depth);
      case U'[':
        return char_class();
      case U'.':
        return Fragment{{.op = Op::any}};
      case U'^':
        return Fragment{{.op = Op::at_start}};
      case U'$':
        return Fragment{{.op = Op::at_end}};
      case U'\\':
        return escape();
      default:
        return Fragment{{.op = Op::literal, .literal = c}};
    }
  }

  Result<Fragment> group(int depth) {
    if (take(U'?') && !take(U':')) return beyond("a group other than ( ) and (?: )");
    MOE_TRY(Fragment inner, alternatives(depth + 1));
    if (!take(U')')) return malformed("missing )");
    return inner;
  }

  Fragment set_fragment(CharSet set) {
    set.normalise();
    program_.sets.push_back(std::move(set));
    return {{.op = Op::set, .set = program_.sets.size() - 1}};
  }

  Result<Fragment> escape() {
    if (done()) return malformed("a backslash");
    const char32_t c = in_[at_++];
    CharSet set;
    if (add_shorthand(set, c)) return set_fragment(std::move(set));
    const auto literal = escaped_literal(c);
    if (!literal) return beyond("an escape that is neither punctuation nor one of \\d \\w \\s");
    return Fragment{{.op = Op::literal, .literal = *literal}};
  }

  // One end of a range in a class; nullopt when it was a shorthand, which is then in `set`.
  Result<std::optional<char32_t>> class_item(CharSet& set) {
    const char32_t c = in_[at_++];
    if (c != U'\\') return std::optional(c);
    if (done()) return malformed("a backslash");
    const char32_t e = in_[at_++];
    if (add_shorthand(set, e)) return std::optional<char32_t>();
    const auto literal = escaped_literal(e);
    if (!literal) return beyond("an escape that is neither punctuation nor one of \\d \\w \\s");
    return literal;
  }

  Result<Fragment> char_class() {
    CharSet set;
    set.negated = take(U'^');
    for (bool first = true; first || !next_is(U']'); first = false) {
      if (done()) return malformed("missing ]");
      MOE_TRY(const auto low, class_item(set));
      const bool range = next_is(U'-') && at_ + 1 < in_.size() && in_[at_ + 1] != U']';
      if (!range) {
        if (low) set.ranges.emplace_back(*low, *low);
        continue;
      }
      ++at_;
      MOE_TRY(const auto high, class_item(set));
      if (!low || !high || *high < *low) return malformed("bad character range");
      set.ranges.emplace_back(*low, *high);
    }
    ++at_;
    return set_fragment(std::move(set));
  }

  std::string_view pattern_;
  std::u32string in_;
  std::size_t at_ = 0;
  Program program_;
};

// What is left of a walk: the states, or a match.
struct Walk {
  std::vector<std::size_t> states;
  bool started = false, matched = false;
};

class Simulation {
 public:
  Simulation(const Program& program, MatchEnd end)
      : program_(program), end_(end), entered_at_(program.code.size(), 0), work_(program.code.size()) {}

  // After more text; `last`: the text ends with it.
  Walk after(Walk w, std::u32string_view text, bool last) {
    std::vector<std::size_t> next;
    const auto is_end = [&](std::size_t i) {  // as Python's $: also before one last newline
      return last && (i == text.size() || (i + 1 == text.size() && text[i] == U'\n'));
    };
    // A module's name ends behind its dot, before one, and with the text.
    const auto ends_module = [&](std::size_t i) {
      return (i > 0 && text[i - 1] == U'.') || (i < text.size() ? text[i] == U'.' : last);
    };
    if (!std::exchange(w.started, true)) {
      ++position_;
      may_end_ = end_ == MatchEnd::anywhere || ends_module(0);
      w.matched = enter(0, true, is_end(0), w.states);
    }
    for (std::size_t i = 0; i < text.size() && !w.matched && !w.states.empty(); ++i) {
      ++position_, ++work_;
      may_end_ = end_ == MatchEnd::anywhere || ends_module(i + 1);
      next.clear();
      for (const std::size_t pc : w.states) {
        if (!consumes(program_.code[pc], text[i])) continue;
        w.matched = enter(pc + 1, false, is_end(i + 1), next);
        if (w.matched) break;
      }
      w.states.swap(next);
    }
    return w;
  }
  std::size_t work() const { return work_; }  // instructions, characters and states entered

 private:
  bool consumes(const Inst& inst, char32_t c) const {
    switch (inst.op) {
      case Op::literal:
        return inst.literal == c;
      case Op::any:
        return c != U'\n';
      case Op::set:
        return program_.sets[inst.set].has(c);
      default:
        return false;
    }
  }

  // Adds all states reachable from `start` without a character; true when the pattern is complete.
  bool enter(std::size_t start, bool is_start, bool is_end, std::vector<std::size_t>& states) {
    pending_.assign(1, start);
    while (!pending_.empty()) {
      const std::size_t pc = pending_.back();
      pending_.pop_back();
      ++work_;
      if (entered_at_[pc] == position_) continue;
      entered_at_[pc] = position_;
      const Inst& inst = program_.code[pc];
      const auto target = [&](std::int32_t offset) { return usize(static_cast<std::int64_t>(pc) + offset); };
      switch (inst.op) {
        case Op::match:
          if (may_end_) return true;
          break;
        case Op::jump:
          pending_.push_back(target(inst.x));
          break;
        case Op::split:
          pending_.push_back(target(inst.y));
          pending_.push_back(target(inst.x));
          break;
        case Op::at_start:
          if (is_start) pending_.push_back(pc + 1);
          break;
        case Op::at_end:
          if (is_end) pending_.push_back(pc + 1);
          break;
        default:
          states.push_back(pc);
          break;
      }
    }
    return false;
  }

  const Program& program_;
  MatchEnd end_;
  bool may_end_ = true;                  // where the walk is
  std::vector<std::size_t> entered_at_;  // the position at which a state was last entered
  std::vector<std::size_t> pending_;
  std::size_t position_ = 0;  // counts through all walks
  std::size_t work_;
};

Result<Program> compiled(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return fail(Code::unsupported, "",
                cat("a pattern of ", pattern.size(), " bytes, at most ", kMaxPatternBytes, " are read"));
  return Compiler(pattern).run();
}

}  // namespace

Result<bool> re_match(std::string_view pattern, std::string_view text, MatchEnd end) {
  MOE_TRY(const Program program, compiled(pattern));
  return Simulation(program, end).after({}, code_points(text), true).matched;
}

Result<bool> re_match(std::string_view pattern, std::string_view text) {
  return re_match(pattern, text, MatchEnd::anywhere);
}

// Experts whose numbers leave the same states behind have the same answers.
Result<Hits> re_match_experts(std::string_view pattern, const Layer& layer, MatchEnd end, std::size_t& work) {
  MOE_TRY(const Program program, compiled(pattern));
  Simulation simulation(program, end);
  const Walk module = simulation.after({}, code_points(cat(layer.module, ".")), false);
  Hits hits;
  if (module.matched) hits.assign(layer.count(), true);
  std::map<std::vector<std::size_t>, Hits> known;
  std::vector<std::u32string> ends;
  for (const std::string& projection : layer.projections) ends.push_back(code_points(projection));
  for (std::int64_t e = 0; e < layer.experts && !module.matched && !module.states.empty(); ++e) {
    Walk expert = simulation.after(module, code_points(cat(e, ".")), false);
    if (expert.matched) {
      hits.insert(hits.end(), ends.size(), true);
      continue;
    }
    std::sort(expert.states.begin(), expert.states.end());
    const auto [found, is_new] = known.try_emplace(expert.states);
    for (std::size_t p = 0; p < ends.size() && is_new; ++p)
      found->second.push_back(simulation.after(expert, ends[p], true).matched);
    hits.insert(hits.end(), found->second.begin(), found->second.end());
  }
  work = simulation.work();
  return hits;
}

}  // namespace moe::config
