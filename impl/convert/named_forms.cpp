// The table of named layouts' bytes. See named_forms.h.
#include "convert/named_forms.h"

#include <array>

#include "convert/form_kai.h"
#include "convert/form_torch.h"
#include "convert/form_wna16.h"

namespace moe {
namespace {

constexpr NamedForm wna16(LayoutKind kind) { return {kind, write_wna16_form, read_wna16_form, finish_wna16_form}; }

constexpr std::array kForms = {
    NamedForm{LayoutKind::torch_float, write_torch_blob, read_torch_blob},
    NamedForm{LayoutKind::kai, write_kai, read_kai},
    wna16(LayoutKind::wna16_marlin),
    wna16(LayoutKind::wna16_trtllm),
    wna16(LayoutKind::wna16_xpu),
    wna16(LayoutKind::wna16_vnni),
    wna16(LayoutKind::wna16_on_the_fly),
    wna16(LayoutKind::wna16_dense),
};

}  // namespace

const NamedForm* named_form(LayoutKind kind) {
  for (const NamedForm& row : kForms)
    if (row.kind == kind) return &row;
  return nullptr;
}

}  // namespace moe
