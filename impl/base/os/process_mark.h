// Whether this is still the process it was: a number that changes in the child of a fork(), read without a
// system call. The mark lies in a page that the kernel empties in the child (MADV_WIPEONFORK, Linux 4.14); where
// that cannot be had (in emulators), it is the process id.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/float_rules.h"

namespace moe {

class ProcessMark {
 public:
  ProcessMark() noexcept;
  ProcessMark(const ProcessMark&) = delete;
  ProcessMark& operator=(const ProcessMark&) = delete;
  ~ProcessMark();

  // Never 0; equal in one process, different in a child and its parent. From any thread.
  std::uint64_t value() const noexcept;

 private:
  using Word = std::atomic<std::uint64_t>;
  Word* page_ = nullptr;  // nullptr: the process id serves
  mutable Word last_{1};  // copied by fork: the child's next value is not its parent's
};

}  // namespace moe
