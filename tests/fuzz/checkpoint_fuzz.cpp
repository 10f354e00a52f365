// Whole checkpoint directories, from config.json to apply. What is as a tool would write it loads, and converts to the
// bytes that the same tensors give from memory, however many shards they lie in. What an edit of the input spoiled is
// taken or refused with an error that tells; a set of weights that refused is as before and takes the whole directory
// afterwards. The checkpoint handle gives the same bytes; a shard that is cut after it was opened is an error.
//
//   input: one byte each for the class of models, shards, index; four for who is in which shard; then the layer
//   (tiny.h); then edits (checkpoint_files.h)
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "fuzz/checkpoint_files.h"
#include "io/packed_format.h"

namespace {

using namespace moe::fuzz;
using moe::test::PackedPtr;

class Directory {
 public:
  Directory() {
    path_ = (std::filesystem::temp_directory_path() / "moe_checkpoint_XXXXXX").string();
    MOE_REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  const char* path() const { return path_.c_str(); }
  void cut_first_shard(std::uint32_t bytes) const {
    for (const std::string& name : names_) {
      if (!name.ends_with(".safetensors")) continue;
      const std::uintmax_t size = std::filesystem::file_size(name);
      std::filesystem::resize_file(name, size - std::min<std::uintmax_t>(size, bytes));
      return;
    }
  }
  void fill(const std::vector<CheckpointFile>& files) {
    for (const std::string& name : names_) (void)unlink(name.c_str());
    names_.clear();
    for (const CheckpointFile& f : files) {
      if (f.absent) continue;
      names_.push_back(path_ + "/" + f.name);
      const std::string bytes = f.bytes();
      MOE_REQUIRE(std::ofstream(names_.back(), std::ios::binary).write(bytes.data(), std::ssize(bytes)).flush());
    }
  }

 private:
  std::string path_;
  std::vector<std::string> names_;
};

std::string text_of(const moe_weights* weights) {
  moe_buffer* text = nullptr;
  MOE_REQUIRE(moe_weights_to_json(weights, &text, nullptr) == MOE_OK);
  std::string s(static_cast<const char*>(moe_buffer_data(text)), moe_buffer_size(text));
  moe_buffer_destroy(text);
  return s;
}

// Whether the set took it; it is as before when it did not.
bool load(moe_weights* weights, const char* path) {
  const std::string before = text_of(weights);
  moe_error* error = nullptr;
  const moe_status status = moe_weights_load_safetensors(weights, path, nullptr, &error);
  MOE_REQUIRE((status == MOE_OK) == (error == nullptr));
  if (error != nullptr) MOE_REQUIRE(moe_error_status(error) == status && *moe_error_message(error) != 0);
  moe_error_destroy(error);
  if (status != MOE_OK) MOE_REQUIRE(text_of(weights) == before);
  return status == MOE_OK;
}

PackedPtr convert(const moe_selection* selection, moe_weights* weights) {
  return made<PackedPtr>(
      [&](auto** o, auto** e) { return moe_convert_weights(nullptr, selection, weights, nullptr, o, e); });
}

std::string_view payload_of(const moe_packed* packed) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  MOE_REQUIRE(moe_packed_data(packed, &data, &size, nullptr) == MOE_OK);
  moe::io::PackedHead head;
  std::memcpy(&head, data, sizeof head);
  return std::string_view(static_cast<const char*>(data), size).substr(head.payload_offset);
}

// One token; an edited config may have other sizes and types than the layer.
void run(const moe_config* config, const moe_selection* selection, const moe_packed* packed, bool whole) {
  const RunLayer layer =
      made<RunLayer>([&](auto** o, auto** e) { return moe_layer_create(nullptr, selection, packed, nullptr, o, e); });
  if (!layer) return;
  std::int64_t hidden = 0, top_k = 0;
  const char* dtype = nullptr;
  MOE_REQUIRE(moe_config_get_int(config, "/hidden_dim", &hidden, nullptr) == MOE_OK);
  MOE_REQUIRE(moe_config_get_int(config, "/top_k", &top_k, nullptr) == MOE_OK);
  MOE_REQUIRE(moe_config_get_string(config, "/in_dtype", &dtype, nullptr) == MOE_OK);
  const moe_dtype type = moe_dtype_from_name(dtype);
  const std::vector<std::uint8_t> x(static_cast<std::size_t>(hidden) * bytes_of(type), 0x3c);  // 0.01 to 1.06
  std::vector<std::uint8_t> out(x.size());
  std::vector<std::int32_t> ids;
  for (std::int64_t j = 0; j < top_k; ++j) ids.push_back(static_cast<std::int32_t>(j));
  const std::vector<float> weights(ids.size(), 0.5F);
  MOE_REQUIRE(moe_apply_flat(layer.get(), 1, type, x.data(), MOE_DTYPE_F32, nullptr, ids.data(), weights.data(), type,
                             out.data(), nullptr) == MOE_OK);
  for (std::size_t i = 0; whole && type == MOE_DTYPE_F32 && i < static_cast<std::size_t>(hidden); ++i)
    MOE_REQUIRE(std::isfinite(number(type, out.data(), i)));
}

using CheckpointPtr = std::unique_ptr<moe_checkpoint, moe::test::Ended<moe_checkpoint_destroy>>;

// The directory as it lies there, by the handle of a whole model. want: the payload that its layer must have, or empty.
// cut: of the first shard, so many bytes are taken away once it is open.
void through_handle(const Directory& directory, const std::string& overrides, std::string_view want,
                    std::uint32_t cut) {
  const std::string options = "{\"overrides\":" + overrides + "}";
  const CheckpointPtr c = made<CheckpointPtr>([&](auto** o, auto** e) {
    return moe_checkpoint_open(nullptr, directory.path(), options.data(), options.size(), nullptr, o, e);
  });
  MOE_REQUIRE(c || want.empty());
  if (!c) return;
  moe_buffer* text = nullptr;
  MOE_REQUIRE(moe_checkpoint_to_json(c.get(), &text, nullptr) == MOE_OK);
  moe_buffer_destroy(text);
  moe_layer_info info{};
  info.struct_size = sizeof info;
  for (std::int64_t l = 0; l < std::min<std::int64_t>(moe_checkpoint_layer_count(c.get()), 4); ++l) {
    MOE_REQUIRE(moe_checkpoint_layer_info(c.get(), l, &info, nullptr) == MOE_OK);
    const RunLayer layer =
        made<RunLayer>([&](auto** o, auto** e) { return moe_checkpoint_layer(nullptr, c.get(), l, nullptr, o, e); });
    MOE_REQUIRE(layer || want.empty());
  }
  if (!want.empty()) {
    const Config config =
        made<Config>([&](auto** o, auto** e) { return moe_checkpoint_config(c.get(), 0, nullptr, 0, o, e); });
    MOE_REQUIRE(config);
    const Selection selection = made<Selection>(
        [&](auto** o, auto** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, o, e); });
    const PackedPtr packed = made<PackedPtr>(
        [&](auto** o, auto** e) { return moe_checkpoint_packed(nullptr, c.get(), selection.get(), nullptr, o, e); });
    MOE_REQUIRE(packed && payload_of(packed.get()) == want);
  }
  directory.cut_first_shard(cut);
  moe_error* error = nullptr;
  moe_layer* layer = nullptr;
  const moe_status status = moe_checkpoint_layer(nullptr, c.get(), 0, nullptr, &layer, &error);
  MOE_REQUIRE((status == MOE_OK) == (error == nullptr));
  if (!want.empty()) MOE_REQUIRE(status == MOE_OK || status == MOE_ERR_IO);
  moe_layer_destroy(layer);
  moe_error_destroy(error);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Directory directory;
  Producer p(data, size);
  const Family* family = &p.pick(kFamilies);
  const std::size_t shards = 1 + p.below(3);
  const bool indexed = p.flag();
  Noise noise(p.word());
  const TinyLayer layer(p);
  const bool plain = std::string_view(layer.form->format) == "none" && !layer.bias;
  if (*family->projections[0] == 0 && !plain) family = &kFamilies[0];
  const std::vector<CheckpointFile> files = files_of(layer, *family, shards, indexed, noise);
  std::vector<CheckpointFile> edited = files;
  const bool whole = p.empty();
  for (int i = 0; i < 8 && !p.empty(); ++i) edit(p, edited);
  const std::string overrides = layer.bias ? R"({"has_bias":true})" : R"({"has_bias":false})";
  const std::string options = R"({"layer_index":0,"overrides":)" + overrides + "}";
  const std::uint32_t cut = noise.below(64);
  const Config config = made<Config>([&](auto** o, auto** e) {
    const std::string& text = edited[0].text;
    return moe_config_create_from_hf(text.data(), text.size(), options.data(), options.size(), o, e);
  });
  MOE_REQUIRE(config || !whole || layer.E == 1);  // groups of experts have two at least
  if (!config) return 0;
  const Weights weights = made<Weights>([&](auto** o, auto** e) { return moe_weights_create(config.get(), o, e); });
  MOE_REQUIRE(weights);
  directory.fill(edited);
  through_handle(directory, overrides, "", cut);
  directory.fill(edited);
  bool taken = load(weights.get(), directory.path());
  bool good = whole;
  if (!taken) {
    MOE_REQUIRE(!whole);
    if (edited[0].text != files[0].text) return 0;
    directory.fill(files);
    taken = good = load(weights.get(), directory.path());
    MOE_REQUIRE(good);
  }
  const Selection selection =
      made<Selection>([&](auto** o, auto** e) { return moe_select_backend(nullptr, config.get(), nullptr, 0, o, e); });
  if (!selection) return 0;
  const PackedPtr packed = convert(selection.get(), weights.get());
  MOE_REQUIRE(packed || !good);
  if (!packed) return 0;
  if (good) {
    const Weights from_memory = layer.weights(config.get());
    const PackedPtr same = convert(selection.get(), from_memory.get());
    MOE_REQUIRE(same && payload_of(same.get()) == payload_of(packed.get()));
    through_handle(directory, overrides, payload_of(packed.get()), cut);
  }
  run(config.get(), selection.get(), packed.get(), good);
  return 0;
}
