// Questions to moe_describe.
#include "support/describe.h"
#include "support/rooms.h"

namespace moe::test {

Described describe(const std::string& topic, const std::string& query) {
  Described d;
  moe_buffer* out = nullptr;
  d.why = failure([&](moe_error** e) { return moe_describe(topic.c_str(), query.data(), query.size(), &out, e); });
  const BufferPtr owned(out);
  EXPECT_EQ(out != nullptr, d.why.status == MOE_OK);
  if (out != nullptr) d.answer = nlohmann::json::parse(static_cast<const char*>(moe_buffer_data(out)));
  return d;
}

bool subset(const nlohmann::json& want, const nlohmann::json& have) {
  if (!want.is_object()) return want == have;
  for (const auto& [key, value] : want.items())
    if (!have.is_object() || !have.contains(key) || !subset(value, have[key])) return false;
  return true;
}

void expect_answer(const std::string& topic, const nlohmann::json& query, const nlohmann::json& want) {
  const Described d = describe(topic, query.dump());
  EXPECT_EQ(d.why.status, MOE_OK) << topic << " " << query.dump() << ": " << d.why.message;
  EXPECT_TRUE(subset(want, d.answer)) << topic << " " << query.dump() << "\nwant " << want.dump() << "\nhave "
                                      << d.answer.dump();
}

void expect_refused(const std::string& topic, const std::vector<Refused>& queries) {
  for (const Refused& r : queries) {
    const Described d = describe(topic, r.query);
    EXPECT_EQ(d.why.status, MOE_ERR_INVALID_CONFIG) << topic << " " << r.query;
    EXPECT_EQ(d.why.subject, r.pointer) << topic << " " << r.query << ": " << d.why.message;
  }
}

}  // namespace moe::test
