// The compiler of patterns: what stands for what, and what is refused. See regex.cpp for the language.
#include "config/quantization/regex_program.h"

#include <optional>

#include "base/text.h"

namespace moe::config {
namespace {

constexpr std::size_t kMaxPatternBytes = 1024;
constexpr std::size_t kMaxProgram = 2048;
constexpr int kMaxNesting = 32;
constexpr char32_t kLast = 0x10FFFF;

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
    program_.work += pattern_.size() + program_.code.size();
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

  Check append(Fragment& to, const Fragment& more) {
    if (to.size() + more.size() > kMaxProgram)
      return beyond(cat("its repetitions need more than ", kMaxProgram, " states,"));
    to.insert(to.end(), more.begin(), more.end());
    program_.work += 1 + more.size() / 8;
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
    if (branches.size() == 1) return std::move(branches.back());
    Fragment whole;
    std::size_t left = total - 2;  // the last branch has neither split nor jump
    for (std::size_t i = 0; i + 1 < branches.size(); ++i) {
      left -= branches[i].size() + 2;
      MOE_CHECK(append(whole, {{.op = Op::split, .x = 1, .y = static_cast<std::int32_t>(branches[i].size() + 2)}}));
      MOE_CHECK(append(whole, branches[i]));
      MOE_CHECK(append(whole, {{.op = Op::jump, .x = static_cast<std::int32_t>(left + 1)}}));
    }
    MOE_CHECK(append(whole, branches.back()));
    return whole;
  }

  Result<Fragment> sequence(int depth) {
    Fragment all;
    while (!done() && in_[at_] != U'|' && in_[at_] != U')') {
      if (const std::optional<Inst> one = single()) {
        if (all.size() == kMaxProgram) return append(all, {*one}).error();
        all.push_back(*one);
        continue;
      }
      MOE_TRY(Fragment item, repeated(depth));
      MOE_CHECK(append(all, item));
    }
    return all;
  }

  // A character or a dot that is not repeated, of which most patterns consist; nullopt: something else comes.
  std::optional<Inst> single() {
    constexpr std::u32string_view kSpecial = U"\\()[|^$*+?{", kQuantifiers = U"*+?{";
    const bool escaped = in_[at_] == U'\\';
    const std::size_t end = at_ + (escaped ? 2 : 1);
    if (end > in_.size() || (end < in_.size() && kQuantifiers.find(in_[end]) != kQuantifiers.npos)) return std::nullopt;
    const char32_t c = in_[end - 1];
    const std::optional<char32_t> literal = escaped ? escaped_literal(c) : std::optional(c);
    if (!literal || (!escaped && kSpecial.find(c) != kSpecial.npos)) return std::nullopt;
    at_ = end;
    if (!escaped && c == U'.') return Inst{.op = Op::any};
    return Inst{.op = Op::literal, .literal = *literal};
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

}  // namespace

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

Result<Program> compile_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return fail(Code::unsupported, "",
                cat("a pattern of ", pattern.size(), " bytes, at most ", kMaxPatternBytes, " are read"));
  return Compiler(pattern).run();
}

}  // namespace moe::config
