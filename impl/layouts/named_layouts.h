// Layouts of other libraries, handed out as named tensors [E, ...]. A row says what such a layout holds; how its bytes
// are written and read back is in layouts/named_forms.h.
//
// A new layout: a row of layout_kinds.inc, its named_layouts::<kind> here and its named_forms::<kind> in convert.
#pragma once

#include <optional>
#include <string>

#include "layouts/layout.h"

namespace moe {

struct NamedLayout {
  LayoutKind kind;
  std::string (*id)(const Layout& layout);  // "torch/dyn_quant_4bit-g32-bias/1"
  // Can such a layout exist? Packed files are asked, too; sizes are at most 2^24, groups divide k.
  bool (*valid)(const Layout& layout);
  // Appends name, dtype and shape (and shared) of each tensor; places are filled in later.
  void (*list)(Layout& layout);
};

// Every named row of layout_kinds.inc, defined by a file of this room.
namespace named_layouts {
#define MOE_P16(...)
#define MOE_NAMED(kind_, number_) extern const NamedLayout kind_;
#include "layouts/layout_kinds.inc"
}  // namespace named_layouts
// nullptr: not a named layout.
const NamedLayout* named_layout(LayoutKind kind);

// A layer in a named layout; its group divides both sizes.
Layout make_named_layout(LayoutKind kind, const LayoutShape& shape, const LayoutVariant& variant = {});
// The list of tensors and their places, from kind, matrices, experts and variant.
void place_tensors(Layout& layout);
// Without wrapping; nullopt when the payload is larger than half of the address space.
std::optional<std::int64_t> checked_payload_bytes(const Layout& layout);

}  // namespace moe
