// The switches of FlashInfer and AITER. See steering.h.
#include "oracle/rows/steering.h"

#include <algorithm>

namespace moe::oracle {
namespace {

constexpr Refused kNoSuchKind = {
    .kind = "bad_flashinfer_backend",
    .why = "VLLM_FLASHINFER_MOE_BACKEND asks for kernels that FlashInfer does not have for it"};

// A GPU before or after the tenth generation has no kernels for latency.
std::string_view wanted(const Query& q, const FlashInferSwitch& which) {
  const std::string_view kind = q.env_value("VLLM_FLASHINFER_MOE_BACKEND");
  const bool blackwell = q.platform.capability && (*q.platform.capability)[0] == 10;
  if (kind == "throughput" || (kind == "latency" && !blackwell)) return which.throughput;
  if (kind == "latency") return which.latency;
  return kind == "masked_gemm" ? which.masked_gemm : std::string_view();
}

}  // namespace

std::vector<std::string_view> table_order(std::span<const BackendRow> rows) {
  std::vector<std::string_view> order;
  for (const BackendRow& row : rows)
    if (!row.name.empty() && (order.empty() || order.back() != row.backend)) order.push_back(row.backend);
  return order;
}

void drop(Steering& s, std::span<const std::string_view> backends) {
  for (const std::string_view b : backends) std::erase(s.order, b);
}

bool steer_flashinfer(const Query& q, const FlashInferSwitch& which, Steering& s) {
  if (!q.env_has(which.name)) return false;
  if (!q.env_flag(which.name, false)) {
    drop(s, which.backends);
    return false;
  }
  s.order.assign(which.backends.begin(), which.backends.end());
  if (!q.env_has("VLLM_FLASHINFER_MOE_BACKEND")) return true;
  s.needed = wanted(q, which);
  if (s.needed.empty() && !by_word(q)) s.refused = kNoSuchKind;
  return true;
}

bool steer_aiter(const Query& q, Steering& s) {
  if (!q.env_has("VLLM_ROCM_USE_AITER") && !q.env_has("VLLM_ROCM_USE_AITER_MOE")) return false;
  if (q.env_flag("VLLM_ROCM_USE_AITER", false) && q.env_flag("VLLM_ROCM_USE_AITER_MOE", true)) {
    s.needed = "AITER";
    return true;
  }
  std::erase(s.order, "AITER");
  return false;
}

}  // namespace moe::oracle
