// Progress of a call, from moe_control_state. Debian has no C++ library for bars, and this is all that one would do.
#include "tool/bar.h"

#include <algorithm>
#include <cstdio>

#include "tool/machine.h"

namespace moe_tool {
namespace {

constexpr double kEvery = 0.1;          // seconds between two pictures on a terminal
constexpr std::size_t kMostCells = 40;  // of the bar itself
constexpr std::size_t kLeastCells = 6;

constexpr const char* kPhases[] = {"", "open", "convert", "save", "load", "verify", "run"};  // of moe_phase

std::string repeated(std::string_view sign, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += sign;
  return out;
}

std::string cells(const Screen& screen, double share, std::size_t count) {
  const auto halves = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * 2 * static_cast<double>(count));
  const std::size_t empty = count - (halves + 1) / 2;
  if (!screen.utf8) return repeated("=", halves / 2) + repeated("-", halves % 2) + repeated(".", empty);
  const std::string full = repeated("\u2501", halves / 2) + repeated("\u2578", halves % 2);
  // The rest differs by its colour alone; without colours it is blank.
  return screen.toned(full, Tone::kGood) +
         (screen.colour ? screen.toned(repeated("\u2501", empty), Tone::kDim) : repeated(" ", empty));
}

}  // namespace

Bar::Bar(const Session& session, std::string what) : session_(session), what_(std::move(what)), start_(seconds_now()) {
  control_ = make<ControlHandle>(moe_control_create, &Bar::reported, static_cast<void*>(this), nullptr);
  interrupt_.tell(control_.get());
}

Bar::~Bar() {
  interrupt_.tell(nullptr);
  clear();
}

void Bar::clear() {
  if (visible_) std::fputs("\r\x1b[K", stderr);
  visible_ = false;
}

moe_status Bar::reported(void* user, std::uint64_t, std::uint64_t) {
  auto& bar = *static_cast<Bar*>(user);
  auto progress = sized<moe_progress>();
  if (moe_control_state(bar.control_.get(), &progress, nullptr) != MOE_OK) return MOE_OK;
  if (progress.phase == MOE_PHASE_CONVERT && progress.layer != bar.last_converted_) {
    bar.last_converted_ = progress.layer;
    if (bar.layers_converted_++ == 0) {
      bar.start_ = seconds_now();
      bar.first_byte_ = progress.bytes_done;
    }
  }
  try {
    bar.show(progress);
  } catch (...) {  // a picture that has no memory is left out; nothing may leave a callback
  }
  return MOE_OK;
}

void Bar::show(const moe_progress& progress) {
  const double now = seconds_now();
  if (session_.json) return;
  if (!session_.err.terminal) {
    if (progress.phase != MOE_PHASE_CONVERT || progress.layer == last_line_) return;
    last_line_ = progress.layer;
    std::fputs((line(progress, now - start_) + "\n").c_str(), stderr);
    return;
  }
  if (now - last_shown_ < kEvery) return;
  last_shown_ = now;
  visible_ = true;
  std::fputs(("\r" + line(progress, now - start_) + "\x1b[K").c_str(), stderr);
}

std::string Bar::line(const moe_progress& progress, double seconds) const {
  const Screen& screen = session_.err;
  const bool layers = progress.layers_total > 1;
  const auto done = static_cast<double>(layers ? progress.bytes_done : progress.done);
  const auto total = static_cast<double>(layers ? progress.bytes_total : progress.total);
  const double share = total > 0 ? std::min(1.0, done / total) : 0;
  const auto phase = static_cast<std::size_t>(progress.phase);
  const std::string name = phase < std::size(kPhases) && phase > 0 ? kPhases[phase] : what_;
  const std::string where =
      layers
          ? fmt::format("layer {}/{}", std::min(progress.layers_done + 1, progress.layers_total), progress.layers_total)
          : what_;
  const std::string percent = fmt::format("{:3.0f}%", 100 * share);
  if (!screen.terminal)
    return layers ? fmt::format("{}: {} ({}, {})", what_, where, name, percent.substr(percent.find_first_not_of(' ')))
                  : what_;

  const auto worked = static_cast<double>(progress.bytes_done - std::min(first_byte_, progress.bytes_done));
  const double rate = seconds > 0 ? worked / seconds : 0;
  // From the most to the least important: a narrow terminal gets the first ones.
  std::vector<std::string> behind = {percent};
  if (rate > 0 && seconds > 1 && layers) behind.push_back("eta " + clock_text((total - done) / rate));
  if (rate > 0) behind.push_back(rate_text(rate));
  behind.push_back(name);
  if (total > 0 && !layers) behind.push_back(bytes_text(total));
  const auto width = static_cast<std::size_t>(std::max(screen.width - 1, 1));  // the last column would scroll
  std::string tail;
  std::size_t used = where.size() + 2 + kLeastCells;
  for (const std::string& piece : behind) {
    if (used + 2 + piece.size() > width) break;
    tail += "  " + piece;
    used += 2 + piece.size();
  }
  if (used > width) return printable(where).substr(0, width);
  const std::size_t count = std::min(kMostCells, kLeastCells + width - used);
  return fmt::format("{} {}{}", where, cells(screen, share, count), tail);
}

}  // namespace moe_tool
