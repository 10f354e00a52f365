// config.json files as people publish them (tests/vectors/published_configs) against what the models' own code says of
// each: layers with experts, sizes, routing, activation, quantization of every layer; or words of a refusal.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "hf/hf.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::hf_published_configs_test {
namespace {

using nlohmann::json;

std::string text_of(const std::string& name) { return read_text(vector_path("published_configs/" + name + ".json")); }

// "3-5,9,20-24/2" -> {3, 4, 5, 9, 20, 22, 24}
std::set<int> numbers(const std::string& ranges) {
  std::set<int> all;
  const std::regex range(R"((\d+)(-(\d+))?(/(\d+))?)");
  for (std::sregex_iterator r(ranges.begin(), ranges.end(), range), end; r != end; ++r) {
    const int first = std::stoi((*r)[1]), last = (*r)[3].matched ? std::stoi((*r)[3]) : first;
    const int step = (*r)[5].matched ? std::stoi((*r)[5]) : 1;
    for (int l = first; l <= last; l += step) all.insert(l);
  }
  return all;
}

struct Member {
  const char *expected, *pointer;
};
constexpr Member kMembers[] = {{"experts", "/num_experts"},
                               {"top_k", "/top_k"},
                               {"hidden", "/hidden_dim"},
                               {"intermediate", "/intermediate_size_per_partition"},
                               {"activation", "/activation"},
                               {"limit", "/activation_params/limit"},
                               {"alpha", "/activation_params/alpha"},
                               {"scoring", "/routing/scoring_func"},
                               {"renormalize", "/routing/renormalize"},
                               {"factor", "/routing/routed_scaling_factor"},
                               {"on_input", "/apply_router_weight_on_input"}};

class File {
 public:
  File(const std::string& name, const json& expected) : expected_(expected) {
    const std::size_t plus = name.find('+');
    model_ = text_of(name.substr(0, plus));
    if (plus != name.npos)
      options_["quantization_config"] = json::parse(text_of(name.substr(0, plus) + "." + name.substr(plus + 1)));
  }

  Result<Config> config(std::optional<int> layer = {}) const {
    json options = options_;
    if (layer) options["layer_index"] = *layer;
    return config_from_hf(model_, options.dump());
  }

  void check() const {
    const Result<Config> any = config();
    if (!any) return check_refusal(any.error());
    ASSERT_TRUE(expected_.contains("expect")) << "it was accepted";
    const json& right = expected_["expect"];
    check_members(json::parse(any->canonical), right);
    const std::set<int> layers = numbers(right["layers"]);
    for (const int l : probes(layers)) {
      SCOPED_TRACE("layer " + std::to_string(l));
      const Result<Config> c = config(l);
      ASSERT_EQ(bool(c), layers.contains(l)) << (c ? "" : c.error().message);
      if (c) check_layer(json::parse(c->canonical), right, l);
    }
  }

 private:
  // All layers, of a long file those at the edges.
  std::set<int> probes(const std::set<int>& layers) const {
    const int first = *layers.begin(), last = *layers.rbegin();
    std::set<int> all = {0, first, (first + last) / 2, last, last + 1};
    if (first > 0) all.insert(first - 1);
    if (model_.size() + options_.dump().size() < 8000)
      for (int l = 0; l < last + 4; ++l) all.insert(l);
    return all;
  }

  void check_refusal(const Error& e) const {
    ASSERT_TRUE(expected_.contains("refuse")) << e.message;
    for (const std::string words : expected_["refuse"])
      EXPECT_TRUE(std::regex_search(e.subject + " " + e.message, std::regex(words, std::regex::icase)))
          << "lacks " << words << ": " << e.message;
  }

  static void check_members(const json& got, const json& right) {
    for (const Member& m : kMembers) {
      if (!right.contains(m.expected)) continue;
      const json& want = right[m.expected];
      const json value = got.value(json::json_pointer(m.pointer), json());
      EXPECT_TRUE(value == want || (want.is_array() && std::count(want.begin(), want.end(), value) > 0))
          << m.expected << " is " << value << ", right is " << want;
    }
    const json& r = got["routing"];
    const auto number = [&](const char* key) { return r[key].is_null() ? json(1) : r[key]; };
    EXPECT_EQ(json({number("num_expert_group"), number("topk_group")}), right["groups"]);
    if (right.contains("stacked") && got.contains("stacked_weights")) {
      EXPECT_TRUE(got["stacked_weights"] == right["stacked"] || got["stacked_weights"] == "by_shape")
          << got["stacked_weights"] << ", right is " << right["stacked"];
    }
  }

  static void check_layer(const json& got, const json& right, int layer) {
    check_members(got, right);
    const std::string bias = right["bias"];
    EXPECT_EQ(got["routing"]["has_bias"], bias == "all" || numbers(bias).contains(layer));
    EXPECT_EQ(got["routing"]["hash_routing"], numbers(right.value("hash", "")).contains(layer));
    const json quantization = got.value("quantization", json()).is_null() ? json::object() : got["quantization"];
    const json weights = quantization.value("weights", json()).is_null() ? json::object() : quantization["weights"];
    const json block = weights.value("block_structure", json());
    const json have = {quantization.value("format", json("none")), weights.value("num_bits", json()),
                       block.is_null() ? weights.value("group_size", json()) : block};
    for (const json& entry : right.value("quantization", json::array()))
      if (numbers(entry[0]).contains(layer)) {
        EXPECT_EQ(have, json({entry[1], entry[2], entry[3]}));
      }
  }

  const json& expected_;
  std::string model_;
  json options_ = json::object();
};

TEST(HfPublishedConfigs, AsTheModelsOwnCodeReadsThem) {
  const json expected = load_json("published_configs/expected.json");
  ASSERT_GT(expected.size(), 40U);
  for (const auto& [name, entry] : expected.items()) {
    SCOPED_TRACE(name);
    File(name, entry).check();
  }
}

}  // namespace
}  // namespace moe::test::hf_published_configs_test
