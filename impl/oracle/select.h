// The one selection loop of all oracles. See select.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/backend.h"
#include "oracle/query.h"
#include "oracle/selection.h"

namespace moe::oracle {

// A row (with a kernel where libmoe runs it) and what the rules said.
struct Considered {
  const BackendRow* row = nullptr;
  std::optional<std::size_t> kernel;  // index into kKernelIds
  std::int32_t priority = 0;          // 100 * place of the backend + kernel (or place of the class)
  Verdict verdict;
  bool chosen = false;
};

enum class Answer : std::uint8_t {
  accepted,
  refused,          // the backend asked for by name says no, or no row can be asked
  none,             // no row on the list accepts
  unknown_backend,  // moe_backend is no word of this oracle
  not_built         // this build has no table for the oracle
};

struct Outcome {
  Answer answer = Answer::none;
  std::vector<Considered> asked;  // in the order asked; for a config in priority order and with all rows of the list
  std::string_view reason;        // code: of the last class of a refused backend, of the only candidate of "none"
  Refused refused;                // that no row gave
  std::string_view warning;       // "requested_backend_not_on_this_platform", ... or ""

  const Considered* winner() const {
    for (const Considered& a : asked)
      if (a.chosen) return &a;
    return nullptr;
  }
};

Outcome ask(const Query& q, SelectFlags flags);
// The words that moe_backend may hold for this oracle, "auto" first.
std::string request_words(const Query& q);

}  // namespace moe::oracle
