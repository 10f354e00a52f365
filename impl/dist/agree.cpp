// First a hash; the texts themselves travel only when the hashes differ.
#include "dist/agree.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "io/hash.h"

namespace moe::dist {
namespace {

constexpr std::uint64_t kMostText = std::uint64_t{1} << 26;  // a config has at most 16 MiB

struct Summary {
  std::uint64_t hash = 0, size = 0;
};

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

Check agree_on(Comm& comm, const std::string& text) {
  const Summary mine{io::xxh3(std::as_bytes(std::span(text))), text.size()};
  std::vector<std::byte> all;
  MOE_CHECK(comm.gather(&mine, sizeof mine, all, "agreement"));
  std::vector<Summary> summaries(usize(comm.size()));
  std::memcpy(summaries.data(), all.data(), all.size());
  const auto poisoned = [&](int rank, const char* what) {
    comm.poison();
    return bad_peer(rank, what);
  };
  if (const Summary& own = summaries[usize(comm.rank())]; own.hash != mine.hash || own.size != mine.size)
    return poisoned(comm.rank(), "its own summary changed");
  std::uint64_t longest = 0;
  bool equal = true;
  for (const Summary& s : summaries) {
    longest = std::max(longest, s.size);
    equal = equal && s.hash == summaries[0].hash && s.size == summaries[0].size;
  }
  if (equal) return ok();
  if (longest > kMostText) return poisoned(0, "a text that is too long");
  // All in rows of the longest one: an error may cost some memory.
  std::vector<std::byte> row(usize(longest));
  std::memcpy(row.data(), text.data(), text.size());
  MOE_CHECK(comm.gather(row.data(), row.size(), all, "agreement"));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < summaries.size(); ++r)
    texts.emplace_back(reinterpret_cast<const char*>(all.data()) + r * row.size(), usize(summaries[r].size));
  for (std::size_t r = 1; r < texts.size(); ++r)
    if (texts[r] != texts[0]) return mismatch(texts, r);
  return poisoned(0, "a hash that is not its text's");
}

}  // namespace moe::dist
