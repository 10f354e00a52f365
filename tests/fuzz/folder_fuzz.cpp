// A folder of converted layers, one file of it edited by the input or replaced. Opening, loading and converting into it
// end with a status; a conversion that succeeds with MOE_LOAD_VERIFY leaves the files of layers as they were.
//
//   input: one byte of flags (which file: bits 1 and 2; 4: the rest is the file), then edits {u16 offset, u8 value}
#include <moe/moe.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/checkpoint_files.h"

namespace {

using namespace moe::fuzz;

using CheckpointPtr = std::unique_ptr<moe_checkpoint, moe::test::Ended<moe_checkpoint_destroy>>;
constexpr std::array kFiles = {"manifest.json", "layer-00000.moe", "config.json"};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::string& path, const std::string& text) {
  MOE_REQUIRE(std::ofstream(path, std::ios::binary).write(text.data(), std::ssize(text)).flush());
}

// MOE_OK without an error object, or another status with one that tells.
template <class Call>
moe_status status_of(const Call& call) {
  moe_error* error = nullptr;
  const moe_status status = call(&error);
  MOE_REQUIRE((status == MOE_OK) == (error == nullptr));
  if (error != nullptr) MOE_REQUIRE(moe_error_status(error) == status && *moe_error_message(error) != 0);
  moe_error_destroy(error);
  return status;
}

// A model of one layer, and the folder that it was converted into.
struct Folders {
  std::string root, source, folder;
  CheckpointPtr model;
  std::array<std::string, kFiles.size()> whole;

  Folders() {
    root = (std::filesystem::temp_directory_path() / "moe_folder_XXXXXX").string();
    MOE_REQUIRE(mkdtemp(root.data()) != nullptr);
    source = root + "/model";
    folder = root + "/folder";
    std::filesystem::create_directory(source);
    constexpr std::uint8_t kChoices[] = {0, 1, 1, 1, 1, 0, 0, 0};
    Producer p(kChoices, sizeof kChoices);
    const TinyLayer layer(p);
    Noise noise(1);
    for (const CheckpointFile& file : files_of(layer, kFamilies[0], 1, false, noise))
      if (!file.absent) write_text(source + "/" + file.name, file.bytes());
    model = open(source);
    MOE_REQUIRE(model && convert(0) == MOE_OK);
    for (std::size_t i = 0; i < kFiles.size(); ++i) whole[i] = text_of(folder + "/" + kFiles[i]);
  }
  ~Folders() { std::filesystem::remove_all(root); }
  Folders(const Folders&) = delete;
  Folders& operator=(const Folders&) = delete;

  static CheckpointPtr open(const std::string& path) {
    moe_checkpoint* c = nullptr;
    status_of([&](moe_error** e) { return moe_checkpoint_open(nullptr, path.c_str(), nullptr, 0, nullptr, &c, e); });
    return CheckpointPtr(c);
  }
  moe_status convert(std::uint64_t load_flags) const {
    moe_checkpoint_options options{};
    options.struct_size = sizeof options;
    options.load_flags = load_flags;
    return status_of(
        [&](moe_error** e) { return moe_checkpoint_convert(nullptr, model.get(), folder.c_str(), &options, e); });
  }
};

void use(const moe_checkpoint* c) {
  moe_buffer* text = nullptr;
  MOE_REQUIRE(moe_checkpoint_to_json(c, &text, nullptr) == MOE_OK);
  moe_buffer_destroy(text);
  moe_layer_info info{};
  info.struct_size = sizeof info;
  for (std::int64_t l = 0; l < std::min<std::int64_t>(moe_checkpoint_layer_count(c), 4); ++l) {
    MOE_REQUIRE(moe_checkpoint_layer_info(c, l, &info, nullptr) == MOE_OK);
    for (const std::uint64_t flags : {std::uint64_t{0}, std::uint64_t{MOE_LOAD_MMAP | MOE_LOAD_VERIFY}}) {
      moe_checkpoint_options options{};
      options.struct_size = sizeof options;
      options.load_flags = flags;
      moe_layer* layer = nullptr;
      status_of([&](moe_error** e) { return moe_checkpoint_layer(nullptr, c, l, &options, &layer, e); });
      moe_layer_destroy(layer);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folders all;
  const std::uint8_t flags = size > 0 ? data[0] : 0;
  const std::size_t which = std::min<std::size_t>(flags & 3, kFiles.size() - 1);
  std::string text = all.whole[which];
  const std::size_t rest = size > 0 ? size - 1 : 0;
  if ((flags & 4) != 0) text.assign(reinterpret_cast<const char*>(data) + 1, rest);
  for (std::size_t i = 0; (flags & 4) == 0 && i + 3 <= rest; i += 3) {
    std::uint16_t offset = 0;
    std::memcpy(&offset, data + 1 + i, 2);
    if (offset < text.size()) text[offset] = static_cast<char>(data[3 + i]);
  }
  for (std::size_t i = 0; i < kFiles.size(); ++i)
    write_text(all.folder + "/" + kFiles[i], i == which ? text : all.whole[i]);
  if (const CheckpointPtr c = Folders::open(all.folder)) use(c.get());
  if (all.convert(MOE_LOAD_VERIFY) == MOE_OK) MOE_REQUIRE(text_of(all.folder + "/" + kFiles[1]) == all.whole[1]);
  return 0;
}
