// Owned, aligned, zero-or-uninitialised memory that gives itself back to the allocator it came from.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/allocator.h"
#include "base/result.h"

namespace moe {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  // `keep` is held as long as the memory (the context that lends a caller's allocator).
  static Result<Buffer> create(std::size_t size, std::size_t alignment = 64,
                               const Allocator& allocator = system_allocator(),
                               std::shared_ptr<const void> keep = nullptr);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t alignment_ = 0;
  Allocator allocator_;
  std::shared_ptr<const void> keep_;
};

}  // namespace moe
