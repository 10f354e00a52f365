// The interface through which the weights of experts are asked for.
#pragma once

#include <cstdint>
#include <utility>

#include "base/buffer.h"
#include "base/result.h"
#include "base/tensor.h"
#include "scheme/roles.h"

namespace moe {

struct Place {
  Role role;
  std::int64_t expert;  // the model's number (physical, global)
  Half half = Half::whole;
};

class TensorSource;

// A tensor lent for a while: the view, and what must be given back or freed when it ends.
class TensorLease {
 public:
  TensorView view;

  explicit TensorLease(const TensorView& v) : view(v) {}
  TensorLease(const TensorView& v, Buffer hold) : view(v), hold_(std::move(hold)) {}
  TensorLease(const TensorView& v, const TensorSource* source, Place place) : view(v), source_(source), place_(place) {}
  TensorLease(TensorLease&& o) noexcept
      : view(o.view), hold_(std::move(o.hold_)), source_(std::exchange(o.source_, nullptr)), place_(o.place_) {}
  TensorLease& operator=(TensorLease&&) = delete;
  ~TensorLease();

  bool owns() const { return static_cast<bool>(hold_); }
  bool ends_with_lease() const { return source_ != nullptr; }  // the view is given back when this ends
  Buffer take_buffer() { return std::move(hold_); }

 private:
  Buffer hold_;
  const TensorSource* source_ = nullptr;
  Place place_{};
};

// Gives this rank's share of one expert's tensor. Code::missing_weight for what it does not have; a
// w13 role is asked for whole first, then as w1 and w3. Safe to call from several threads.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual Result<TensorLease> get(const Place& place) const = 0;
  virtual void put(const Place&, const TensorView&) const {}  // ends the use of a lease that names this source
};

inline TensorLease::~TensorLease() {
  if (source_ != nullptr) source_->put(place_, view);
}

}  // namespace moe
