// Where a checkpoint's tensor goes: its shape, this rank's parts of it, and for tensors of all experts which order of
// rows and columns they have.
//
// A config's word for stacks (rows_first, columns_first) is what their class writes, and files have either: the extents
// decide where they are right in one order only, and by_shape says that nothing else does. gate_up_proj is the same in
// both where H = 2I, and then down_proj is not: what comes first waits in State::open_stacks, placed as the word says,
// until a tensor tells.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "scheme/checkpoint.h"
#include "scheme/roles.h"
#include "weights/layer_facts.h"
#include "weights/state.h"

namespace moe::weights {

// Where this rank's part of a tensor goes; in `places`.
struct Target {
  Role role;
  Half half;
  Part part;
  std::vector<std::int64_t> places;  // local experts: more than one when there are redundant copies
  std::int64_t expert = 0;           // the model's number
};

// Of a stack: for each expert and half of it. Without those that are nowhere here.
Result<std::vector<Target>> targets_of(const LayerFacts& facts, const ParsedName& p, const ExpertModule& module,
                                       std::span<const std::int64_t> extents, std::string_view name);
// The part for a target of a whole tensor, which the caller or a file has.
Slot part_of(const LayerFacts& facts, const Slot& whole, const Target& t, const ParsedName& p,
             const ExpertModule& module);

// Numbers of a stack, which lie in it in several ways.
bool is_stacked_number(const ParsedName& p, const ExpertModule& module);
// The shape that a checkpoint's tensor has, and whether these extents are that or another form of it.
Dims shape_in_file(const LayerFacts& facts, const ParsedName& p, const ExpertModule& module);
bool fits(const LayerFacts& facts, const ParsedName& p, const ExpertModule& module,
          std::span<const std::int64_t> extents);

// What a tensor's extents say of its stack's order: one of the two, nothing where it is the same in both (`open`) or in
// neither.
struct ShownOrder {
  std::optional<StackedWeights> order;
  bool open = false;
};

ShownOrder shown_order(const LayerFacts& facts, std::string_view name, DType dtype,
                       std::span<const std::int64_t> extents, const ExpertModule& module);
// The module with its stacks in this order, nullopt: as it is.
ExpertModule in_order(const LayerFacts& facts, ExpertModule module, std::optional<StackedWeights> order);
// A layer's stacks have one order.
Check check_order(const std::optional<StackedWeights>& known, const ShownOrder& shown, std::string_view name,
                  std::span<const std::int64_t> extents);
// by_shape needs a shape that tells, which stacks of square matrices do not have.
Check check_open(const LayerFacts& facts, const ShownOrder& shown, std::string_view name, const ExpertModule& module);

}  // namespace moe::weights
