// What a weight tensor is for, and the names that callers give it.
//
// A caller who hands tensors over one by one names a role; weights maps names of files to roles. So
// conversion asks for roles and never sees the name of a tool.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace moe {

// What a weight tensor is for. Names and shapes per checkpoint format: scheme/checkpoint.h.
// w13 and w2 alternate: is_w13() is a test of the lowest bit, and the two roles of a kind are
// neighbours.
enum class Role : std::uint8_t {
  w13_weight,
  w2_weight,
  w13_scale,
  w2_scale,
  // the second scale of NVFP4
  w13_scale_2,
  w2_scale_2,
  // WNA16 only
  w13_zero_point,
  w2_zero_point,
  w13_g_idx,
  w2_g_idx,
  w13_bias,
  w2_bias,
  // static activations: what the model's calibration found
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
// Arrays by role have this size. Raise it with a new role.
constexpr int kRoleCount = 22;
// The first name of the role's row in roles.cpp, the one that answers and messages use.
const char* role_name(Role r);  // "w13_weight"

// A role by one of its names, which lives as long as the program.
// Error messages repeat the name that the caller used and not ours.
// Implicit from a role, so that code which has no spelling of a caller can pass the role itself.
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

// For gate and up that come as two tensors. An ungated layer has whole only.
enum class Half : std::uint8_t { whole, w1, w3 };  // w1 = gate half, w3 = up half of a w13 role

}  // namespace moe
