// The rule of the weights of tests/vectors/hf, and the files. See hf_checkpoint.h.
#include "support/hf_checkpoint.h"

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "base/float_formats.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/vectors.h"

namespace moe::test {
namespace {

using nlohmann::json;

std::uint64_t fnv1a64(const std::string& name) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Element i: scale * (2 u - 1), u = the top 53 bits of splitmix64(fnv1a64(name) + i) as a fraction; to float32, then to
// the type. With a modulus: integers.
std::string values_of(const json& t) {
  const std::string name = t["name"], dtype = t["dtype"];
  std::int64_t count = 1;
  for (const std::int64_t d : t["shape"]) count *= d;
  const std::uint64_t first = fnv1a64(name), modulus = t.value("modulus", std::uint64_t{0});
  std::string out;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t z = splitmix64(first + static_cast<std::uint64_t>(i)) >> 11;
    const auto u = static_cast<double>(z) * 0x1p-53;
    const auto value = static_cast<float>(t["scale"].get<double>() * (2 * u - 1));
    if (modulus != 0 && dtype == "I64")
      append(out, static_cast<std::int64_t>(z % modulus));
    else if (dtype == "BF16")
      append(out, f32_to_bf16(value));
    else if (dtype == "F16")
      append(out, f32_to_f16(value));
    else if (dtype == "F32")
      append(out, value);
    else
      throw std::runtime_error("no rule for " + name + " of type " + dtype);
  }
  return out;
}

std::string shard_name(std::size_t shard, std::size_t shards) {
  const auto number = [](std::size_t n) { return std::string(5 - std::to_string(n).size(), '0') + std::to_string(n); };
  return shards == 1 ? "model.safetensors" : "model-" + number(shard + 1) + "-of-" + number(shards) + ".safetensors";
}

}  // namespace

void write_hf_checkpoint(const std::string& hf_case, const TempDir& dir) {
  const std::string folder = "hf/" + hf_case + "/";
  dir.write("config.json", read_text(vector_path(folder + "config.json")));
  const json manifest = load_json(folder + "manifest.json");
  std::map<std::string, json> tensors;  // by name
  for (const char* list : {"tensors", "other_tensors"})
    for (const json& t : manifest[list]) tensors[t["name"]] = t;
  const auto shards = manifest.value("shards", std::size_t{1});
  std::vector<SafetensorsWriter> files(shards);
  json weight_map;
  std::size_t i = 0;
  for (const auto& [name, t] : tensors) {  // neighbours in different files: every expert is torn apart
    const std::string values = values_of(t);
    files[i % shards].add(name, t["dtype"], t["shape"].get<std::vector<std::int64_t>>(), values.data(), values.size());
    weight_map[name] = shard_name(i++ % shards, shards);
  }
  for (std::size_t s = 0; s < shards; ++s) dir.write(shard_name(s, shards), files[s].bytes());
  if (shards > 1) dir.write("model.safetensors.index.json", json{{"weight_map", weight_map}}.dump());
}

}  // namespace moe::test
