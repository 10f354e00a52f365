// Contexts whose memory runs out: their allocator gives `allocations_left` blocks more.
#pragma once

#include <atomic>
#include <cstdlib>

#include "fuzz/handles.h"
#include "support/rooms.h"

namespace moe::fuzz {

inline std::atomic<int> allocations_left{0};

inline void* allocate(void*, std::size_t size, std::size_t alignment, std::int32_t) {
  if (allocations_left-- <= 0) return nullptr;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
inline void deallocate(void*, void* p, std::size_t, std::size_t) { std::free(p); }

inline void create_context(Handles& h) {
  const moe_allocator_ops ops{sizeof ops, 0, nullptr, allocate, deallocate, nullptr};
  const moe_context_callbacks callbacks{sizeof callbacks, 0, nullptr, nullptr, nullptr, nullptr, &ops};
  const auto text = h.pick({R"({"threads":1})", "{}", R"({"threads":2,"spin_us":0})", R"({"threads":-1})", "{"});
  const auto* given = h.bytes().flag() ? &callbacks : nullptr;
  h.make<moe_context>(moe_context_create, std::tuple{text.data(), text.size(), given});
}

}  // namespace moe::fuzz
