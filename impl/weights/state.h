// What a WeightSet holds: per role either one stacked tensor, or a slot per local expert and half.
//
// A slot is a view of caller memory with the owner that ends its use, or a rectangle of a tensor in a file
// that is read when it is asked for.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/index.h"
#include "io/safetensors.h"
#include "weights/expert_places.h"
#include "weights/input_factors.h"
#include "weights/layer_facts.h"
#include "weights/tensor_bytes.h"
#include "weights/weight_set.h"

namespace moe::weights {

struct FilePart {
  CheckpointEntry from;
  Part part;
  DType dtype = DType::invalid;  // of the elements that the part counts
  bool transposed = false;       // the file has columns first, and roles have rows
};

struct Slot {
  enum class Kind : std::uint8_t { empty, view, file };
  Kind kind = Kind::empty;
  TensorView view;                    // of this rank's part
  std::shared_ptr<HandedOver> owner;  // shared by the copies of a redundant expert
  FilePart file;
  const char* name = nullptr;  // of the role, as the caller said; nullptr: set by a checkpoint's name

  bool empty() const { return kind == Kind::empty; }
  DType dtype() const { return kind == Kind::file ? file.dtype : view.dtype; }
};

using ExpertSlots = std::array<Slot, 3>;  // by Half

// A tensor of all experts whose order of rows and columns is not known yet, so that its parts cannot be placed.
struct StackTensor {
  std::string name;
  std::vector<std::int64_t> extents;
  Slot whole;
  ExpertPlace place;
};

struct RoleSlots {
  Slot stacked;
  std::vector<ExpertSlots> experts;  // by local place; empty until the first is set
  std::int64_t released = 0;         // experts whose use of `stacked` has ended

  // nullptr when nothing is set there.
  const Slot* find(std::int64_t local, Half half) const {
    if (experts.empty()) return nullptr;
    const Slot& slot = at(at(experts, local), half);
    return slot.empty() ? nullptr : &slot;
  }
  bool any_expert() const {
    for (const ExpertSlots& e : experts)
      for (const Slot& s : e)
        if (!s.empty()) return true;
    return false;
  }
};

struct WeightSet::State {
  LayerFacts facts;
  std::shared_ptr<const TensorSource> source;  // asked for everything when there is one
  std::array<RoleSlots, kRoleCount> roles;
  SideVectors loaded;
  InputFactors input_factors;
  std::vector<ExpertPlace> places;  // for set_named, made when it is called first
  // Which order of rows and columns the stacks have, as soon as a shape tells, and those that came before and whose
  // shapes are the same in both.
  std::optional<StackedWeights> order;
  std::vector<StackTensor> open_stacks;
  // The order is known from here on: open stacks that it changes are placed again (placing.cpp).
  Check learn(const std::optional<StackedWeights>& told);
  // by_shape: refused where no shape has told.
  Check check_open_stacks() const;
  // The last load that found no expert, while nothing else brought one.
  struct Unfound {
    std::string path;
    std::optional<std::string> module;
  };
  std::optional<Unfound> unfound;

  explicit State(std::shared_ptr<const Config> config) : facts(std::move(config)) {}
  RoleSlots& role(Role r) { return at(roles, r); }
  const RoleSlots& role(Role r) const { return at(roles, r); }
};

// --- weight_set.cpp
Slot view_slot(const TensorView& view, HandedOver owner, const char* name = nullptr);
TensorView swap_last_two(const TensorView& t);
// The name with which something of a role was set first; nullptr: nothing was, or not by a role.
const char* first_name(const RoleSlots& slots);
// The role that says the same in another form; nullopt: there is none.
std::optional<Role> other_form(Role role);
// unexpected_weight where that one is set for a local expert; kAllExperts: for any.
constexpr std::int64_t kAllExperts = -1;
Check check_form(const std::array<RoleSlots, kRoleCount>& roles, Role role, std::int64_t local,
                 const std::string& subject);
// ok if this half of this expert may be set in addition to what is set already.
Check check_place(const RoleSlots& slots, const NamedRole& role, std::int64_t local, std::int64_t expert, Half half);
// A set with a source takes no tensors.
Check check_settable(const TensorSource* source);

// --- tensor_bytes.cpp
// The bytes of a rectangle of a file, without gaps.
Result<TensorLease> read_part(const FilePart& file);
TensorView cut(const TensorView& whole, const Part& part);
// Gate and up rows as one tensor in the row order of a stacked w13; n_axis: the dimension of rows.
Result<TensorLease> join_halves(const TensorView& gate, const TensorView& up, W13Layout order, int n_axis);

}  // namespace moe::weights
