// Options that several commands take, and what is said of options that do not exist.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tool/session.h"

namespace moe_tool {

// The message for a command line that was not understood, with the nearest word that exists.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error);
// The one of `words` that is the fewest changes of a letter away, "" where none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& words);

// A check for amounts of seconds: at most `most`, and a number, which a comparison alone lets NaN pass for.
CLI::Validator seconds_up_to(double most);
// A check for options whose value must not be empty: a shell's variable that is not set would else be no option at all.
CLI::Validator not_empty();
// A check for whole numbers from 0.
CLI::Validator whole_number();

// DIR: not looked at here, so that messages come from the library, which says what is wrong with it.
void add_directory(CLI::App& command, std::string& directory, const char* name = "DIR",
                   const char* what = "The model's directory");

// "0-3,7": numbers in ascending order, each once.
std::vector<std::int64_t> number_list(const std::string& text, std::int64_t largest, const char* option);

// --for: the machine that is meant. "this", a name of kTargets, or a file with a platform's document.
struct TargetMachine {
  std::string name = "this";
  PlatformHandle platform;  // null: this machine
  std::string patch;        // members of the config that the target wants, "" for none
  bool here = true;         // layers can run on this machine
};
void add_target(CLI::App& command, std::string& name);
// " --for NAME" for a command that is proposed, "" of this machine.
std::string for_text(const std::string& name);
TargetMachine target_of(const std::string& name);
// The one that a converted folder says it is for: "cpu x86_64", "cuda 9.0 cuda_version 12080 flashinfer".
TargetMachine target_of_folder(const std::string& platform);

}  // namespace moe_tool
