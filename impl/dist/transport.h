// What moves bytes between ranks: a table of the caller's (api/comm_ops.h), or threads of this process (threads.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace moe::dist {

// Counts and displacements: rows, an entry for each rank. All that is pointed to stays as it is until the end.
struct Exchange {
  std::uint64_t row_bytes = 0;
  const std::byte* send = nullptr;
  const std::int64_t *send_counts = nullptr, *send_displs = nullptr;
  std::byte* recv = nullptr;
  const std::int64_t *recv_counts = nullptr, *recv_displs = nullptr;
};

// Used by one thread at a time. After a failure of alltoallv or test the operation is gone.
class Transport {
 public:
  Transport(int rank, int size) : rank_(rank), size_(size) {}
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  virtual Check alltoallv(const Exchange& x, void*& op) = 0;
  // Never blocks. True: the operation is done and gone.
  virtual Result<bool> test(void* op) = 0;
  // One row to and from each rank; the same rows to each rank. False: the transport has no such function.
  virtual Result<bool> alltoall(std::uint64_t row_bytes, const std::byte* send, std::byte* recv, void*& op);
  virtual Result<bool> allgatherv(const Exchange& x, void*& op);
  // A rank that has not come yet, -1: not known.
  virtual int missing(void* op);
  // Between two tests.
  virtual void pause(int microseconds);
  // False: the transport cannot end the job.
  virtual bool abort(int code);
  // Nothing is written to buffers of unfinished operations once the transport is destroyed.
  virtual bool forgets_buffers() const { return false; }

 private:
  const int rank_, size_;
};

}  // namespace moe::dist
