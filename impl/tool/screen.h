// What the tool writes to: a terminal with its width, colours and characters, or a pipe, which gets plain ASCII lines.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moe_tool {

enum class Tone { kPlain, kGood, kBad, kWarn, kDim, kBold };

struct Screen {
  bool terminal = false;
  bool colour = false;
  bool utf8 = false;
  int width = 0;  // columns; 0 where lines may be of any length

  std::string toned(std::string_view text, Tone tone) const;
  // Signs that a pipe gets as words.
  std::string yes() const { return toned(utf8 ? "\u2713" : "yes", Tone::kGood); }
  std::string no() const { return toned(utf8 ? "\u2717" : "no", Tone::kBad); }
  std::string_view dot() const { return utf8 ? " \u00b7 " : ", "; }
  std::string_view plus_minus() const { return utf8 ? " \u00b1 " : " +- "; }
};

// Of standard output (1) or standard error (2).
Screen screen_of(int file);

// Columns that a text takes on a terminal. Escape sequences of toned() take none.
std::size_t columns_of(std::string_view text);
// A text of a file or a path for a line of ours: control characters and bytes that are not UTF-8 become \xNN.
std::string printable(std::string_view text);
// Lines of at most `width` columns, broken at spaces where there are some. Width 0: one line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

std::string bytes_text(double bytes);          // "15.7 GB"
std::string rate_text(double bytes_a_second);  // "9.81 GB/s"
std::string clock_text(double seconds);        // "2:24"
std::string number_text(double value);         // "11.02", "402.1", "5675": four digits that count
std::string count_text(std::int64_t count, std::string_view one, std::string_view many = {});  // "1 layer", "3 layers"

struct Column {
  std::string heading;
  bool right = false;  // numbers
  bool wraps = false;  // the one that gives way where the screen is narrow
};

// Rows under headings. On a screen that is too narrow for them each row becomes lines "heading: cell".
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string text(const Screen& screen) const;
  std::string markdown() const;  // as llama-bench prints it

 private:
  std::vector<std::size_t> widths() const;
  std::string stacked(const Screen& screen) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace moe_tool
