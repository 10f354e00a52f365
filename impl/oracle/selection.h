// The answer of backend selection, with a reason for every candidate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/platform.h"
#include "base/result.h"
#include "config/config.h"
#include "kernels/kernel_ids.h"
#include "layouts/layout.h"
#include "oracle/reject.h"

namespace moe::oracle {

struct Candidate {
  std::string backend, kernel, experts;  // kernel: for devices that libmoe does not run, the experts class
  Reject reason = Reject::none;
  std::string detail, subject;  // never empty detail on a refusal: names the needed and the found value
  std::int32_t priority = 0;
  bool chosen = false;
};

struct Selection {
  std::shared_ptr<const Config> config;
  Platform platform;
  std::string oracle;                 // "w4a8_int8", ...; "none" when vLLM has no oracle for the config
  std::vector<Candidate> candidates;  // in priority order
  std::optional<std::size_t> winner;  // index into candidates
  std::optional<std::size_t> kernel;  // index into kKernelIds when this library runs it
  Layout layout;                      // kind none without a winner, foreign when not built here
  std::string layout_id;
  std::string weight_scheme, activation_scheme;  // of the checkpoint: "int4_g32_sym", "int8_token_dynamic"
  bool batched = false;                          // activations come as a row block per expert
  // "" or why moe_backend was not followed: requested_backend_not_on_this_platform (vLLM's own rule),
  // requested_backend_refused, requested_backend_unknown (allow_fallback), requested_backend_not_read_on_this_platform
  // (vLLM has no choice there, or asks no oracle).
  std::string warning;

  std::string backend_name() const { return winner ? candidates[*winner].backend : std::string(); }
};

struct SelectFlags {
  bool explain_only = false, allow_fallback = false;
  std::string_view layout = {};  // weights are packed already: only kernels of the layout with this id; "": any
};
// Fails with no_backend and the candidates in the error's details (also with unknown-backend errors:
// invalid_config, /moe_backend), unless explain_only.
Result<Selection> select_backend(std::shared_ptr<const Config> config, const Platform& platform, SelectFlags flags);
std::string candidates_to_json(const std::vector<Candidate>& candidates);  // "[{...}, ...]"
std::string selection_to_json(const Selection& selection);
// moe_describe("oracle", query), describe.md 2: the answer as JSON text.
Result<std::string> describe_oracle(const json::Value& query);

}  // namespace moe::oracle
