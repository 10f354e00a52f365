// The table of named layouts' bytes. See named_forms.h.
#include "layouts/named_forms.h"

#include <array>

namespace moe {
namespace {

constexpr std::array kForms = {
#define MOE_P16(...)
#define MOE_NAMED(kind_, number_) &named_forms::kind_,
#include "layouts/layout_kinds.inc"
};

}  // namespace

const NamedForm* named_form(LayoutKind kind) {
  for (const NamedForm* row : kForms)
    if (row->kind == kind) return row;
  return nullptr;
}

}  // namespace moe
