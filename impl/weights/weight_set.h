// The source weights of one layer by role: caller tensors, a caller's callback source, or files.
//
// Knows which tensors the config wants (weights by role, expert, half), checks dtype, shape and
// strides when a place is set, cuts this rank's part out of whole tensors, and reports what is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "io/safetensors.h"
#include "scheme/tensor_source.h"

namespace moe::weights {

// Vectors of the layer that load_safetensors found in the files (side_tensors.h). Empty: not found.
struct SideVectors {
  std::vector<float> correction_bias;
  std::vector<float> expert_scale;  // [E] or [1]
  std::vector<float> expert_norm;   // [H]
};

// What a caller hands over, a tensor or its own functions: given back exactly once.
class HandedOver {
 public:
  HandedOver() = default;
  HandedOver(void (*release)(void*), void* user) : release_(release), user_(user) {}
  HandedOver(HandedOver&& o) noexcept : release_(std::exchange(o.release_, nullptr)), user_(o.user_) {}
  HandedOver& operator=(HandedOver&& o) noexcept {
    std::swap(release_, o.release_);
    std::swap(user_, o.user_);
    return *this;
  }
  ~HandedOver() {
    if (release_ != nullptr) release_(user_);
  }

 private:
  void (*release_)(void*) = nullptr;
  void* user_ = nullptr;
};

class WeightSet : public TensorSource {
 public:
  explicit WeightSet(std::shared_ptr<const Config> config);
  // All tensors come from `source` (the api's adapter of moe_weight_source_ops); its answers are checked.
  WeightSet(std::shared_ptr<const Config> config, std::shared_ptr<const TensorSource> source);
  ~WeightSet() override;

  const Config& config() const;
  std::shared_ptr<const Config> shared_config() const;

  // Stacked [E, ...], this rank's part. On failure nothing changes and `owner` is ended. Roles that say nothing more
  // (told_twice.h) are checked and left out.
  Check set(const NamedRole& role, const TensorView& tensor, HandedOver owner);
  Check set_expert(const NamedRole& role, std::int64_t expert, Half half, const TensorView& tensor, HandedOver owner);
  // false: the name does not belong to this layer (the tensor was released).
  Result<bool> set_named(std::string_view name, const TensorView& tensor, HandedOver owner);
  Check load_safetensors(const char* path, const char* module);
  // The same from files that are open; path: what they are called in messages.
  Check load_entries(io::SortedEntries entries, const char* path, const char* module);

  // Every gap, e.g. "w13_scale[17]"; empty = complete. At most `limit` names.
  std::vector<std::string> missing(std::size_t limit = SIZE_MAX) const;
  // missing_weight, message and details name every gap; a list that does not sort its g_idx is invalid_argument.
  Check check_complete() const;
  // A fault of a tensor by the name with which the caller set it first.
  Error in_callers_names(Error error) const;
  std::string to_json() const;

  // This rank's part of one expert (w13 joined) or, with expert -1, of all ([E, ...]).
  Result<TensorLease> tensor(Role role, std::int64_t expert) const;
  const SideVectors& loaded() const;
  // Of the tensors that came (input_factors.h), for conversion.
  Result<std::array<std::vector<float>, 2>> input_factors() const;

  Result<TensorLease> get(const Place& place) const override;
  void release_expert(std::int64_t expert);  // MOE_CONVERT_RELEASE_SOURCES: this expert's tensors are done
  void clear();

 private:
  // Tensors whose names may be this layer's.
  Check place_entries(io::SortedEntries entries, const char* path, const char* module);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moe::weights
