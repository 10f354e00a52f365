// What a checkpoint has where a layer's experts were expected: the message tells the caller which names it has.
#pragma once

#include <span>
#include <string>

#include "io/safetensors.h"
#include "weights/expert_places.h"
#include "weights/layer_facts.h"

namespace moe::weights {

// No place has a tensor of the file. unexpected_weight: it has experts of this layer under unknown names.
Check check_no_foreign(const LayerFacts& facts, std::span<const ExpertPlace> places,
                       std::span<const io::CheckpointEntry> entries);
// A sentence: what was looked for in the checkpoint at `path`, names that it has instead, and which options help. "":
// it cannot be read any more.
std::string found_instead(const LayerFacts& facts, const std::string& path, const char* module);

// Of a tensor that was refused: where it and the config do not agree on whether the experts are quantized, what it is
// and what helps, behind "; ". "": that is not the fault.
std::string quantization_hint(const LayerFacts& facts, std::string_view name, DType dtype);

}  // namespace moe::weights
