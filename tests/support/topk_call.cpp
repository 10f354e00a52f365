// moe_apply of given experts.
#include "support/topk_call.h"
#include "support/rooms.h"

namespace moe::test {

std::vector<std::byte> apply_topk(const moe_layer* layer, const TopkTokens& t) {
  TopkCall call(t);
  const Failure f = failure([&](moe_error** e) { return moe_apply(layer, &call.args, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return std::move(call.out);
}

}  // namespace moe::test
