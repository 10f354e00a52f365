// Reading documents that other programs wrote (quantization_config here, config.json in the room hf), and matching the
// module names in them. Unlike our own documents, which fields::Members reads, these may hold anything more, and null
// means "not set".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/json.h"
#include "base/result.h"
#include "config/config.h"
#include "config/fields.h"

namespace moe::config {

// Of a document that another program wrote, and of one that may carry it.
constexpr std::size_t kMostForeignBytes = std::size_t{16} << 20;

// An object inside a foreign document and where it is.
class Foreign {
 public:
  // Fails when the value is no object.
  static Result<Foreign> open(const json::Value& value, std::string pointer);

  const json::Object& members() const { return *value_->object(); }
  const json::Value& value() const { return *value_; }
  const std::string& pointer() const { return pointer_; }
  std::string at(std::string_view key) const { return fields::child(pointer_, key); }
  // nullptr when absent or null.
  const json::Value* get(std::string_view key) const;
  bool has(std::string_view key) const { return get(key) != nullptr; }

  Result<std::optional<std::int64_t>> integer(std::string_view key, fields::IntegerRange range) const;
  Result<std::optional<double>> number(std::string_view key, fields::RealRange range) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string_view>> text(std::string_view key) const;
  Result<std::optional<Foreign>> object(std::string_view key) const;
  // Empty when absent.
  Result<std::vector<std::string_view>> texts(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key, fields::IntegerRange range) const;

  // Members that must be there.
  Result<std::int64_t> need_integer(std::string_view key, fields::IntegerRange range) const;
  Result<bool> need_boolean(std::string_view key) const;
  Result<std::string_view> need_text(std::string_view key) const;

 private:
  Foreign(const json::Value& value, std::string pointer) : value_(&value), pointer_(std::move(pointer)) {}

  const json::Value* value_;
  std::string pointer_;
};

// The layer asked about, and its names: <module>.<expert>.<projection>, expert by expert.
struct LayerNames {
  std::string_view module;
  const std::vector<std::string>& projections;
  std::int64_t experts;

  std::size_t count() const { return usize(experts) * projections.size(); }
  std::string name(std::size_t i) const;
  // Which of them `text` is; which expert it is or is of.
  std::optional<std::size_t> find(std::string_view text) const;
  std::optional<std::size_t> expert_of(std::string_view text) const;
};
using Hits = std::vector<bool>;  // of a layer's names; empty: none

// Where a match may end: anywhere, as Python's re.match, or where a module's name does, at a dot or the end.
enum class MatchEnd : std::uint8_t { anywhere, module };
// A limit on what patterns of strangers may cost. A unit is a character, an instruction or a state that is entered, and
// takes about ten nanoseconds.
class Work {
 public:
  explicit Work(std::size_t limit) : limit_(limit), left_(limit) {}
  // false: the limit is reached. The walk ends, and its answer means nothing.
  bool spend(std::size_t units) {
    left_ -= std::min(units, left_);
    return left_ > 0;
  }
  void end() { left_ = 0; }
  bool is_spent() const { return left_ == 0; }
  std::size_t spent() const { return limit_ - left_; }

 private:
  std::size_t limit_, left_;
};
Result<bool> re_match(std::string_view pattern, std::string_view text, MatchEnd end, Work& work);
// The same of all names of a layer; module_too: all of them where the module itself matches.
struct MatchHow {
  bool module_too = false;
  MatchEnd end = MatchEnd::anywhere;
};
Result<Hits> re_match_experts(std::string_view pattern, const LayerNames& layer, const MatchHow& how, Work& work);

// Patterns for the same: shell wildcards * ? [..] over a whole name, and names that have a text in them.
inline bool has_wildcard(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }
std::string wildcard_pattern(std::string_view wildcard);
std::string substring_pattern(std::string_view text);

// Matches patterns of one document, with a limit on the work for each of them and for all.
class Matcher {
 public:
  // The first is more than a hundred times what the most expensive pattern of a real file takes.
  static constexpr std::size_t kOfOne = std::size_t{1} << 24, kOfAll = std::size_t{1} << 26;
  // What a pattern takes before the first character: its program and the memory of a walk.
  static constexpr std::size_t kOfEach = 256;

  // re_match with the pointer of the pattern in its faults.
  Result<bool> regex(std::string_view pattern, std::string_view text, const std::string& pointer,
                     MatchEnd end = MatchEnd::anywhere);
  // The same over a layer's names.
  Result<Hits> names(std::string_view pattern, const LayerNames& layer, const std::string& pointer,
                     const MatchHow& how = {});

 private:
  template <class T>
  Result<T> limited(const std::string& pointer, const std::function<Result<T>(Work&)>& match);

  std::size_t left_ = kOfAll;
};

// Which rule of a list each name of a layer falls under, and whether that is one for all: a layer has one scheme.
class RuleOfNames {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  explicit RuleOfNames(const LayerNames& layer) : layer_(layer), rules_(layer.count(), kNone), left_(rules_.size()) {}
  // Names that have none yet fall under this rule.
  void add(std::size_t rule, const Hits& hits);
  // Those that a text names: all of them where it is the module, or one.
  void add_named(std::size_t rule, std::string_view text);
  void add(std::size_t rule, std::size_t first, std::size_t count);
  void add_rest(std::size_t rule);
  bool complete() const { return left_ == 0; }  // each name has one
  const std::vector<std::size_t>& rules() const { return rules_; }
  // Two names that fall under different rules, among all names or those of one projection. `rule` is the one that
  // covers fewer names; `name` is an example of it.
  struct Odd {
    std::size_t name, other, rule;
  };
  enum class Among : std::uint8_t { all, projection };
  std::optional<Odd> find_odd(Among among, const std::function<bool(std::size_t, std::size_t)>& same) const;
  Error fault(const Odd& odd, const std::string& pointer) const;

 private:
  void set(std::size_t i, std::size_t rule);

  const LayerNames& layer_;
  std::vector<std::size_t> rules_;
  std::size_t left_;  // names without a rule
};

// --- module_lists.cpp ------------------------------------------------------------------------------

// Whether the rules are about all experts of the layer, or none; one that is about some is refused with its pointer.
Result<bool> covers_experts(const RuleOfNames& names, RuleOfNames::Among among,
                            const std::function<std::string(std::size_t rule)>& pointer);
// Whether a list of fp8 or mxfp4 files leaves out the layer (checkpoints.md 6).
Result<bool> skips_experts(const Foreign& h, std::string_view list, const LayerNames& layer);
// Whether GPTQ's list of the modules of a block has the layer's experts, or there is none.
Result<bool> quantizes_experts(const Foreign& h, const LayerNames& layer);

// --- other_tools.cpp -------------------------------------------------------------------------------

// What a tool may well write, and is not read: no fault of the file.
Error unread(const std::string& pointer, const std::string& what);
// Of an object of a tool whose tensors are not read: whose it is and what helps. nullopt: the word is none of theirs.
std::optional<Error> of_other_tool(std::string_view method, const std::string& pointer);
// Of an object of a tool that lacks a member without which nothing is known of the weights.
Error lacks_member(const Foreign& h, std::string_view tool, std::string_view member);
// Of one without a quant_method.
Error no_method(const Foreign& h);

using Resolved = Result<std::optional<HfQuantization>>;

// What a layer's experts are under each rule that some of them fall under: must be the same for all.
Resolved one_scheme(const RuleOfNames& names, const std::function<Resolved(std::size_t rule)>& scheme_of,
                    const std::function<Error(const RuleOfNames::Odd&)>& fault);

Resolved resolve_compressed_tensors(const Foreign& h, const LayerNames& layer);

}  // namespace moe::config
