// The tables of selection: what a backend is, what it accepts, and the rules that ask.
//
//   Family      one oracle: its rows in priority order, and how it treats a backend asked for by name
//   BackendRow  a backend and one of its experts classes
//   Accepts     the cells of a row. `vllm` is the pinned oracle's answer; `libmoe` exists where our kernels
//               can more (or vLLM's limits make no sense here): it is `vllm` with the widened cells replaced
//   Rule        reads cells and a query, and says nothing or why not. The order of rules() is part of the
//               contract: the first that refuses is the reason
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/enum_set.h"
#include "base/text.h"
#include "kernels/kernel_ids.h"
#include "oracle/query.h"
#include "oracle/reject.h"
#include "vllm/keys.h"
#include "vllm/quant_config.h"

namespace moe::oracle {

// Of Humming's classes, by VLLM_HUMMING_MOE_GEMM_TYPE.
enum class GemmType : std::uint8_t { any, indexed, grouped };
enum class ActivationFormat : std::uint8_t { standard, batched, any };

// CUDA compute capabilities as 10*major + minor, both ends included.
constexpr int kNoEnd = 999;
struct CapabilityRange {
  int low, high;
  std::int64_t toolkit = 0;  // the oldest CUDA, as 1000*major + 10*minor; 0 = any
};

// Where something runs. Empty lists: anywhere.
struct Machines {
  EnumSet<DeviceType> devices = EnumSet<DeviceType>::all();
  std::span<const CapabilityRange> capabilities = {};  // of CUDA
  std::span<const std::string_view> gfx = {};          // of ROCm; "gfx12*": all that begin so
};

// Weights and activations that a class takes together.
struct Scheme {
  QuantKey weight;
  std::optional<QuantKey> activation;  // none: the activations are not quantized
  Machines on = {};
  EnumSet<RoutingMethod> routing_too = {};  // methods in addition to those of the row
};

// A switch of the environment that must be on, and what it counts as when it is not set.
struct Switch {
  std::string_view name;
  bool when_unset;
};

// A named layout that a row writes for machines with this instruction set, of this architecture, and these devices.
struct NamedChoice {
  LayoutKind layout;
  Isa needs = Isa::scalar;
  Arch arch = Arch::automatic;  // any
  EnumSet<DeviceType> devices = EnumSet<DeviceType>::all();
};

struct Trial;
struct UnmetNeed;
using NeedsOf = MaybeNeed (*)(const Query& q, const Trial& offer);

// Defaults are "any": a row names only what it limits.
struct Accepts {
  // Who asks for it: auto selection on these devices, and moe_backend by this word ("" = by no word).
  EnumSet<DeviceType> listed = {};
  std::string_view request = {}, request_too = {};
  bool request_in_format = false;  // rows share the word; it means the one of the layer's activation format
  bool only_choice = false;        // on its devices there is nothing else, and moe_backend is not read

  // The machine.
  EnumSet<DeviceType> devices;
  EnumSet<Arch> archs = EnumSet<Arch>::all();
  std::optional<Feature> feature = std::nullopt;       // of a CPU
  std::span<const CapabilityRange> capabilities = {};  // of CUDA; empty = any
  std::span<const std::string_view> gfx = {};          // of ROCm; empty = any; "gfx12*": all that begin so
  std::string_view device_library = {};          // platform.libs must have it, else the device can't run the class
  std::span<const Switch> device_switches = {};  // all must be on, else the same
  std::string_view ops_library = {};             // platform.libs must have it, else the class is not built there

  // The layer.
  EnumSet<DType> in_dtypes = EnumSet<DType>::all();
  bool ungated = true;
  EnumSet<Activation> activations = EnumSet<Activation>::all();
  bool any_key = false;
  std::span<const QuantKey> weight_keys = {};  // without an activation key; empty = no weight key
  bool any_activation_key = false;             // with weight_keys
  std::span<const Scheme> schemes = {};        // pairs, instead of weight_keys
  const QuantKey* own_activation = nullptr;    // what the backend makes of unquantized activations
  bool expert_parallel = true, eplb = true;
  bool use_ep = true;                                      // expert parallelism may be asked for, also with one rank
  bool data_parallel = true;                               // dp_size may be above 1
  bool all2all = true;                                     // all-to-all kernels may be in use
  std::span<const std::string_view> all2all_refused = {};  // when all-to-all kernels are in use
  std::span<const std::string_view> all2all_only = {};     // empty = any
  bool hash_routing = true;
  EnumSet<RoutingMethod> routing = EnumSet<RoutingMethod>::all();
  EnumSet<RoutingMethod> float32_logits = EnumSet<RoutingMethod>::all();  // methods that may have float32 logits
  ActivationFormat format = ActivationFormat::standard;
  GemmType gemm_type = GemmType::any;
  bool batch_invariant = false, lora = false;
  std::int64_t hidden_step = 1, intermediate_step = 1;           // of the sizes, where the question states them
  EnumSet<Activation> stepped_for = EnumSet<Activation>::all();  // intermediate_step: with these

  // What conversion and kernels need; asked for a config only.
  EnumSet<Format> checkpoints = EnumSet<Format>::all();
  bool transposed = true;           // stacked K-first tensors
  std::int64_t group_multiple = 1;  // group size, also the columns of a block: channel-wise or a multiple of this
  std::int64_t only_group = 0;      // the one group size; 0 = any of the above
  std::int64_t smallest_group = 1;
  bool cuts_order = false;         // takes a rank's part of the columns of weights in activation order
  std::int64_t size_multiple = 1;  // of H and I
  bool callers_factor = true;      // routing custom with a routed_scaling_factor
  NeedsOf needs = nullptr;         // what else the layout asks, float_needs.h
  // The layouts of this build for the row; none: it cannot write the backend's. The first named one that the machine
  // takes, unless it has kernels and none for these activations; then ours (one per kind of weight element).
  std::span<const NamedChoice> other_layouts = {};
  EnumSet<LayoutKind> layouts = {};
  EnumSet<ActFormat> acts = {};  // with layouts: which kernels belong to the row
  bool answer_only = false;      // accepted though this build cannot write its layout
  constexpr bool writes() const { return !other_layouts.empty() || !(layouts == EnumSet<LayoutKind>()); }
};

struct BackendRow {
  std::string_view backend, name;  // name: vLLM's class, "" where it has none
  Accepts vllm;
  std::optional<Accepts> libmoe = std::nullopt;

  constexpr const Accepts& accepts(Policy p) const { return p == Policy::libmoe && libmoe ? *libmoe : vllm; }
};

enum class OnMissingDevice : std::uint8_t { refuse, warn_and_auto };

// A refusal that no row gives: `kind` or the code of a reason, as the golden vectors have it.
struct Refused {
  std::string_view kind = {}, reason = {};
  std::string_view why = {};  // a sentence without its full stop
  bool any() const { return !why.empty(); }
};

// What the layer, moe_backend and vLLM's switches make of an oracle's list (float_oracles.md 2).
struct Steering {
  std::vector<std::string_view> order;  // the backends on the list, first to last
  std::string_view unchecked = {};      // taken without asking any rule, as vLLM does with LoRA on
  std::string_view needed = {};         // asked for by a switch, as if by name; moe_backend goes before
  std::string_view last = {};           // asked if no row on the list accepts, as if by name
  bool own_key = false;                 // these two are asked with their own activation key, not with the weights'
  bool word_unread = false;             // moe_backend is not read: needed is what there is
  std::optional<std::vector<std::string_view>> named = std::nullopt;  // those that moe_backend means, if not all
  Refused refused = {};
};

struct Family {
  OracleId id = OracleId::no_oracle;
  std::span<const BackendRow> rows = {};  // none: this build does not answer
  bool device_before_name = false;        // an empty list for this device ends the question before moe_backend is read
  OnMissingDevice named = OnMissingDevice::refuse;  // the backend asked for by name cannot run on this device

  Steering (*steer)(const Query& q) = nullptr;  // nullptr: the table's order and the cells `listed`

  // Of a config: the keys of its query, and the quantization config that vLLM makes for a backend (describe.md 3; "":
  // no row won).
  void (*set_keys)(Query& q, const Config& config) = nullptr;
  Result<QuantConfig> (*quant_config)(const Config& config, std::string_view backend) = nullptr;
};
// All that this build answers, and an empty one for other oracles; by id (the answers of May 2026), by a question, or
// by the name of the oracle.
std::span<const Family* const> families();
const Family& family_of(OracleId id);
const Family& family_of(const Query& q);
namespace families_of {
#define MOE_FAMILY(id_) extern const Family id_;
#define MOE_OWN_FAMILY(id_) extern const Family id_;
#include "oracle/families.inc"
extern const Family int_wna16_april_2026;
}  // namespace families_of
std::span<const Family> families_november_2026();  // of CPUs; w4a8_int8 is as it was
const Family& family_named(std::string_view name);
std::vector<std::string_view> runnable_backends();  // whose layout this build writes and its kernels read
std::string built_oracles();                        // "w4a8_int8, int_wna16, unquantized"

// What activations may be inside the kernels of a config.
EnumSet<ActFormat> acts_of(const Config& config);
// What a config asks of the kernels of a row, before its groups are packed.
using kernels::needs_of;  // of a layout
KernelNeeds needs_of(const Config& config, const Accepts& row, LayoutKind layout);
// The layout of a row for the weights of the query's config; none for a pure question, and where the row has none.
LayoutKind layout_kind(const Query& q, const Accepts& row);
// The whole of it: this rank's share.
Layout layout_of(const Query& q, const Accepts& row);

// --- rules ----------------------------------------------------------------------------------------------

// One candidate: a row, and the kernel that would run it (nullptr for devices that libmoe does not run).
struct Trial {
  const BackendRow* row;
  const Accepts* accepts;
  const KernelId* kernel;
};

// Asks one thing. Most have one reason to refuse; conversion has that of whatever is not met.
class Rule {
 public:
  using Check = MaybeWhy (*)(const Query& q, const Trial& offer);
  using Needs = MaybeNeed (*)(const Query& q, const Trial& offer);

  consteval Rule(Reason reason, Check check) : reason_(reason), check_(check) {}
  consteval Rule(Needs needs) : needs_(needs) {}
  Verdict ask(const Query& q, const Trial& offer) const {
    if (needs_ != nullptr) {
      MaybeNeed unmet = needs_(q, offer);
      return unmet ? Verdict(Refusal(unmet->reason, std::move(unmet->why))) : std::nullopt;
    }
    MaybeWhy why = check_(q, offer);
    return why ? Verdict(Refusal(*reason_, *std::move(why))) : std::nullopt;
  }

 private:
  std::optional<Reason> reason_ = {};
  Check check_ = nullptr;
  Needs needs_ = nullptr;
};
std::span<const Rule> rules();
Verdict judge(const Query& q, const Trial& offer);
// The first rule alone: can this device run the class at all?
bool device_runs(const Query& q, const Trial& offer);
// The activations that a row is asked about.
std::optional<QuantKey> activation_key_of(const Query& q, const Accepts& row);
// Whether moe_backend means the row by this word.
bool answers_to(const Query& q, const Accepts& row, std::string_view word);
// "cuda 9.0", "cpu x86_64", "rocm gfx942"
std::string platform_text(const Platform& p);

}  // namespace moe::oracle
