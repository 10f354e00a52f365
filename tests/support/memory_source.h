// A TensorSource over tensors in memory, by (role, expert, half).
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "scheme/tensor_source.h"
#include "support/rooms.h"

namespace moe::test {

class MemorySource : public TensorSource {
 public:
  // The memory must outlive the source.
  void set(Role role, std::int64_t expert, const TensorView& view, Half half = Half::whole) {
    tensors_.insert_or_assign(std::tuple(role, expert, half), view);
  }
  // Slices of [E, ...] for experts first, first + 1, ...
  void set_stacked(Role role, const TensorView& stacked, std::int64_t first = 0) {
    for (std::int64_t e = 0; e < stacked.shape[0]; ++e) set(role, first + e, slice0(stacked, e));
  }
  Result<TensorLease> get(const Place& p) const override {
    const auto it = tensors_.find(std::tuple(p.role, p.expert, p.half));
    if (it == tensors_.end()) return fail(Code::missing_weight, role_name(p.role), "not there");
    return TensorLease(it->second);
  }

 private:
  std::map<std::tuple<Role, std::int64_t, Half>, TensorView> tensors_;
};

}  // namespace moe::test
