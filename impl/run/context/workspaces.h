// Memory that calls work in, kept between calls: of a context, so that the layers of a model, which run one after
// the other, share one; of a layer that has no context. A child of fork() takes over what its parent kept, unless a
// thread of the parent was at it just then: it does not wait for threads that it does not have.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/buffer.h"
#include "base/os/process_mark.h"
#include "base/result.h"

namespace moe::run {

constexpr std::size_t kWorkspaceAlignment = 64;

class Workspaces {
 public:
  Workspaces();
  Workspaces(const Workspaces&) = delete;
  Workspaces& operator=(const Workspaces&) = delete;
  ~Workspaces();

  // Returns the smallest kept buffer that is large enough; otherwise allocates one in place of the largest that is too
  // small. Nothing is allocated if as many calls of this size have run at once before.
  Result<Buffer> take(std::size_t bytes, const Allocator& allocator);
  void give_back(Buffer buffer);

  struct Usage {
    std::uint64_t kept = 0;  // bytes, not lent
    std::uint64_t high = 0;  // the most that one call has asked for
  };
  Usage usage() const;

 private:
  struct Shelf;
  Shelf& shelf();  // of this process

  const ProcessMark process_;
  std::atomic<Shelf*> shelf_;
};

}  // namespace moe::run
