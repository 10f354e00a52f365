// Reading golden vectors.
#include "support/vectors.h"
#include "support/rooms.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace moe::test {

// Begins the name of a digest in a file's metadata; the tensor's own name follows.
constexpr std::string_view kDigestOf = "digest ";

std::string vector_path(const std::string& name) { return std::string(MOE_TEST_VECTORS) + "/" + name; }

const VecTensor& VecFile::at(const std::string& name) const {
  const VecTensor& t = tensors.at(name);
  if (t.digest) throw std::runtime_error(name + " has a digest instead of data: it can only be compared with");
  return t;
}

std::string difference(const VecTensor& want, std::span<const std::byte> got) {
  return want.digest ? difference(*want.digest, got) : difference(std::span<const std::byte>(want.data), got);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

nlohmann::json load_json(const std::string& name) { return nlohmann::json::parse(read_text(vector_path(name))); }

VecFile parse_vectors(const std::string& bytes) {
  std::uint64_t n = 0;
  std::memcpy(&n, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, n));
  VecFile f;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") {
      for (const auto& [k, v] : entry.items()) {
        if (!k.starts_with(kDigestOf)) {
          f.meta[k] = v.get<std::string>();
          continue;
        }
        const Digest d = parse_digest(v.get<std::string>());
        f.tensors[k.substr(kDigestOf.size())] = {.dtype = d.dtype, .shape = d.shape, .data = {}, .digest = d};
      }
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

VecFile load_vectors(const std::string& name) { return parse_vectors(read_text(vector_path(name))); }

TensorView view_of(const VecTensor& t) {
  TensorView v;
  v.dtype = t.dtype;
  v.ndim = static_cast<int>(t.shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = t.shape.size(); d-- > 0;) {
    v.shape[d] = t.shape[d];
    v.strides[d] = stride;
    stride *= t.shape[d];
  }
  v.data = const_cast<std::byte*>(t.data.data());
  v.nbytes = t.data.size();
  return v;
}

}  // namespace moe::test
