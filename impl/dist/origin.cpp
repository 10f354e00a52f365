// The tokens' side of an exchange (origin.h).
#include "dist/origin.h"

#include <algorithm>
#include <cstring>

#include "base/index.h"

namespace moe::dist {
namespace {

// Where a row is written that goes to a rank.
std::byte* row_for(const Spread& s, const Memory& m, std::int64_t rank, std::int64_t row) {
  const bool own = rank == s.rank && !s.shape.tp;
  const std::int64_t first = own ? m.dispatch.recv_at[rank] : m.dispatch.send_at[rank];
  return (own ? m.recv : m.send) + usize(first + row) * s.shape.in_row();
}

// ids -1 and weights 0 of a new row.
void clear_row(const SpreadShape& shape, std::byte* row) {
  std::memset(row, 0xff, usize(shape.top_k) * sizeof(std::int32_t));
  std::memset(row + usize(shape.top_k) * 4, 0, usize(shape.top_k) * sizeof(float));
}

void set_slot(const SpreadShape& shape, std::byte* row, std::int64_t j, std::int32_t local, float weight) {
  std::memcpy(row + j * 4, &local, sizeof local);
  std::memcpy(row + (shape.top_k + j) * 4, &weight, sizeof weight);
}

void count_exchange(const Spread& s, const RankHeader* headers, Memory& m) {
  std::int64_t sent = 0, received = 0;
  for (std::int64_t r = 0; r < s.shape.ranks; ++r) {
    const bool own = r == s.rank && !s.shape.tp;
    m.dispatch.send[r] = own ? 0 : m.header_rows[r];
    m.dispatch.send_at[r] = s.shape.tp ? 0 : sent;
    sent += m.dispatch.send[r];
    m.dispatch.recv[r] = own ? 0 : headers[r].rows;
    m.dispatch.recv_at[r] = received;
    received += headers[r].rows;
  }
}

// ids, weights and tokens of all rows; `rows` of them are written by this rank.
std::int64_t write_heads(const Spread& s, const ChunkTokens& chunk, Memory& m) {
  const SpreadShape& shape = s.shape;
  std::int64_t total = 0;
  if (shape.tp) {
    for (std::int64_t t = 0; t < chunk.count; ++t) {
      std::byte* row = m.send + usize(t) * shape.in_row();
      clear_row(shape, row);
      for (std::int64_t j = 0; j < shape.top_k; ++j)
        if (const std::int32_t e = m.places[t * shape.top_k + j]; e >= 0)
          set_slot(shape, row, j, e, run::weight_at(chunk.weights, t, j));
      m.row_token[total++] = static_cast<std::int32_t>(t);
    }
    return total;
  }
  // row_of: the row of a rank that is being filled; row_token: by rank, this one's own rows too.
  std::int64_t before = 0;
  for (std::int64_t r = 0; r < shape.ranks; ++r) {
    m.row_of[r] = -1;
    m.combine.recv_at[r] = before;  // where its part of row_token begins, until results are counted
    before += m.header_rows[r];
  }
  total = before;
  for (std::int64_t t = 0; t < chunk.count; ++t)
    for (std::int64_t j = 0; j < shape.top_k; ++j) {
      const std::int32_t e = m.places[t * shape.top_k + j];
      if (e < 0) continue;
      const std::int32_t r = s.places.owner[usize(e)];
      std::int32_t* const tokens = m.row_token + m.combine.recv_at[r];
      std::int64_t& row = m.row_of[r];
      if (row < 0 || tokens[row] != t) {
        tokens[++row] = static_cast<std::int32_t>(t);
        clear_row(shape, row_for(s, m, r, row));
      }
      set_slot(shape, row_for(s, m, r, row), j, s.places.local[usize(e)], run::weight_at(chunk.weights, t, j));
    }
  return total;
}

Check copy_values(const Spread& s, const ChunkTokens& chunk, const Memory& m, std::int64_t rows,
                  const Parallel& parallel) {
  const SpreadShape& shape = s.shape;
  const std::size_t bytes = usize(shape.hidden) * shape.element, filled = shape.values_offset() + bytes;
  return parallel.parts(rows, run::slot_parts(rows * 64), [&](std::int64_t, std::int64_t begin, std::int64_t end) {
    std::int64_t rank = 0, first = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      while (!shape.tp && i - first >= m.header_rows[rank]) first += m.header_rows[rank++];
      std::byte* row = shape.tp ? m.send + usize(i) * shape.in_row() : row_for(s, m, rank, i - first);
      const std::int64_t t = m.row_token[i];
      std::memcpy(row + shape.values_offset(), chunk.hidden.data + usize(t * chunk.hidden.strides[0]) * shape.element,
                  bytes);
      std::memset(row + filled, 0, shape.in_row() - filled);
    }
  });
}

// Results by (owner, expert, token, slot).
void plan_exact(const Spread& s, const ChunkTokens& chunk, Memory& m) {
  run::Plan& p = m.plan;
  std::int32_t next = 0;
  for (std::int64_t r = 0; r < s.shape.ranks; ++r) {
    const std::int32_t begin = next;
    for (const std::int64_t e : s.places.experts[usize(r)]) {
      const std::int32_t count = m.expert_slots[e];
      m.expert_slots[e] = next;
      next += count;
    }
    m.combine.recv[r] = r == s.rank ? 0 : next - begin;
    m.combine.recv_at[r] = begin;
  }
  p.num_slots = next;
  for (std::int64_t t = 0; t < chunk.count; ++t)
    for (std::int64_t j = 0; j < s.shape.top_k; ++j) {
      const std::int32_t e = m.places[t * s.shape.top_k + j];
      if (e < 0) continue;
      const std::int32_t slot = m.expert_slots[e]++;
      p.slot_token[slot] = static_cast<std::int32_t>(t);
      p.slot_weight[slot] = run::weight_at(chunk.weights, t, j);
    }
}

// By ascending expert. expert_slots: where an expert's slots end.
void list_experts(const Spread& s, Memory& m) {
  run::Plan& p = m.plan;
  p.num_active = 0;
  const auto of_rank = [&](std::int64_t r) -> const std::vector<std::int64_t>& { return s.places.experts[usize(r)]; };
  // Where the first of a rank's experts begins; the others begin where the one before ends.
  for (std::int64_t r = 0; r < s.shape.ranks; ++r) {
    auto begin = static_cast<std::int32_t>(m.combine.recv_at[r]);
    for (const std::int64_t e : of_rank(r)) {
      const std::int32_t end = m.expert_slots[e];
      p.active[e] = {0, begin, end - begin, 0, 0};
      begin = end;
    }
  }
  for (std::int64_t e = 0; e < s.shape.experts; ++e)
    if (p.active[e].slots > 0) p.active[p.num_active++] = p.active[e];
}

// A sum of each token and rank, by ascending rank, then token.
void plan_compact(const Spread& s, Memory& m) {
  run::Plan& p = m.plan;
  p.num_active = 0;
  std::int32_t next = 0;
  for (std::int64_t r = 0; r < s.shape.ranks; ++r) {
    const auto rows = static_cast<std::int32_t>(m.header_rows[r]);
    m.combine.recv[r] = r == s.rank ? 0 : rows;
    m.combine.recv_at[r] = next;
    if (rows > 0) p.active[p.num_active++] = {0, next, rows, 0, 0};
    for (std::int32_t i = 0; i < rows; ++i) p.slot_token[next + i] = m.row_token[s.shape.tp ? i : next + i];
    next += rows;
  }
  p.num_slots = next;
}

}  // namespace

void place(const Spread& s, const ChunkTokens& chunk, Memory& m) {
  const SpreadShape& shape = s.shape;
  std::fill_n(m.expert_slots, shape.experts, 0);
  for (std::int64_t r = 0; r < shape.ranks; ++r) {
    m.header_rows[r] = shape.tp ? chunk.count : 0;
    m.row_of[r] = -1;  // the last token that has a row
  }
  for (std::int64_t t = 0; t < chunk.count; ++t)
    for (std::int64_t j = 0; j < shape.top_k; ++j) {
      const std::int64_t id = run::id_at(chunk.ids, t, j);
      const bool held = id >= 0 && id < shape.experts;  // zero experts have no rows
      m.places[t * shape.top_k + j] = held ? static_cast<std::int32_t>(id) : -1;
      if (!held) continue;
      ++m.expert_slots[id];
      if (shape.tp) continue;
      const std::int32_t r = s.places.owner[usize(id)];
      if (m.row_of[r] == t) continue;
      m.row_of[r] = t;
      ++m.header_rows[r];
    }
}

Check pack(const Spread& s, const ChunkTokens& chunk, const RankHeader* headers, Memory& m, const Parallel& parallel) {
  count_exchange(s, headers, m);
  const std::int64_t rows = write_heads(s, chunk, m);
  if (s.shape.exact) {
    plan_exact(s, chunk, m);
    list_experts(s, m);
  } else {
    plan_compact(s, m);
  }
  return copy_values(s, chunk, m, rows, parallel);
}

Check sum(const run::SumRules& rules, const Spread& s, Memory& m, run::EngineCall call) {
  if (rules.rounded && s.shape.exact)
    MOE_CHECK(run::round_weights(*rules.steps, rules.in_dtype, m.plan, call.parallel));
  const run::Plan& p = m.plan;
  const bool weighted = s.shape.exact && !rules.weight_on_input;
  return run::sum_results(
      rules, {p.active, p.num_active, p.slot_token, weighted ? p.slot_weight : nullptr, m.results, s.shape.row_floats},
      m.acc, call);
}

}  // namespace moe::dist
