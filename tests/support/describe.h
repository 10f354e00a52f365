// Questions to moe_describe: the answer, the failure, and comparison by subset (objects recursively, arrays and
// scalars exactly).
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test {

struct Described {
  Failure why;
  nlohmann::json answer;
};

Described describe(const std::string& topic, const std::string& query);

bool subset(const nlohmann::json& want, const nlohmann::json& have);

void expect_answer(const std::string& topic, const nlohmann::json& query, const nlohmann::json& want);

// A query that is refused, and the pointer of the member at fault.
struct Refused {
  const char* query;
  const char* pointer;
};

void expect_refused(const std::string& topic, const std::vector<Refused>& queries);

}  // namespace moe::test
