// First a hash; the texts themselves travel only when the hashes differ.
#include "dist/agree.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "io/hash.h"

namespace moe::dist {
namespace {

constexpr std::uint64_t kMostText = std::uint64_t{1} << 26;  // a config has at most 16 MiB

// The first member that two documents do not share.
struct Difference {
  std::string pointer, expected, actual;
};
std::string text_of(const json::Value* v) { return v == nullptr ? "null" : json::write(*v); }

Difference difference(const json::Value& a, const json::Value& b, std::string pointer) {
  if (a.object() != nullptr && b.object() != nullptr) {
    for (const json::Object* all : {a.object(), b.object()})
      for (const auto& [name, unused] : *all) {
        const json::Value *x = a.find(name), *y = b.find(name);
        if (x != nullptr && y != nullptr && *x == *y) continue;
        std::string member = pointer + "/" + json::escape_pointer(name);
        if (x == nullptr || y == nullptr) return {std::move(member), text_of(x), text_of(y)};
        return difference(*x, *y, std::move(member));
      }
  }
  return {std::move(pointer), json::write(a), json::write(b)};
}

Check mismatch(const std::vector<std::string>& texts, std::size_t other) {
  constexpr json::Limits kLimits{.max_bytes = kMostText, .max_depth = 64};
  const Result<json::Value> a = json::parse(texts[0], kLimits), b = json::parse(texts[other], kLimits);
  Difference d{"", "another text", "another text"};
  if (a && b) d = difference(*a, *b, "");
  json::Writer w;
  w.member("pointer", d.pointer).key("ranks").begin_array().value(0).value(other).end_array();
  w.member("expected", d.expected).member("actual", d.actual);
  return fail(Code::config_mismatch, d.pointer,
              cat(d.pointer, ": is ", first_characters(d.expected, 80), " on rank 0 and ",
                  first_characters(d.actual, 80), " on rank ", other),
              w.take());
}

}  // namespace

Agreement::Agreement(const Comm& comm, std::string text)
    : text_(std::move(text)),
      mine_{io::xxh3(std::as_bytes(std::span(text_))), text_.size()},
      summaries_(sizeof mine_, comm.size()) {
  std::memcpy(summaries_.mine(), &mine_, sizeof mine_);
}

Agreement::Summary Agreement::summary_of(int rank) const {
  Summary s;
  std::memcpy(&s, summaries_.of(rank), sizeof s);
  return s;
}

Check Agreement::reach(Comm& comm, std::uint32_t tag) {
  MOE_CHECK(comm.gather(summaries_, "agreement"));
  int longest = 0, other = 0;  // ranks
  for (int r = comm.size(); r-- > 0;) {
    if (summary_of(r).size >= summary_of(longest).size) longest = r;
    if (summary_of(r) != summary_of(0)) other = r;
  }
  if (summary_of(comm.rank()) != mine_) return comm.distrust(comm.rank(), "its own summary changed");
  if (other == 0) return ok();
  const std::uint64_t size = summary_of(longest).size;
  if (size > kMostText) return comm.distrust(longest, "a text that is too long");
  return compare_texts(comm, tag, usize(size), other);
}

// All in rows of the longest one: an error may cost some memory.
Check Agreement::compare_texts(Comm& comm, std::uint32_t tag, std::size_t longest, int other) {
  std::optional<Gathering> rows;
  Check mine = taking_memory([&] {
    rows.emplace(longest, comm.size());
    std::memcpy(rows->mine(), text_.data(), text_.size());
    return ok();
  });
  MOE_CHECK(comm.meet_with(std::move(mine), {.tag = tag}));
  MOE_CHECK(comm.gather(*rows, "agreement"));
  std::vector<std::string> texts;
  for (int r = 0; r < comm.size(); ++r)
    texts.emplace_back(reinterpret_cast<const char*>(rows->of(r)), usize(summary_of(r).size));
  for (std::size_t r = 1; r < texts.size(); ++r)
    if (texts[r] != texts[0]) return mismatch(texts, r);
  return comm.distrust(other, "a hash that is not its text's");
}

}  // namespace moe::dist
