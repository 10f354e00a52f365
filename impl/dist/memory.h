// All memory of the calls of a spread layer, reserved at create: pages that no call touches cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "config/config.h"
#include "dist/options.h"
#include "run/engine/engine.h"
#include "run/route/plan.h"

namespace moe::dist {

// What the sizes follow from: equal on all ranks.
struct SpreadShape {
  int ranks = 1;
  bool tp = false, exact = true;
  std::int64_t experts = 0, top_k = 0, row_floats = 0;
  std::int64_t hidden = 0;
  std::size_t element = 2;  // bytes of an input value
  std::int64_t chunk = 1;   // tokens of a rank in a chunk at most

  // A dispatch row: K ids, K weights, H values, rounded up to 16 bytes. A row of results: float32.
  std::size_t values_offset() const { return usize(top_k) * 8; }
  std::size_t in_row() const { return round_up(values_offset() + usize(hidden) * element, std::size_t{16}); }
  std::size_t out_row() const { return usize(row_floats) * sizeof(float); }
  // Rows of one token: to all ranks together, and back from one and from all of them.
  std::int64_t rows_out() const { return tp ? 1 : std::min<std::int64_t>(top_k, ranks); }
  std::int64_t back_from_one() const { return exact ? top_k : 1; }
  // Counts and displacements of an exchange are at most this.
  std::int64_t most_rows() const { return chunk * std::max({rows_out(), back_from_all(), ranks * back_from_one()}); }
  std::int64_t back_from_all() const { return exact ? top_k : tp ? ranks : std::min<std::int64_t>(top_k, ranks); }
};

// Counts and displacements of one exchange.
struct Counts {
  std::int64_t *send = nullptr, *send_at = nullptr, *recv = nullptr, *recv_at = nullptr;  // [ranks]
};

struct Memory {
  std::size_t bytes = 0;  // a multiple of 64: another chunk's may follow

  Counts dispatch, combine;
  std::int64_t* header_rows = nullptr;   // [ranks]
  std::int32_t* places = nullptr;        // [T*K] expert of (token, j), -1: none
  std::int32_t* expert_slots = nullptr;  // [experts] slots, then the next one
  run::Plan plan;                        // of this rank's tokens: active, slot_token, slot_weight
  std::int32_t* row_token = nullptr;     // [T * rows_out] token of a row that is sent
  std::int64_t* row_of = nullptr;        // [ranks] the row of a token that is filled
  std::byte* send = nullptr;             // dispatch rows
  std::byte* recv = nullptr;
  float* back_send = nullptr;  // rows of results
  float* results = nullptr;
  float* acc = nullptr;            // [T * row_floats]
  std::int32_t* run_at = nullptr;  // [ranks * experts] rows of results that an origin gets from an expert; where
                                   // the next one goes
  float** slot_to = nullptr;       // [slots of a run of the engine] where a result goes
};
// Without `base` it only adds up the bytes.
Memory carve(const SpreadShape& shape, std::byte* base);
// Rows of a run of the engine at most, which slot_to has space for.
std::int64_t most_engine_rows(const SpreadShape& shape);

// Of a whole call, known when the layer is.
struct WholeCall {
  std::int32_t* ids = nullptr;  // [T*K] what routing chose
  float* weights = nullptr;     // [T*K]
  float* identity = nullptr;    // [T]
  std::byte* route_scratch = nullptr;
  std::byte* engine = nullptr;
  std::size_t engine_bytes = 0, bytes = 0;
};
WholeCall carve_call(const SpreadShape& shape, std::int64_t tokens, std::size_t route_bytes, std::size_t engine_bytes,
                     std::byte* base);
// Chunks under way at once: one is sent, one computed, one sent back. The only chunk of a call is alone.
constexpr int kChunks = 3;
constexpr int chunks_at_once(std::int64_t chunk_tokens, std::int64_t most_tokens) {
  return chunk_tokens < most_tokens ? kChunks : 1;
}
// The largest power of two tokens of which all chunks under way fit, at most `wanted`; 0: not even one does.
std::int64_t chunk_within(SpreadShape shape, std::int64_t wanted, std::int64_t most_tokens, std::uint64_t bytes);

}  // namespace moe::dist
