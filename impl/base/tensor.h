// Views of tensors that the caller owns, and the interface through which conversion asks for weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/index.h"
#include "base/result.h"

namespace moe {

constexpr int kMaxDims = 6;

struct TensorView {
  DType dtype = DType::invalid;
  int ndim = 0;
  std::array<std::int64_t, kMaxDims> shape{};    // elements
  std::array<std::int64_t, kMaxDims> strides{};  // elements, always filled in (row-major when the caller gave none)
  std::byte* data = nullptr;
  std::size_t nbytes = 0;  // bytes at data

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= at(shape, i);
    return n;
  }
};

// "[8, 2048, 6]"
std::string shape_text(std::span<const std::int64_t> shape);
// Bytes of a row-major tensor (rows of sub-byte types fill whole bytes); nullopt when it overflows,
// a dimension is negative, ndim is out of [0, kMaxDims] or the type is unknown.
std::optional<std::int64_t> tensor_nbytes(DType dtype, std::span<const std::int64_t> shape);
// A row-major view; shape must be valid and small enough (already checked).
TensorView row_major(DType dtype, std::initializer_list<std::int64_t> shape, const void* data);
bool is_row_major(const TensorView& t);
// The slice t[index] along the first dimension.
TensorView slice0(const TensorView& t, std::int64_t index);
// Rows [begin, begin + count) along the first dimension.
TensorView rows(const TensorView& t, std::int64_t begin, std::int64_t count);

// What a weight tensor is for. Names and shapes per checkpoint format: scheme/checkpoint.h.
enum class Role : std::uint8_t {
  w13_weight,
  w2_weight,
  w13_scale,
  w2_scale,
  w13_scale_2,
  w2_scale_2,
  w13_zero_point,
  w2_zero_point,
  w13_g_idx,
  w2_g_idx,
  w13_bias,
  w2_bias,
  w13_input_scale,
  w2_input_scale,
  w13_global_scale,  // a divisor: 1 / w13_scale_2
  w2_global_scale,
  w13_input_global_scale,  // the same of w13_input_scale
  w2_input_global_scale,
  w13_weight_shape,  // [2] numbers that are checked against the layer, then left out
  w2_weight_shape,
  w13_g_idx_sort_indices,  // checked to sort g_idx, then left out: conversion sorts columns itself
  w2_g_idx_sort_indices
};
constexpr int kRoleCount = 22;
const char* role_name(Role r);  // "w13_weight"

// A role by one of its names, which lives as long as the program.
struct NamedRole {
  Role role;
  const char* name;
  NamedRole(Role r) : role(r), name(role_name(r)) {}  // NOLINT(google-explicit-constructor)
  NamedRole(Role r, const char* as) : role(r), name(as) {}
};
std::optional<NamedRole> named_role(std::string_view name);
std::optional<Role> role_from_name(std::string_view name);
std::vector<std::string_view> role_names();  // all of them
constexpr bool is_w13(Role r) { return static_cast<int>(r) % 2 == 0; }

enum class Half : std::uint8_t { whole, w1, w3 };  // w1 = gate half, w3 = up half of a w13 role

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
