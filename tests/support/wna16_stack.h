// Integers of the golden WNA16 files: fields of their packed words, and the codes less the zero points.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test {

// A word's fields of a golden stack.
class Stack {
 public:
  Stack(const VecFile& file, const std::string& name)
      : t_(file.at("in." + name)), words_(t_.as<std::uint32_t>()), bits_(std::stoi(file.meta.at("bits"))) {}

  unsigned plain(std::int64_t e, std::int64_t a, std::int64_t b, bool along_rows) const {
    const std::int64_t fields = 32 / bits_;
    return along_rows ? field(e, a / fields, b, a % fields) : field(e, a, b / fields, b % fields);
  }
  unsigned awq(std::int64_t e, std::int64_t a, std::int64_t b) const {
    constexpr std::array kInverse4 = {0, 4, 1, 5, 2, 6, 3, 7}, kInverse8 = {0, 2, 1, 3, 0, 0, 0, 0};
    const std::int64_t fields = 32 / bits_;
    return field(e, a, b / fields, (bits_ == 4 ? kInverse4 : kInverse8)[static_cast<std::size_t>(b % fields)]);
  }

 private:
  unsigned field(std::int64_t e, std::int64_t row, std::int64_t word, std::int64_t j) const {
    const std::uint32_t w = words_[static_cast<std::size_t>((e * t_.shape[1] + row) * t_.shape[2] + word)];
    return w >> (j * bits_) & ((1u << bits_) - 1u);
  }
  const VecTensor& t_;
  std::vector<std::uint32_t> words_;
  int bits_;
};

// Tensor dense.<matrix>_int, [E, N, K], of whose numbers a file keeps a digest: calculated from the packed words, then
// held against the digest.
VecTensor dense_integers(const VecFile& file, const std::string& matrix);

}  // namespace moe::test
