// Names and shapes of a checkpoint's tensors, sorted into what looks like experts and what else stands in a layer.
// Nothing about the class is known here.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moe::hf {

using SeenShape = std::vector<std::int64_t>;

// model.layers.3.mlp.gate.weight: layer 3, path "model.layers.{layer}.mlp.gate.weight", inside "mlp.gate.weight".
struct LayerTensor {
  std::string path, inside;
  SeenShape shape;
};

// A projection of one expert, or a tensor of all.
struct ExpertPart {
  std::string name;
  std::set<std::string> kinds = {};  // weight, bias, weight_packed, ...; of one expert only
  SeenShape weight = {};             // the shape of kind weight, or of the stack; empty: there is none
};

struct SeenExperts {
  std::string module;             // "model.layers.{layer}.mlp.experts"
  std::vector<ExpertPart> parts;  // in the order of the tensors
  std::int64_t experts = 0;       // the largest number of an expert + 1; a stack's first axis
  bool stacked = false;
  bool stack_bias = false;
};

struct SeenTensors {
  SeenExperts experts;
  std::vector<LayerTensor> others;  // of layers, one for each path
  std::set<std::int64_t> layers;    // that have such experts
};

// `tensors`: a list of {"name": .., "shape": [..]} or of [name, shape].
Result<SeenTensors> seen_tensors(const json::Value& tensors, const std::string& pointer);

}  // namespace moe::hf
