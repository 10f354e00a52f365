// Terminals and texts: widths, colours, tables. A pipe gets neither colours nor characters beyond ASCII of ours.
#include "tool/screen.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numeric>

namespace moe_tool {
namespace {

constexpr int kUsualWidth = 80;
constexpr std::string_view kGap = "  ";

bool set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// The bytes of the character at the front of `text`, and its number; 0 bytes where it is not UTF-8.
struct Character {
  std::size_t bytes;
  char32_t code;
};
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {1, byte(0)};
  const std::size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return {0, 0};
  char32_t code = byte(0) & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {0, 0};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::array<char32_t, 5> kFirst = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kFirst[bytes] || surrogate || code > 0x10ffff ? Character{0, 0} : Character{bytes, code};
}

bool codeset_is_utf8() { return std::string_view(nl_langinfo(CODESET)) == "UTF-8"; }

// Control characters, and what is not seen but makes a line look like another one: changes of direction, separators of
// lines, marks without a width.
bool hidden(char32_t code) {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kHidden[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},
                               {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                               {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  return std::any_of(std::begin(kHidden), std::end(kHidden),
                     [&](const Range& range) { return code >= range.first && code <= range.last; });
}

// Bytes of the escape sequence at the front, as toned() writes them; 0 where there is none.
std::size_t escape_at(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

std::string padded(const std::string& cell, std::size_t width, bool right) {
  const std::size_t taken = columns_of(cell);
  const std::string space(width > taken ? width - taken : 0, ' ');
  return right ? space + cell : cell + space;
}

void end_line(std::string& out) {
  out.erase(out.find_last_not_of(' ') + 1);
  out += '\n';
}

}  // namespace

Screen screen_of(int file) {
  Screen screen;
  screen.terminal = isatty(file) == 1;
  if (!screen.terminal) return screen;
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
  screen.colour = !dumb && !set("NO_COLOR");
  screen.utf8 = codeset_is_utf8();
  winsize size = {};
  screen.width = ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
  return screen;
}

std::string Screen::toned(std::string_view text, Tone tone) const {
  constexpr std::array<std::string_view, 6> kCodes = {"", "32", "31", "33", "2", "1"};
  const std::string_view code = kCodes[static_cast<std::size_t>(tone)];
  return colour && !code.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    std::size_t taken = escape_at(text);
    if (taken == 0) {
      const Character c = first_of(text);
      const int width = c.bytes == 0 ? 1 : wcwidth(static_cast<wchar_t>(c.code));
      columns += static_cast<std::size_t>(std::max(width, c.code < 0x300 ? 1 : 0));
      taken = std::max<std::size_t>(c.bytes, 1);
    }
    text.remove_prefix(taken);
  }
  return columns;
}

std::string printable(std::string_view text) {
  // A terminal of another character set could take a byte of a character of UTF-8 for a control character (0x9b).
  static const bool ascii = (isatty(1) == 1 || isatty(2) == 1) && !codeset_is_utf8();
  std::string out;
  while (!text.empty()) {
    const Character c = first_of(text);
    const std::size_t bytes = std::max<std::size_t>(c.bytes, 1);
    if (c.bytes != 0 && !hidden(c.code) && (!ascii || c.code < 0x80)) {
      out += text.substr(0, bytes);
    } else {
      for (const char byte : text.substr(0, bytes)) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  if (width == 0) return {std::string(text)};
  std::string line;
  std::size_t columns = 0;
  std::size_t last_space = std::string::npos;  // in `line`
  while (!text.empty()) {
    const std::size_t escape = escape_at(text);
    const std::size_t bytes = escape > 0 ? escape : std::max<std::size_t>(first_of(text).bytes, 1);
    const std::string_view piece = text.substr(0, bytes);
    const std::size_t wide = escape > 0 ? 0 : columns_of(piece);
    if (columns + wide > width && !line.empty()) {
      std::string rest;
      if (last_space != std::string::npos && piece != " ") {
        rest = line.substr(last_space + 1);
        line.resize(last_space);
      }
      lines.push_back(std::move(line));
      line = std::move(rest);
      columns = columns_of(line);
      last_space = std::string::npos;
      if (piece == " ") {
        text.remove_prefix(bytes);
        continue;
      }
    }
    if (piece == " ") last_space = line.size();
    line += piece;
    columns += wide;
    text.remove_prefix(bytes);
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string bytes_text(double bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{} {}", number_text(bytes), kUnits[unit]);
}

std::string rate_text(double bytes_a_second) { return bytes_text(bytes_a_second) + "/s"; }

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string number_text(double value) {
  const double size = std::fabs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 999.95 ? 1 : 0);
}

std::string count_text(std::int64_t count, std::string_view one, std::string_view many) {
  if (count == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, many);
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> out;
  for (const Column& column : columns_) out.push_back(columns_of(column.heading));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) out[i] = std::max(out[i], columns_of(row[i]));
  return out;
}

std::string Table::text(const Screen& screen) const {
  std::vector<std::size_t> width = widths();
  const auto total = [&] { return std::accumulate(width.begin(), width.end(), kGap.size() * (width.size() - 1)); };
  const auto available = static_cast<std::size_t>(screen.width);
  constexpr std::size_t kLeast = 16;  // what a column that wraps keeps
  for (std::size_t i = 0; available > 0 && i < width.size(); ++i) {
    if (!columns_[i].wraps || total() <= available) continue;
    const std::size_t least = std::min(width[i], kLeast);
    width[i] = std::max(least, width[i] - std::min(width[i], total() - available));
  }
  if (available > 0 && total() > available) return stacked(screen);

  std::string out;
  const auto line = [&](const std::vector<std::string>& cells, Tone tone) {
    std::vector<std::vector<std::string>> lines(cells.size());
    std::size_t height = 1;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      lines[i] = columns_of(cells[i]) > width[i] ? wrapped(cells[i], width[i]) : std::vector{cells[i]};
      height = std::max(height, lines[i].size());
    }
    for (std::size_t y = 0; y < height; ++y) {
      for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::string cell = y < lines[i].size() ? screen.toned(lines[i][y], tone) : "";
        out += padded(cell, width[i], columns_[i].right);
        if (i + 1 < cells.size()) out += kGap;
      }
      end_line(out);
    }
  };
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  line(headings, Tone::kDim);
  for (const auto& row : rows_) line(row, Tone::kPlain);
  return out;
}

std::string Table::stacked(const Screen& screen) const {
  std::string out;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].empty()) continue;
      const std::string line = fmt::format("{}{}: {}", i == 0 ? "" : "  ", columns_[i].heading, row[i]);
      std::string_view indent;
      for (const std::string& piece : wrapped(line, static_cast<std::size_t>(std::max(screen.width - 4, 1)))) {
        out += fmt::format("{}{}\n", indent, piece);
        indent = "    ";
      }
    }
  }
  return out;
}

std::string Table::markdown() const {
  const std::vector<std::size_t> width = widths();
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      out += fmt::format("| {} ", padded(cells[i], width[i], columns_[i].right));
    out += "|\n";
  };
  std::vector<std::string> headings;
  std::vector<std::string> rule;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    headings.push_back(columns_[i].heading);
    rule.push_back(std::string(width[i] - (columns_[i].right ? 1 : 0), '-') + (columns_[i].right ? ":" : ""));
  }
  line(headings);
  line(rule);
  for (const auto& row : rows_) line(row);
  return out;
}

}  // namespace moe_tool
