// moe_apply of some tokens whose experts and weights are given.
#pragma once

#include <vector>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test {

std::vector<std::byte> apply_topk(const moe_layer* layer, const TopkTokens& t);

// Tokens [first, first + count) of a model with values x [T, H] for its dtype, ids and weights [T, K].
template <class M>
std::vector<std::byte> apply_some(const moe_layer* layer, const M& m, std::int64_t first, std::int64_t count) {
  const std::vector<std::byte> x = in_dtype({m.x.begin() + first * m.H, m.x.begin() + (first + count) * m.H}, m.dtype);
  return apply_topk(layer,
                    {m.dtype, count, m.H, m.K, x.data(), m.ids.data() + first * m.K, m.weights.data() + first * m.K});
}

}  // namespace moe::test
