// Oracle mxfp4_deepseek_v4 (float_oracles.md 2.4): the rows of mxfp4, a list of its own, and each backend with its own
// key of activations. No config leads here: nothing in a config says that its file was DeepSeek-V4's.
#include "oracle/float_configs.h"
#include "oracle/rows/mxfp4.h"
#include "oracle/rows/steering.h"

namespace moe::oracle {
namespace {

Steering steer(const Query& q) {
  if (is_our_cpu(q)) return {.order = {"CPU"}};
  if (q.platform.type != DeviceType::rocm)
    return {.order = {"FLASHINFER_TRTLLM_MXFP4_MXFP8", "DEEPGEMM_MXFP4", "MARLIN", "BATCHED_MARLIN"}};
  if (q.moe.routing_method == RoutingMethod::deepseek_v4) return {.order = {"TRITON_UNFUSED", "AITER_MXFP4_BF16"}};
  return {.order = {"AITER_MXFP4_BF16"}};
}

}  // namespace

constinit const Family families_of::mxfp4_deepseek_v4 = {
    .id = OracleId::mxfp4_deepseek_v4, .rows = mxfp4::kRows, .steer = steer, .quant_config = mxfp4_config};

}  // namespace moe::oracle
