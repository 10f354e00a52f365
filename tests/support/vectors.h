// Golden vectors: JSON files and safetensors files of tests/vectors, read by code of the tests' own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/float_formats.h"

namespace moe::test {

struct VecTensor {
  DType dtype = DType::invalid;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  template <class T>
  std::vector<T> as() const {
    std::vector<T> v(data.size() / sizeof(T));
    if (!v.empty()) std::memcpy(v.data(), data.data(), v.size() * sizeof(T));
    return v;
  }
  // f32, f16 and bf16 tensors widened to float.
  std::vector<float> floats() const {
    if (dtype == DType::f32) return as<float>();
    std::vector<float> v;
    for (std::uint16_t h : as<std::uint16_t>()) v.push_back(dtype == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h));
    return v;
  }
};

struct VecFile {
  std::map<std::string, VecTensor> tensors;
  std::map<std::string, std::string> meta;
  const VecTensor& at(const std::string& name) const { return tensors.at(name); }
  bool has(const std::string& name) const { return tensors.count(name) != 0; }
};

// "w4a8_int8/index.json" -> its place in tests/vectors
inline std::string vector_path(const std::string& name) { return std::string(MOE_TEST_VECTORS) + "/" + name; }

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline nlohmann::json load_json(const std::string& name) { return nlohmann::json::parse(read_text(vector_path(name))); }

// The bytes of a safetensors file.
inline VecFile parse_vectors(const std::string& bytes) {
  std::uint64_t n = 0;
  std::memcpy(&n, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, n));
  VecFile f;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") {
      for (const auto& [k, v] : entry.items()) f.meta[k] = v.get<std::string>();
      continue;
    }
    VecTensor t;
    t.dtype = dtype_from_safetensors(entry["dtype"].get<std::string>());
    t.shape = entry["shape"].get<std::vector<std::int64_t>>();
    const auto range = entry["data_offsets"].get<std::vector<std::size_t>>();
    t.data.resize(range[1] - range[0]);
    if (!t.data.empty()) std::memcpy(t.data.data(), bytes.data() + 8 + n + range[0], t.data.size());
    f.tensors[key] = std::move(t);
  }
  return f;
}

inline VecFile load_vectors(const std::string& name) { return parse_vectors(read_text(vector_path(name))); }

}  // namespace moe::test
