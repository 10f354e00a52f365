// A strict forward reader of JSON for safetensors headers and indexes.
//
// These texts may have 100 MB and 10^6 members, and their grammar is two levels deep: nothing is built,
// so a hostile text costs no more memory than the entries that it really has. (Documents for people go
// through base/json.h.) RFC 8259, valid UTF-8, no NaN, no negative or fractional numbers where integers
// are asked for. The first fault stays: afterwards every call gives nothing and fault() tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/float_rules.h"

namespace moe::io {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  // The next character apart from blanks must be c.
  void expect(char c);
  // Steps to the next member or element: false at `close`, which is consumed. `first` starts as true.
  bool next(char close, bool& first);
  // Key of a member with its colon.
  std::string key();
  std::string string();
  std::int64_t integer();          // digits, at most INT64_MAX
  void skip_value(int depth = 0);  // anything, nested at most 32 deep
  void end();                      // only blanks are left

  bool ok() const { return fault_.empty(); }
  // Marks this place as faulty, unless there was a fault before.
  void fail(std::string_view what);
  const std::string& fault() const { return fault_; }  // "expected ':' at byte 17"

 private:
  void skip_blanks();
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void escape(std::string& out);
  std::uint32_t hex4();
  bool utf8(std::string& out);
  void number();

  std::string_view text_;
  std::size_t at_ = 0;
  std::string fault_;
};

}  // namespace moe::io
