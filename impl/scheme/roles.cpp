// The names of roles. See roles.h.
#include "scheme/roles.h"

#include <array>
#include <cstddef>

#include "base/float_rules.h"
#include "base/index.h"

namespace moe {
namespace {

// The role's own name, then those that vLLM's and SGLang's layers give its tensor. A name stands in one row: what
// multiplies and what divides are roles of their own (weight_scale_2 and weight_global_scale), whatever tool wrote the
// file.
constexpr std::size_t kMostNames = 4;
constexpr std::array<std::array<const char*, kMostNames>, kRoleCount> kRoles = {{
    {"w13_weight", "w13", "w13_weight_packed", "w13_qweight"},
    {"w2_weight", "w2", "w2_weight_packed", "w2_qweight"},
    {"w13_scale", "w13_weight_scale", "w13_weight_scale_inv", "w13_scales"},
    {"w2_scale", "w2_weight_scale", "w2_weight_scale_inv", "w2_scales"},
    {"w13_scale_2", "w13_weight_scale_2"},
    {"w2_scale_2", "w2_weight_scale_2"},
    {"w13_zero_point", "w13_qzeros", "w13_weight_zero_point"},
    {"w2_zero_point", "w2_qzeros", "w2_weight_zero_point"},
    {"w13_g_idx", "w13_weight_g_idx"},
    {"w2_g_idx", "w2_weight_g_idx"},
    {"w13_bias", "w13_weight_bias"},
    {"w2_bias", "w2_weight_bias"},
    {"w13_input_scale", "w13_input_scale_2"},
    {"w2_input_scale", "w2_input_scale_2"},
    {"w13_global_scale", "w13_weight_global_scale"},
    {"w2_global_scale", "w2_weight_global_scale"},
    {"w13_input_global_scale"},
    {"w2_input_global_scale"},
    {"w13_weight_shape"},
    {"w2_weight_shape"},
    {"w13_g_idx_sort_indices"},
    {"w2_g_idx_sort_indices"},
}};
static_assert(kRoles.back()[0] != nullptr, "a role without its row would have no name");

}  // namespace

const char* role_name(Role r) { return at(kRoles, r)[0]; }

std::optional<NamedRole> named_role(std::string_view name) {
  for (std::size_t i = 0; i < kRoles.size(); ++i)
    for (const char* known : kRoles[i])
      if (known != nullptr && name == known) return NamedRole(static_cast<Role>(i), known);
  return std::nullopt;
}

std::optional<Role> role_from_name(std::string_view name) {
  const auto found = named_role(name);
  return found ? std::optional(found->role) : std::nullopt;
}

std::vector<std::string_view> role_names() {
  std::vector<std::string_view> all;
  for (const auto& names : kRoles)
    for (const char* known : names)
      if (known != nullptr) all.emplace_back(known);
  return all;
}

}  // namespace moe
