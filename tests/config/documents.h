// Small documents for the tests of the config room.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "config/config.h"
#include "support/rooms.h"

namespace moe::test {

// The four members that a document must have, and `more` merged over them.
inline nlohmann::json layer_document(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json d = {{"num_experts", 8}, {"top_k", 2}, {"hidden_dim", 256}, {"intermediate_size", 512}};
  d.merge_patch(more);
  return d;
}

inline nlohmann::json resolved_of(const nlohmann::json& document) {
  const auto c = parse_config(document.dump());
  EXPECT_TRUE(c) << document.dump() << "\n" << (c ? "" : c.error().message);
  return c ? nlohmann::json::parse(c->canonical) : nlohmann::json();
}

// The fault of a document: its pointer, with the code checked. "accepted" when there is none.
inline std::string fault_of(const std::string& text) {
  const auto c = parse_config(text);
  if (c) return "accepted";
  EXPECT_EQ(c.error().code, Code::invalid_config) << text.substr(0, 200);
  EXPECT_FALSE(c.error().message.empty());
  return c.error().subject;
}
inline std::string fault_of(const nlohmann::json& document) { return fault_of(document.dump()); }

}  // namespace moe::test
