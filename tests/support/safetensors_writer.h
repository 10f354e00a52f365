// safetensors bytes from tensors, and temporary folders, for tests of readers.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test {

// Header text and data -> file bytes.
inline std::string safetensors_bytes(const std::string& header, const std::string& data,
                                     std::uint64_t length = UINT64_MAX) {
  const std::uint64_t n = length == UINT64_MAX ? header.size() : length;
  std::string s(8, '\0');
  std::memcpy(s.data(), &n, 8);
  return s + header + data;
}

// Collects tensors in order, without padding between them.
class SafetensorsWriter {
 public:
  void add(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape, const void* data,
           std::size_t bytes) {
    std::string entry = "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[";
    for (std::size_t i = 0; i < shape.size(); ++i) entry += (i != 0 ? "," : "") + std::to_string(shape[i]);
    entry += "],\"data_offsets\":[" + std::to_string(data_.size()) + "," + std::to_string(data_.size() + bytes) + "]}";
    header_ += (header_.empty() ? "" : ",") + entry;
    data_.append(static_cast<const char*>(data), bytes);
  }
  std::string bytes() const { return safetensors_bytes("{" + header_ + "}", data_); }

 private:
  std::string header_, data_;
};

}  // namespace moe::test
