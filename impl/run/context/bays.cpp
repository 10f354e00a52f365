// See bays.h. No wake-up is lost: take() registers as a sleeper before it looks at the bays again, give() frees the
// bay before it reads the number of sleepers (all seq_cst).
#include "run/context/bays.h"

#include "run/context/wait.h"

namespace moe::run {
namespace {

constexpr int kSpinMicroseconds = 20;

}  // namespace

Bays::Bays(std::span<Holder> holders) : holders_(holders) {
  for (Holder& h : holders_) h.process.store(0, std::memory_order_relaxed);
}

bool Bays::try_take(std::size_t& bay) {
  const std::uint64_t mine = process_ ? process_->value() : 1;
  const std::size_t first = thread_number() % holders_.size();
  for (std::size_t i = 0; i < holders_.size(); ++i) {
    const std::size_t at = (first + i) % holders_.size();
    std::atomic<std::uint64_t>& process = holders_[at].process;
    std::uint64_t holder = process.load(std::memory_order_seq_cst);
    if (holder == mine || !process.compare_exchange_strong(holder, mine, std::memory_order_acquire)) continue;
    bay = at;
    return true;
  }
  return false;
}

std::size_t Bays::take() {
  std::size_t bay = 0;
  const auto taken = [&] { return try_take(bay); };
  if (spin_until(kSpinMicroseconds, taken)) return bay;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t seen = given_.load(std::memory_order_seq_cst);
    if (taken()) break;
    futex_wait(given_, seen);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return bay;
}

void Bays::give(std::size_t bay) {
  holders_[bay].process.store(0, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  given_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(given_, 1);
}

}  // namespace moe::run
