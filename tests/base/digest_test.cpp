// Digests of golden tensors: known hashes, what a text must have, and what a fault is called.
#include "support/digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "support/rooms.h"
#include "support/sha256.h"
#include "support/vectors.h"

namespace moe::test::digest_test {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// FIPS 180-4's own examples, and sizes around the end of a block.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(bytes_of(std::string(55, 'a'))), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256(bytes_of(std::string(64, 'a'))), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(sha256(bytes_of(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The numbers 0 to 39 as bytes, with probes at 0, 16 and 32.
std::vector<std::byte> numbers() {
  std::vector<std::byte> v;
  for (unsigned i = 0; i < 40; ++i) v.push_back(static_cast<std::byte>(i));
  return v;
}
std::string digest_text() {
  return "I16 2x10 " + sha256(numbers()) + " 0=0001020304050607 16=1011121314151617 32=2021222324252627";
}

TEST(Digest, SaysWhatDiffers) {
  const Digest d = parse_digest(digest_text());
  EXPECT_EQ(d.dtype, DType::i16);
  EXPECT_EQ(d.shape, (std::vector<std::int64_t>{2, 10}));
  EXPECT_EQ(difference(d, numbers()), "");
  std::vector<std::byte> v = numbers();
  v[17] = std::byte{0xff};
  EXPECT_EQ(difference(d, v),
            "probe 2: at byte 16 there is 10ff121314151617 instead of 1011121314151617; "
            "1 of 3 probes differ");
  v = numbers();
  v[9] = std::byte{0xff};  // between the probes
  EXPECT_EQ(difference(d, v),
            "all 3 probes agree, but the SHA-256 is " + sha256(v) + " instead of " + sha256(numbers()));
  v.pop_back();
  EXPECT_EQ(difference(d, v), "39 bytes instead of 40");
}

TEST(Digest, AWrongFileIsTold) {
  std::string text = digest_text();
  text.back() = '8';
  EXPECT_THAT(difference(parse_digest(text), numbers()), HasSubstr("but not the SHA-256: the file's probes are wrong"));
}

TEST(Digest, TextsThatAreNone) {
  const std::string good = digest_text();
  EXPECT_NO_THROW((void)parse_digest(good));
  for (const std::string& text :
       {std::string(), good.substr(0, 60), good.substr(0, good.size() - 1), "X" + good, good + " 33=2021222324252627",
        good.substr(0, good.find(" 32=")), good.substr(0, good.find(" 0=")) + good.substr(good.find(" 16="))})
    EXPECT_THROW((void)parse_digest(text), std::exception) << text;
}

TEST(Digest, ATensorOfOneIsForComparingOnly) {
  VecFile f;
  const Digest d = parse_digest(digest_text());
  f.tensors["t"] = {.dtype = d.dtype, .shape = d.shape, .data = {}, .digest = d};
  f.tensors["whole"] = {.dtype = DType::i16, .shape = {2, 10}, .data = numbers()};
  EXPECT_THROW((void)f.at("t"), std::runtime_error);
  EXPECT_EQ(difference(f.expected("t"), numbers()), "");
  EXPECT_EQ(difference(f.expected("whole"), numbers()), "");
  std::vector<std::byte> v = numbers();
  v[35] = std::byte{0};
  EXPECT_EQ(difference(f.at("whole"), v), "at byte 35 there is 0024252627 instead of 2324252627");
}

}  // namespace
}  // namespace moe::test::digest_test
