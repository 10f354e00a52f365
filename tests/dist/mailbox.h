// A transport that a program gives as a table: letters of bytes in the memory of the test. Only the two functions that
// a table must have.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "dist/spread.h"

namespace moe::test {

struct Mailbox {
  using Letter = std::vector<std::byte>;
  std::mutex mutex;
  std::map<std::tuple<int, int, std::uint64_t>, Letter> letters;  // from, to, number of the operation
  // Changes what rank `from` sends; false: it is never delivered.
  std::function<bool(int from, int to, std::uint64_t number, std::uint64_t row_bytes, Letter&)> spoil;
  std::function<moe_status(int rank, std::uint64_t number)> fails, test_fails;  // of start, of test
  std::function<void(int rank, std::uint64_t number, std::uint64_t row_bytes)> started, tested;
  std::atomic<int> released{0};
};

class MailRank {
 public:
  MailRank(Mailbox& box, int rank, int size) : box_(box), rank_(rank), size_(size) {}

  moe_comm_ops ops() {
    moe_comm_ops o{};
    o.struct_size = sizeof o;
    o.rank = rank_;
    o.size = size_;
    o.user = this;
    o.alltoallv_start = start;
    o.test = test;
    o.destroy = [](void* user) { ++static_cast<MailRank*>(user)->box_.released; };
    return o;
  }

 private:
  struct Op {
    std::uint64_t number, row_bytes;
    std::byte* recv;
    const std::int64_t *counts, *displs;
    int next = 0;
  };

  static moe_status start(void* user, std::uint64_t row_bytes, const void* send, const std::int64_t* send_counts,
                          const std::int64_t* send_displs, void* recv, const std::int64_t* recv_counts,
                          const std::int64_t* recv_displs, moe_comm_op** op, moe_error** err) {
    auto& self = *static_cast<MailRank*>(user);
    const std::lock_guard lock(self.box_.mutex);
    const std::uint64_t number = self.count_++;
    if (self.box_.fails)
      if (const moe_status s = self.box_.fails(self.rank_, number); s != MOE_OK) {
        *err = moe_error_create(s, "the cable is cut", MOE_NUL_TERMINATED);
        return s;
      }
    if (self.box_.started) self.box_.started(self.rank_, number, row_bytes);
    for (int r = 0; r < self.size_; ++r) {
      const auto* from = static_cast<const std::byte*>(send) + static_cast<std::uint64_t>(send_displs[r]) * row_bytes;
      Mailbox::Letter letter(static_cast<std::size_t>(send_counts[r]) * row_bytes);
      if (!letter.empty()) std::memcpy(letter.data(), from, letter.size());
      if (self.box_.spoil && !self.box_.spoil(self.rank_, r, number, row_bytes, letter)) continue;
      self.box_.letters[{self.rank_, r, number}] = std::move(letter);
    }
    self.ops_.push_back({number, row_bytes, static_cast<std::byte*>(recv), recv_counts, recv_displs});
    *op = reinterpret_cast<moe_comm_op*>(&self.ops_.back());
    return MOE_OK;
  }
  static moe_status test(void* user, moe_comm_op* op, std::int32_t* done, moe_error**) {
    auto& self = *static_cast<MailRank*>(user);
    auto& o = *reinterpret_cast<Op*>(op);
    const std::lock_guard lock(self.box_.mutex);
    if (self.box_.tested) self.box_.tested(self.rank_, o.number, o.row_bytes);
    if (self.box_.test_fails)
      if (const moe_status s = self.box_.test_fails(self.rank_, o.number); s != MOE_OK) return s;
    for (; o.next < self.size_; ++o.next) {
      const auto it = self.box_.letters.find({o.next, self.rank_, o.number});
      if (it == self.box_.letters.end()) return MOE_OK;
      const auto room = static_cast<std::size_t>(o.counts[o.next]) * o.row_bytes;
      const std::size_t bytes = std::min(it->second.size(), room);  // a short letter leaves what was there
      if (bytes != 0)
        std::memcpy(o.recv + static_cast<std::uint64_t>(o.displs[o.next]) * o.row_bytes, it->second.data(), bytes);
      self.box_.letters.erase(it);
    }
    *done = 1;
    return MOE_OK;
  }

  Mailbox& box_;
  const int rank_, size_;
  std::uint64_t count_ = 0;
  std::deque<Op> ops_;  // kept: their addresses are the operations
};

// fn(rank, comm) on a thread for each rank of a box.
inline void on_mail(Mailbox& box, int size, const OnRank& fn, const std::string& options = "{\"timeout_ms\":20000}") {
  std::deque<MailRank> ranks;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) ranks.emplace_back(box, r, size);
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      const moe_comm_ops ops = ranks[static_cast<std::size_t>(r)].ops();
      const CommPtr comm = make<CommPtr>(
          [&](moe_comm** o, moe_error** e) { return moe_comm_create(&ops, options.c_str(), options.size(), o, e); });
      fn(r, comm.get());
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(box.released.load(), size);
}

}  // namespace moe::test
