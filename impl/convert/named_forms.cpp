// The table of named layouts' bytes. See named_forms.h.
#include "convert/named_forms.h"

#include <array>

#include "convert/form_torch.h"

namespace moe {
namespace {

constexpr std::array kForms = {NamedForm{LayoutKind::torch_float, write_torch_blob, read_torch_blob}};

}  // namespace

const NamedForm* named_form(LayoutKind kind) {
  for (const NamedForm& row : kForms)
    if (row.kind == kind) return &row;
  return nullptr;
}

}  // namespace moe
