// The picture of bench, drawn by gnuplot. gnuplot runs commands that stand in a script (backquotes, system), so what
// comes from files goes into data blocks, where it is text and no more, and the picture's path is never in the script:
// gnuplot writes to its standard output.
#include "tool/plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tool/session.h"

namespace moe_tool {
namespace {

constexpr const char* kMissing =
    "gnuplot is not installed; it is in the package gnuplot-nox (Debian, Ubuntu) or gnuplot";

using TemporaryFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void refuse(const std::string& what) { throw Failure(kNo, "--plot: " + what); }

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
set y2range [0:1.2]
set y2tics 0.2
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

std::string text_of(std::FILE* file) {
  std::string out(400, '\0');
  std::rewind(file);
  out.resize(std::fread(out.data(), 1, out.size(), file));
  const std::size_t end = out.find_last_not_of(" \t\n");
  return printable(out.substr(0, end == std::string::npos ? 0 : end + 1));
}

// Runs gnuplot with the three files; its exit status.
int run(int in, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, err, 2);
  char program[] = "gnuplot";
  char defaults[] = "-d";  // without the user's own settings
  char* arguments[] = {program, defaults, nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, program, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed == ENOENT) refuse(kMissing);
  if (failed != 0) refuse(fmt::format("gnuplot cannot be started: {}", std::strerror(failed)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) refuse(fmt::format("gnuplot was lost: {}", std::strerror(errno)));
  return status;
}

}  // namespace

void plot(const Json& found, const std::string& path) {
  const TemporaryFile script = temporary();
  const TemporaryFile complaints = temporary();
  const std::string text = script_of(found);
  if (std::fwrite(text.data(), 1, text.size(), script.get()) != text.size() || std::fflush(script.get()) != 0)
    refuse(fmt::format("no space for a temporary file: {}", std::strerror(errno)));
  std::rewind(script.get());
  const std::string partial = path + ".part";
  const int out = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (out < 0) refuse(fmt::format("{} cannot be written: {}", printable(path), std::strerror(errno)));
  int status = 0;
  try {
    status = run(fileno(script.get()), out, fileno(complaints.get()));
  } catch (...) {
    close(out);
    unlink(partial.c_str());
    throw;
  }
  const bool empty = lseek(out, 0, SEEK_END) == 0;
  const bool kept = close(out) == 0 && status == 0 && !empty && rename(partial.c_str(), path.c_str()) == 0;
  if (kept) return;
  unlink(partial.c_str());
  refuse(fmt::format("gnuplot drew nothing: {}", text_of(complaints.get())));
}

}  // namespace moe_tool
