// moe: the command line. It declares the commands on one tree of options, runs the one that was asked for, and turns
// whatever ends it into a line for people, a document for programs and an exit code.
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "tool/faults.h"
#include "tool/library_check.h"
#include "tool/options.h"
#include "tool/pages.h"
#include "tool/session.h"

namespace moe_tool {
namespace {

constexpr const char* kSummary = "Runs the Mixture-of-Experts layers of large language models on CPUs.";
constexpr const char* kFooter =
    "DIR is a model's directory as it comes from Hugging Face, or one that `moe convert` wrote.\n"
    "Exit codes: 0 yes, 1 no or failed, 2 wrong usage, 130 interrupted.";

void declare(CLI::App& app, Session& session) {
  app.name("moe");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag(
      "--version", [] { return version_text(); }, "Print versions and where the library is");
  app.option_defaults()->always_capture_default();
  add_pages(app);
  for (const Command& row : kCommands) {
    CLI::App& command = *app.add_subcommand(row.name, row.summary);
    command.add_flag("--json", session.json, "Print one JSON document instead of text");
    row.declare(command, session);
    for (CLI::Option* option : command.get_options())
      if (option->get_type_size() > 0) option->check(not_empty());
  }
}

// What ended the command early: on standard error, and as a document where one was asked for.
int failed(const Session& session, const Failure& failure) {
  std::fflush(stdout);
  if (session.err.terminal) std::fputs("\r\x1b[K", stderr);  // a line of progress
  for (const std::string& line : wrapped(printable(failure.what()), 0))
    std::fprintf(stderr, "%s %s\n", session.err.toned("moe:", Tone::kBad).c_str(), line.c_str());
  session.document({{"error", failure.details()}});
  return failure.exit_code();
}

int run(int argc, char** argv, Session& session) {
  check_library();
  CLI::App app(kSummary);
  declare(app, session);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    throw Failure(kUsage, usage_text(app, error));
  }
  return session.exit_code;
}

int guarded(int argc, char** argv) {
  Session session;
  prepare_process(session.json);
  session.out = screen_of(1);
  session.err = screen_of(2);
  // Errors of the options come before --json is parsed.
  for (int i = 1; i < argc; ++i) session.json = session.json || std::string_view(argv[i]) == "--json";
  int code = kNo;
  try {
    code = run(argc, argv, session);
  } catch (const Failure& failure) {
    code = failed(session, failure);
  } catch (const std::bad_alloc&) {
    code = failed(session, Failure(kNo, "out of memory"));
  } catch (const std::exception& error) {
    code = failed(session, Failure(kNo, error.what()));
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::perror("moe: standard output");
    return kNo;
  }
  return code;
}

}  // namespace
}  // namespace moe_tool

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  return moe_tool::guarded(argc, argv);
}
