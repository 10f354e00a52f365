// Reading documents that other programs wrote (quantization_config here, config.json in the room hf), and matching the
// module names in them. Unlike our own documents, which fields::Members reads, these may hold anything more, and null
// means "not set".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "config/config.h"
#include "config/fields.h"

namespace moe::config {

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

  Result<std::optional<std::int64_t>> integer(std::string_view key, fields::Range range) const;
  Result<std::optional<double>> number(std::string_view key, fields::RealRange range) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string_view>> text(std::string_view key) const;
  Result<std::optional<Foreign>> object(std::string_view key) const;
  // Empty when absent.
  Result<std::vector<std::string_view>> texts(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key, fields::Range range) const;

  // Members that must be there.
  Result<std::int64_t> need_integer(std::string_view key, fields::Range range) const;
  Result<bool> need_boolean(std::string_view key) const;
  Result<std::string_view> need_text(std::string_view key) const;

 private:
  Foreign(const json::Value& value, std::string pointer) : value_(&value), pointer_(std::move(pointer)) {}

  const json::Value* value_;
  std::string pointer_;
};

// Matches patterns of one document, with a limit on all work done for it.
class Matcher {
 public:
  // re_match with the pointer of the pattern in its faults.
  Result<bool> regex(std::string_view pattern, std::string_view text, const std::string& pointer);
  // Shell wildcards * ? [..] over the whole text.
  Result<bool> wildcard(std::string_view pattern, std::string_view text, const std::string& pointer);

 private:
  std::size_t text_left_ = std::size_t{1} << 18;  // characters; each costs at most one pass over a program
};

// The layer asked about.
struct Layer {
  std::string_view module;
  const std::vector<std::string>& projections;
};

using Resolved = Result<std::optional<HfQuantization>>;

Resolved resolve_compressed_tensors(const Foreign& h, const Layer& layer);

}  // namespace moe::config
