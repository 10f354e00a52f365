// Weights from a file, by their names in it, and by role: three ways to the same bytes.
#pragma once

#include <vector>

#include "support/float8_model.h"
#include "support/temp_dir.h"

namespace moe::test {

WeightsPtr weights_of(const moe_config* config);
Failure load(moe_weights* weights, const TempDir& dir);
Failure set_named(moe_weights* weights, const OwnedTensor& t, std::int32_t& taken);
PackedPtr packed_of(const moe_selection* selection, moe_weights* weights);

// `tensors` by name, the same out of `dir`, and `roles` give the same packed bytes.
void expect_one_way_as_the_other(const moe_config* config, const TempDir& dir, const std::vector<OwnedTensor>& tensors,
                                 const std::vector<OwnedTensor>& roles);

}  // namespace moe::test
