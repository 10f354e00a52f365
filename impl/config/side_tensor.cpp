// Vectors that a config holds itself, or names where checkpoints have them. See sections.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "config/sections.h"

namespace moe::config {

constexpr std::size_t kMaxName = 128;

Result<float> read_float(const json::Value& value, const std::string& pointer) {
  const std::optional<double> d = fields::as_number(value);
  if (!d || !(std::abs(*d) <= static_cast<double>(std::numeric_limits<float>::max())))
    return fields::unexpected(pointer, value, "a finite float32 number");
  return static_cast<float>(*d);
}

Check read_side_tensor(const fields::Members& members, std::string_view key, std::initializer_list<std::int64_t> counts,
                       SideTensor& out) {
  const json::Value* v = members.get(key);
  if (v == nullptr) return ok();
  const std::string pointer = members.at(key);
  if (const std::string* name = v->string()) {
    if (name->empty() || name->size() > kMaxName)
      return fields::unexpected(pointer, *v, cat("a name of 1 to ", kMaxName, " bytes"));
    out.name = *name;
    return ok();
  }
  const json::Array* list = v->array();
  const auto count = list == nullptr ? -1 : std::ssize(*list);
  if (std::find(counts.begin(), counts.end(), count) == counts.end()) {
    std::string expected;
    for (const std::int64_t n : counts) expected += cat(expected.empty() ? "" : " or ", n);
    return fields::unexpected(pointer, *v, cat("the end of a tensor's name, or ", expected, " numbers"));
  }
  out.values.reserve(list->size());
  for (const json::Value& element : *list) {
    MOE_TRY(const float value, read_float(element, cat(pointer, "/", out.values.size())));
    out.values.push_back(value);
  }
  return ok();
}

void write_side_tensor(std::string_view key, const SideTensor& t, json::Object& out) {
  if (!t.name.empty()) out.emplace_back(key, t.name);
  if (t.values.empty()) return;
  json::Array values;
  for (const float v : t.values) values.emplace_back(static_cast<double>(v));
  out.emplace_back(key, std::move(values));
}

}  // namespace moe::config
