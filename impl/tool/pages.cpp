// The man page and the completions of shells, written from the tree of options, so that they say what the program
// takes. The files in pages/ are their committed copies; a test holds them equal.
#include "tool/pages.h"

#include <algorithm>
#include <cstdio>

#include "tool/options.h"

namespace moe_tool {
namespace {

// Options that people see: the others print these pages.
std::vector<const CLI::Option*> shown(const CLI::App& app, bool positional) {
  std::vector<const CLI::Option*> out;
  for (const CLI::Option* option : app.get_options())
    if (option->nonpositional() != positional && !option->get_group().empty()) out.push_back(option);
  return out;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.get_snames()) out.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

// "N" of "N:INT in [0 - 1024]", as --help has it.
std::string value_name(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }
bool takes_file(const CLI::Option& option) { return value_name(option) == "FILE" || value_name(option) == "MACHINE"; }

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// --- man ----------------------------------------------------------------------------------------

std::string troff(const std::string& text) {
  std::string out = replaced(replaced(replaced(text, "\\", "\\e"), "-", "\\-"), "'", "\\(aq");
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string man_options(const CLI::App& app) {
  std::string out;
  for (const bool positional : {true, false}) {
    for (const CLI::Option* option : shown(app, positional)) {
      std::string names = positional ? fmt::format("\\fI{}\\fR", troff(option->get_name(true))) : "";
      for (const std::string& name : names_of(*option))
        names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", troff(name));
      if (!positional && takes_value(*option)) names += fmt::format(" \\fI{}\\fR", troff(value_name(*option)));
      const std::string usual = option->get_default_str();
      out += fmt::format(".TP\n{}\n{}.\n", names, troff(option->get_description()));
      if (takes_value(*option) && !usual.empty()) out += fmt::format("By default {}.\n", troff(usual));
    }
  }
  return out;
}

std::string man(const CLI::App& app) {
  std::string out = ".\\\" Written by moe --man.\n.TH MOE 1 \"\" \"libmoe\" \"User Commands\"\n.SH NAME\n";
  out += "moe \\- run the Mixture\\-of\\-Experts layers of large language models on CPUs\n.SH SYNOPSIS\n";
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    std::string line = fmt::format(".B moe {}\n[\\fIoptions\\fR]", command->get_name());
    for (const CLI::Option* option : shown(*command, true))
      line += option->get_required() ? fmt::format(" \\fI{}\\fR", option->get_name(true))
                                     : fmt::format(" [\\fI{}\\fR]", option->get_name(true));
    out += line + "\n.br\n";
  }
  out += fmt::format(".SH DESCRIPTION\n{}\n", troff(app.get_description()));
  out += troff(replaced(app.get_footer(), "\n", " ")) + "\n.SH COMMANDS\n";
  for (const CLI::App* command : app.get_subcommands(nullptr))
    out += fmt::format(".SS moe {}\n{}.\n{}", command->get_name(), troff(command->get_description()),
                       man_options(*command));
  out +=
      ".SH ENVIRONMENT\n.TP\n\\fBNO_COLOR\\fR\nTerminals get no colours.\n.TP\n\\fBMOE_MAX_ISA\\fR\nThe best "
      "instruction set that the library may use.\n";
  out += ".SH SEE ALSO\n.BR gnuplot (1)\n";
  return out;
}

// --- completions --------------------------------------------------------------------------------

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* command : app.get_subcommands(nullptr)) out.push_back(command->get_name());
  return out;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : shown(app, false))
    for (const std::string& name : names_of(*option)) out.push_back(name);
  return out;
}

std::string bash(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : app.get_subcommands(nullptr))
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), joined(option_names(*command)));
  return fmt::format(R"(# Completion of moe for bash. Written by moe --completion bash.
_moe() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words
  COMPREPLY=()
  case ${{COMP_WORDS[1]}} in
{}    *) words='{}' ;;
  esac
  if [[ $COMP_CWORD == 1 && $current != -* ]]; then
    words='{}'
  elif [[ $current != -* ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F _moe moe
)",
                     cases, joined(option_names(app)), joined(command_names(app)));
}

// A text in single quotation marks, without what _arguments reads as its own.
std::string zsh_text(const std::string& text) {
  return replaced(replaced(replaced(replaced(text, "'", "'\\''"), "[", "("), "]", ")"), ":", "\\:");
}

std::string zsh(const CLI::App& app) {
  std::string commands;
  std::string cases;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands += fmt::format("    '{}:{}'\n", command->get_name(), zsh_text(command->get_description()));
    std::string lines;
    for (const CLI::Option* option : shown(*command, false)) {
      const std::string value = takes_value(*option) ? fmt::format(":{}:{}", zsh_text(value_name(*option)),
                                                                   takes_file(*option) ? "_files" : "")
                                                     : "";
      for (const std::string& name : names_of(*option))
        lines += fmt::format("        '{}[{}]{}' \\\n", name, zsh_text(option->get_description()), value);
    }
    cases += fmt::format("    {})\n      _arguments \\\n{}        '*:directory:_files'\n      ;;\n",
                         command->get_name(), lines);
  }
  return fmt::format(R"(#compdef moe
# Completion of moe for zsh. Written by moe --completion zsh.
_moe() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
_moe "$@"
)",
                     commands, cases);
}

std::string fish_text(const std::string& text) { return replaced(replaced(text, "\\", "\\\\"), "'", "\\'"); }

std::string fish(const CLI::App& app) {
  std::string out = "# Completion of moe for fish. Written by moe --completion fish.\n";
  for (const CLI::App* command : app.get_subcommands(nullptr))
    out += fmt::format("complete -c moe -f -n __fish_use_subcommand -a {} -d '{}'\n", command->get_name(),
                       fish_text(command->get_description()));
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    out += fmt::format("complete -c moe -F -n '__fish_seen_subcommand_from {}'\n", command->get_name());
    for (const CLI::Option* option : shown(*command, false)) {
      std::string line = fmt::format("complete -c moe -n '__fish_seen_subcommand_from {}'", command->get_name());
      for (const std::string& name : option->get_snames()) line += " -s " + name;
      for (const std::string& name : option->get_lnames()) line += " -l " + name;
      if (takes_value(*option)) line += takes_file(*option) ? " -r" : " -x";
      out += fmt::format("{} -d '{}'\n", line, fish_text(option->get_description()));
    }
  }
  return out;
}

struct Shell {
  const char* name;
  std::string (*write)(const CLI::App& app);
};
constexpr Shell kShells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

// Prints and ends the program with success, as --help does.
[[noreturn]] void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  throw CLI::Success();
}

}  // namespace

void add_pages(CLI::App& app) {
  app.add_flag_callback(
         "--man", [&app] { print(man(app)); }, "Print the man page")
      ->group("");
  app.add_option_function<std::string>(
         "--completion",
         [&app](const std::string& name) {
           for (const Shell& shell : kShells)
             if (name == shell.name) print(shell.write(app));
           throw Failure(kUsage, fmt::format("--completion '{}': not a shell that is known; there are bash, zsh, fish",
                                             printable(name)));
         },
         "Print the completions of a shell")
      ->group("");
}

}  // namespace moe_tool
