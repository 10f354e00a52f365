// Where everything lies (memory.h).
#include "dist/memory.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"

namespace moe::dist {
namespace {

Counts carve_counts(run::Carver& c, int ranks) {
  Counts counts;
  for (std::int64_t** list : {&counts.send, &counts.send_at, &counts.recv, &counts.recv_at})
    *list = c.take<std::int64_t>(ranks);
  return counts;
}

}  // namespace

std::int64_t most_engine_rows(const SpreadShape& s) { return std::min(s.ranks * s.chunk, run::kChunkTokens); }

Memory carve(const SpreadShape& s, std::byte* base) {
  run::Carver c(base);
  Memory m;
  const std::int64_t tokens = s.chunk, slots = tokens * s.top_k, ranks = s.ranks;
  m.dispatch = carve_counts(c, s.ranks);
  m.combine = carve_counts(c, s.ranks);
  m.header_rows = c.take<std::int64_t>(ranks);
  m.row_of = c.take<std::int64_t>(ranks);
  m.places = c.take<std::int32_t>(slots);
  m.expert_slots = c.take<std::int32_t>(s.experts);
  m.plan.active = c.take<run::ActiveExpert>(std::max(s.experts, ranks));
  m.plan.slot_token = c.take<std::int32_t>(tokens * s.back_from_all());
  m.plan.slot_weight = c.take<float>(tokens * s.back_from_all());
  m.row_token = c.take<std::int32_t>(tokens * s.rows_out());
  m.run_at = c.take<std::int32_t>(s.exact ? ranks * s.experts : 0);
  m.slot_to = c.take<float*>(s.exact ? most_engine_rows(s) * s.top_k : 0);
  m.send = c.take<std::byte>(usize(tokens * s.rows_out()) * s.in_row());
  m.recv = c.take<std::byte>(usize(ranks * tokens) * s.in_row());
  // With `exact` this rank's own rows go to `results` at once.
  m.back_send = c.take<float>((s.exact ? ranks - 1 : ranks) * tokens * s.back_from_one() * s.row_floats);
  m.results = c.take<float>(tokens * s.back_from_all() * s.row_floats);
  m.acc = c.take<float>(tokens * s.row_floats);
  m.bytes = c.used();
  return m;
}

WholeCall carve_call(const SpreadShape& s, std::int64_t tokens, std::size_t route_bytes, std::size_t engine_bytes,
                     std::byte* base) {
  run::Carver c(base);
  WholeCall m;
  m.ids = c.take<std::int32_t>(tokens * s.top_k);
  m.weights = c.take<float>(tokens * s.top_k);
  m.identity = c.take<float>(tokens);
  m.route_scratch = c.take<std::byte>(route_bytes);
  m.engine = c.take<std::byte>(engine_bytes);
  m.engine_bytes = engine_bytes;
  m.bytes = c.used();
  return m;
}

std::int64_t chunk_within(SpreadShape shape, std::int64_t wanted, std::int64_t most_tokens, std::uint64_t bytes) {
  for (shape.chunk = 1; shape.chunk < wanted; shape.chunk *= 2) {
  }
  for (; shape.chunk > 0; shape.chunk /= 2) {
    const auto most = static_cast<std::int64_t>(std::max(shape.in_row(), shape.out_row()));
    const auto largest =
        checked_mul({shape.chunk, shape.ranks, std::max<std::int64_t>(shape.top_k, 1), most, 8 * kChunks});
    if (!largest || shape.most_rows() > std::numeric_limits<std::int32_t>::max()) continue;
    const std::int64_t tokens = std::min(shape.chunk, wanted);
    if (usize(chunks_at_once(tokens, most_tokens)) * carve(shape, nullptr).bytes <= bytes) return tokens;
  }
  return 0;
}

}  // namespace moe::dist
