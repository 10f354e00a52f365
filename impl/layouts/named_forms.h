// How named layouts (layouts/named_layouts.h) are written and read back: whole matrices in the plain form of
// rows.h against the spans of one expert's tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/index.h"
#include "base/result.h"
#include "layouts/layout.h"
#include "layouts/rows.h"

namespace moe {

// The tensors of one expert, and those that are shared.
template <class Byte>
struct ExpertTensors {
  const Layout& layout;
  Byte* payload;
  std::int64_t local;

  // Empty when the layout has no such tensor.
  std::span<Byte> operator[](std::string_view name) const {
    for (const LayoutTensor& t : layout.tensors)
      if (t.name == name) return {payload + t.offset + (t.shared ? 0 : t.bytes * usize(local)), t.bytes};
    return {};
  }
};

// What the sources of an expert say beside its matrices: the largest scale of the activations of w13 and w2.
struct ExpertFacts {
  std::array<std::optional<float>, 2> input_scale;
};

struct NamedForm {
  LayoutKind kind;
  // One matrix: rows.count == matrix(which).rows(), gate rows first. Writes every byte of its tensors that is not
  // shared. `rows` may be spoiled; scales that the layout cannot hold exactly are counted there, and whether codes were
  // made anew.
  Check (*write)(CanonicalRows& rows, Matrix which, const ExpertTensors<std::byte>& out);
  // The way back; `rows` has its shape and is zero. A file may hold anything: faults are Code::format.
  Check (*read)(const ExpertTensors<const std::byte>& in, Matrix which, CanonicalRows& rows);
  // After all experts, whose facts these are, for what depends on all of them; nullptr: nothing. Adds the scales that
  // it cannot keep.
  Check (*finish)(const Layout& layout, std::span<const ExpertFacts> experts, std::byte* payload,
                  std::uint64_t& scales_rounded) = nullptr;
};

// Every named row of layouts/layout_kinds.inc, defined by a file of this room.
namespace named_forms {
#define MOE_P16(...)
#define MOE_NAMED(kind_, number_) extern const NamedForm kind_;
#include "layouts/layout_kinds.inc"
}  // namespace named_forms
const NamedForm* named_form(LayoutKind kind);  // nullptr: not a named layout

}  // namespace moe
