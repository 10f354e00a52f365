// Patterns of "re:" targets and gptq `dynamic` rules, which come from files of strangers: a Thompson
// automaton walked with a set of states, O(program x text), no backtracking.
//
//   pattern -> program of Inst with relative jumps (a repetition copies its operand) -> simulation
//
// The language is the part of Python's re that such files use: literals, escaped punctuation, `.`,
// [classes], \d \D \w \W \s \S, ( ) and (?: ), |, * + ? {m} {m,} {m,n} (lazy forms match the same), ^ $.
// Matching is anchored at the start only. Text is compared by code points; outside ASCII every one
// counts as a letter. The rest of re's language is Code::unsupported.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/text.h"
#include "config/config.h"
#include "config/foreign.h"
#include "config/re_program.h"

namespace moe::config {
namespace {

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
    const auto is_end = [&](std::size_t i) {  // as Python's $: also before one last newline
      return last && (i == text.size() || (i + 1 == text.size() && text[i] == U'\n'));
    };
    if (!std::exchange(w.started, true)) {
      ++position_;
      w.matched = enter(0, true, is_end(0), is_end(0), w.states);
    }
    for (std::size_t i = 0; i < text.size() && !w.matched && !w.states.empty(); ++i) {
      ++position_, ++work_;
      next_.clear();
      for (const std::size_t pc : w.states) {
        if (!consumes(program_.code[pc], text[i])) continue;
        // A state that is complete has waited for the dot behind a module's name.
        w.matched = program_.code[pc].op == Op::match ||
                    enter(pc + 1, false, is_end(i + 1), is_end(i + 1) || text[i] == U'.', next_);
        if (w.matched) break;
      }
      w.states.swap(next_);
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
      case Op::match:
        return c == U'.';
      default:
        return false;
    }
  }

  // Adds all states reachable from `start` without a character; true when the pattern is complete and may end here.
  // ends_module: behind a dot, or at the end of the text.
  bool enter(std::size_t start, bool is_start, bool is_end, bool ends_module, std::vector<std::size_t>& states) {
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
          if (end_ == MatchEnd::anywhere || ends_module) return true;
          states.push_back(pc);
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
  const MatchEnd end_;
  std::vector<std::size_t> entered_at_;  // the position at which a state was last entered
  std::vector<std::size_t> pending_, next_;
  std::size_t position_ = 0;  // counts through all walks
  std::size_t work_;
};

// The names of a layer behind its module: "<number>.<projection>". Experts whose numbers leave the same states behind
// have the same answers, and steps are remembered by the states that they start from: most patterns have few, and cost
// no more with many experts.
class ExpertWalks {
 public:
  ExpertWalks(const Program& program, Simulation& simulation, const Layer& layer)
      : simulation_(simulation), layer_(layer), alike_(digits_alike(program)) {}

  Hits hits(Walk module) {
    const Id start = id_of(std::move(module));
    for (std::int64_t digit = 0; digit < std::min<std::int64_t>(layer_.experts, 10); ++digit)
      visit(digit, step(start, digit));
    return std::move(hits_);
  }
  std::size_t work() const { return work_; }  // steps and hits

 private:
  using Id = std::size_t;
  static constexpr Id kUnknown = static_cast<Id>(-1);
  static constexpr std::int64_t kDot = 10;
  struct Known {
    Walk walk;
    std::array<Id, 11> next;                        // by the digits and the dot
    std::optional<std::vector<bool>> answers = {};  // of the projections, behind the dot

    bool is_dead() const { return !walk.matched && walk.states.empty(); }
  };

  Id id_of(Walk walk) {
    if (walk.matched) walk.states.clear();
    std::sort(walk.states.begin(), walk.states.end());
    const auto [found, is_new] = ids_.try_emplace({walk.matched, walk.states}, known_.size());
    if (is_new) {
      known_.push_back({std::move(walk), {}});
      known_.back().next.fill(kUnknown);
    }
    return found->second;
  }

  // For each digit and the dot the first that the program cannot tell from it.
  static std::array<std::int64_t, 11> digits_alike(const Program& program) {
    std::array<bool, 10> apart{};
    for (const Inst& inst : program.code)
      if (inst.op == Op::literal && inst.literal >= U'0' && inst.literal <= U'9') apart[inst.literal - U'0'] = true;
    for (const CharSet& set : program.sets)
      for (char32_t c = U'1'; c <= U'9'; ++c)
        if (set.has(c) != set.has(U'0')) apart.fill(true);
    std::array<std::int64_t, 11> alike{};
    const auto first = std::find(apart.begin(), apart.end(), false) - apart.begin();
    for (std::int64_t d = 0; d <= kDot; ++d) at(alike, d) = d == kDot || at(apart, d) ? d : first;
    return alike;
  }

  Id step(Id from, std::int64_t symbol) {
    symbol = at(alike_, symbol);
    ++work_;
    if (const Id there = at(known_[from].next, symbol); there != kUnknown) return there;
    const char32_t c = symbol == kDot ? U'.' : U'0' + static_cast<char32_t>(symbol);
    const Id to = id_of(simulation_.after(known_[from].walk, {&c, 1}, false));
    at(known_[from].next, symbol) = to;
    return to;
  }

  // `here`: the states behind the digits of `number`, of which others may begin with them.
  void visit(std::int64_t number, Id here) {
    if (known_[here].is_dead()) return;
    give(here, number, number + 1);
    if (number == 0 || number * 10 >= layer_.experts) return;
    bool alike = true;  // further digits change nothing
    for (std::int64_t digit = 0; digit < 10 && alike; ++digit) alike = step(here, digit) == here;
    if (alike) {
      for (std::int64_t low = number * 10, n = 10; low < layer_.experts; low *= 10, n *= 10)
        give(here, low, std::min(low + n, layer_.experts));
      return;
    }
    for (std::int64_t digit = 0; digit < 10 && number * 10 + digit < layer_.experts; ++digit)
      visit(number * 10 + digit, step(here, digit));
  }

  // The answers of the experts [first, last), which have the states `here` behind their numbers.
  void give(Id here, std::int64_t first, std::int64_t last) {
    const Id id = step(here, kDot);
    if (known_[id].is_dead()) return;
    std::optional<std::vector<bool>>& answers = known_[id].answers;
    if (!answers) {
      answers.emplace();
      for (const std::string& end : layer_.projections)
        answers->push_back(simulation_.after(known_[id].walk, code_points(end), true).matched);
    }
    if (std::find(answers->begin(), answers->end(), true) == answers->end()) return;
    hits_.resize(layer_.count());
    const std::size_t ends = answers->size();
    work_ += usize(last - first) * ends;
    for (std::size_t i = usize(first) * ends; i < usize(last) * ends; ++i)
      if ((*answers)[i % ends]) hits_[i] = true;
  }

  Simulation& simulation_;
  const Layer& layer_;
  std::array<std::int64_t, 11> alike_;
  std::map<std::pair<bool, std::vector<std::size_t>>, Id> ids_;
  std::vector<Known> known_;
  Hits hits_;
  std::size_t work_ = 0;
};

}  // namespace

Result<bool> re_match(std::string_view pattern, std::string_view text, MatchEnd end, std::size_t* work) {
  MOE_TRY(const Program program, compile_pattern(pattern));
  Simulation simulation(program, end);
  const bool matched = simulation.after({}, code_points(text), true).matched;
  if (work != nullptr) *work = simulation.work() + pattern.size();
  return matched;
}

Result<bool> re_match(std::string_view pattern, std::string_view text) {
  return re_match(pattern, text, MatchEnd::anywhere);
}

Result<Hits> re_match_experts(std::string_view pattern, const Layer& layer, const MatchHow& how, std::size_t& work) {
  MOE_TRY(const Program program, compile_pattern(pattern));
  Simulation simulation(program, how.end);
  ExpertWalks experts(program, simulation, layer);
  Hits hits;
  if (how.module_too && simulation.after({}, code_points(layer.module), true).matched)
    hits.assign(layer.count(), true);
  else if (Walk module = simulation.after({}, code_points(cat(layer.module, ".")), false);
           module.matched || !module.states.empty())
    hits = experts.hits(std::move(module));
  work = simulation.work() + experts.work() + pattern.size();
  return hits;
}

}  // namespace moe::config
