// What two sides of a call must agree on: the selection with the weights to convert, the packed weights
// with the selection they are bound to.
#pragma once

#include "base/result.h"
#include "config/config.h"
#include "io/packed.h"
#include "oracle/selection.h"

namespace moe::bind {

// no_backend (with all candidates) for a selection without a winner, unsupported for a backend whose
// layout this build cannot write.
Check check_winner(const Selection& selection);
Check check_built(const Selection& selection);

// The header of the packed weights that this selection leads to.
PackedInfo packed_info(const Selection& selection);

// config_mismatch with the pointer of the first member that differs. Members that change neither the
// bytes nor their meaning (backend wish, platform, policy, dtypes, routing, ...) may differ.
Check check_same_config(const json::Value& theirs, const json::Value& selections, const char* side);
// Of which layer each side is, where both say so. way_out: what takes them all the same.
Check check_same_layer(std::string_view theirs, const Config& selections, bool guessed, const char* side,
                       std::string_view way_out);
// The name in a packed block's config.
Check check_packed_layer(const Packed& packed, const Selection& selection);
// Weights of the selection's model, in whatever layout; and in its layout.
Check check_same_model(const Packed& packed, const Selection& selection);
Check check_same_packed(const Packed& packed, const Selection& selection);

}  // namespace moe::bind
