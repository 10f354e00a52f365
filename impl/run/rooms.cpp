// See rooms.h. Counting the sleeper, then looking at the rooms again, against freeing a room, then looking at the
// count: one of the two sees the other.
#include "run/rooms.h"

namespace moe {
namespace {

constexpr int kSpinMicroseconds = 20;

}  // namespace

bool Rooms::try_take(std::size_t& room) {
  const std::uint64_t mine = process_.value();
  for (std::size_t i = 0; i < holders_.size(); ++i) {
    std::uint64_t holder = holders_[i].load(std::memory_order_seq_cst);
    if (holder == mine || !holders_[i].compare_exchange_strong(holder, mine, std::memory_order_acquire)) continue;
    room = i;
    return true;
  }
  return false;
}

std::size_t Rooms::take() {
  std::size_t room = 0;
  const auto taken = [&] { return try_take(room); };
  if (spin_until(kSpinMicroseconds, taken)) return room;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t seen = given_.load(std::memory_order_seq_cst);
    if (taken()) break;
    futex_wait(given_, seen);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return room;
}

void Rooms::give(std::size_t room) {
  holders_[room].store(0, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  given_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(given_, 1);
}

}  // namespace moe
