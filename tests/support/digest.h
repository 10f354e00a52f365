// What the golden files keep of a tensor that tests only compare with: its size, its SHA-256 and some of its bytes
// (tests/vectors/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "support/rooms.h"

namespace moe::test {

struct Digest {
  struct Probe {
    std::size_t offset = 0;  // in bytes
    std::string bytes;       // hexadecimal digits, in the order of memory
  };

  DType dtype = DType::invalid;
  std::vector<std::int64_t> shape;
  std::size_t size = 0;  // in bytes
  std::string sha256;
  std::vector<Probe> probes;
};

// "I32 2x16x128 SHA256 OFFSET=BYTES ...". Throws where the text is something else.
Digest parse_digest(const std::string& text);

// What is wrong with the bytes: the size, the probes that differ, or the hash alone. "" where they are the tensor's.
std::string difference(const Digest& want, std::span<const std::byte> got);

// The first byte that differs.
std::string difference(std::span<const std::byte> want, std::span<const std::byte> got);

}  // namespace moe::test
