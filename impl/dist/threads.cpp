// Each rank posts its operations in a ring of its own; number n of a rank meets number n of the others. An operation is
// done when this rank has copied from all others and all others have copied from it. A rank's mutex guards what it has
// posted, also while another rank copies from it: a rank that leaves waits for those who read, and is then never read.
#include "dist/threads.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::dist {
namespace {

constexpr std::uint64_t kUnderWay = 8;  // operations of a rank at once

struct Posted {
  Exchange x;
  std::vector<char> read;  // by rank: it has copied
  bool failed = false;
};

struct RankPost {
  std::mutex mutex;
  bool gone = false;
  std::uint64_t count = 0;  // operations posted so far
  std::array<Posted, kUnderWay> ring;
};

struct Group {
  explicit Group(int size) : members(usize(size)) {
    for (RankPost& member : members)
      for (Posted& posted : member.ring) posted.read.resize(usize(size));
  }
  std::vector<RankPost> members;
};

// This rank's side of an operation.
struct Receipt {
  std::uint64_t number = 0;
  bool used = false;
  int left = 0;            // ranks to copy from
  std::vector<char> done;  // by rank
};

Error gone(int rank, const char* what) {
  return fail(Code::comm, "comm", cat("comm: rank ", rank, " ", what),
              json::members("reason", "transport", "rank", rank));
}

class ThreadRank final : public Transport {
 public:
  ThreadRank(std::shared_ptr<Group> group, int rank)
      : Transport(rank, static_cast<int>(group->members.size())), group_(std::move(group)) {
    for (Receipt& r : receipts_) r.done.resize(group_->members.size());
  }
  ~ThreadRank() override {
    const std::lock_guard lock(own().mutex);
    own().gone = true;
  }

  Check alltoallv(const Exchange& x, void*& op) override {
    const std::lock_guard lock(own().mutex);
    Receipt& r = receipts_[own().count % kUnderWay];
    if (r.used) return fail(Code::comm, "comm", "comm: too many operations at once");
    r.number = own().count++;
    r.used = true;
    r.left = size();
    std::fill(r.done.begin(), r.done.end(), 0);
    Posted& posted = own().ring[r.number % kUnderWay];
    posted.x = x;
    posted.failed = false;
    std::fill(posted.read.begin(), posted.read.end(), 0);
    op = &r;
    return ok();
  }

  Result<bool> test(void* op) override {
    auto& r = *static_cast<Receipt*>(op);
    for (int s = 0; s < size() && r.left > 0; ++s) {
      if (r.done[usize(s)] != 0) continue;
      Result<bool> copied = copy_from(s, r);
      if (!copied) return failed(r, std::move(copied.error()));
      if (*copied) r.done[usize(s)] = 1, --r.left;
    }
    if (r.left > 0) return false;
    for (int s = 0; s < size(); ++s) {
      if (has_read(s, r)) continue;
      if (!is_gone(s)) return false;
      if (!has_read(s, r)) return failed(r, gone(s, "is gone"));  // it may have read just before it went
    }
    r.used = false;
    return true;
  }

  int missing(void* op) override {
    const auto& r = *static_cast<Receipt*>(op);
    for (int s = 0; s < size(); ++s)
      if (r.done[usize(s)] == 0 || !has_read(s, r)) return s;
    return -1;
  }
  bool forgets_buffers() const override { return true; }

 private:
  RankPost& own() { return group_->members[usize(rank())]; }

  bool has_read(int s, const Receipt& r) {
    const std::lock_guard lock(own().mutex);
    return own().ring[r.number % kUnderWay].read[usize(s)] != 0;
  }
  bool is_gone(int s) {
    const std::lock_guard lock(group_->members[usize(s)].mutex);
    return group_->members[usize(s)].gone;
  }
  Error failed(Receipt& r, Error why) {
    const std::lock_guard lock(own().mutex);
    own().ring[r.number % kUnderWay].failed = true;
    r.used = false;
    return why;
  }
  // False: that rank is not there yet.
  Result<bool> copy_from(int s, const Receipt& r) {
    RankPost& from = group_->members[usize(s)];
    const std::lock_guard lock(from.mutex);
    if (from.gone) return gone(s, "is gone");
    if (from.count <= r.number) return false;
    Posted& posted = from.ring[r.number % kUnderWay];
    if (posted.failed) return gone(s, "has failed");
    const Exchange& theirs = posted.x;
    // Its own ring is its own alone: no lock is needed to read what this thread has posted.
    const Exchange& mine = own().ring[r.number % kUnderWay].x;
    const std::int64_t rows = mine.recv_counts[s];
    if (theirs.row_bytes != mine.row_bytes || theirs.send_counts[rank()] != rows)
      return gone(s, "sends other rows than this rank expects");
    if (rows > 0)
      std::memcpy(mine.recv + usize(mine.recv_displs[s]) * mine.row_bytes,
                  theirs.send + usize(theirs.send_displs[rank()]) * mine.row_bytes, usize(rows) * mine.row_bytes);
    posted.read[usize(rank())] = 1;
    return true;
  }

  std::shared_ptr<Group> group_;
  std::array<Receipt, kUnderWay> receipts_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_threads(int size) {
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Transport>> ranks;
  ranks.reserve(usize(size));
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<ThreadRank>(group, r));
  return ranks;
}

}  // namespace moe::dist
