// Output, interruption and opening, the same for every command.
#include "tool/session.h"

#include <atomic>
#include <cstdio>

#include "tool/machine.h"

namespace moe_tool {
namespace {

std::atomic<int> interrupted = 0;
std::atomic<moe_control*> told = nullptr;

// Async-signal-safe: two atomics and moe_control_cancel.
extern "C" void on_signal(int signal) {
  if (interrupted.exchange(1) != 0) {  // asked twice: now
    std::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  if (moe_control* control = told.load()) moe_control_cancel(control);
}

}  // namespace

void Session::text(std::string_view text) const {
  if (!json) std::fwrite(text.data(), 1, text.size(), stdout);
}

void Session::warn(std::string_view text) const {
  for (const std::string& line : wrapped(fmt::format("! {}", text), static_cast<std::size_t>(err.width)))
    std::fputs((err.toned(line, Tone::kWarn) + "\n").c_str(), stderr);
}

void Session::next(std::string_view text) const { line("next: {}", out.toned(text, Tone::kBold)); }

void Session::document(const Json& document) const {
  if (json) std::fputs((document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stdout);
}

Interrupt::Interrupt() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < old_.size(); ++i) {
    sigaction(kSignals[i], nullptr, &old_[i]);
    // What is ignored stays so: by nohup, and by shells for programs in the background.
    if (old_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  told = nullptr;
  for (std::size_t i = 0; i < old_.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
}

bool Interrupt::came() { return interrupted != 0; }

void Interrupt::check() {
  if (came()) throw Failure(kInterrupted, "interrupted");
}

void Interrupt::tell(moe_control* control) {
  told = control;
  if (control != nullptr && came()) moe_control_cancel(control);
}

ContextHandle make_context(int threads) {
  const std::string options = threads > 0 ? fmt::format("{{\"threads\":{}}}", threads) : "{}";
  return make<ContextHandle>(moe_context_create, options.data(), options.size(), nullptr);
}

int threads_of(const moe_context* context) { return document_of(moe_context_to_json, context).value("threads", 1); }

OpenModel open_model(const std::string& directory, int threads) {
  OpenModel out;
  out.context = make_context(threads);
  out.threads = threads_of(out.context.get());
  out.checkpoint = make<CheckpointHandle>(moe_checkpoint_open, out.context.get(), directory.c_str(), nullptr,
                                          std::size_t{0}, nullptr);
  out.document = document_of(moe_checkpoint_to_json, out.checkpoint.get());
  return out;
}

Json printable_document(const Json& document) {
  if (document.is_string()) return printable(document.get_ref<const std::string&>());
  Json out = document;
  if (document.is_structured())
    for (auto& [key, value] : out.items()) value = printable_document(std::as_const(value));
  return out;
}

std::string shell_word(std::string_view path) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  const std::string word = (path.starts_with('-') ? "./" : "") + std::string(path);  // else it were an option
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  const bool plain = printable(word) == word;
  std::string out;
  for (const char c : word) {
    if (c == '\'') {
      out += plain ? "'\\''" : "\\'";
    } else {
      out += c == '\\' && !plain ? std::string("\\\\") : std::string(1, c);
    }
  }
  // Shells read \xNN in $'..' alone.
  return (plain ? "'" : "$'") + printable(out) + "'";
}

}  // namespace moe_tool
