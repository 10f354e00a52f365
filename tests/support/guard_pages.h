// Memory between two pages that nobody may touch: one byte read or written too far is a SIGSEGV in any build and for
// any instruction, masked SIMD tails included, where AddressSanitizer does not look.
//
// A buffer has page-adjacent bytes on one side only, so a test runs with both flushes:
//   right  the last byte lies before the guard page       left  the first byte lies behind it
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "support/rooms.h"

namespace moe::test {

enum class Flush { right, left };
constexpr Flush kFlushes[] = {Flush::right, Flush::left};

class Guarded {
 public:
  // `alignment` of the first byte; at the right end the size must be a multiple of it, else a gap would hide a fault.
  Guarded(std::size_t bytes, Flush flush, std::size_t alignment = 1) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inner = (bytes + page - 1) / page * page;
    mapped_ = inner + 2 * page;
    void* all = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
      ADD_FAILURE() << "mmap of " << mapped_ << " bytes";
      mapped_ = 0;
      return;
    }
    base_ = static_cast<std::byte*>(all);
    first_ = base_ + page;
    inner_ = inner;
    if (inner != 0) {
      EXPECT_EQ(mprotect(first_, inner, PROT_READ | PROT_WRITE), 0);
    }
    EXPECT_TRUE(flush == Flush::left || bytes % alignment == 0) << bytes << " bytes leave a gap at " << alignment;
    data_ = flush == Flush::left ? first_ : first_ + (inner - bytes);
  }
  // A copy that may only be read.
  Guarded(const void* from, std::size_t bytes, Flush flush, std::size_t alignment = 1)
      : Guarded(bytes, flush, alignment) {
    if (bytes == 0 || base_ == nullptr) return;
    std::memcpy(data_, from, bytes);
    EXPECT_EQ(mprotect(first_, inner_, PROT_READ), 0);
  }
  template <class T>
  Guarded(const std::vector<T>& from, Flush flush) : Guarded(from.data(), from.size() * sizeof(T), flush, alignof(T)) {}
  Guarded(Guarded&& o) noexcept
      : base_(std::exchange(o.base_, nullptr)),
        first_(o.first_),
        data_(o.data_),
        mapped_(o.mapped_),
        inner_(o.inner_),
        bytes_(o.bytes_) {}
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  Guarded& operator=(Guarded&&) = delete;
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::vector<std::byte> bytes() const { return {data_, data_ + bytes_}; }

 private:
  std::byte *base_ = nullptr, *first_ = nullptr, *data_ = nullptr;
  std::size_t mapped_ = 0, inner_ = 0, bytes_ = 0;
};

}  // namespace moe::test
