#include "support/weight_files.h"

#include <gtest/gtest.h>

namespace moe::test {

WeightsPtr weights_of(const moe_config* config) {
  return make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config, o, e); });
}
Failure load(moe_weights* weights, const TempDir& dir) {
  return failure([&](moe_error** e) { return moe_weights_load_safetensors(weights, dir.path().c_str(), nullptr, e); });
}
Failure set_named(moe_weights* weights, const OwnedTensor& t, std::int32_t& taken) {
  const moe_tensor view = t.view();
  return failure([&](moe_error** e) {
    return moe_weights_set_named(weights, t.name.c_str(), &view, nullptr, nullptr, &taken, e);
  });
}
PackedPtr packed_of(const moe_selection* selection, moe_weights* weights) {
  return make<PackedPtr>(
      [&](moe_packed** o, moe_error** e) { return moe_convert_weights(nullptr, selection, weights, nullptr, o, e); });
}

void expect_one_way_as_the_other(const moe_config* config, const TempDir& dir, const std::vector<OwnedTensor>& tensors,
                                 const std::vector<OwnedTensor>& roles) {
  const SelectionPtr selection = make_selection(config);
  ASSERT_TRUE(selection);
  const WeightsPtr from_file = weights_of(config), by_name = weights_of(config), by_role = weights_of(config);
  const Failure loaded = load(from_file.get(), dir);
  ASSERT_EQ(loaded.status, MOE_OK) << loaded.message;
  for (const OwnedTensor& t : tensors) {
    std::int32_t taken = 0;
    const Failure f = set_named(by_name.get(), t, taken);
    ASSERT_EQ(f.status, MOE_OK) << f.message;
    EXPECT_EQ(taken, 1) << t.name;
  }
  const Failure set = set_roles(by_role.get(), roles);
  ASSERT_EQ(set.status, MOE_OK) << set.message;
  std::vector<std::vector<std::byte>> packed;
  for (moe_weights* w : {by_role.get(), from_file.get(), by_name.get()}) {
    const PackedPtr p = packed_of(selection.get(), w);
    ASSERT_TRUE(p);
    const void* data = nullptr;
    std::uint64_t size = 0;
    ASSERT_EQ(moe_packed_data(p.get(), &data, &size, nullptr), MOE_OK);
    packed.emplace_back(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + size);
  }
  EXPECT_EQ(packed[0], packed[1]);
  EXPECT_EQ(packed[0], packed[2]);
}

}  // namespace moe::test
