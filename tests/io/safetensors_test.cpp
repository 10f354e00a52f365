// Headers: what is accepted, and the hostile ones (checkpoints.md 8); directories, indexes and their files.
#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <string>

#include "support/rooms.h"
#include "support/safetensors_writer.h"
#include "support/share.h"
#include "support/vectors.h"

namespace moe::test::safetensors_test {
namespace {

using testing::HasSubstr;

Result<SafetensorsFile> open_bytes(const TempDir& dir, const std::string& bytes) {
  return SafetensorsFile::open(dir.write("t.safetensors", bytes), "");
}

TEST(Safetensors, ReadsTheVectors) {
  for (const char* name : {"w4a8_int8/ckpt_g32_pack_quantized.safetensors",
                           "w4a8_int8/moe_E3_H40_I26_T5_k2_cw_act2_bias_float32.safetensors"}) {
    VecFile want = load_vectors(name);
    std::erase_if(want.tensors, [](const auto& entry) { return entry.second.digest.has_value(); });
    const auto f = SafetensorsFile::open(vector_path(name), "");
    ASSERT_TRUE(f) << f.error().message;
    ASSERT_EQ(f->entries().size(), want.tensors.size());
    for (const auto& [key, t] : want.tensors) {
      const SafetensorsEntry* e = f->find(key);
      ASSERT_NE(e, nullptr) << key;
      EXPECT_EQ(e->dtype, t.dtype);
      EXPECT_EQ(std::vector<std::int64_t>(e->shape().begin(), e->shape().end()), t.shape);
      std::vector<std::byte> got(e->bytes);
      ASSERT_TRUE(f->read(*e, 0, got));
      EXPECT_EQ(got, t.data);
      if (got.size() > 3) {
        ASSERT_TRUE(f->read(*e, 2, std::span(got).first(1)));
        EXPECT_EQ(got[0], t.data[2]);
      }
    }
    EXPECT_EQ(f->find("no such tensor"), nullptr);
  }
}

TEST(Safetensors, OnlyThePrefixIsKept) {
  const auto f = SafetensorsFile::open(vector_path("w4a8_int8/ckpt_cw_int_quantized.safetensors"),
                                       "model.layers.0.mlp.experts.1.");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->entries().size(), 6u);
}

TEST(Safetensors, Accepted) {
  const TempDir dir;
  const auto accepts = [&](const std::string& header, const std::string& data) {
    const auto f = open_bytes(dir, safetensors_bytes(header, data));
    EXPECT_TRUE(f) << header << (f ? "" : f.error().message);
  };
  accepts("{}", "");
  accepts("{}   \n", "trailing data is a gap");
  accepts("{\"__metadata__\":{\"a\":\"b\",\"c\":\"\"}}", "");
  accepts(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "x");
  accepts(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},"b":{"shape":[1],"data_offsets":[0,1],"dtype":"I8"}})",
      "xxxxx");
  accepts(
      R"({"a":{"dtype":"F32","shape":[0,7],"data_offsets":[1,1]},"b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})",
      "xx");
  accepts(
      R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},"b":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[2,5]}})",
      "xxxxx");
  accepts(
      R"({"a":{"dtype":"F8_E4M3FNUZ","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F8_E5M2FNUZ","shape":[1],"data_offsets":[1,2]},"c":{"dtype":"C64","shape":[1],"data_offsets":[2,10]}})",
      "0123456789");
  accepts("{\"\\u00e9\\ud83d\\ude00\xc3\xa9\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x");
}

// Bytes that this process has read from files so far.
std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string key;
  std::uint64_t bytes = 0;
  io >> key >> bytes;
  EXPECT_EQ(key, "rchar:");
  return bytes;
}

// What no tensor claims (before, between and behind tensors) is accepted and never read: 5 GiB of it here.
TEST(Safetensors, HolesAreNeverRead) {
  const TempDir dir;
  constexpr std::uint64_t kGap = std::uint64_t{4} << 30;
  const auto range = [](std::uint64_t begin) {
    return "[" + std::to_string(begin) + "," + std::to_string(begin + 2) + "]";
  };
  const std::string header = R"({"b":{"dtype":"U8","shape":[2],"data_offsets":)" + range(kGap) +
                             R"(},"a":{"dtype":"I16","shape":[1],"data_offsets":)" + range(1024) + "}}";
  const std::uint64_t data = 8 + header.size();
  const std::string path = dir.write("t.safetensors", safetensors_bytes(header, ""));
  std::filesystem::resize_file(path, data + kGap + (std::uint64_t{1} << 30));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(data + 1024)) << "Aa";
  file.seekp(static_cast<std::streamoff>(data + kGap)) << "Bb";
  file.close();

  const std::uint64_t before = bytes_read();
  const auto f = SafetensorsFile::open(path, "");
  ASSERT_TRUE(f) << f.error().message;
  for (const char* name : {"a", "b"}) {
    std::array<char, 2> got{};
    ASSERT_TRUE(f->read(*f->find(name), 0, std::as_writable_bytes(std::span(got))));
    EXPECT_EQ(got[0], *name - 'a' + 'A');
    EXPECT_EQ(got[1], *name);
  }
  EXPECT_LT(bytes_read() - before, std::uint64_t{64} << 10);
}

struct Hostile {
  const char* what;
  std::string header, data;
};

TEST(SafetensorsHostile, Headers) {
  const TempDir dir;
  const std::string ok = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  ASSERT_TRUE(open_bytes(dir, safetensors_bytes(ok, "xx")));
  const auto entry = [](const std::string& body) { return "{\"a\":{" + body + "}}"; };
  const Hostile cases[] = {
      {"empty header", "", ""},
      {"no object", "[]", ""},
      {"blank before the object", " {}", ""},
      {"begin > end", entry(R"("dtype":"U8","shape":[2],"data_offsets":[2,0])"), "xx"},
      {"past the end", entry(R"("dtype":"U8","shape":[3],"data_offsets":[0,3])"), "xx"},
      {"begin past the end", entry(R"("dtype":"U8","shape":[0],"data_offsets":[9,9])"), "xx"},
      {"shape and range differ", entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,2])"), "xx"},
      {"dtype and range differ", entry(R"("dtype":"I16","shape":[2],"data_offsets":[0,2])"), "xx"},
      {"product wraps to 0", entry(R"("dtype":"U8","shape":[1099511627776,1099511627776],"data_offsets":[0,0])"), ""},
      {"product wraps to 2", entry(R"("dtype":"U8","shape":[549755813889,1099511627776,2],"data_offsets":[0,2])"),
       "xx"},
      {"extent above the limit", entry(R"("dtype":"U8","shape":[1099511627777,0],"data_offsets":[0,0])"), ""},
      {"negative extent", entry(R"("dtype":"U8","shape":[-1],"data_offsets":[0,2])"), "xx"},
      {"fraction", entry(R"("dtype":"U8","shape":[2.0],"data_offsets":[0,2])"), "xx"},
      {"exponent", entry(R"("dtype":"U8","shape":[2e0],"data_offsets":[0,2])"), "xx"},
      {"leading zero", entry(R"("dtype":"U8","shape":[02],"data_offsets":[0,2])"), "xx"},
      {"beyond int64", entry(R"("dtype":"U8","shape":[2],"data_offsets":[0,18446744073709551618])"), "xx"},
      {"nine dimensions", entry(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,2])"), "xx"},
      {"half a byte", entry(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), "xx"},
      {"six bits", entry(R"("dtype":"F6_E3M2","shape":[2],"data_offsets":[0,2])"), "xx"},
      {"unknown dtype", entry(R"("dtype":"U9","shape":[2],"data_offsets":[0,2])"), "xx"},
      {"dtype no string", entry(R"("dtype":8,"shape":[2],"data_offsets":[0,2])"), "xx"},
      {"three offsets", entry(R"("dtype":"U8","shape":[2],"data_offsets":[0,2,2])"), "xx"},
      {"missing member", entry(R"("dtype":"U8","data_offsets":[0,2])"), "xx"},
      {"unknown member", entry(R"("dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1)"), "xx"},
      {"member twice", entry(R"("dtype":"U8","shape":[2],"shape":[2],"data_offsets":[0,2])"), "xx"},
      {"null entry", R"({"a":null})", ""},
      {"name twice",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "xx"},
      {"name twice by escape",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "xx"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", ""},
      {"metadata key twice", R"({"__metadata__":{"a":"","a":""}})", ""},
      {"metadata value", R"({"__metadata__":{"a":1}})", ""},
      {"overlap",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       "xxx"},
      {"same range",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       "xx"},
      {"one inside another",
       R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "xxxx"},
      {"NUL in a name", R"({"a\u0000b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xx"},
      {"raw NUL", std::string("{\"a\0b\":1}", 9), ""},
      {"long name", "{\"" + std::string(1025, 'n') + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xx"},
      {"bad UTF-8", "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", "xx"},
      {"overlong UTF-8", "{\"\xc0\xaf\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", "xx"},
      {"surrogate UTF-8", "{\"\xed\xa0\x80\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", "xx"},
      {"cut UTF-8", "{\"\xe2\x82", ""},
      {"lone surrogate", R"({"\ud800":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xx"},
      {"bad escape", R"({"\x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xx"},
      {"cut escape", "{\"\\", ""},
      {"cut unicode escape", "{\"\\u00", ""},
      {"trailing comma", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},})", "xx"},
      {"trailing text", ok + "x", "xx"},
      {"second document", ok + "{}", "xx"},
      {"comment", "{/**/}", ""},
      {"byte order mark", "\xef\xbb\xbf{}", ""},
      {"depth bomb", "{\"a\":" + std::string(5'000'000, '['), ""},
      {"open objects", std::string(1'000'000, '{'), ""},
  };
  for (const Hostile& c : cases) {
    const auto begin = std::chrono::steady_clock::now();
    const auto f = open_bytes(dir, safetensors_bytes(c.header, c.data));
    ASSERT_FALSE(f) << c.what;
    EXPECT_EQ(f.error().code, Code::format) << c.what;
    EXPECT_EQ(f.error().subject, dir.file("t.safetensors")) << c.what;
    EXPECT_THAT(f.error().message, HasSubstr("t.safetensors")) << c.what;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << c.what;
  }
  EXPECT_THAT(open_bytes(dir, safetensors_bytes(cases[6].header, cases[6].data)).error().message,
              HasSubstr("tensor \"a\""));
}

TEST(SafetensorsHostile, HeaderLength) {
  const TempDir dir;
  const std::string ok = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{ok.size() + 3},
                                std::uint64_t{100'000'001}, std::uint64_t{1} << 63, UINT64_MAX - 8, UINT64_MAX - 1}) {
    const auto f = open_bytes(dir, safetensors_bytes(ok, "xx", n));
    ASSERT_FALSE(f) << n;
    EXPECT_EQ(f.error().code, Code::format);
  }
  // A sparse file that really is so long: still refused, and nothing of that size is read.
  const std::string path = dir.write("big.safetensors", safetensors_bytes(ok, "xx", 100'000'001));
  std::filesystem::resize_file(path, 200'000'000);
  EXPECT_THAT(SafetensorsFile::open(path, "").error().message, HasSubstr("100 MB"));
}

TEST(SafetensorsHostile, CutAtEachByte) {
  const TempDir dir;
  const std::string whole = read_text(vector_path("w4a8_int8/ckpt_cw_pack_quantized.safetensors"));
  for (std::size_t n = 0; n < 300; ++n) {
    const auto f = open_bytes(dir, whole.substr(0, n));
    ASSERT_FALSE(f) << n;
    EXPECT_EQ(f.error().code, Code::format) << n;
  }
  EXPECT_EQ(open_bytes(dir, whole.substr(0, whole.size() - 1)).error().code, Code::format);
}

TEST(SafetensorsHostile, ManyTensorsAreFine) {
  const TempDir dir;
  std::string header = "{";
  for (int i = 0; i < rounds(100'000); ++i)
    header += (i ? ",\"t" : "\"t") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const auto f = open_bytes(dir, safetensors_bytes(header + "}", ""));
  ASSERT_TRUE(f) << f.error().message;
  EXPECT_EQ(f->entries().size(), static_cast<std::size_t>(rounds(100'000)));
}

TEST(SafetensorsHostile, FileThatShrinksAfterOpening) {
  const TempDir dir;
  const auto f =
      open_bytes(dir, safetensors_bytes(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "123456789"));
  ASSERT_TRUE(f);
  std::filesystem::resize_file(f->path(), 20);
  std::vector<std::byte> out(9);
  const Check c = f->read(*f->find("a"), 0, out);
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().code, Code::io);
  EXPECT_THAT(c.error().message, HasSubstr("tensor \"a\""));
}

TEST(SafetensorsHostile, NotAFile) {
  const TempDir dir;
  const auto expect_io = [](const std::string& path) {
    const auto f = SafetensorsFile::open(path, "");
    ASSERT_FALSE(f) << path;
    EXPECT_EQ(f.error().code, Code::io) << path;
    EXPECT_THAT(f.error().message, HasSubstr(path));
  };
  expect_io(dir.file("absent"));
  EXPECT_EQ(SafetensorsFile::open(dir.file("absent"), "").error().details, "\"errno\":2");
  expect_io(dir.path());
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  expect_io(dir.file("fifo"));  // must not block
  expect_io("/dev/zero");
  std::filesystem::create_symlink("loop", dir.file("loop"));
  expect_io(dir.file("loop"));
}

// --- several files -----------------------------------------------------------------------------------

std::string one_tensor(const std::string& name) {
  SafetensorsWriter w;
  w.add(name, "U8", {1}, "x", 1);
  return w.bytes();
}

std::vector<std::string> names_of(const Result<std::vector<CheckpointEntry>>& r) {
  std::vector<std::string> out;
  if (r)
    for (const CheckpointEntry& e : *r) out.push_back(e.entry->name);
  return out;
}

using testing::ElementsAre;

TEST(Checkpoint, FileIndexAndDirectory) {
  const TempDir dir;
  dir.write("model-1.safetensors", one_tensor("m.a"));
  dir.write("model-2.safetensors", one_tensor("m.b"));
  dir.write("other.safetensors", "this is broken");
  const std::string index =
      dir.write("model.safetensors.index.json",
                R"({"metadata":{"total_size":12345678901234567890,"x":[{"y":null},true,-1.5e3,""]},
      "weight_map":{"m.b":"model-2.safetensors","m.a":"model-1.safetensors","z.q":"other.safetensors"}})");
  EXPECT_THAT(names_of(open_checkpoint(dir.file("model-1.safetensors"), "m.")), ElementsAre("m.a"));
  EXPECT_THAT(names_of(open_checkpoint(index, "m.")), ElementsAre("m.a", "m.b"));
  EXPECT_THAT(names_of(open_checkpoint(dir.path(), "m.")), ElementsAre("m.a", "m.b"));
  EXPECT_THAT(names_of(open_checkpoint(dir.path() + "/", "m.")), ElementsAre("m.a", "m.b"));
  EXPECT_EQ(open_checkpoint(dir.path(), "").error().code, Code::format);  // now the broken file counts
  std::filesystem::remove(index);
  EXPECT_FALSE(open_checkpoint(dir.path(), "m."));
  std::filesystem::remove(dir.file("other.safetensors"));
  EXPECT_THAT(names_of(open_checkpoint(dir.path(), "m.")), ElementsAre("m.a", "m.b"));
  dir.write("model.safetensors", one_tensor("m.c"));
  EXPECT_THAT(names_of(open_checkpoint(dir.path(), "m.")), ElementsAre("m.c"));
}

TEST(CheckpointHostile, TwoFilesWithTheSameTensor) {
  const TempDir dir;
  dir.write("a.safetensors", one_tensor("m.a"));
  dir.write("b.safetensors", one_tensor("m.a"));
  const auto r = open_checkpoint(dir.path(), "");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::format);
  EXPECT_THAT(r.error().message,
              testing::AllOf(HasSubstr("a.safetensors"), HasSubstr("b.safetensors"), HasSubstr("m.a")));
}

TEST(CheckpointHostile, Indexes) {
  const TempDir dir;
  dir.write("s.safetensors", one_tensor("m.a"));
  std::filesystem::create_directory(dir.file("d.safetensors"));
  ASSERT_EQ(::mkfifo(dir.file("f.safetensors").c_str(), 0600), 0);
  std::filesystem::create_symlink("l.safetensors", dir.file("l.safetensors"));
  const auto code = [&](const std::string& text) {
    const auto r = open_checkpoint(dir.write("x.index.json", text), "m.");
    EXPECT_FALSE(r) << text;
    return r ? Code::ok : r.error().code;
  };
  const auto index_of_one = [](const std::string& name) { return R"({"weight_map":{"m.a":")" + name + "\"}}"; };
  ASSERT_TRUE(open_checkpoint(dir.write("x.index.json", index_of_one("s.safetensors")), "m."));
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\\\b.safetensors", "c:x.safetensors", "",
        ".safetensors", "..safetensors", "x", "s.safetensors.bin", "s\\u0000.safetensors", "..", ".hidden.safetensors"})
    EXPECT_EQ(code(index_of_one(name)), Code::format) << name;
  EXPECT_EQ(code(index_of_one(std::string(300, 'x') + ".safetensors")), Code::format);
  EXPECT_EQ(code(index_of_one("missing.safetensors")), Code::io);
  const auto incomplete = open_checkpoint(dir.write("x.index.json", index_of_one("missing.safetensors")), "m.");
  ASSERT_FALSE(incomplete);
  EXPECT_EQ(incomplete.error().subject, dir.file("missing.safetensors"));
  for (const char* words : {"missing.safetensors: is not there", "x.index.json names it", "an incomplete download?"})
    EXPECT_THAT(incomplete.error().message, HasSubstr(words));
  EXPECT_EQ(code(index_of_one("d.safetensors")), Code::io);
  EXPECT_EQ(code(index_of_one("f.safetensors")), Code::io);
  EXPECT_EQ(code(index_of_one("l.safetensors")), Code::io);
  EXPECT_EQ(code(R"({"weight_map":{"m.other":"s.safetensors"}})"), Code::format);
  EXPECT_EQ(code(R"({"weight_map":{"m.a":"s.safetensors","m.a":"s.safetensors"}})"), Code::format);
  for (const char* text :
       {"", "{}", "[]", R"({"weight_map":[]})", R"({"weight_map":{"m.a":1}})", R"({"weight_map":{},"weight_map":{}})",
        R"({"weight_map":{}} x)", R"({"weight_map":{}, "x":tru})", R"({"weight_map":{}, "x":01})"})
    EXPECT_EQ(code(text), Code::format) << text;
  EXPECT_EQ(code("{\"x\":" + std::string(1'000'000, '[')), Code::format);
  const std::string big = dir.write("big.index.json", "{}");
  std::filesystem::resize_file(big, 100'000'001);
  EXPECT_EQ(open_checkpoint(big, "").error().code, Code::format);
  EXPECT_EQ(open_checkpoint(dir.file("absent.index.json"), "").error().code, Code::io);
}

// As of 200 000 tensors with long names: Kimi-K2's in int4.
TEST(Checkpoint, AnIndexOfTwentyMegabytes) {
  const TempDir dir;
  dir.write("s.safetensors", one_tensor("m.a"));
  std::string text = R"({"weight_map":{"m.a":"s.safetensors")";
  for (int i = 0; i < 200'000; ++i)
    text += R"(,"language_model.model.layers.10.mlp.experts.100.down_proj.weight_packed)" + std::to_string(i) +
            R"(":"model-00010-of-00062.safetensors")";
  ASSERT_GT(text.size(), 20'000'000u);
  const auto got = open_checkpoint(dir.write("x.index.json", text + "}}"), "m.");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->size(), 1u);
}

// Keys that mean nothing to a reader cost memory all the same, because none may come twice.
TEST(CheckpointHostile, MillionsOfKeys) {
  const TempDir dir;
  const auto keys = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
    return text;
  };
  const auto open = [&](int count) {
    const std::string header = R"({"__metadata__":{)" + keys(count) + "}}";
    return SafetensorsFile::open(dir.write("x.safetensors", safetensors_bytes(header, "")), "");
  };
  EXPECT_TRUE(open(1'000'000));
  const auto more = open(1'000'001);
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("more than 1000000 keys in __metadata__"));

  dir.write("s.safetensors", one_tensor("0"));
  std::string index = R"({"weight_map":{)";
  for (int i = 0; i <= 1'000'000; ++i) index += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"s.safetensors\"";
  const auto all = open_checkpoint(dir.write("x.index.json", index + "}}"), "");
  ASSERT_FALSE(all);
  EXPECT_THAT(all.error().message, HasSubstr("more than 1000000 tensors"));
}

TEST(CheckpointHostile, EmptyDirectory) {
  const TempDir dir;
  EXPECT_EQ(open_checkpoint(dir.path(), "").error().code, Code::io);
}

}  // namespace
}  // namespace moe::test::safetensors_test
