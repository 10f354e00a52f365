// Workspaces kept between calls. See workspaces.h.
#include "run/workspaces.h"

#include <algorithm>
#include <utility>

namespace moe {
namespace {

bool smaller(const Buffer& a, const Buffer& b) { return a.size() < b.size(); }

}  // namespace

Result<Buffer> Workspaces::take(std::size_t bytes, const Allocator& allocator) {
  Buffer found;
  {
    const std::lock_guard lock(mutex_);
    high_ = std::max<std::uint64_t>(high_, bytes);
    if (!kept_.empty()) {
      auto fits = std::find_if(kept_.begin(), kept_.end(), [&](const Buffer& b) { return b.size() >= bytes; });
      if (fits == kept_.end()) --fits;
      found = std::move(*fits);
      kept_.erase(fits);
    }
    kept_.reserve(kept_.size() + lent_ + 1);  // so that giving back never allocates
    ++lent_;
  }
  if (found && found.size() >= bytes) return found;
  found = Buffer();  // the smaller one goes before the larger one comes
  auto larger = Buffer::create(bytes, kWorkspaceAlignment, allocator);
  if (!larger) {
    const std::lock_guard lock(mutex_);
    --lent_;
  }
  return larger;
}

void Workspaces::give_back(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  --lent_;
  const auto at = std::upper_bound(kept_.begin(), kept_.end(), buffer, smaller);
  if (kept_.size() < kept_.capacity()) kept_.insert(at, std::move(buffer));
}

Workspaces::Usage Workspaces::usage() const {
  const std::lock_guard lock(mutex_);
  Usage u{.high = high_};
  for (const Buffer& b : kept_) u.kept += b.size();
  return u;
}

}  // namespace moe
