// What an item of phase 1 or 2 calculates in: the results of one gemm call, then what the kernel asks for. Too much for
// a caller's stack, so the workspace has a bay of it for each item that runs at once. Taken before a bay of panels:
// who holds one of those waits for nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/index.h"
#include "run/context/bays.h"

namespace moe::run {

// Where the bays lie, and how large they are.
struct ScratchBays {
  std::byte* base = nullptr;
  std::int64_t results = 0;  // floats of one gemm call
  std::size_t bytes = 0;     // of a bay
};

class ItemScratch {
 public:
  ItemScratch(Bays& bays, const ScratchBays& all)
      : bays_(bays), bay_(bays_.take()), base_(all.base + bay_ * all.bytes), results_(usize(all.results)) {}
  ItemScratch(const ItemScratch&) = delete;
  ItemScratch& operator=(const ItemScratch&) = delete;
  ~ItemScratch() { bays_.give(bay_); }

  float* results() const { return reinterpret_cast<float*>(base_); }
  std::byte* of_gemm() const { return base_ + results_ * sizeof(float); }

 private:
  Bays& bays_;
  const std::size_t bay_;
  std::byte* const base_;
  const std::size_t results_;
};

}  // namespace moe::run
