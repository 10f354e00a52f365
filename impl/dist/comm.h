// A communicator: a transport, how long to wait, and whether it can still be trusted.
//
// Every collective call begins with headers (header.h), one to and from each rank, so that ranks which make different
// calls see it there, where all of them send rows of one size.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/index.h"
#include "base/result.h"
#include "dist/header.h"
#include "dist/options.h"
#include "dist/transport.h"
#include "run/context/context.h"

namespace moe::dist {

// A call, for messages. layer_id -1: not known yet.
struct Doing {
  const char* call = "";
  std::int64_t layer_id = -1;
};

// What a call needs memory for: its chunks on the way, its tokens and this rank's layer.
enum class CallPart : std::uint8_t { chunks, layer };

// An operation under way.
struct Pending {
  void* op = nullptr;
  const char* step = "";  // for messages
  bool running = false;
};

// The memory of an exchange that brings each rank's bytes to all. What a deadline leaves behind is kept.
class Gathering {
 public:
  Gathering(std::size_t bytes, int ranks)
      : bytes_(bytes), all_(std::make_shared<std::vector<std::byte>>(bytes * (usize(ranks) + 1))) {}
  std::byte* mine() { return all_->data(); }
  const std::byte* of(int rank) const { return all_->data() + bytes_ * (usize(rank) + 1); }
  std::size_t bytes() const { return bytes_; }
  const std::shared_ptr<std::vector<std::byte>>& memory() const { return all_; }

 private:
  std::size_t bytes_;
  std::shared_ptr<std::vector<std::byte>> all_;
};

class Comm {
 public:
  static Result<std::shared_ptr<Comm>> create(std::unique_ptr<Transport> transport, const CommOptions& options);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm();

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  const CommOptions& options() const { return options_; }
  Check set_options(const CommOptions& options);

  // One call uses the communicator at a time: Code::busy. Code::comm_poisoned after a failure.
  Check claim(const Doing& doing);
  void release() { claimed_.store(false, std::memory_order_release); }

  Check start(const Exchange& x, const char* step, Pending& pending);
  Check start_allgather(const Exchange& x, const char* step, Pending& pending);  // x.send_displs are all 0
  // The same header goes to each rank but for its rows; those of the others are in headers() when it is done.
  Check start_headers(const RankHeader& mine, const std::int64_t* rows, Pending& pending);
  const RankHeader* headers() const { return received_.data(); }
  // True when it is done. Never waits.
  Result<bool> test(Pending& pending);
  // Code::comm, "timeout", after `times` the time of the options.
  Check wait(Pending& pending, int times = 1);
  Check gather(Gathering& rows, const char* step);
  // Headers that are there: the first that is no header of this step, then the first whose status is not 0.
  Check check_headers(const RankHeader& mine) const;
  // Memory of a call. One call at a time uses the communicator, so its spread layers share what is large enough.
  Result<std::shared_ptr<Buffer>> call_memory(CallPart part, std::size_t bytes,
                                              const std::shared_ptr<run::Context>& context);
  // Start, wait and check. A word of mine.rows goes to all of them.
  Check meet(const RankHeader& mine, int times = 1);
  // With this rank's success so far, which its header tells. Its own fault is what it returns.
  Check meet_with(Check mine, RankHeader header, int times = 1);

  // The number of a call, the same on all ranks.
  std::uint32_t next_call() { return calls_++; }

  // What `rank` sent cannot be: nothing that comes after it can be trusted.
  Error distrust(int rank, const char* what) {
    poison();
    return bad_peer(rank, what);
  }
  void poison() { poisoned_.store(true, std::memory_order_release); }
  bool is_poisoned() const { return poisoned_.load(std::memory_order_acquire); }
  // Its end is not asked for again.
  void abandon(Pending& pending) {
    if (!pending.running) return;
    pending.running = false;
    stuck_ = true;
    poison();
  }
  // What an unfinished operation may still write to. It is kept until the transport is gone, or for ever.
  // A communicator fails once, so a few places are enough.
  void keep(std::shared_ptr<void> memory) noexcept {
    if (kept_.size() < kept_.capacity()) kept_.push_back(std::move(memory));
  }

  std::uint64_t wait_us() const { return wait_us_.load(std::memory_order_relaxed); }

 private:
  struct Left;
  // Left behind by all communicators: never given back, but tools that look for leaks find it here.
  static std::atomic<Left*> all_left_;

  Comm(std::unique_ptr<Transport> transport, const CommOptions& options);
  Error timed_out(const Pending& pending, std::int64_t ms);
  // What throws in the transport leaves it as a failure does.
  template <class Body>
  auto in_transport(Body body) {
    try {
      return body();
    } catch (...) {
      poison();
      throw;
    }
  }

  std::unique_ptr<Transport> transport_;
  CommOptions options_;
  std::vector<RankHeader> sent_, received_;
  std::vector<std::int64_t> ones_, places_, zeros_;  // counts 1, displacements 0, 1, .., counts 0
  struct Lent {
    const run::Context* context = nullptr;  // lives as long as the buffer
    std::weak_ptr<Buffer> buffer;
  };
  std::array<Lent, 2> lent_;  // by CallPart
  Doing doing_;
  std::atomic<bool> claimed_{false}, poisoned_{false};
  std::atomic<std::uint64_t> wait_us_{0};
  std::uint32_t calls_ = 0;
  bool stuck_ = false;  // an operation never ended
  std::unique_ptr<Left> left_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Until its end a call has the communicator.
class Claimed {
 public:
  explicit Claimed(Comm& comm) : comm_(comm) {}
  Claimed(const Claimed&) = delete;
  Claimed& operator=(const Claimed&) = delete;
  ~Claimed() { comm_.release(); }

 private:
  Comm& comm_;
};

}  // namespace moe::dist
