// moe_apply of given experts.
#include "support/topk_call.h"

namespace moe::test {

std::vector<std::byte> apply_topk(const moe_layer* layer, const TopkTokens& t) {
  const std::size_t row = static_cast<std::size_t>(t.H) * (t.dtype == MOE_DTYPE_F32 ? 4 : 2);
  std::vector<std::byte> out(row * static_cast<std::size_t>(t.count), std::byte{0xa5});
  const moe_tensor hidden = tensor(t.dtype, {t.count, t.H}, t.x), ids = tensor(MOE_DTYPE_I32, {t.count, t.K}, t.ids),
                   weights = tensor(MOE_DTYPE_F32, {t.count, t.K}, t.weights);
  moe_tensor result = tensor(t.dtype, {t.count, t.H}, out.data());
  moe_apply_args args{};
  args.struct_size = sizeof args;
  args.mode = MOE_APPLY_TOPK;
  args.hidden = &hidden;
  args.topk_ids = &ids;
  args.topk_weights = &weights;
  args.out = &result;
  const Failure f = failure([&](moe_error** e) { return moe_apply(layer, &args, e); });
  EXPECT_EQ(f.status, MOE_OK) << f.message;
  return out;
}

}  // namespace moe::test
