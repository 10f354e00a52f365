// The interface through which the weights of experts are asked for.
//
// convert reads through it and does not know where tensors come from: a set of weights, files, or a
// callback of the host. Weights are asked for expert by expert, so that a source can read them on
// demand.
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
  // With redundant experts (EPLB) a physical number; the source knows which logical one it copies.
  std::int64_t expert;  // the model's number (physical, global)
  Half half = Half::whole;
};

class TensorSource;

// A tensor lent for a while: the view, and what must be given back or freed when it ends.
// Three kinds: a view of memory that outlives the call, a buffer that the lease owns (a shard that
// was copied), and memory of a host that must be given back with put().
class TensorLease {
 public:
  TensorView view;

  explicit TensorLease(const TensorView& v) : view(v) {}
  TensorLease(const TensorView& v, Buffer hold) : view(v), hold_(std::move(hold)) {}
  TensorLease(const TensorView& v, const TensorSource* source, Place place) : view(v), source_(source), place_(place) {}
  // A moved-from lease gives nothing back, or put() would come twice.
  TensorLease(TensorLease&& o) noexcept
      : view(o.view), hold_(std::move(o.hold_)), source_(std::exchange(o.source_, nullptr)), place_(o.place_) {}
  // Assignment would have to end the old lease first; no code needs it.
  TensorLease& operator=(TensorLease&&) = delete;
  ~TensorLease();

  bool owns() const { return static_cast<bool>(hold_); }
  bool ends_with_lease() const { return source_ != nullptr; }  // the view is given back when this ends
  // Only of a lease that owns one: the API hands the bytes to the host without a copy.
  Buffer take_buffer() { return std::move(hold_); }

 private:
  Buffer hold_;
  const TensorSource* source_ = nullptr;
  Place place_{};
};

// Gives this rank's share of one expert's tensor. Code::missing_weight for what it does not have; a
// w13 role is asked for whole first, then as w1 and w3. Safe to call from several threads.
// Whole first: a source with the fused tensor then answers once for both halves. missing_weight of
// an optional tensor is no error, so a source may say it of anything.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // The view may have any strides: rows of a fused tensor and transposed ones are views, not
  // copies.
  virtual Result<TensorLease> get(const Place& place) const = 0;
  // noexcept in effect: it runs in a destructor and has no way to report.
  virtual void put(const Place&, const TensorView&) const {}  // ends the use of a lease that names this source
};

inline TensorLease::~TensorLease() {
  if (source_ != nullptr) source_->put(place_, view);
}

}  // namespace moe
