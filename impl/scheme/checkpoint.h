// Expert tensors as checkpoints store them: one row per (on-disk format, tensor of a projection), and
// the names  <module>.<expert>.<projection>.<suffix>.
//
//   none             weight f32, f16 or bf16 [N, K]                              [bias [N]]
//   int-quantized    weight i8 [N, K]                       weight_scale [N, G]  [bias [N]]
//   pack-quantized   weight_packed i32 [N, ceil(K*bits/32)]  weight_scale [N, G]  [bias [N]]
//                    [weight_shape i64 [2] = N, K]
//
// N, K: outputs and inputs of the whole projection (gate and up: I x H, down: H x I), G = 1 channel-wise,
// else K / group. A further format is a table of rows in checkpoint.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/tensor.h"
#include "scheme/scheme.h"

namespace moe {

enum class Projection : std::uint8_t { gate, up, down };
// shape: its two numbers are checked, then dropped.
enum class TensorKind : std::uint8_t { weight, scale, bias, shape };
enum class Presence : std::uint8_t { required, optional, with_bias };

// One projection of one expert, whole (not this rank's part).
struct MatrixSize {
  std::int64_t n = 0, k = 0;
  std::int64_t group = -1;  // -1 or k: channel-wise; else it divides k
  int num_bits = 4;

  constexpr std::int64_t groups() const { return group == -1 || group >= k ? 1 : k / group; }
};

struct TensorShape {
  std::array<std::int64_t, 2> dims{};
  int ndim = 0;

  std::span<const std::int64_t> span() const { return {dims.data(), static_cast<std::size_t>(ndim)}; }
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

struct CheckpointTensor {
  std::string_view suffix;
  TensorKind kind;
  Presence presence;
  std::array<DType, 3> dtypes;  // allowed on disk; unused places are DType::invalid
  TensorShape (*shape)(const MatrixSize&);

  constexpr bool allows(DType t) const {
    return t != DType::invalid && (t == dtypes[0] || t == dtypes[1] || t == dtypes[2]);
  }
  // Stored in the model's dtype, whichever that is: scales and biases.
  constexpr bool follows_model_dtype() const { return allows(DType::bf16); }
  std::string dtypes_text() const;  // "f32, f16 or bf16"
};

// Rows of a format, empty for formats that are not read yet.
std::span<const CheckpointTensor> checkpoint_tensors(Format format);
// Whether files with this quantization can be read: a format with rows, and numbers those rows hold.
bool is_checkpoint_readable(const Quantization& q);

// Where the experts of one layer lie in a checkpoint. Views: the owner of the strings outlives it.
struct ExpertModule {
  std::string_view prefix;                      // "model.layers.3.mlp.experts"
  std::array<std::string_view, 3> projections;  // gate, up, down
  std::int64_t num_experts = 0;                 // of the model, not of this rank
  Format format = Format::none;
  bool gated = true;      // ungated layers have no gate projection; up alone is w13
  bool has_bias = false;  // else bias tensors have no place
};

enum class NameMatch : std::uint8_t {
  foreign,          // another part of the model
  unknown_of_ours,  // under <module>.<e>.<projection>. but without a place: unexpected_weight
  known
};

struct ParsedName {
  NameMatch match = NameMatch::foreign;
  std::int64_t expert = 0;
  Projection projection = Projection::gate;
  const CheckpointTensor* tensor = nullptr;  // known only
  std::string_view why;                      // unknown_of_ours: what is wrong, a fragment of a sentence
};

ParsedName parse_tensor_name(std::string_view name, const ExpertModule& module);
std::string tensor_name(const ExpertModule& module, std::int64_t expert, Projection projection,
                        const CheckpointTensor& tensor);

// gate, up: I x H; down: H x I. `intermediate` is the whole width.
MatrixSize projection_size(Projection p, std::int64_t hidden, std::int64_t intermediate, std::int64_t group,
                           int num_bits);
// nullopt for TensorKind::shape, which has no place among the weights.
std::optional<Role> role_of(Projection p, TensorKind kind);
// gate: w1; up: w3, or the whole of an ungated w13; down: whole.
Shard shard_of(Projection p, bool gated);

}  // namespace moe
