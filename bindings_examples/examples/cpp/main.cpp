// The four steps from C++ with moe.hpp: select, convert, create, apply.
//
//   c++ -std=c++17 main.cpp $(pkg-config --cflags --libs libmoe) -o example
//   ./example CHECKPOINT_DIR OUTPUT_FILE
//
// CHECKPOINT_DIR holds config.json, safetensors files, hidden.bin [T, H] in the model's dtype and logits.bin [T, E] in
// float32.
#include <fstream>
#include <iostream>
#include <moe/moe.hpp>
#include <stdexcept>
#include <string>

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void run(const std::string& directory, const std::string& output) {
  const std::string hidden = read_file(directory + "/hidden.bin"), logits = read_file(directory + "/logits.bin");
  const libmoe::Context context = libmoe::Context::create();
  const libmoe::Config config = libmoe::Config::from_hf(read_file(directory + "/config.json"));
  const libmoe::Selection selection = libmoe::Selection::create(config, context);
  std::cout << selection.backend() << ' ' << selection.kernel() << ' ' << selection.layout() << '\n';

  libmoe::Weights weights = libmoe::Weights::create(config);
  weights.load_safetensors(directory);
  const libmoe::Packed packed = libmoe::Packed::convert(selection, weights, context);
  const libmoe::Layer layer = libmoe::Layer::create(selection, packed, context);

  const moe_dtype dtype = libmoe::dtype_from_name(std::string(config.get_string("/in_dtype")));
  const std::int64_t width = config.get_int("/hidden_dim"), experts = config.get_int("/num_experts");
  const std::int64_t tokens = static_cast<std::int64_t>(hidden.size()) / libmoe::tensor_nbytes(dtype, {width});
  std::string out(hidden.size(), '\0');
  layer.apply({hidden, dtype, {tokens, width}}, {logits, MOE_DTYPE_F32, {tokens, experts}},
              {out, dtype, {tokens, width}});

  std::ofstream file(output, std::ios::binary);
  if (!file.write(out.data(), static_cast<std::streamsize>(out.size())).flush())
    throw std::runtime_error("cannot write " + output);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: " << argv[0] << " CHECKPOINT_DIR OUTPUT_FILE\n", 2;
  try {
    run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    return std::cerr << error.what() << '\n', 1;
  }
}
