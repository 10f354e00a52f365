// What an item of phase 1 or 2 calculates in: the results of one gemm call, then what the kernel asks for. Too much for
// a caller's stack, so the workspace has a bay of it for each item that runs at once. Taken before a bay of panels:
// who holds one of those waits for nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "run/context/bays.h"

namespace moe::run {

constexpr std::int64_t kCallResults = 16384;  // floats, the most; see panels_per_call

class ItemScratch {
 public:
  ItemScratch(Bays& bays, std::byte* all, std::size_t bytes_of_bay)
      : bays_(bays), bay_(bays_.take()), base_(all + bay_ * bytes_of_bay) {}
  ItemScratch(const ItemScratch&) = delete;
  ItemScratch& operator=(const ItemScratch&) = delete;
  ~ItemScratch() { bays_.give(bay_); }

  float* results() const { return reinterpret_cast<float*>(base_); }  // [kCallResults]
  std::byte* of_gemm() const { return base_ + kCallResults * sizeof(float); }

 private:
  Bays& bays_;
  const std::size_t bay_;
  std::byte* const base_;
};

}  // namespace moe::run
