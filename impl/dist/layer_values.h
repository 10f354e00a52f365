// What ranks tell each other of their layers at attach, where a config asks for it: numbers of the checkpoint that the
// config does not have.
#pragma once

#include <span>

#include "base/result.h"
#include "config/config.h"
#include "dist/comm.h"
#include "dist/placement.h"
#include "run/layer.h"

namespace moe::dist {

// A row of float32 for each rank: has a layer; its input scales of w13 and w2 where all of its experts share them, else
// 0; has a bias, has scales of experts; the bias; these scales.
class LayerValues {
 public:
  // All ranks answer alike. A rank without experts routes as well: by the bias and scales of one that has a layer.
  static bool are_told(const Config& config, const ExpertPlaces& places, int ranks, bool tp);

  // Takes all memory. `router`: of this rank; it has space for a bias and scales where its config wants them.
  LayerValues(const run::Layer* layer, const run::Router& router, int ranks);

  // Collective. Code::unsupported on all ranks where the input scales of two differ.
  Check tell(Comm& comm);
  // The bias and scales of the first rank with a layer.
  void fill(run::Router& router) const;

 private:
  std::span<const float> row(int rank) const;

  int ranks_;
  std::size_t floats_;
  Gathering rows_;
};

}  // namespace moe::dist
