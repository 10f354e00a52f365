// What the tensors of one rank's share of a layer look like: derived from the config once, then asked for
// every tensor that comes in.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/index.h"
#include "config/config.h"
#include "scheme/checkpoint.h"
#include "scheme/roles.h"

namespace moe::weights {

// A rectangle of a whole tensor: rows and columns in elements of the tensor (words of packed codes).
struct Part {
  std::int64_t row0 = 0, rows = 0, col0 = 0, cols = 0;
  std::int64_t whole_cols = 1;  // of the tensor
  int ndim = 2;                 // 1: it has no columns
  bool repeats = false;         // the tensor has one element, which all rows share
};

// This rank's part of a tensor of all experts: of one expert's, for a place among the weights.
struct StackPart {
  Half half;
  Part part;
};

// Dimensions of one tensor, at most stacked [E, N, K].
struct Dims {
  std::array<std::int64_t, 3> d{};
  int ndim = 0;
  std::span<const std::int64_t> span() const { return {d.data(), usize(ndim)}; }
};

class LayerFacts {
 public:
  explicit LayerFacts(std::shared_ptr<const Config> config);

  const Config& config() const { return *config_; }
  const std::shared_ptr<const Config>& shared_config() const { return config_; }
  const std::vector<std::int64_t>& experts() const { return experts_; }  // the model's numbers in local order
  // Sources are logical: the number of an expert in checkpoints, and its local places, several when it has redundant
  // copies here. A number beyond the logical ones means that copy alone. local: the first place.
  std::optional<std::int64_t> local(std::int64_t expert) const;
  std::int64_t source_expert(std::int64_t expert) const { return expert_copies(*config_).logical_of(expert); }
  std::vector<std::int64_t> places_of(std::int64_t expert) const;
  bool gated() const { return gated_; }
  // Stacked tensors come with their last two dimensions swapped.
  bool stacks_transposed() const {
    return config_->quantization.format == Format::pack_quantized &&
           config_->quantization.is_transposed.value_or(false);
  }
  W13Layout w13_layout() const { return config_->w13_layout.value_or(W13Layout::gate_up); }

  // The row of the format for a role; unexpected_weight when this config has no such tensor, unsupported
  // when the format is not read. It may be one that need not be there.
  Result<const CheckpointTensor*> tensor_of(const NamedRole& role) const;
  // Roles that must be there, in order. A w2 bias counts on the first tensor-parallel rank only.
  std::span<const Role> required() const { return required_; }
  bool ignored_here(Role role) const { return role == Role::w2_bias && config_->parallel.tp_rank > 0; }

  // This rank's part of one expert; stacked: of all of them, rows first unless the format has columns first.
  Dims shape(Role role, Half half) const;
  Dims stacked_shape(Role role) const;
  // As callers have the latter: a w2 has one number for an expert, [E], where w13 has one for each half.
  Dims told_shape(Role role) const;
  // The whole projection in a checkpoint, and this rank's rectangle of a tensor of it.
  MatrixSize whole(Projection p) const;
  Result<Part> part(Projection p, const CheckpointTensor& row, std::string_view subject) const;

  // The same of a tensor of all experts: its shape, and one expert's parts, whose rows count from that expert's first.
  Dims stack_shape(Projection p, const CheckpointTensor& row, const ExpertModule& module) const;
  std::int64_t stack_rows(Projection p, const CheckpointTensor& row, const ExpertModule& module) const;  // of an expert
  // Numbers of a stack, one for each half of an expert, for each expert or for all of them, come with or without
  // dimensions of 1: where an expert's half is among them. nullopt: the extents are others.
  std::optional<std::vector<StackPart>> stack_numbers(Projection p, std::span<const std::int64_t> extents,
                                                      std::int64_t expert, const ExpertModule& module) const;
  // The same of one expert's tensor that joins gate and up, and the shape of one.
  std::optional<std::vector<StackPart>> joined_numbers(std::span<const std::int64_t> extents) const;
  TensorShape joined_shape(const CheckpointTensor& row, const ExpertModule& module) const;
  Result<std::vector<StackPart>> stack_parts(Projection p, const CheckpointTensor& row, const ExpertModule& module,
                                             std::string_view subject) const;

  ExpertModule module(std::string_view prefix) const;

 private:
  // Projections that a stack of p joins.
  int joined(Projection p, const ExpertModule& module) const {
    const bool apart = module.is_stacked() && module.stack_names().is_apart();
    return gated_ && p != Projection::down && !apart ? 2 : 1;
  }
  // Of two numbers, or one for both halves.
  std::vector<StackPart> half_numbers(std::int64_t first, bool by_half) const;
  TensorShape stacked_one(Projection p, const CheckpointTensor& row, const ExpertModule& module) const;
  // Tensor parallelism cuts w2 with activation order: this rank's columns are of all groups.
  bool keeps_groups() const;

  std::shared_ptr<const Config> config_;
  std::vector<std::int64_t> experts_;
  std::vector<std::int64_t> local_of_;  // [physical experts], -1: not held
  std::vector<Role> required_;
  bool gated_;
};

TensorKind kind_of(Role role);     // of its row; that of a list of columns has the row of the groups it sorts
const char* half_name(Half half);  // "whole", "w1", "w3"
std::string place_name(const NamedRole& role, std::int64_t expert, Half half);  // "w13_weight[17].w1"

}  // namespace moe::weights
