// System allocator and Buffer. Blocks of 4 MiB and more are aligned to 2 MiB and offered to the
// kernel for huge pages: +6 % read bandwidth for weights (kernels.md 10).
#include "base/buffer.h"

#include <cstdlib>
#include <utility>

#include "base/checked.h"
#include "base/os/hardware.h"
#include "base/text.h"

namespace moe {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

void* system_allocate(void*, std::size_t size, std::size_t alignment, std::int32_t) {
  const bool huge = size >= 2 * kHugePage;
  if (huge && alignment < kHugePage) alignment = kHugePage;
  if (size > std::size_t{PTRDIFF_MAX} - alignment) return nullptr;
  void* p = std::aligned_alloc(alignment, round_up(size == 0 ? std::size_t{1} : size, alignment));
  if (p != nullptr && huge) prefer_huge_pages(p, size);
  return p;
}

void system_deallocate(void*, void* ptr, std::size_t, std::size_t) { std::free(ptr); }

}  // namespace

const Allocator& system_allocator() {
  static constexpr Allocator allocator{nullptr, system_allocate, system_deallocate};
  return allocator;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      alignment_(other.alignment_),
      allocator_(other.allocator_),
      keep_(std::move(other.keep_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(alignment_, other.alignment_);
  std::swap(allocator_, other.allocator_);
  std::swap(keep_, other.keep_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) allocator_.deallocate(allocator_.user, data_, size_, alignment_);
}

Result<Buffer> Buffer::create(std::size_t size, std::size_t alignment, const Allocator& allocator,
                              std::shared_ptr<const void> keep) {
  Buffer b;
  void* p = allocator.allocate(allocator.user, size, alignment, -1);
  if (p == nullptr) return fail(Code::out_of_memory, "", cat("out of memory: ", size, " bytes"));
  b.data_ = static_cast<std::byte*>(p);
  b.size_ = size;
  b.alignment_ = alignment;
  b.allocator_ = allocator;
  b.keep_ = std::move(keep);
  if (reinterpret_cast<std::uintptr_t>(p) % alignment != 0)
    return fail(Code::callback, "allocate", cat("the allocator gave memory that is not aligned to ", alignment));
  return b;
}

}  // namespace moe
