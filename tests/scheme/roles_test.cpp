// Names of roles, ours and those of other engines.
#include "scheme/roles.h"
#include "base/nearest.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

namespace moe::test::roles_test {
namespace {

TEST(Roles, NamesReadBackAndAliasesAreTaken) {
  std::set<std::string> names;
  for (int i = 0; i < kRoleCount; ++i) {
    const auto r = static_cast<Role>(i);
    names.insert(role_name(r));
    EXPECT_EQ(role_from_name(role_name(r)), r);
    EXPECT_EQ(is_w13(r), std::string(role_name(r)).starts_with("w13")) << role_name(r);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kRoleCount));
  EXPECT_EQ(role_from_name("w13"), Role::w13_weight);
  EXPECT_EQ(role_from_name("w2_weight_scale"), Role::w2_scale);
  EXPECT_EQ(role_from_name("w2_qzeros"), Role::w2_zero_point);
  EXPECT_EQ(role_from_name("w13_weight_global_scale"), Role::w13_global_scale);
  EXPECT_EQ(role_from_name("w2_input_global_scale"), Role::w2_input_global_scale);
  EXPECT_EQ(role_from_name(""), std::nullopt);
  EXPECT_STREQ(named_role("w2_qweight")->name, "w2_qweight");
  EXPECT_STREQ(NamedRole(Role::w2_weight).name, "w2_weight");
  EXPECT_EQ(did_you_mean("w2_wieght", role_names()), " (did you mean w2_weight?)");
  EXPECT_EQ(did_you_mean("w13_g_idx_sort_indixes", role_names()), " (did you mean w13_g_idx_sort_indices?)");
}

// What layers of vLLM 0.33 and SGLang 0.5 register; each name has one meaning, whatever its format.
TEST(Roles, ByTheNamesOfOtherEngines) {
  const std::pair<const char*, Role> names[] = {{"weight_packed", Role::w13_weight},
                                                {"qweight", Role::w13_weight},
                                                {"weight", Role::w13_weight},
                                                {"scales", Role::w13_scale},
                                                {"weight_scale", Role::w13_scale},
                                                {"weight_scale_inv", Role::w13_scale},
                                                {"weight_scale_2", Role::w13_scale_2},
                                                {"weight_global_scale", Role::w13_global_scale},
                                                {"qzeros", Role::w13_zero_point},
                                                {"weight_zero_point", Role::w13_zero_point},
                                                {"g_idx", Role::w13_g_idx},
                                                {"weight_g_idx", Role::w13_g_idx},
                                                {"bias", Role::w13_bias},
                                                {"weight_bias", Role::w13_bias},
                                                {"input_scale", Role::w13_input_scale},
                                                {"input_scale_2", Role::w13_input_scale},
                                                {"weight_shape", Role::w13_weight_shape},
                                                {"input_global_scale", Role::w13_input_global_scale},
                                                {"g_idx_sort_indices", Role::w13_g_idx_sort_indices}};
  for (const auto& [name, role] : names) {
    EXPECT_EQ(role_from_name(std::string("w13_") + name), role) << name;
    EXPECT_EQ(role_from_name(std::string("w2_") + name), static_cast<Role>(static_cast<int>(role) + 1)) << name;
    EXPECT_EQ(role_from_name(name), std::nullopt) << name;
  }
  EXPECT_EQ(role_from_name("w1_weight"), std::nullopt);
}

}  // namespace
}  // namespace moe::test::roles_test
