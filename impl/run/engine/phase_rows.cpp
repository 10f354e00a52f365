// Phase 0: each input row is widened, weighted, reordered and quantized once, into the tiles of its slots.
#include <algorithm>

#include "run/engine/engine_run.h"

namespace moe::run {

TilePlace EngineRun::place_of_slot(std::int32_t slot) const {
  const RowTile& t = w.plan.tiles[w.plan.slot_tile[slot]];
  return {in_tile(t), t.rows, slot - t.slot};
}

void EngineRun::quantize_rows(std::int64_t item, std::int64_t items) const {
  const std::int64_t size = s.in_dtype == DType::f32 ? 4 : 2;
  const std::int64_t units = phase0_units(s, c.tokens), slots_per_unit = c.tokens * s.top_k / units;
  const std::int64_t begin = units * item / items * slots_per_unit, end = units * (item + 1) / items * slots_per_unit;
  float* x = w.rows + item * 2 * w.row_ld;
  for (std::int64_t t = begin / s.top_k; t * s.top_k < end; ++t) {
    const std::int32_t* const slots = w.plan.slot_of;
    const std::int32_t* const last = slots + std::min(end, (t + 1) * s.top_k);
    const std::int32_t* const first =
        std::find_if(slots + std::max(begin, t * s.top_k), last, [](std::int32_t v) { return v >= 0; });
    if (first == last) continue;
    const std::byte* src = c.hidden.data + t * c.hidden.strides[0] * size;
    const TilePlace place = place_of_slot(*first);
    for (const std::int32_t* slot = first; slot != last; ++slot) {
      if (*slot < 0 || home(*slot) != *slot) continue;
      const std::int32_t* next = slot + 1;
      if (next != last && *next >= 0) prefetch_tile_row(in, place_of_slot(*next));
      const TilePlace to = place_of_slot(*slot);
      if (slot != first && !s.row_per_slot() && in.are_alike(place.n, to.n)) {
        copy_tile_row(in, place, to);
        continue;
      }
      if (slot == first || s.weight_on_input) {
        s.kernel->steps->widen(s.in_dtype, src, s.hidden, x);
        multiply_row(x, s.input_factors[0]);
      }
      if (s.weight_on_input) scale_row(x, w.plan.slot_weight[*slot]);
      const float* row = s.w13.has_order ? reorder_row(x, columns(Which::w13, expert_of(*slot))) : x;
      const float scale = s.input_scales[0].empty() ? 0.0f : s.input_scale(Which::w13, expert_of(*slot).local);
      s.kernel->quantize({in, row, s.in_rule, to, scale});
    }
  }
}

void EngineRun::multiply_row(float* row, std::span<const float> factors) {
  for (std::size_t k = 0; k < factors.size(); ++k) row[k] = row[k] * factors[k];
}

// The columns in the order of the expert's w13, in the space behind the row.
const float* EngineRun::reorder_row(float* x, const std::int32_t* columns) const {
  float* row = x + w.row_ld;
  for (std::int64_t k = 0; k < in.k; ++k) row[k] = columns[k] < 0 ? 0.0f : x[columns[k]];
  return row;
}

// The weight on the input, in values of the input dtype.
void EngineRun::scale_row(float* x, float weight) const {
  for (std::int64_t k = 0; k < s.hidden; ++k) x[k] = x[k] * weight;
  auto* narrowed = reinterpret_cast<std::byte*>(x + w.row_ld);
  s.kernel->steps->narrow(s.in_dtype, x, s.hidden, narrowed);
  s.kernel->steps->widen(s.in_dtype, narrowed, s.hidden, x);
}

}  // namespace moe::run
