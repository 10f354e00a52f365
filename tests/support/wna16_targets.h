// The layouts of int4 and int8 weights as configs ask for them: a platform, a backend, and what the layout takes.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "support/rooms.h"
#include "support/wna16_model.h"

namespace moe::test {

struct Wna16Target {
  const char* name;
  nlohmann::json members;  // of the config
};

const std::array<Wna16Target, 9>& wna16_targets();

// One conversion through the ABI.
struct Wna16Conversion {
  ConfigPtr config;
  SelectionPtr selection;
  WeightsPtr weights;
  PackedPtr packed;

  explicit Wna16Conversion(const Wna16Model& m) : config(make_config(m.config_text())) {
    if (config) selection = make_selection(config.get());
    if (selection) weights = stacked_weights(m, config.get());
  }
  Failure convert() {
    return failure([&](moe_error** e) {
      moe_packed* out = nullptr;
      const moe_status s = moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, &out, e);
      packed.reset(out);
      return s;
    });
  }
};

}  // namespace moe::test
