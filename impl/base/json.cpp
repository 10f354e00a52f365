// JSON text to tree and back; see json.h for the contract. nlohmann-json does the lexing and the
// grammar (its SAX interface); everything it leaves open is decided here:
//
//   NUL, BOM, size       looked at before parsing (its lexer takes NUL for the end of the text)
//   depth                counted at every opening bracket, so a bomb ends at bracket max_depth + 1
//   duplicate keys       by sorting the keys of an object when it closes, O(n log n)
//   integers             int64 stays an integer, anything larger becomes a double
//   doubles              read by std::from_chars from the token: the C locale has no say in it
#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/index.h"
#include "base/text.h"

namespace moe::json {
namespace {

// Walks the text for the lexer and tells the handler how far it has come.
class TextIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TextIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  TextIterator& operator++() {
    ++at_;
    *reached_ = at_;
    return *this;
  }
  TextIterator operator++(int) {
    const TextIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const TextIterator& a, const TextIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// The text from `offset` on, as far as a message shows it.
std::string excerpt(std::string_view text, std::size_t offset) {
  return "'" + printable(first_characters(text.substr(std::min(offset, text.size())), 24)) + "'";
}

Error text_fault(std::size_t offset, const std::string& message) {
  return fail(Code::invalid_config, "", cat("JSON text, byte ", offset, ": ", message), members("offset", offset));
}

// The opening quote of the string whose closing quote is text[close].
std::size_t string_start(std::string_view text, std::size_t close) {
  for (std::size_t i = close; i-- > 0;) {
    if (text[i] != '"') continue;
    std::size_t backslashes = 0;
    while (backslashes < i && text[i - 1 - backslashes] == '\\') ++backslashes;
    if (backslashes % 2 == 0) return i;
  }
  return 0;
}

// Receives the events of the parser and builds the tree. A false return ends the parsing.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, int max_depth) : text_(text), max_depth_(max_depth), reached_(text.data()) {}

  const char** reached() { return &reached_; }
  std::optional<Error>& error() { return error_; }
  Value& root() { return root_; }

  bool null() { return add(Value()); }
  bool boolean(bool b) { return add(Value(b)); }
  bool number_integer(std::int64_t i) { return add(Value(i)); }
  bool number_unsigned(std::uint64_t u) {
    if (std::in_range<std::int64_t>(u)) return add(Value(static_cast<std::int64_t>(u)));
    return add(Value(static_cast<double>(u)));
  }
  // `token` has the decimal point of the C locale; `parsed` is its strtod, kept for what underflows.
  bool number_float(double parsed, const std::string& token) {
    std::string plain = token;
    for (char& c : plain)
      if ((c < '0' || c > '9') && c != '-' && c != '+' && c != 'e' && c != 'E') c = '.';
    double d = 0;
    const auto [end, status] = std::from_chars(plain.data(), plain.data() + plain.size(), d);
    if (status != std::errc()) d = parsed;
    return add(Value(d));
  }
  bool string(std::string& s) { return add(Value(std::move(s))); }
  bool binary(std::vector<std::uint8_t>&) { return false; }  // of binary formats only

  bool start_object(std::size_t) { return open(Value(Object())); }
  bool key(std::string& k) {
    Frame& f = frames_.back();
    f.container.object()->emplace_back().first = std::move(k);
    f.key_ends.push_back(position() - 1);
    return true;
  }
  bool end_object() { return unique_keys(frames_.back()) && close(); }
  bool start_array(std::size_t) { return open(Value(Array())); }
  bool end_array() { return close(); }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string& token, const Exception& e) {
    constexpr int kNumberOverflow = 406;
    const std::size_t at = std::min(position == 0 ? 0 : position - 1, text_.size());
    if (e.id == kNumberOverflow) {
      error_ = text_fault(position - std::min(position, token.size()),
                          cat("the number ", first_characters(token, 40), " is beyond the range of a double"));
    } else if (at >= text_.size()) {
      error_ = text_fault(at, "the text ends in the middle of a value");
    } else {
      error_ = text_fault(at, "not valid JSON here: " + excerpt(text_, at));
    }
    return false;
  }

 private:
  struct Frame {
    Value container;
    std::vector<std::size_t> key_ends;  // closing quotes of the keys, for messages
  };

  std::size_t position() const { return usize(reached_ - text_.data()); }

  bool add(Value v) {
    if (frames_.empty()) {
      root_ = std::move(v);
    } else if (Array* a = frames_.back().container.array()) {
      a->push_back(std::move(v));
    } else {
      frames_.back().container.object()->back().second = std::move(v);
    }
    return true;
  }
  bool open(Value empty) {
    if (frames_.size() >= usize(max_depth_)) {
      error_ = text_fault(position() - 1, cat("nested deeper than the allowed ", max_depth_, " levels"));
      return false;
    }
    frames_.push_back({std::move(empty), {}});
    return true;
  }
  bool close() {
    Value done = std::move(frames_.back().container);
    frames_.pop_back();
    return add(std::move(done));
  }
  bool unique_keys(const Frame& f) {
    const Object& members = *f.container.object();
    std::vector<std::size_t> order(members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const int c = members[a].first.compare(members[b].first);
      return c != 0 ? c < 0 : a < b;
    });
    std::size_t repeated = members.size();  // the first key of the text that was there before
    for (std::size_t i = 1; i < order.size(); ++i)
      if (members[order[i]].first == members[order[i - 1]].first) repeated = std::min(repeated, order[i]);
    if (repeated == members.size()) return true;
    const std::size_t start = string_start(text_, f.key_ends[repeated]);
    error_ = text_fault(start, "the object has this key twice: " + excerpt(text_, start));
    return false;
  }

  std::string_view text_;
  int max_depth_;
  const char* reached_;
  Value root_;
  std::vector<Frame> frames_;
  std::optional<Error> error_;
};

// Python's json writes numbers that JSON has not. Each becomes a text of its first letter, which nothing that is read
// says, and blanks, so that offsets stay.
std::string without_non_finite(std::string_view text) {
  std::string out(text);
  bool inside = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (inside && out[i] == '\\')
      ++i;
    else if (out[i] == '"')
      inside = !inside;
    if (inside) continue;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
      if (text.substr(i, word.size()) == word) {
        out.replace(i, word.size(), cat("\"", word[0], "\"").append(word.size() - 3, ' '));
        i += word.size() - 1;
        break;
      }
  }
  return out;
}

}  // namespace

Result<Value> parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.max_bytes) {
    return text_fault(limits.max_bytes,
                      cat("the text has ", text.size(), " bytes, at most ", limits.max_bytes, " are allowed"));
  }
  if (text.empty()) return text_fault(0, "the text is empty");
  if (text.substr(0, 3) == "\xef\xbb\xbf") return text_fault(0, "a byte order mark is not allowed");
  if (const void* nul = std::memchr(text.data(), 0, text.size())) {
    return text_fault(usize(static_cast<const char*>(nul) - text.data()), "a NUL byte is not allowed");
  }
  if (limits.python && text.find_first_of("NI") != std::string_view::npos &&
      (text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos))
    return parse(without_non_finite(text), {limits.max_bytes, limits.max_depth});
  TreeBuilder builder(text, limits.max_depth);
  const bool good = nlohmann::json::sax_parse(TextIterator(text.data(), builder.reached()),
                                              TextIterator(text.data() + text.size(), builder.reached()), &builder);
  if (builder.error()) return std::move(*builder.error());
  if (!good) return text_fault(0, "not valid JSON");
  return std::move(builder.root());
}

}  // namespace moe::json
