// What all commands share: where they write, how they are interrupted, what they open.
#pragma once
#include <fmt/format.h>
#include <array>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "tool/library.h"
#include "tool/screen.h"

namespace CLI {
class App;
}

namespace moe_tool {

struct Session {
  bool json = false;
  Screen out;
  Screen err;
  int exit_code = kYes;

  // A line on standard output; with --json nothing, because the document is all that may stand there.
  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    text(fmt::format(format, std::forward<Arguments>(arguments)...) + "\n");
  }
  void text(std::string_view text) const;
  // A line on standard error.
  void warn(std::string_view text) const;
  // The last line of a command: what to do next.
  void next(std::string_view text) const;
  // The document of a command with --json; otherwise nothing.
  void document(const Json& document) const;
};

// A row of the table of commands: main() declares each on the tree of options, whose callback runs it.
struct Command {
  const char* name;
  const char* summary;
  void (*declare)(CLI::App& command, Session& session);
};
extern const std::vector<Command> kCommands;

// Ctrl-C, a polite kill and a terminal that goes away cancel the calls that use control(), and end the process only
// when they come again.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  static bool came();
  static void check();  // throws when it came

  // Controls of one command at a time are told; `control` lives at least as long as this object does.
  void tell(moe_control* control);

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> old_ = {};
};

// A model's directory, opened with `threads` threads (0: all cores).
struct OpenModel {
  ContextHandle context;
  CheckpointHandle checkpoint;
  Json document;  // moe_checkpoint_to_json
  int threads = 1;
};
OpenModel open_model(const std::string& directory, int threads = 0);
ContextHandle make_context(int threads);
int threads_of(const moe_context* context);

// A document for people: what is in it may come from files of others.
Json printable_document(const Json& document);

// A path as one argument of a shell, for commands that are proposed.
std::string shell_word(std::string_view path);

}  // namespace moe_tool
