// The picture of bench, drawn by gnuplot. gnuplot runs commands that stand in a script (backquotes, system), so what
// comes from files goes into data blocks, where it is text and no more, and the picture's path is never in the script:
// gnuplot writes into a pipe. It does not notice a full disk; this file does, and what was there before is kept.
#include "tool/plot.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "tool/machine.h"
#include "tool/session.h"

namespace moe_tool {
namespace {

constexpr const char* kMissing =
    "gnuplot is not installed; it is in the package gnuplot-nox (Debian, Ubuntu) or gnuplot";
constexpr double kMostSeconds = 60;
constexpr std::size_t kMostBytes = std::size_t{64} << 20U;

using TemporaryFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void refuse(const std::string& what) { throw Failure(kNo, "--plot: " + what); }

[[noreturn]] void cannot_write(const std::string& path, int fault) {
  refuse(fmt::format("{} cannot be written: {}", printable(path), std::strerror(fault)));
}

TemporaryFile temporary() {
  TemporaryFile out(std::tmpfile(), &std::fclose);
  if (!out) refuse(fmt::format("no temporary file: {}", std::strerror(errno)));
  return out;
}

// A word of a data block, in quotation marks: letters, digits and marks that mean nothing to gnuplot.
std::string word(std::string_view text) {
  constexpr std::string_view kMarks = " .,:+-()/=";
  std::string out = "\"";
  for (const char c : text.substr(0, 80)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += plain || kMarks.find(c) != std::string_view::npos ? c : '-';
  }
  return out + "\"";
}

std::string script_of(const Json& found) {
  const Json& model = found["model"];
  std::string rows;
  for (const Json& row : found["rows"]) {
    const auto threads = row.value("threads", std::int64_t{0});
    const std::string label =
        fmt::format("{} {}, {}", row.value("test", ""), row.value("tokens", 0), count_text(threads, "thread"));
    rows += fmt::format("{} {:.6g} {:.6g} {:.4f}\n", word(label), row.value("tokens_per_second", 0.0),
                        row.value("deviation", 0.0), row.value("share_of_probe", 0.0));
  }
  const std::string title =
      fmt::format("{} {}, {}", model.value("name", ""), model.value("weights", ""), model.value("kernel", ""));
  std::string script =
      fmt::format("$rows << END_OF_ROWS\n{}END_OF_ROWS\n$title << END_OF_TITLE\n{}\nEND_OF_TITLE\n", rows, word(title));
  script += R"(set terminal svg size 860,520 font 'sans,12' noenhanced background 'white'
set title $title[1][2:strlen($title[1])-1]
set style fill solid 0.8
set boxwidth 0.6
set logscale y
set ylabel 'tokens/s, experts of all layers'
set y2label 'share of the bandwidth that a probe reads'
set y2range [0:1.2<*]
set y2tics
set ytics nomirror
set grid y
set xtics rotate by -20
set key top right
set offsets 0.5, 0.5, 0, 0
set yrange [*:*] writeback
stats $rows using 2 nooutput
set yrange [STATS_min/3 : STATS_max*2]
plot $rows using 0:2:xtic(1) with boxes lc rgb '#4477aa' title 'tokens/s', \
     '' using 0:2:3 with yerrorbars lc rgb '#222222' pt 0 notitle, \
     '' using 0:4 axes x1y2 with points pt 7 ps 1.2 lc rgb '#cc6677' title 'share of bandwidth'
)";
  return script;
}

// The beginning of what a program complained of, in one line.
std::string text_of(std::FILE* file) {
  std::string out(400, '\0');
  std::rewind(file);
  out.resize(std::fread(out.data(), 1, out.size(), file));
  for (char& c : out) c = c == '\n' || c == '\t' ? ' ' : c;
  out.erase(out.find_last_not_of(' ') + 1);
  return printable(out);
}

// A program of which we read the standard output. It ends with this object.
class Child {
 public:
  Child(char* const* arguments, int in, int err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) refuse(fmt::format("no pipe: {}", std::strerror(errno)));
    out_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err, 2);
    const int failed = posix_spawnp(&process_, arguments[0], &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failed == 0) return;
    close(out_);
    if (failed == ENOENT) refuse(kMissing);
    refuse(fmt::format("{} cannot be started: {}", arguments[0], std::strerror(failed)));
  }
  ~Child() {
    close(out_);
    if (ended_) return;
    kill(process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // All that it writes. Ctrl-C and programs that do not end are not waited for.
  std::string output() {
    std::string text;
    for (;;) {
      wait_a_little();
      pollfd there = {out_, POLLIN, 0};
      if (poll(&there, 1, 100) <= 0) continue;
      char block[65536];
      const ssize_t got = read(out_, block, sizeof block);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse(fmt::format("gnuplot's output cannot be read: {}", std::strerror(errno)));
      if (got == 0) return text;
      text.append(block, static_cast<std::size_t>(got));
      if (text.size() > kMostBytes) refuse("gnuplot writes without an end");
    }
  }

  // How it ended, as waitpid says.
  int status() {
    int status = 0;
    for (;;) {
      const pid_t got = waitpid(process_, &status, WNOHANG);
      if (got < 0 && errno != EINTR) refuse(fmt::format("gnuplot was lost: {}", std::strerror(errno)));
      if (got == process_) break;
      wait_a_little();
      poll(nullptr, 0, 5);
    }
    ended_ = true;
    return status;
  }

 private:
  void wait_a_little() const {
    Interrupt::check();
    if (seconds_now() - start_ > kMostSeconds) refuse(fmt::format("gnuplot did not end within {:.0f} s", kMostSeconds));
  }

  pid_t process_ = 0;
  int out_ = -1;
  bool ended_ = false;
  double start_ = seconds_now();
};

// What gnuplot writes.
std::string run(const char* option, const std::string& script) {
  const TemporaryFile in = temporary();
  const TemporaryFile complaints = temporary();
  if (std::fwrite(script.data(), 1, script.size(), in.get()) != script.size() || std::fflush(in.get()) != 0)
    refuse(fmt::format("no space for a temporary file: {}", std::strerror(errno)));
  std::rewind(in.get());
  std::string program = "gnuplot";
  std::string word = option;
  char* const arguments[] = {program.data(), word.data(), nullptr};
  Child child(arguments, fileno(in.get()), fileno(complaints.get()));
  std::string out = child.output();
  const int status = child.status();
  if (status == 0 && !out.empty()) return out;
  const std::string words = text_of(complaints.get());
  refuse(fmt::format("gnuplot drew nothing{}{}",
                     WIFSIGNALED(status) ? fmt::format(", signal {} ended it", WTERMSIG(status))
                     : status != 0       ? fmt::format(", its exit code is {}", WEXITSTATUS(status))
                                         : "",
                     words.empty() ? "" : ": " + words));
}

// The folder that a path's last part is in.
std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// Where the new file of a path goes that has one already: the file behind links, so that they stay.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> out(realpath(path.c_str(), nullptr), &std::free);
  if (!out) cannot_write(path, errno);
  return out.get();
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(file, text.data(), text.size());
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

// A file that is there is replaced when the new one is complete, a device or a pipe is written to.
void write_picture(const std::string& path, const std::string& text) {
  struct stat there = {};
  const bool exists = stat(path.c_str(), &there) == 0;
  const bool replaces = exists && S_ISREG(there.st_mode);
  const std::string real = replaces ? real_path(path) : path;
  const std::string name = replaces ? fmt::format("{}.moe-plot-{}", folder_of(real), getpid()) : real;
  int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
  // A pipe without a reader is an error and not waited for.
  flags |= replaces ? O_CREAT | O_EXCL : exists ? O_NONBLOCK : O_CREAT | O_TRUNC;
  const int file = open(name.c_str(), flags, 0666);
  if (file < 0) cannot_write(path, errno);
  if (exists && !replaces) fcntl(file, F_SETFL, 0);
  bool good = (!replaces || fchmod(file, there.st_mode & 07777U) == 0) && write_all(file, text);
  int fault = errno;
  if (close(file) != 0 && std::exchange(good, false)) fault = errno;
  if (good && (!replaces || rename(name.c_str(), real.c_str()) == 0)) return;
  if (good) fault = errno;
  if (replaces || !exists) unlink(name.c_str());
  cannot_write(path, fault);
}

}  // namespace

Picture::Picture(std::string path) : path_(std::move(path)) {
  struct stat there = {};
  const bool exists = stat(path_.c_str(), &there) == 0;
  if (!exists && errno != ENOENT) cannot_write(path_, errno);
  if (exists && S_ISDIR(there.st_mode)) cannot_write(path_, EISDIR);
  if (exists && access(path_.c_str(), W_OK) != 0) cannot_write(path_, errno);
  const bool in_folder = !exists || S_ISREG(there.st_mode);
  if (in_folder && access(folder_of(exists ? real_path(path_) : path_).c_str(), W_OK | X_OK) != 0)
    cannot_write(path_, errno);
  run("--version", "");
}

void Picture::draw(const Json& found) const {
  const Interrupt interrupt;
  const std::string text = run("-d", script_of(found));  // -d: without the user's own settings
  // It ends with success when it could not write all.
  if (text.find("</svg>") == std::string::npos) refuse("gnuplot drew no whole SVG");
  write_picture(path_, text);
}

}  // namespace moe_tool
