// Golden vectors: JSON files and safetensors files of tests/vectors, read by code of the tests' own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/float_formats.h"
#include "base/tensor.h"
#include "support/digest.h"
#include "support/rooms.h"

namespace moe::test {

struct VecTensor {
  DType dtype = DType::invalid;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
  std::optional<Digest> digest = {};  // of a tensor that is there to be compared with; it has no data

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

TensorView view_of(const VecTensor& t);

// How the bytes differ from the tensor's, whether the file has these or their digest. "" where they are equal.
std::string difference(const VecTensor& want, std::span<const std::byte> got);

struct VecFile {
  std::map<std::string, VecTensor> tensors;
  std::map<std::string, std::string> meta;
  // A tensor with its data. Throws where the file has a digest.
  const VecTensor& at(const std::string& name) const;
  // A tensor for difference().
  const VecTensor& expected(const std::string& name) const { return tensors.at(name); }
  bool has(const std::string& name) const { return tensors.count(name) != 0; }
};

// "w4a8_int8/index.json" -> its place in tests/vectors
std::string vector_path(const std::string& name);

std::string read_text(const std::string& path);

nlohmann::json load_json(const std::string& name);

// The bytes of a safetensors file.
VecFile parse_vectors(const std::string& bytes);

VecFile load_vectors(const std::string& name);

}  // namespace moe::test
