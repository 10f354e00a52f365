// Names like another. See nearest.h.
#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/text.h"

namespace moe {
namespace {

constexpr std::size_t kMostLetters = 64;  // of a name that may be mistyped

// What typing errors are counted in.
std::string plain(std::string_view name) {
  std::string s(name);
  for (char& c : s) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return s;
}

// What others call it.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"bf16", "bfloat16"}, {"fp16", "float16"}, {"f16", "float16"},         {"half", "float16"},
    {"fp32", "float32"},  {"f32", "float32"},  {"float", "float32"},       {"dtype", "in_dtype"},
    {"swiglu", "silu"},   {"swish", "silu"},   {"torch_dtype", "in_dtype"}};

std::size_t common_start(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

bool looks_like(std::string_view a, std::string_view b, std::size_t distance) {
  const std::size_t start = common_start(a, b);
  return distance * 3 <= std::max(a.size(), b.size()) || (start >= 4 && start * 2 >= std::min(a.size(), b.size()));
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known) {
  if (name.empty() || name.size() > kMostLetters) return "";
  const std::string typed = plain(name);
  for (const auto& [theirs, ours] : kOtherWords)
    if (typed == theirs && std::find(known.begin(), known.end(), ours) != known.end())
      return cat(" (did you mean ", ours, "?)");
  std::string_view nearest;
  std::size_t least = 0;
  for (const std::string_view other : known) {
    const std::string word = plain(other);
    const std::size_t distance = edits(typed, word);
    if (!looks_like(typed, word, distance) || (!nearest.empty() && distance >= least)) continue;
    nearest = other;
    least = distance;
  }
  return nearest.empty() ? "" : cat(" (did you mean ", nearest, "?)");
}

}  // namespace moe
