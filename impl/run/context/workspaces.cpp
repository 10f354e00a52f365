// Workspaces kept between calls. See workspaces.h.
#include "run/context/workspaces.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace moe::run {
namespace {

bool smaller(const Buffer& a, const Buffer& b) { return a.size() < b.size(); }

}  // namespace

// What one process keeps.
struct Workspaces::Shelf {
  Shelf(std::uint64_t mark, Shelf* previous) : process(mark), older(previous) {}

  const std::uint64_t process;
  Shelf* const older;  // of the process that this one was forked from
  std::mutex mutex;
  std::vector<Buffer> kept;  // ascending size
  std::size_t lent = 0;
  std::uint64_t high = 0;
};

Workspaces::Workspaces() : shelf_(new Shelf(process_.value(), nullptr)) {}

Workspaces::~Workspaces() {
  for (Shelf* s = shelf_.load(std::memory_order_acquire); s != nullptr;) {
    Shelf* const older = s->older;
    if (s->mutex
            .try_lock()) {  // else a thread of another process was in the middle of a change, which no thread can end
      s->mutex.unlock();
      delete s;
    }
    s = older;
  }
}

Workspaces::Shelf& Workspaces::shelf() {
  const std::uint64_t mark = process_.value();
  Shelf* found = shelf_.load(std::memory_order_acquire);
  if (found->process == mark) return *found;
  auto fresh = std::make_unique<Shelf>(mark, found);
  const std::lock_guard lock(fresh->mutex);
  if (!shelf_.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel))
    return *found;  // another thread of this process was faster
  if (found->mutex.try_lock()) {
    fresh->kept = std::move(found->kept);
    fresh->high = found->high;
    found->mutex.unlock();
  }
  return *fresh.release();
}

Result<Buffer> Workspaces::take(std::size_t bytes, const Allocator& allocator) {
  Shelf& s = shelf();
  Buffer found;
  {
    const std::lock_guard lock(s.mutex);
    s.high = std::max<std::uint64_t>(s.high, bytes);
    if (!s.kept.empty()) {
      auto fits = std::find_if(s.kept.begin(), s.kept.end(), [&](const Buffer& b) { return b.size() >= bytes; });
      if (fits == s.kept.end()) --fits;
      found = std::move(*fits);
      s.kept.erase(fits);
    }
    s.kept.reserve(s.kept.size() + s.lent + 1);  // so that giving back never allocates
    ++s.lent;
  }
  if (found && found.size() >= bytes) return found;
  found = Buffer();  // the smaller one goes before the larger one comes
  auto larger = Buffer::create(bytes, kWorkspaceAlignment, allocator);
  if (!larger) {
    const std::lock_guard lock(s.mutex);
    --s.lent;
  }
  return larger;
}

// A call that forked, in the child: the shelf lent it in another process.
void Workspaces::give_back(Buffer buffer) {
  Shelf& s = *shelf_.load(std::memory_order_acquire);
  if (s.process != process_.value()) return;
  const std::lock_guard lock(s.mutex);
  if (s.lent > 0) --s.lent;
  const auto at = std::upper_bound(s.kept.begin(), s.kept.end(), buffer, smaller);
  if (s.kept.size() < s.kept.capacity()) s.kept.insert(at, std::move(buffer));
}

Workspaces::Usage Workspaces::usage() const {
  Shelf& s = *shelf_.load(std::memory_order_acquire);
  if (s.process != process_.value()) return {};  // nothing yet, in this process
  const std::lock_guard lock(s.mutex);
  Usage u{.high = s.high};
  for (const Buffer& b : s.kept) u.kept += b.size();
  return u;
}

}  // namespace moe::run
