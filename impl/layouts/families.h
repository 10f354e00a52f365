// Layouts of other libraries, handed out as named tensors [E, ...]. Those that differ only in where things lie are one
// family, which says what such a layout holds and how its bytes are written and read back: whole matrices in the plain
// form of rows.h against the spans of one expert's tensors.
//
// A new layout is a row of layout_kinds.inc with its family, and a file of the family's folder; a new family is one
// definition of layout_families::<family>.
//
// Apart from kai, no kernel of ours reads these bytes. They exist for hosts that run other engines
// and take conversion from this library. So a writer is measured by equality with the bytes that
// the engine's own conversion makes, except where those are known to be wrong (bit_compat_vllm).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/index.h"
#include "base/result.h"
#include "layouts/layout.h"
#include "layouts/part_names.h"
#include "layouts/rows.h"

namespace moe {

// The tensors of one expert, and those that are shared.
// One template for reading and writing: Byte is std::byte or const std::byte.
template <class Byte>
struct ExpertTensors {
  const Layout& layout;
  Byte* payload;
  std::int64_t local;

  // Empty when the layout has no such tensor.
  // A linear search: at most a few dozen tensors, asked a few times per expert.
  std::span<Byte> operator[](std::string_view name) const {
    for (const LayoutTensor& t : layout.tensors)
      if (t.name == name) return {payload + t.offset + (t.shared ? 0 : t.bytes * usize(local)), t.bytes};
    return {};
  }
};

using MaybeTensor = std::optional<LayoutTensor>;  // nullopt: the layout has none

// What the source says of an expert in addition to its matrices: the largest activation scale of w13 and of w2.
// NVFP4 and static FP8 activations need the largest over all experts of a layer, which no expert's
// own writer can know. They are collected while experts are written on all threads.
struct ExpertFacts {
  std::array<std::optional<float>, 2> input_scale;
};

// Plain functions in a constant: families are few, and a table can be checked while compiling.
struct LayoutFamily {
  std::string (*id)(const Layout& layout);  // "torch/dyn_quant_4bit-g32-bias/1"
  // Can such a layout exist? Packed files are asked, too; sizes are at most 2^24, groups divide k.
  // Writers and readers trust the answer and check no size again. A damaged file that passed here
  // could make them touch memory outside of the payload.
  bool (*valid)(const Layout& layout);
  // Appends name, dtype and shape (and shared) of each tensor; places are filled in later.
  void (*list)(Layout& layout);
  // One matrix: rows.count == matrix(which).rows(), gate rows first. Writes every byte of its tensors that is not
  // shared. `rows` may be spoiled; scales that the layout cannot hold exactly are counted there, and whether codes were
  // computed again.
  // Called from several threads, each with an expert of its own. "Every byte" makes packed files of
  // equal weights equal, padding included, so that their hashes agree.
  Check (*write)(CanonicalRows& rows, Which which, const ExpertTensors<std::byte>& out);
  // The way back; `rows` has its shape and is zero. A file may hold anything: faults are Code::format.
  Check (*read)(const ExpertTensors<const std::byte>& in, Which which, CanonicalRows& rows);
  // After all experts, whose facts these are, for what depends on all of them; nullptr: nothing. Adds the scales that
  // it cannot keep.
  // Runs once and alone, behind the parallel part.
  Check (*finish)(const Layout& layout, std::span<const ExpertFacts> experts, std::byte* payload,
                  std::uint64_t& scales_rounded) = nullptr;
  FamilyParts parts = {};  // none: its tensors are blobs
};

// constinit in their files: a host's initializer may ask before main().
namespace layout_families {
extern const LayoutFamily torch, kai, wna16, floats;
}
// nullptr: not a named layout.
// The numbers of damaged files get nullptr, too.
const LayoutFamily* layout_family(LayoutKind kind);

// A layer in a named layout; its group divides both sizes.
// It lists the tensors, too, so a Layout of a named kind is never without its list.
Layout make_named_layout(LayoutKind kind, const LayoutShape& shape, const LayoutVariant& variant = {});
// The list of tensors and their places, from kind, matrices, experts and variant.
// Packed files store neither offsets nor shapes of tensors (packed_file.md 2). A reader makes the
// list again from kind, matrices and variant, so nothing in a file can point outside of the
// payload.
void place_tensors(Layout& layout);
// Without wrapping; nullopt when the payload is larger than half of the address space.
// The reader of packed files asks it before it trusts a size of the file.
std::optional<std::int64_t> checked_payload_bytes(const Layout& layout);

}  // namespace moe
