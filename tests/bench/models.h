// What is measured: shapes of layers, weight formats, and layers of random weights made of both.
//
// A new weight format is one row of kFormats in models.cpp.
#pragma once

#include <moe/moe.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "support/rooms.h"

namespace moe::bench {

// How many columns a source tensor of a matrix [N, K] has.
using Columns = std::int64_t (*)(std::int64_t k, std::int64_t group);
// And how many rows.
using Rows = std::int64_t (*)(std::int64_t n);
inline std::int64_t each_row(std::int64_t n) { return n; }
// Values -8..7; any; +-2^-7..2^-6; codes of e4m3 that are numbers; those of 0.5 to 1.9; powers of two of e8m0; the
// group of each column, shuffled, one list for all experts; one number for the matrix.
enum class Fill : std::uint8_t { int4, bits, bf16, f32, e4m3, e4m3_scale, e8m0, groups, one_number };

// w13_<suffix> and w2_<suffix> of every expert; dtype INVALID: none.
struct SourceTensor {
  const char* suffix;
  moe_dtype dtype;
  Columns columns;
  Fill fill;
  Rows rows = each_row;
};

struct Format {
  const char* name;
  const char* members;  // of the config document, beside the sizes
  std::int64_t group;   // of the weights: -1 = channel-wise, 0 = none
  moe_dtype hidden;     // dtype of hidden states and output
  std::array<SourceTensor, 4> tensors;
  bool conversion_only = false;  // packs to what another row packs to

  bool fits(const Workload& w) const { return group <= 0 || (w.hidden % group == 0 && w.intermediate % group == 0); }
};
std::span<const Format> formats();
const Format& format_named(const std::string& name);

// Throws the error's text. By reference: the status is often a call that makes the error, in the same list of
// arguments.
void check(moe_status status, moe_error*& e);

struct Destroy {
  void operator()(moe_config* p) const { moe_config_destroy(p); }
  void operator()(moe_selection* p) const { moe_selection_destroy(p); }
  void operator()(moe_weights* p) const { moe_weights_destroy(p); }
  void operator()(moe_packed* p) const { moe_packed_destroy(p); }
  void operator()(moe_context* p) const { moe_context_destroy(p); }
  void operator()(moe_layer* p) const { moe_layer_destroy(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Destroy>;

Owned<moe_context> make_context(int threads);

// Random tensors of a few experts, at least `bytes`, serve all of them: the packed experts are distinct memory all the
// same.
class Source {
 public:
  Source(const Workload& workload, const Format& format, std::size_t bytes = 1);
  Owned<moe_weights> weights(const moe_config* config);  // refers to this object

 private:
  static moe_status MOE_CALL get(void* user, const char* role, std::int64_t expert, const char* shard, moe_tensor* out,
                                 moe_error** err);
  Workload workload_;
  const Format& format_;
  std::int64_t experts_ = 0;
  std::array<std::vector<std::uint64_t>, 4> data_;
};

// The weights of one layer, packed; several times in distinct memory where once would be found in a cache.
struct Model {
  Workload workload;
  const Format& format;
  Owned<moe_config> config;
  Owned<moe_selection> selection;
  std::vector<Owned<moe_packed>> packed;
  double expert_bytes = 0;  // w13 and w2 of one expert

  Model(const Workload& workload, const Format& format, bool one_copy = false);
};

// A model's layers on a context of n threads.
struct Bound {
  Owned<moe_context> context;
  std::vector<Owned<moe_layer>> layers;
  Bound(const Model& model, int threads);
};

}  // namespace moe::bench
