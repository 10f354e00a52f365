// A converted folder whose files are damaged, forged or gone: what opening and loading say, and what is made again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/converting.h"
#include "support/rooms.h"

namespace moe::test::folder_damage_test {
namespace {

using testing::HasSubstr;

class FolderDamage : public Converting {
 protected:
  static constexpr const char* kFile = "layer-00002.moe";
  std::map<std::string, std::string> whole;

  void SetUp() override {
    Converting::SetUp();
    ASSERT_EQ(convert(out).status, MOE_OK);
    whole = content(out);
    ASSERT_EQ(whole.size(), 5u);
  }
  std::uint64_t payload_offset() const {
    std::uint64_t offset = 0;
    std::memcpy(&offset, whole.at(kFile).data() + 32, 8);
    return offset;
  }
  // Layer 2 is known as not converted, its load has this status, and the next conversion makes it again.
  void expect_damage(moe_status status) {
    const CheckpointPtr c = open_model(out);
    EXPECT_EQ(info_of(c.get(), 2).flags, 0u);
    EXPECT_THAT(info_of(c.get(), 2).problem, HasSubstr(kFile));
    EXPECT_EQ(describe(c.get())["layers"][2]["status"], status);
    const Failure f = load(c, 2);
    EXPECT_EQ(f.status, status) << f.message;
    EXPECT_EQ(load(c, 3).status, MOE_OK);
    ASSERT_EQ(convert(out).status, MOE_OK);
    EXPECT_EQ(content(out), whole);
  }
};

TEST_F(FolderDamage, OfALayersFileIsSeenWhenItIsOpened) {
  std::filesystem::remove(out + "/" + kFile);
  expect_damage(MOE_ERR_MISSING_WEIGHT);
  std::filesystem::resize_file(out + "/" + kFile, 5000);
  expect_damage(MOE_ERR_IO);
  dir.write(std::string("converted/") + kFile, whole.at(kFile) + "x");
  expect_damage(MOE_ERR_FORMAT);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{20}, std::size_t{350}, std::size_t{700},
                                   static_cast<std::size_t>(payload_offset()) - 1}) {
    SCOPED_TRACE(offset);
    spoil(kFile, offset);
    expect_damage(MOE_ERR_FORMAT);
  }
}

// A dense layer, and one past the end. A conversion into the folder says what opening it says, and changes nothing.
TEST_F(FolderDamage, OfAManifestThatNamesLayersWithoutExperts) {
  for (const auto& [from, to] :
       {std::pair("\"layer\":0,\"file\":\"layer-00000", "\"layer\":1,\"file\":\"layer-00001"),
        std::pair("\"layer\":3,\"file\":\"layer-00003", "\"layer\":4,\"file\":\"layer-00004")}) {
    SCOPED_TRACE(to);
    dir.write("converted/manifest.json", whole.at("manifest.json"));
    edit("manifest.json", from, to);
    const auto before = content(out);
    for (const Failure& f : {open_failure(out), convert(out)}) {
      EXPECT_EQ(f.status, MOE_ERR_FORMAT) << f.message;
      EXPECT_EQ(f.subject, out + "/manifest.json");
      EXPECT_THAT(f.message, HasSubstr("has no experts"));
    }
    EXPECT_EQ(content(out), before);
  }
}

TEST_F(FolderDamage, OfAWeightIsSeenByItsHash) {
  spoil(kFile, whole.at(kFile).size() - 64);
  ASSERT_EQ(convert(out).status, MOE_OK);
  EXPECT_NE(content(out), whole);
  options.load_flags = MOE_LOAD_VERIFY;
  EXPECT_EQ(load(open_model(out), 2).status, MOE_ERR_FORMAT);
  ASSERT_EQ(convert(out).status, MOE_OK);
  EXPECT_EQ(content(out), whole);
}

TEST_F(FolderDamage, OfTheManifestsHashesIsDamage) {
  for (const char* member : {"header_hash", "content_hash"}) {
    std::string text = whole.at("manifest.json");
    char& digit = text[text.find("xxh3:", text.find(member, text.find("\"layer\":2"))) + 5];
    digit = digit == '0' ? '1' : '0';
    dir.write("converted/manifest.json", text);
    expect_damage(MOE_ERR_FORMAT);
  }
}

TEST_F(FolderDamage, AfterOpeningIsSeenByTheLoad) {
  const CheckpointPtr c = open_model(out);
  std::filesystem::resize_file(out + "/" + kFile, 5000);
  EXPECT_EQ(load(c, 2).status, MOE_ERR_IO);
  std::filesystem::remove(out + "/" + kFile);
  EXPECT_EQ(load(c, 2).status, MOE_ERR_MISSING_WEIGHT);
  // Another file of that size and header: its weights are others.
  ModelDir tune = model;
  tune.seed = 2;
  tune.write(dir.file("tune"));
  ASSERT_EQ(convert(dir.file("other"), open_model(dir.file("tune")).get()).status, MOE_OK);
  std::filesystem::copy(dir.file("other") + "/" + kFile, out + "/" + kFile);
  const Failure f = load(c, 2);
  EXPECT_EQ(f.status, MOE_ERR_FORMAT);
  EXPECT_THAT(f.message, HasSubstr("replaced after"));
}

// A file that cannot be examined is no file that is not there: nothing is written over it.
TEST_F(FolderDamage, LinksToNothingAreErrors) {
  for (const std::string& name : {std::string(kFile), std::string("manifest.json")}) {
    std::filesystem::remove(out + "/" + name);
    std::filesystem::create_symlink("nowhere", out + "/" + name);
    EXPECT_EQ(convert(out).status, MOE_ERR_IO);
    EXPECT_TRUE(std::filesystem::is_symlink(out + "/" + name));
    std::filesystem::remove(out + "/" + name);
    dir.write("converted/" + name, whole.at(name));
  }
  std::filesystem::remove(out + "/manifest.json");
  std::filesystem::create_symlink("manifest.json", out + "/manifest.json");
  EXPECT_EQ(open_failure(out).status, MOE_ERR_IO);
}

TEST_F(FolderDamage, ForgedManifestsAreRefused) {
  const auto expect = [&](const std::string& from, const std::string& to, moe_status status) {
    edit("manifest.json", from, to);
    const Failure f = open_failure(out);
    EXPECT_EQ(f.status, status) << from << ": " << f.message;
    EXPECT_EQ(f.subject, out + "/manifest.json");
    dir.write("converted/manifest.json", whole.at("manifest.json"));
  };
  expect("\"version\":1", "\"version\":2", MOE_ERR_VERSION);
  expect("layer-00000.moe", "../model/x.moe", MOE_ERR_FORMAT);
  expect("\"layer\":0", "\"layer\":1", MOE_ERR_FORMAT);
  expect("\"layer\":3,\"file\":\"layer-00003", "\"layer\":99,\"file\":\"layer-00099", MOE_ERR_FORMAT);
  expect("\"layer\":0,\"file\":\"layer-00000", "\"layer\":1,\"file\":\"layer-00001", MOE_ERR_FORMAT);
  expect("_hash\":\"xxh3:", "_hash\":\"xxh3-", MOE_ERR_FORMAT);
  expect("\"layers\":[", "\"layers\":7,\"l\":[", MOE_ERR_FORMAT);
  expect("{\"format\"", "\"format\"", MOE_ERR_FORMAT);
  expect("\"bytes\":", "\"bytes\":-", MOE_ERR_FORMAT);
  // What it says of configs is as much of the file: the caller gave no options.
  expect("\"quantization_from\":\"config.json\"", "\"quantization_from\":\"nonsense\"", MOE_ERR_FORMAT);
  expect("\"options\":{}", "\"options\":{\"topk\":1}", MOE_ERR_FORMAT);
  expect("\"options\":{}", "\"options\":{\"overrides\":{\"top_k\":-1}}", MOE_ERR_FORMAT);
  expect("\"options\":{}", "\"options\":{\"overrides\":{\"name\":\"x\"}}", MOE_ERR_FORMAT);
  expect("\"patch\":{}", "\"patch\":{\"topk\":1}", MOE_ERR_FORMAT);
  expect("\"patch\":{}", "\"patch\":{\"name\":\"x\"}", MOE_ERR_FORMAT);
}

TEST_F(FolderDamage, VerifyingTellsItsProgressAndCanBeCancelled) {
  std::map<std::int64_t, std::uint64_t> hashed;
  std::uint64_t bytes = 0, total = 0;
  options.load_flags = MOE_LOAD_VERIFY;
  {
    const Asking asking([&](const moe_progress& p) {
      EXPECT_GE(p.bytes_total, p.bytes_done);
      if (p.phase == MOE_PHASE_HASH && p.layer >= 0) hashed[p.layer] = p.done;
      bytes = p.bytes_done;
      total = p.bytes_total;
      return MOE_OK;
    });
    options.control = asking.control.get();
    ASSERT_EQ(convert(out).status, MOE_OK);
  }
  EXPECT_EQ(bytes, total);
  for (const std::int64_t l : {0, 2, 3})
    EXPECT_EQ(hashed[l], std::filesystem::file_size(out + "/layer-0000" + std::to_string(l) + ".moe"));
  for (const moe_status status : {MOE_ERR_CANCELLED, MOE_ERR_IO}) {
    const Asking asking(
        [&](const moe_progress& p) { return p.phase == MOE_PHASE_HASH && p.layer == 2 ? status : MOE_OK; });
    options.control = asking.control.get();
    EXPECT_EQ(convert(out).status, status == MOE_ERR_CANCELLED ? MOE_ERR_CANCELLED : MOE_ERR_CALLBACK);
  }
  EXPECT_EQ(content(out), whole);
}

}  // namespace
}  // namespace moe::test::folder_damage_test
