// Simulated ranks: one whole model, each rank's layer converted from its share alone, by every way in.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"

namespace moe::test {

// A tensor as a checkpoint names it, whole.
struct NamedTensor {
  std::string name;
  moe_dtype dtype;
  std::vector<std::int64_t> shape;
  const void* data;
  std::size_t bytes() const {
    std::size_t n = static_cast<std::size_t>(dtype_bits(static_cast<DType>(dtype)) / 8);
    for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
    return n;
  }
};

// Of an int-quantized model with gate rows before up rows.
std::vector<NamedTensor> named_tensors(const Model& m);

std::string checkpoint_bytes(const Model& m);

// What a rank holds of a model: these experts, and of each the `part`-th of `parts` pieces of its width. float32 scales
// and biases.
Model share_of(const Model& m, const std::vector<std::int64_t>& experts, std::int64_t parts, std::int64_t part);

// How a rank gets its tensors: whole ones by name or from a file, which the library cuts, or its share.
enum class Source { file, named, stacked, experts };
constexpr Source kSources[] = {Source::file, Source::named, Source::stacked, Source::experts};

struct Rank {
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;
  LayerPtr layer;
  nlohmann::json placement;           // of the selection
  std::vector<std::int64_t> experts;  // held, in local order
};

std::string config_of(const Model& m, const nlohmann::json& parallel, const nlohmann::json& more = {});

void expect_status_ok(moe_status status, moe_error* err);

// Sets this rank's tensors of the model. `num_experts`: how many the model has without redundant copies.
void set_weights(moe_weights* set, const Model& m, const Rank& r, Source source, std::int64_t tp_size,
                 std::int64_t tp_rank);

Rank make_rank(const Model& m, const std::string& config, Source source);

// All ranks of a parallel object whose rank member is `rank_name`.
std::vector<Rank> make_ranks(const Model& m, nlohmann::json parallel, int size, Source source,
                             const nlohmann::json& more = {});
Rank whole_layer(const Model& m, const nlohmann::json& more = {});

using Floats = std::vector<float>;  // [T, H]

// One call in mode TOPK with float32 output.
Floats apply_topk(const moe_layer* layer, const Model& m, const std::vector<std::int32_t>& ids,
                  const std::vector<float>& weights, Floats start = {});
Floats apply_topk(const moe_layer* layer, const Model& m);

// Routing inside; `ids`: what it chose.
Floats apply_logits(const moe_layer* layer, const Model& m, std::vector<std::int32_t>* ids = nullptr,
                    std::vector<float>* weights = nullptr);

// rows[j] = the rows of slots (t, j), without weights: the other ids are -1, the weight is 1, the output float32.
std::vector<Floats> slot_rows(const moe_layer* layer, const Model& m);

// The rule of the routed sum: out = fma(w, row, out) by ascending id of the checkpoint, equal ids by slot.
Floats combine(const Model& m, const std::vector<Floats>& rows);

bool same_bits(const Floats& a, const Floats& b);

}  // namespace moe::test
