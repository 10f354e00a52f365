// A small float layer for the tests of moe.hpp: 4 experts, top 2, H 64, I 32.
#pragma once

#include <cstdint>
#include <moe/moe.hpp>
#include <string>
#include <vector>

namespace cpp_test {

constexpr std::int64_t kExperts = 4, kTopK = 2, kHidden = 64, kInner = 32, kTokens = 5;
constexpr const char* kConfig =
    R"({"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":32,"in_dtype":"float32","name":"layer.experts"})";

inline std::vector<float> numbers(std::size_t count) {
  static std::uint64_t state = 1;
  std::vector<float> values(count);
  for (float& v : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    v = static_cast<float>(static_cast<std::int32_t>(state >> 48U) - 32768) / 65536.0F;
  }
  return values;
}

struct Numbers {
  std::vector<float> w13 = numbers(kExperts * 2 * kInner * kHidden), w2 = numbers(kExperts * kHidden * kInner);
  std::vector<float> hidden = numbers(kTokens * kHidden), logits = numbers(kTokens * kExperts);
};

// What no_exceptions.cpp, compiled with -fno-exceptions, says about the same calls: "" when all is as expected.
const char* without_exceptions(const Numbers& numbers, std::vector<float>& out);
// The same of the directory of a model, which is converted into another one; `out` is of layer 0.
const char* checkpoint_without_exceptions(const std::string& directory, const std::string& converted,
                                          const Numbers& numbers, std::vector<float>& out);

}  // namespace cpp_test
