// What a rank does for its own tokens: sorts their slots by owner, packs the rows that owners need, and adds what comes
// back.
//
//   place     ids of a chunk -> experts; how many rows go to each rank
//   pack      rows for the others to `send`, for this rank to its place in `recv`; where results will lie
//   sum       results -> out
//
// A slot's place among the results: (owner, expert, token, slot); each owner makes its rows in that order, so they are
// received where they belong. The sum goes by ascending expert (exact) or ascending rank (compact).
#pragma once

#include "base/parallel.h"
#include "base/result.h"
#include "base/tensor.h"
#include "dist/header.h"
#include "dist/memory.h"
#include "dist/placement.h"
#include "run/engine/engine.h"

namespace moe::dist {

// What the calls of a layer share.
struct Spread {
  const SpreadShape& shape;
  const ExpertPlaces& places;
  int rank;
  std::int64_t held() const { return std::ssize(places.experts[usize(rank)]); }
};

// The tokens of a chunk.
struct ChunkTokens {
  std::int64_t count = 0;
  TensorView hidden, ids, weights, out;
};

// Reads the ids, for the only time. Fills header_rows.
void place(const Spread& spread, const ChunkTokens& chunk, Memory& m);
// headers: the others' numbers of rows, checked.
Check pack(const Spread& spread, const ChunkTokens& chunk, const RankHeader* headers, Memory& m,
           const Parallel& parallel);
Check sum(const run::SumRules& rules, const Spread& spread, Memory& m, run::EngineCall call);

}  // namespace moe::dist
