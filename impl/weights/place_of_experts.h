// Which of the places of a layer's experts a checkpoint uses.
#pragma once

#include <span>

#include "weights/expert_places.h"

namespace moe::weights {

// The one place that the file uses, nullptr: none; unexpected_weight when it uses two, or names of experts that no
// writer knows.
Result<const ExpertPlace*> place_of_experts(const LayerFacts& facts, std::span<const ExpertPlace> places,
                                            std::span<const io::CheckpointEntry> entries);

}  // namespace moe::weights
