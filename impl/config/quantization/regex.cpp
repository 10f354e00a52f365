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
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"
#include "config/config.h"
#include "config/quantization/foreign.h"
#include "config/quantization/regex_program.h"

namespace moe::config {
namespace {

// A set of instructions, as bits.
using States = std::vector<std::uint64_t>;

// What is left of a walk: the states that wait for a character, or a match.
struct Walk {
  States states;
  std::size_t live = 0;  // so many states
  bool started = false, matched = false;

  bool is_dead() const { return !matched && live == 0; }
};

class Simulation {
 public:
  Simulation(const Program& program, MatchEnd end, Work& work)
      : program_(program),
        work_(work),
        end_(end),
        entered_at_(program.code.size(), 0),
        pending_(program.code.size() + 1) {
    work_.spend(program.work);
  }

  // After more text; `last`: the text ends with it. A walk that has no work left is dead.
  Walk after(Walk w, std::u32string_view text, bool last) {
    const auto is_end = [&](std::size_t i) {  // as Python's $: also before one last newline
      return last && (i == text.size() || (i + 1 == text.size() && text[i] == U'\n'));
    };
    if (!std::exchange(w.started, true)) {
      ++position_;
      w.states.assign(ceil_div(program_.code.size(), kBits), 0);
      enter(0, true, is_end(0), is_end(0), w);
    }
    for (std::size_t i = 0; i < text.size() && !w.matched && w.live > 0; ++i) {
      ++position_;
      next_.states.assign(w.states.size(), 0);
      next_.live = 0, next_.matched = false;
      if (!work_.spend(1 + w.live / 4)) return {};
      for (std::size_t word = 0; word < w.states.size() && !next_.matched; ++word)
        for (std::uint64_t left = w.states[word]; left != 0 && !next_.matched; left &= left - 1) {
          const std::size_t pc = word * kBits + static_cast<std::size_t>(std::countr_zero(left));
          if (!consumes(program_.code[pc], text[i])) continue;
          // A state that is complete has waited for the dot behind a module's name.
          if (program_.code[pc].op == Op::match)
            next_.matched = true;
          else
            enter(pc + 1, false, is_end(i + 1), is_end(i + 1) || text[i] == U'.', next_);
        }
      w.states.swap(next_.states);
      w.live = next_.live, w.matched = next_.matched;
    }
    return w;
  }

 private:
  static constexpr std::size_t kBits = 64;

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

  // Adds all states reachable from `start` without a character; a match when the pattern is complete and may end here.
  // ends_module: behind a dot, or at the end of the text.
  void enter(std::size_t start, bool is_start, bool is_end, bool ends_module, Walk& to) {
    std::size_t count = 0, entered = 0;  // each instruction is pending once at most, but for the last one taken
    const auto add = [&](std::size_t pc) {
      if (std::exchange(entered_at_[pc], position_) != position_) pending_[count++] = pc;
    };
    add(start);
    while (count > 0 && !to.matched) {
      const std::size_t pc = pending_[--count];
      ++entered;
      const Inst& inst = program_.code[pc];
      const auto target = [&](std::int32_t offset) { return usize(static_cast<std::int64_t>(pc) + offset); };
      switch (inst.op) {
        case Op::jump:
          add(target(inst.x));
          break;
        case Op::split:
          add(target(inst.y));
          add(target(inst.x));
          break;
        case Op::at_start:
          if (is_start) add(pc + 1);
          break;
        case Op::at_end:
          if (is_end) add(pc + 1);
          break;
        case Op::match:
          to.matched = end_ == MatchEnd::anywhere || ends_module;
          [[fallthrough]];
        default:
          to.states[pc / kBits] |= std::uint64_t{1} << pc % kBits;
          ++to.live;
          break;
      }
    }
    work_.spend(1 + entered);
  }

  const Program& program_;
  Work& work_;
  const MatchEnd end_;
  std::vector<std::size_t> entered_at_;  // the position at which a state was last entered
  std::vector<std::size_t> pending_;
  Walk next_;
  std::size_t position_ = 0;  // counts through all walks
};

// The names of a layer behind its module: "<number>.<projection>". Experts whose numbers leave the same states behind
// have the same answers, and steps are remembered by the states that they start from: most patterns have few, and cost
// no more with many experts.
class ExpertWalks {
 public:
  ExpertWalks(const Program& program, Simulation& simulation, const LayerNames& layer, Work& work)
      : simulation_(simulation), layer_(layer), work_(work), alike_(digits_alike(program)) {}

  Hits hits(Walk module) {
    const Id start = id_of(std::move(module));
    for (std::int64_t digit = 0; digit < std::min<std::int64_t>(layer_.experts, 10); ++digit)
      visit(digit, step(start, digit));
    return std::move(hits_);
  }

 private:
  using Id = std::size_t;
  static constexpr Id kUnknown = static_cast<Id>(-1);
  static constexpr std::int64_t kDot = 10;
  struct Less {
    bool operator()(const Walk& a, const Walk& b) const {
      return std::tie(a.matched, a.states) < std::tie(b.matched, b.states);
    }
  };
  struct Known {
    const Walk* walk;
    std::array<Id, 11> next;                        // by the digits and the dot
    std::optional<std::vector<bool>> answers = {};  // of the projections, behind the dot
  };
  // More different sets of states than patterns of real files have, which have some dozens: they would be 8 MB.
  static constexpr std::size_t kMostKnown = 16384;

  Id id_of(Walk walk) {
    if (walk.matched) walk.states.clear();
    const auto [found, is_new] = ids_.try_emplace(std::move(walk), known_.size());
    if (is_new) {
      known_.push_back({&found->first, {}});
      known_.back().next.fill(kUnknown);
      if (known_.size() > kMostKnown) work_.end();
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
    work_.spend(1);
    if (const Id there = at(known_[from].next, symbol); there != kUnknown) return there;
    const char32_t c = symbol == kDot ? U'.' : U'0' + static_cast<char32_t>(symbol);
    const Id to = id_of(simulation_.after(*known_[from].walk, {&c, 1}, false));
    at(known_[from].next, symbol) = to;
    return to;
  }

  // `here`: the states behind the digits of `number`, of which others may begin with them.
  void visit(std::int64_t number, Id here) {
    if (work_.is_spent() || known_[here].walk->is_dead()) return;
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
    if (known_[id].walk->is_dead()) return;
    std::optional<std::vector<bool>>& answers = known_[id].answers;
    if (!answers) {
      answers.emplace();
      for (const std::string& end : layer_.projections)
        answers->push_back(simulation_.after(*known_[id].walk, code_points(end), true).matched);
    }
    if (std::find(answers->begin(), answers->end(), true) == answers->end()) return;
    hits_.resize(layer_.count());
    const std::size_t ends = answers->size();
    if (!work_.spend(usize(last - first) * ends)) return;
    for (std::size_t i = usize(first) * ends; i < usize(last) * ends; ++i)
      if ((*answers)[i % ends]) hits_[i] = true;
  }

  Simulation& simulation_;
  const LayerNames& layer_;
  Work& work_;
  std::array<std::int64_t, 11> alike_;
  std::map<Walk, Id, Less> ids_;
  std::vector<Known> known_;
  Hits hits_;
};

}  // namespace

Result<bool> re_match(std::string_view pattern, std::string_view text, MatchEnd end, Work& work) {
  MOE_TRY(const Program program, compile_pattern(pattern));
  return Simulation(program, end, work).after({}, code_points(text), true).matched;
}

Result<bool> re_match(std::string_view pattern, std::string_view text) {
  Work work(std::numeric_limits<std::size_t>::max());
  return re_match(pattern, text, MatchEnd::anywhere, work);
}

Result<Hits> re_match_experts(std::string_view pattern, const LayerNames& layer, const MatchHow& how, Work& work) {
  MOE_TRY(const Program program, compile_pattern(pattern));
  Simulation simulation(program, how.end, work);
  if (how.module_too && simulation.after({}, code_points(layer.module), true).matched) return Hits(layer.count(), true);
  Walk module = simulation.after({}, code_points(cat(layer.module, ".")), false);
  if (module.is_dead()) return Hits();
  return ExpertWalks(program, simulation, layer, work).hits(std::move(module));
}

}  // namespace moe::config
