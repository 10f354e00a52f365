// A packed file is mapped while it is compared. Where another process cuts it short, or its disk fails, the processor
// raises SIGBUS: the handler says which file it was and ends the process. It uses nothing but system calls.
#include "tool/faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <string_view>

#include "tool/library.h"

namespace moe_tool {
namespace {

constexpr std::size_t kLongest = 4096;  // of a path
const bool* wants_document = nullptr;

// Text for a file, in pieces: what is not written is lost, no one is left to tell.
class Pieces {
 public:
  explicit Pieces(int file) : file_(file) {}
  ~Pieces() { flush(); }
  void add(std::string_view text) {
    for (const char c : text) {
      if (size_ == sizeof buffer_) flush();
      buffer_[size_++] = c;
    }
  }
  // Bytes of a path as printable() writes those that are not plain; `slash` stands for a backslash.
  void add_path(std::string_view path, std::string_view slash) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    for (const char c : path) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
        add({&c, 1});
      } else {
        add(slash);
        add("x");
        add(kDigits.substr(byte >> 4U, 1));
        add(kDigits.substr(byte & 15U, 1));
      }
    }
  }

 private:
  void flush() {
    if (write(file_, buffer_, size_) < 0) {
    }
    size_ = 0;
  }

  int file_;
  std::size_t size_ = 0;
  char buffer_[512];
};

// Reads /proc/self/maps: lines "from-to rights offset device inode   path".
class Mappings {
 public:
  Mappings() : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~Mappings() {
    if (file_ >= 0) close(file_);
  }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  // The file that is mapped at `address`, "" where there is none.
  std::string_view file_at(std::uintptr_t address) {
    for (int c = next(); c >= 0; c = next()) {
      const std::uintptr_t from = number(c);
      const std::uintptr_t to = number(next());
      std::size_t size = 0;
      for (c = next(); c >= 0 && c != '\n'; c = next()) {
        if (size == 0 && c != '/') continue;
        if (size < sizeof path_) path_[size++] = static_cast<char>(c);
      }
      if (address >= from && address < to) return {path_, size};
    }
    return {};
  }

 private:
  int next() {
    if (at_ == got_) {
      got_ = file_ < 0 ? 0 : read(file_, buffer_, sizeof buffer_);
      at_ = 0;
      if (got_ <= 0) return got_ = 0, -1;
    }
    return static_cast<unsigned char>(buffer_[at_++]);
  }
  // Of hexadecimal digits of which `c` is the first; the character behind them is taken too.
  std::uintptr_t number(int c) {
    std::uintptr_t out = 0;
    for (; (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); c = next())
      out = out << 4U | static_cast<std::uintptr_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    return out;
  }

  int file_;
  ssize_t at_ = 0;
  ssize_t got_ = 0;
  char buffer_[1024];
  char path_[kLongest];
};

extern "C" void on_bus_error(int signal, siginfo_t* info, void*) {
  static std::atomic<bool> first = true;
  if (!first.exchange(false))  // another thread says it and ends the process
    for (;;) pause();
  Mappings mappings;
  const std::string_view path = mappings.file_at(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (path.empty()) {  // not a file's: the fault comes again and ends the process as it would have
    std::signal(signal, SIG_DFL);
    first = true;
    return;
  }
  constexpr std::string_view kWhat = "became shorter while it was in use, or its disk cannot read it";
  {
    Pieces text(2);
    text.add(isatty(2) == 1 ? "\nmoe: " : "moe: ");  // not behind a line of progress
    text.add_path(path, "\\");
    text.add(": ");
    text.add(kWhat);
    text.add("\n");
  }
  if (wants_document != nullptr && *wants_document) {
    Pieces text(1);
    text.add("{\"error\": {\"status\": \"MOE_ERR_IO\", \"message\": \"");
    text.add(kWhat);
    text.add("\", \"subject\": \"");
    text.add_path(path, "\\\\");
    text.add("\"}}\n");
  }
  _exit(kNo);
}

}  // namespace

void prepare_process(const bool& json) {
  // A standard file that is closed would be the number of the next file that is opened, and lines meant for people
  // would go there. It is taken by one that cannot be written, so that a lost output is an error as before.
  for (int file = 0; file < 3; ++file)
    if (fcntl(file, F_GETFD) < 0 && open("/dev/null", file == 0 ? O_WRONLY : O_RDONLY) < 0) return;
  std::signal(SIGXFSZ, SIG_IGN);  // writes then fail, with words
  wants_document = &json;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace moe_tool
