// What an item of phase 1 or 2 calculates in: the results of one gemm call, then what the kernel asks for. Too much for
// a caller's stack, so the workspace has a room of it for each item that runs at once. Taken before a room of panels:
// who holds one of those waits for nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "run/rooms.h"

namespace moe {

constexpr std::int64_t kCallResults = 4096;  // floats; they stay in L1

class Scratch {
 public:
  Scratch(Rooms& rooms, std::byte* all, std::size_t bytes_of_room)
      : rooms_(rooms), room_(rooms_.take()), base_(all + room_ * bytes_of_room) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { rooms_.give(room_); }

  float* results() const { return reinterpret_cast<float*>(base_); }  // [kCallResults]
  std::byte* of_gemm() const { return base_ + kCallResults * sizeof(float); }

 private:
  Rooms& rooms_;
  const std::size_t room_;
  std::byte* const base_;
};

}  // namespace moe
