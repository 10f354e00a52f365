// Where big memory (packed weights, workspaces) comes from: a table of functions with a user pointer.
// The default is aligned malloc with huge pages asked for; a context may carry the caller's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe {

struct Allocator {
  void* user = nullptr;
  // nullptr when out of memory. alignment: a power of two >= 64. numa_node: -1 = no preference.
  void* (*allocate)(void* user, std::size_t size, std::size_t alignment, std::int32_t numa_node) = nullptr;
  void (*deallocate)(void* user, void* ptr, std::size_t size, std::size_t alignment) = nullptr;
};

const Allocator& system_allocator();

}  // namespace moe
