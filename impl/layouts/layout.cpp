// Layout identities and sizes. See layout.h.
#include "layouts/layout.h"

#include "base/checked.h"
#include "base/index.h"
#include "base/text.h"
#include "layouts/families.h"
#include "layouts/p16/p16.h"

namespace moe {

std::string grouping_word(const Matrix& m) {
  if (m.source_groups().is_uneven()) return cat("u", m.source_count());
  const std::int64_t size = m.source_groups().size_in(m.columns());
  if (m.scale_rows > 1) return cat("b", m.scale_rows, "x", size);
  if (m.groups.is_whole()) return m.scale_rows == kAllRows ? "t" : "cw";
  // Groups of small floats with a byte of scale are what their formats say.
  return cat(!is_integer(m.element) && m.scales == Scales::f32 ? "b1x" : "g", size);
}

std::string Layout::id() const {
  if (const LayoutFamily* family = layout_family(kind)) return family->id(*this);
  const P16Kind* row = p16_kind(kind);
  if (row == nullptr) return "";
  std::string s = cat("p16/", row->word);
  if (!is_value(w13.element)) {
    s.append("-").append(grouping_word(w13));
    if (grouping_word(w2) != grouping_word(w13)) s.append(",").append(grouping_word(w2));
  }
  if (row->any_float) s += row_of(w13.scales).suffix;
  if (w13.has_zeros) s += "-zp";
  if (w13.has_order) s += "-ao";
  if (w13.has_bias) s += "-bias";
  if (variant.bit_compat_vllm) s += "-vllm";
  if (variant.input_scales) s += "-inputs";
  return s + "/1";
}

std::size_t Layout::w2_offset() const { return P16{w13}.bytes(); }

std::size_t Layout::expert_stride() const {
  if (p16_element(kind)) return round_up(w2_offset() + P16{w2}.bytes(), kExpertAlignment);
  std::size_t sum = 0;
  for (const LayoutTensor& t : tensors) sum += t.shared ? 0 : t.bytes;
  return sum;
}

std::size_t Layout::payload_bytes() const {
  if (p16_element(kind)) return expert_stride() * usize(experts);
  return tensors.empty() ? 0 : end_of(tensors.back());
}

}  // namespace moe
