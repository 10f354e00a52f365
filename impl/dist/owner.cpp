// The experts' side of an exchange (owner.h). Rows lie by (source, token), so the slots of an expert lie by source.
#include "dist/owner.h"

#include <algorithm>
#include <cstring>

#include "base/index.h"
#include "base/load.h"
#include "dist/lap.h"

namespace moe::dist {
namespace {

std::int64_t rows_from(const Spread& s, const Memory& m, std::int64_t r) {
  return r == s.rank && !s.shape.tp ? m.header_rows[r] : m.dispatch.recv[r];
}

std::int64_t all_rows(const Spread& s, const Memory& m) {
  const std::int64_t last = s.shape.ranks - 1;
  return m.dispatch.recv_at[last] + rows_from(s, m, last);
}

// Results of a source begin here.
float* results_for(const Spread& s, const Memory& m, std::int64_t r) {
  return r == s.rank ? m.results + m.combine.recv_at[r] * s.shape.row_floats
                     : m.back_send + m.combine.send_at[r] * s.shape.row_floats;
}

// Counts of (source, expert) become the place of its first result.
void number_results(const Spread& s, Memory& m) {
  std::int64_t sent = 0;
  for (std::int64_t r = 0; r < s.shape.ranks; ++r) {
    std::int32_t next = 0;
    for (std::int64_t e = 0; e < s.held(); ++e) {
      std::int32_t& at = m.run_at[r * s.held() + e];
      const std::int32_t count = at;
      at = next;
      next += count;
    }
    m.combine.send[r] = r == s.rank ? 0 : next;
    m.combine.send_at[r] = sent;
    sent += m.combine.send[r];
  }
}

// Each result of a run goes to its place among its source's.
Check spread_results(const Spread& s, const run::RowsDone& done, std::int64_t first_row, Memory& m,
                     const Parallel& parallel) {
  const run::Plan& p = *done.plan;
  for (std::int32_t i = 0; i < p.num_active; ++i) {
    const run::ActiveExpert& e = p.active[i];
    std::int64_t source = 0;
    for (std::int32_t slot = e.first_slot; slot < e.first_slot + e.slots; ++slot) {
      const std::int64_t row = first_row + p.slot_token[slot];
      while (row >= m.dispatch.recv_at[source] + rows_from(s, m, source)) ++source;
      std::int32_t& at = m.run_at[source * s.held() + e.local];
      m.slot_to[slot] = results_for(s, m, source) + at++ * s.shape.row_floats;
    }
  }
  return parallel.parts(p.num_slots, run::slot_parts(p.num_slots * 64),
                        [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i)
                            std::memcpy(m.slot_to[i], done.results + i * done.ld, s.shape.out_row());
                        });
}

}  // namespace

Check read_rows(const Spread& s, Memory& m) {
  const SpreadShape& shape = s.shape;
  if (shape.exact) std::fill_n(m.run_at, shape.ranks * s.held(), 0);
  for (std::int64_t r = 0; r < shape.ranks; ++r)
    for (std::int64_t i = 0; i < rows_from(s, m, r); ++i) {
      const std::byte* row = m.recv + usize(m.dispatch.recv_at[r] + i) * shape.in_row();
      for (std::int64_t j = 0; j < shape.top_k; ++j) {
        const auto local = load<std::int32_t>(row + j * 4);
        if (local < -1 || local >= s.held())
          return bad_peer(static_cast<int>(r), "a row for an expert that is not here");
        if (local >= 0 && shape.exact) ++m.run_at[r * s.held() + local];
      }
    }
  if (shape.exact) {
    number_results(s, m);
    return ok();
  }
  for (std::int64_t r = 0; r < shape.ranks; ++r) {  // a sum for each row; this rank's own lie between the others'
    m.combine.send[r] = r == s.rank ? 0 : rows_from(s, m, r);
    m.combine.send_at[r] = m.dispatch.recv_at[r];
  }
  return ok();
}

Check run_rows(const Spread& s, const run::Layer* layer, std::int64_t engine_rows, std::span<std::byte> workspace,
               Memory& m, const Parallel& parallel, std::atomic<std::uint64_t>& pack_ns) {
  const SpreadShape& shape = s.shape;
  const std::int64_t rows = all_rows(s, m), stride = static_cast<std::int64_t>(shape.in_row());
  const auto element = static_cast<std::int64_t>(shape.element);
  run::Workspace work;
  for (std::int64_t begin = 0; begin < rows; begin += engine_rows) {
    const std::int64_t count = std::min(engine_rows, rows - begin);
    std::byte* const first = m.recv + begin * stride;
    run::RowsCall call;
    const auto view = [&](DType dtype, std::int64_t columns, std::size_t offset, std::int64_t size) {
      TensorView v = row_major(dtype, {count, columns}, first + offset);
      v.strides[0] = stride / size;
      return v;
    };
    call.hidden = view(layer->config().in_dtype, shape.hidden, shape.values_offset(), element);
    call.ids = view(DType::i32, shape.top_k, 0, 4);
    call.weights = view(DType::f32, shape.top_k, usize(shape.top_k) * 4, 4);
    call.workspace = workspace;
    call.parallel = parallel;
    if (!shape.exact) call.sums = m.back_send + begin * shape.row_floats;
    run::RowsDone done;
    MOE_CHECK(layer->run_rows(call, work, done));
    const Lap lap(pack_ns);
    if (shape.exact) {
      MOE_CHECK(spread_results(s, done, begin, m, parallel));
    } else if (shape.hidden < shape.row_floats) {  // the engine writes no padding
      for (std::int64_t i = 0; i < count; ++i)
        std::fill(call.sums + i * shape.row_floats + shape.hidden, call.sums + (i + 1) * shape.row_floats, 0.0f);
    }
  }
  if (!shape.exact) {
    const Lap lap(pack_ns);
    const std::int64_t own = rows_from(s, m, s.rank);
    std::memcpy(m.results + m.combine.recv_at[s.rank] * shape.row_floats,
                m.back_send + m.dispatch.recv_at[s.rank] * shape.row_floats, usize(own) * shape.out_row());
  }
  return ok();
}

}  // namespace moe::dist
