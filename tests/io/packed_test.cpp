// Packed blocks: round trips (memory, file, mapped), the same bytes every time, hostile and damaged blocks,
// nothing left behind by a failed save.
#include "io/packed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/hash.h"
#include "io/packed_format.h"
#include "layouts/families.h"
#include "layouts/p16/p16.h"
#include "layouts/p16/p16_layout.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"

namespace moe::test::packed_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

PackedInfo small_info(std::int64_t experts = 3) {
  PackedInfo info;
  info.layout = p16_int4_layout({.experts = experts,
                                 .hidden = 64,
                                 .intermediate = 96,
                                 .groups = Groups::of_size(32),
                                 .gated = true,
                                 .has_bias = true});
  info.layout_id = info.layout.id();
  info.backend = "CPU_INT4";
  info.config = R"({"hidden_dim":64,"num_experts":9})";
  for (std::int64_t e = 0; e < experts; ++e) info.experts.push_back(2 * e);
  info.scales_rounded = 7;
  info.correction_bias = {0.5f, -1.25f};
  return info;
}

struct Sealed {
  Buffer memory;
  Packed packed;
};

Sealed seal(const PackedInfo& info, unsigned fill = 0) {
  const std::size_t n = static_cast<std::size_t>(*packed_block_bytes(info));
  Buffer memory = *Buffer::create(n);
  std::memset(memory.data(), static_cast<int>(fill), n);
  std::byte* payload = memory.data() + packed_payload_offset(info);
  for (std::size_t i = 0; i < info.layout.payload_bytes(); ++i) payload[i] = static_cast<std::byte>(i * 31 + i / 4093);
  auto p = seal_packed(info, memory.bytes(), {}, "owned", nullptr);
  EXPECT_TRUE(p) << (p ? "" : p.error().message);
  return {std::move(memory), *std::move(p)};
}

void expect_same(const Packed& a, const Packed& b) {
  ASSERT_EQ(a.block.size(), b.block.size());
  EXPECT_EQ(std::memcmp(a.block.data(), b.block.data(), a.block.size()), 0);
  EXPECT_EQ(a.info.layout, b.info.layout);
  EXPECT_EQ(a.info.layout_id, b.info.layout_id);
  EXPECT_EQ(a.info.backend, b.info.backend);
  EXPECT_EQ(a.info.config, b.info.config);
  EXPECT_EQ(a.info.experts, b.info.experts);
  EXPECT_EQ(a.info.scales_rounded, b.info.scales_rounded);
  EXPECT_EQ(a.info.correction_bias, b.info.correction_bias);
  EXPECT_EQ(a.info.expert_scale, b.info.expert_scale);
  EXPECT_EQ(a.info.expert_norm, b.info.expert_norm);
  EXPECT_EQ(a.info.input_factors, b.info.input_factors);
  EXPECT_EQ(a.content_hash(), b.content_hash());
}

Result<Packed> open_copy(const std::vector<std::byte>& bytes, LoadFlags flags = {}) {
  return open_packed(bytes, flags, "caller", nullptr, {});
}

std::vector<std::byte> copy_of(const Packed& p) { return {p.block.begin(), p.block.end()}; }

// A changed header with the hash that fits it, as somebody with bad intentions would write.
std::vector<std::byte> forged(const Packed& p, void (*change)(PackedHead&)) {
  std::vector<std::byte> bytes = copy_of(p);
  PackedHead h{};
  std::memcpy(&h, bytes.data(), sizeof h);
  const auto offset = static_cast<std::size_t>(h.payload_offset);
  change(h);
  std::memcpy(bytes.data(), &h, sizeof h);
  h.header_hash = header_hash_of(std::span<const std::byte>(bytes).first(offset), h.side_floats);
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

// With scales of experts and the norm of their output.
PackedInfo side_info() {
  PackedInfo info = small_info();
  info.expert_scale.assign(9, 0.0f);
  for (std::size_t i = 0; i < 9; ++i) info.expert_scale[i] = 1.0f + static_cast<float>(i);
  info.expert_norm.assign(64, 0.25f);
  info.expert_norm[63] = -2.0f;
  return info;
}

TEST(Packed, BytesDependOnTheContentOnly) {
  const Sealed a = seal(small_info(), 0x00), b = seal(small_info(), 0xff);
  expect_same(a.packed, b.packed);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.packed.payload.data()) % 64, 0u);
  EXPECT_EQ(packed_payload_offset(small_info()) % kPackedAlignment, 0u);
  PackedInfo other = small_info();
  other.experts[1] = 3;
  EXPECT_EQ(seal(other).packed.content_hash(), a.packed.content_hash());  // of the payload
}

TEST(Packed, ExpertsLieOneBehindTheOther) {
  const Sealed s = seal(small_info());
  const auto stride = static_cast<std::ptrdiff_t>(s.packed.info.layout.expert_stride());
  ASSERT_GT(stride, 0);
  for (std::int64_t e = 0; e < s.packed.info.layout.experts; ++e)
    EXPECT_EQ(s.packed.expert(e) - s.packed.payload.data(), e * stride);
}

TEST(Packed, OpensFromMemoryAndCopiesOnlyWhenMisaligned) {
  const Sealed s = seal(small_info());
  const auto in_place = open_packed(s.packed.block, {.verify = true}, "caller", nullptr, {});
  ASSERT_TRUE(in_place) << in_place.error().message;
  expect_same(*in_place, s.packed);
  EXPECT_EQ(in_place->block.data(), s.packed.block.data());
  EXPECT_EQ(in_place->memory, "caller");

  Buffer shifted = *Buffer::create(s.packed.block.size() + 8);
  std::memcpy(shifted.data() + 8, s.packed.block.data(), s.packed.block.size());
  auto ended = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = ended;
  const auto copied = open_packed(shifted.bytes().subspan(8), {}, "caller", std::move(ended), {});
  ASSERT_TRUE(copied);
  expect_same(*copied, s.packed);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copied->block.data()) % 64, 0u);
  EXPECT_EQ(copied->memory, "owned");
  EXPECT_TRUE(watch.expired());  // the caller's memory is no longer needed
}

TEST(Packed, SaveAndLoad) {
  const TempDir dir;
  const Sealed s = seal(small_info());
  const std::string path = dir.file("layer.moe");
  ASSERT_TRUE(save_packed(s.packed, path.c_str(), nullptr));
  EXPECT_THAT(dir.names(), testing::ElementsAre("layer.moe"));
  ASSERT_TRUE(save_packed(s.packed, path.c_str(), nullptr));  // replaces
  for (const LoadFlags f : {LoadFlags{}, LoadFlags{.mmap = true}, LoadFlags{.mmap = true, .prefault = true},
                            LoadFlags{.verify = true}, LoadFlags{.mmap = true, .verify = true}}) {
    const auto p = load_packed(path.c_str(), f, system_allocator(), nullptr, {}, nullptr);
    ASSERT_TRUE(p) << p.error().message;
    expect_same(*p, s.packed);
    EXPECT_EQ(p->memory, f.mmap ? "mmap" : "owned");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p->payload.data()) % 64, 0u);
  }
}

PackedInfo named_info(std::int64_t experts = 3) {
  PackedInfo info = small_info(experts);
  info.layout = make_named_layout(LayoutKind::torch_float, {.experts = experts,
                                                            .hidden = 64,
                                                            .intermediate = 96,
                                                            .groups = Groups::of_size(32),
                                                            .gated = true,
                                                            .has_bias = true,
                                                            .scales = Scales::w4a8});
  info.layout_id = info.layout.id();
  return info;
}

TEST(Packed, VectorsBesideTheExperts) {
  const TempDir dir;
  for (int which = 0; which < 32; ++which)
    for (const PackedInfo& all : {side_info(), named_info()}) {
      PackedInfo info = all;
      info.expert_scale = side_info().expert_scale, info.expert_norm = side_info().expert_norm;
      if ((which & 1) != 0) info.correction_bias.clear();
      if ((which & 2) != 0) info.expert_scale = {3.0f};
      if ((which & 4) != 0) info.expert_norm.clear();
      if ((which & 8) != 0) info.input_factors[0].assign(usize(info.layout.w2.half_rows), 0.5f);
      if ((which & 16) != 0) info.input_factors[1].assign(usize(info.layout.w13.half_rows), -2.0f);
      const Sealed s = seal(info);
      EXPECT_EQ(s.packed.info.input_factors, info.input_factors);
      EXPECT_EQ(s.packed.info.correction_bias, info.correction_bias);
      EXPECT_EQ(s.packed.info.expert_scale, info.expert_scale);
      EXPECT_EQ(s.packed.info.expert_norm, info.expert_norm);
      ASSERT_TRUE(save_packed(s.packed, dir.file("layer.moe").c_str(), nullptr));
      for (const LoadFlags f : {LoadFlags{.verify = true}, LoadFlags{.mmap = true}}) {
        const auto p = load_packed(dir.file("layer.moe").c_str(), f, system_allocator(), nullptr, {}, nullptr);
        ASSERT_TRUE(p) << p.error().message;
        expect_same(*p, s.packed);
      }
    }
}

// A block without them is what it was before there were any.
TEST(Packed, BlocksWithoutAreAsBefore) {
  const Sealed s = seal(small_info());
  PackedHead h{};
  std::memcpy(&h, s.packed.block.data(), sizeof h);
  EXPECT_EQ(h.side_floats, 0u);
  const auto header = s.packed.block.first(packed_payload_offset(small_info()));
  EXPECT_EQ(h.header_hash, xxh3(header.subspan(kHashedFrom)));
}

TEST(Packed, OutputsAndJson) {
  const Sealed s = seal(small_info());
  const Layout& l = s.packed.info.layout;
  ASSERT_EQ(s.packed.outputs.size(), 2u);
  for (const NamedOutput& o : s.packed.outputs) {
    EXPECT_EQ(o.shape[0], 3);
    EXPECT_LE(o.offset + 2 * o.expert_stride + static_cast<std::size_t>(o.shape[1]), s.packed.payload.size());
  }
  const auto j = nlohmann::json::parse(s.packed.to_json());
  EXPECT_EQ(j["layout"], "p16/int4-g32-bias/1");
  EXPECT_EQ(j["backend"], "CPU_INT4");
  EXPECT_EQ(j["config"]["hidden_dim"], 64);
  EXPECT_EQ(j["experts"], nlohmann::json({0, 2, 4}));
  EXPECT_EQ(j["outputs"][1]["name"], "w2_packed");
  EXPECT_EQ(j["outputs"][1]["dtype"], "u8");
  EXPECT_EQ(j["outputs"][1]["shape"], nlohmann::json({3, P16{l.w2}.bytes()}));
  EXPECT_EQ(j["outputs"][1]["strides"], nlohmann::json({l.expert_stride(), 1}));
  EXPECT_EQ(j["bytes"], s.packed.block.size());
  EXPECT_EQ(j["payload_bytes"], l.payload_bytes());
  EXPECT_EQ(j["alignment"], 64);
  EXPECT_EQ(j["scales_rounded"], 7);
  EXPECT_EQ(j["memory"], "owned");
  EXPECT_THAT(j["content_hash"].get<std::string>(), testing::MatchesRegex("xxh3:[0-9a-f]+"));
  EXPECT_EQ(j["content_hash"].get<std::string>().size(), 21u);
}

TEST(Packed, NamedLayoutsListTheirTensors) {
  const TempDir dir;
  const Sealed s = seal(named_info());
  ASSERT_TRUE(save_packed(s.packed, dir.file("layer.moe").c_str(), nullptr));
  const auto p = load_packed(dir.file("layer.moe").c_str(), {.verify = true}, system_allocator(), nullptr, {}, nullptr);
  ASSERT_TRUE(p) << p.error().message;
  expect_same(*p, s.packed);
  const std::int64_t w13 = 192 * 64 / 2 + 192 * 2 + 192, w2 = 64 * 96 / 2 + 64 * 3 + 64;
  const auto j = nlohmann::json::parse(p->to_json());
  EXPECT_EQ(j["layout"], "torch/dyn_quant_4bit-g32-bias/1");
  EXPECT_EQ(j["outputs"][0],
            nlohmann::json(
                {{"name", "w13_packed"}, {"dtype", "f32"}, {"shape", {3, w13}}, {"strides", {w13, 1}}, {"offset", 0}}));
  const std::int64_t offset = (3 * w13 * 4 + 63) / 64 * 64;
  EXPECT_EQ(
      j["outputs"][1],
      nlohmann::json(
          {{"name", "w2_packed"}, {"dtype", "f32"}, {"shape", {3, w2}}, {"strides", {w2, 1}}, {"offset", offset}}));
  EXPECT_EQ(j["payload_bytes"], offset + 3 * w2 * 4);
  EXPECT_TRUE(open_copy(copy_of(seal(named_info(0)).packed), {.verify = true}));
}

TEST(Packed, NamedLayoutsTooBigOrImpossible) {
  PackedInfo info = named_info();
  info.layout.experts = INT64_MAX / 2;
  EXPECT_EQ(packed_block_bytes(info).error().code, Code::invalid_argument);
  info = named_info();
  info.layout.w13.half_rows = info.layout.w2.k = 1 << 24;
  info.layout.w13.k = info.layout.w2.half_rows = 1 << 24;
  info.layout.w13.groups = info.layout.w2.groups = Groups::whole();
  info.layout.experts = 1 << 24;
  EXPECT_EQ(packed_block_bytes(info).error().code, Code::invalid_argument);
  info = named_info();
  info.layout.variant.awq = true;
  EXPECT_EQ(packed_block_bytes(info).error().code, Code::invalid_argument);
  info = named_info();
  info.layout.w13.groups = info.layout.w2.groups = Groups::even(16);
  EXPECT_EQ(packed_block_bytes(info).error().code, Code::invalid_argument);
  for (const auto change :
       {+[](PackedHead& h) { h.variant.awq = 1; }, +[](PackedHead& h) { h.w13.has_zeros = h.w2.has_zeros = 1; },
        +[](PackedHead& h) { h.w13.has_bias ^= 1, h.w2.has_bias ^= 1; },
        +[](PackedHead& h) { h.w13.element += 1, h.w2.element += 1; },
        +[](PackedHead& h) { h.w13.scales += 1, h.w2.scales += 1; }, +[](PackedHead& h) { h.layout_kind = 1; },
        +[](PackedHead& h) { h.w13.any_sizes = h.w2.any_sizes = 1; }, +[](PackedHead& h) { h.w13.group = 64; }}) {
    const auto p = open_copy(forged(seal(named_info()).packed, change));
    ASSERT_FALSE(p);
    EXPECT_EQ(p.error().code, Code::format) << p.error().message;
  }
}

TEST(Packed, NoExpertsOnThisRank) {
  const Sealed s = seal(small_info(0));
  const auto p = open_copy(copy_of(s.packed), {.verify = true});
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ(p->payload.size(), 0u);
}

// Of several chunks, and of several pieces when it is saved.
PackedInfo big_info() {
  PackedInfo info = small_info();
  info.layout = p16_int4_layout({.experts = 3,
                                 .hidden = 2048,
                                 .intermediate = 1024,
                                 .groups = Groups::of_size(128),
                                 .gated = true,
                                 .has_bias = false});
  info.layout_id = info.layout.id();
  return info;
}

TEST(Packed, ChunksAreHashedInAnyOrder) {
  const PackedInfo info = big_info();
  const Sealed forwards = seal(info);
  const std::vector<std::byte> expected = copy_of(forwards.packed);
  Parallel backwards;
  backwards.run = [](void*, std::size_t count, TaskFn task, void* arg) {
    while (count-- > 0) task(arg, count);
    return ok();
  };
  const auto p = seal_packed(info, forwards.memory.bytes(), backwards, "owned", nullptr);
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_TRUE(copy_of(*p) == expected);
}

TEST(Packed, ManyChunksAreHashed) {
  const PackedInfo info = big_info();
  const Sealed s = seal(info);
  ASSERT_GT(s.packed.payload.size(), 2 * kHashChunk);
  const std::size_t offset = packed_payload_offset(info);
  for (const std::size_t at : {std::size_t{0}, std::size_t{kHashChunk}, s.packed.payload.size() - 1}) {
    auto bytes = copy_of(s.packed);
    bytes[offset + at] ^= std::byte{1};
    EXPECT_TRUE(open_copy(bytes));  // without verify only the header is looked at
    const auto p = open_copy(bytes, {.verify = true});
    ASSERT_FALSE(p);
    EXPECT_EQ(p.error().code, Code::format);
    EXPECT_THAT(p.error().message, HasSubstr("[" + std::to_string(at / kHashChunk * kHashChunk) + ","));
  }
}

TEST(Packed, TooBigOrImpossible) {
  PackedInfo info = small_info();
  info.layout.experts = INT64_MAX / 2;
  EXPECT_EQ(packed_block_bytes(info).error().code, Code::invalid_argument);
  info = small_info();
  info.layout.w13.groups = Groups::even(48);
  EXPECT_EQ(packed_block_bytes(info).error().code, Code::invalid_argument);
  info = small_info();
  std::vector<std::byte> small(static_cast<std::size_t>(*packed_block_bytes(info)) - 1);
  const auto p = seal_packed(info, small, {}, "caller", nullptr);
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().code, Code::buffer_too_small);
  EXPECT_THAT(p.error().details, HasSubstr(std::to_string(small.size() + 1)));
}

// --- hostile -----------------------------------------------------------------------------------------

class PackedHeaders : public testing::TestWithParam<PackedInfo (*)()> {};

TEST_P(PackedHeaders, EachByteFlipped) {
  const Sealed s = seal(GetParam()());
  const std::size_t header = packed_payload_offset(s.packed.info);
  std::vector<std::byte> bytes = copy_of(s.packed);
  for (std::size_t i = 0; i < header; ++i)
    for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xff}}) {
      bytes[i] ^= flip;
      const auto p = open_copy(bytes);
      ASSERT_FALSE(p) << i;
      const bool version = i >= 8 && i < 12;
      EXPECT_TRUE(p.error().code == Code::format || (version && p.error().code == Code::version)) << i;
      bytes[i] ^= flip;
    }
  EXPECT_TRUE(open_copy(bytes));
}

INSTANTIATE_TEST_SUITE_P(PackedHostile, PackedHeaders,
                         testing::Values(
                             +[] { return small_info(); }, side_info));

// Counts of numbers that are not there, or that take others' place.
TEST(PackedHostile, CountsOfVectors) {
  const Sealed with = seal(side_info()), without = seal(small_info());  // 2 + 9 + 64 numbers; 2
  struct Row {
    const Packed& packed;
    std::uint32_t said;
    bool reads;  // then numbers have other meanings, which a layer's config refuses
  };
  for (const Row& row :
       {Row{with.packed, 12 | kHasNorm, false}, Row{with.packed, 0x7fffffff, false},
        Row{with.packed, 0xffffffff, false}, Row{with.packed, 76, false}, Row{without.packed, kHasNorm, false},
        Row{without.packed, 3, false}, Row{with.packed, 11 | kHasNorm, true}, Row{with.packed, kHasNorm, true},
        Row{with.packed, 75, true}, Row{with.packed, 0, true}, Row{without.packed, 2, true}}) {
    std::vector<std::byte> bytes = copy_of(row.packed);
    PackedHead h{};
    std::memcpy(&h, bytes.data(), sizeof h);
    h.side_floats = row.said;
    h.header_hash =
        header_hash_of(std::span<const std::byte>(bytes).first(static_cast<std::size_t>(h.payload_offset)), row.said);
    std::memcpy(bytes.data(), &h, sizeof h);
    const auto p = open_copy(bytes);
    ASSERT_EQ(static_cast<bool>(p), row.reads) << row.said;
    if (!p) {
      EXPECT_EQ(p.error().code, Code::format) << row.said;
    }
    if (p) {
      const PackedInfo& i = p->info;
      EXPECT_EQ(side_floats(i).size(), h.sections[5].bytes / 4);
      EXPECT_TRUE(i.expert_norm.empty() || i.expert_norm.size() == 64);
    }
  }
}

TEST(PackedHostile, OlderAndNewerVersion) {
  const Sealed s = seal(small_info());
  for (const std::uint32_t version : {kPackedVersion - 1, kPackedVersion + 1}) {
    std::vector<std::byte> bytes = copy_of(s.packed);
    std::memcpy(bytes.data() + 8, &version, sizeof version);
    const auto p = open_copy(bytes);
    ASSERT_FALSE(p);
    EXPECT_EQ(p.error().code, Code::version);
    EXPECT_THAT(p.error().message, HasSubstr("version " + std::to_string(version)));
  }
  EXPECT_EQ(open_copy(forged(s.packed, [](PackedHead& h) { h.version = 0; })).error().code, Code::format);
}

TEST(PackedHostile, ForgedHeadersWithFittingHash) {
  const Sealed s = seal(small_info());
  ASSERT_TRUE(open_copy(forged(s.packed, [](PackedHead&) {})));
  using Change = void (*)(PackedHead&);
  const Change changes[] = {
      [](PackedHead& h) { h.side_floats = kHasNorm; },
      [](PackedHead& h) { h.block_bytes += 4096; },
      [](PackedHead& h) { h.block_bytes = UINT64_MAX; },
      [](PackedHead& h) { h.payload_offset += 4096, h.payload_bytes -= 4096; },
      [](PackedHead& h) { h.payload_offset = 0, h.payload_bytes = h.block_bytes; },
      [](PackedHead& h) { h.payload_offset = h.block_bytes, h.payload_bytes = 0; },
      [](PackedHead& h) { h.payload_bytes += 1; },
      [](PackedHead& h) { h.chunk_bytes = 0; },
      [](PackedHead& h) { h.chunk_bytes *= 2; },
      [](PackedHead& h) { h.layout_kind = 0; },
      [](PackedHead& h) { h.layout_kind = 2; },
      [](PackedHead& h) { h.layout_kind = 77; },
      [](PackedHead& h) { h.experts += 1; },
      [](PackedHead& h) { h.experts = 0; },
      [](PackedHead& h) { h.experts = UINT64_MAX; },
      [](PackedHead& h) { h.experts = std::uint64_t{1} << 24; },
      [](PackedHead& h) { h.expert_stride *= 2; },
      [](PackedHead& h) { h.expert_stride = 0; },
      [](PackedHead& h) { h.variant.input = 1; },
      [](PackedHead& h) { h.variant.input = 3; },
      [](PackedHead& h) { h.variant.awq = 1; },
      [](PackedHead& h) { h.variant.bias = 2; },
      [](PackedHead& h) { h.variant.zero_shift = 1; },
      [](PackedHead& h) { h.variant.multiprocessors = -1; },
      [](PackedHead& h) { h.variant.input_scales = 1; },
      [](PackedHead& h) { h.variant.gate_up_pairs = 1; },
      [](PackedHead& h) { h.variant.fnuz = 1; },
      [](PackedHead& h) { h.variant.reserved = 1; },
      [](PackedHead& h) { h.variant.requantized_experts = static_cast<std::uint32_t>(h.experts) + 1; },
      [](PackedHead& h) { h.layout_kind = static_cast<std::uint64_t>(LayoutKind::torch_float); },
      [](PackedHead& h) { h.sections[kTensorList].bytes -= 1; },
      [](PackedHead& h) { h.w13.half_rows += 1; },
      [](PackedHead& h) { h.w13.half_rows = 0; },
      [](PackedHead& h) { h.w13.half_rows = -96; },
      [](PackedHead& h) { h.w13.half_rows = INT64_MAX, h.w2.k = INT64_MAX; },
      [](PackedHead& h) { h.w13.half_rows = h.w2.k = h.w2.group = 1 << 24; },
      [](PackedHead& h) { h.w13.halves = 1; },
      [](PackedHead& h) { h.w13.halves = 3; },
      [](PackedHead& h) { h.w2.halves = 2; },
      [](PackedHead& h) { h.w13.group = 0; },
      [](PackedHead& h) { h.w13.group = -1; },
      [](PackedHead& h) { h.w13.group = 64; },
      [](PackedHead& h) { h.w13.group = 48; },
      [](PackedHead& h) { h.w2.group = 96; },
      [](PackedHead& h) { h.w13.k = 128, h.w2.half_rows = 128; },
      [](PackedHead& h) { h.w13.has_bias = h.w2.has_bias = 0; },
      [](PackedHead& h) { h.w13.has_bias = 0; },
      [](PackedHead& h) { h.w13.has_bias = h.w2.has_bias = 2; },
      [](PackedHead& h) { h.w13.has_zeros = 1; },
      [](PackedHead& h) { h.w13.has_order = h.w2.has_order = 1; },
      [](PackedHead& h) { h.w13.any_sizes = h.w2.any_sizes = 1; },
      [](PackedHead& h) { h.w13.scale_panels = 1; },
      [](PackedHead& h) { h.w13.element = h.w2.element = 1; },
      [](PackedHead& h) { h.w13.element = h.w2.element = 200; },
      [](PackedHead& h) { h.w13.scales = h.w2.scales = 3; },
      [](PackedHead& h) { h.w13.scales = h.w2.scales = 200; },
      [](PackedHead& h) { h.w13.element = h.w2.element = kElements.size(); },
      [](PackedHead& h) { h.w13.scales = h.w2.scales = kScales.size(); },
      [](PackedHead& h) { h.w2.groups = 0; },
      [](PackedHead& h) { h.w2.groups += 1; },
      [](PackedHead& h) { h.w2.groups = -1, h.w2.group = -h.w2.k; },
      [](PackedHead& h) { h.w13.groups = h.w13.k, h.w13.group = 1; },
      [](PackedHead& h) { h.sections[kLayoutId].bytes -= 1; },
      [](PackedHead& h) { h.sections[kBackend].offset += 8; },
      [](PackedHead& h) { h.sections[kConfigText].bytes = UINT64_MAX; },
      [](PackedHead& h) { h.sections[kConfigText].offset = UINT64_MAX - 3; },
      [](PackedHead& h) { h.sections[kExperts].bytes = 0; },
      [](PackedHead& h) { h.sections[kExperts].bytes += 8; },
      [](PackedHead& h) { h.sections[kChunkHashes].offset = h.payload_offset; },
      [](PackedHead& h) { h.sections[kChunkHashes].bytes += 8; },
      [](PackedHead& h) { std::swap(h.sections[kExperts], h.sections[kChunkHashes]); },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    const auto p = open_copy(forged(s.packed, changes[i]));
    ASSERT_FALSE(p) << i;
    EXPECT_EQ(p.error().code, Code::format) << i << ": " << p.error().message;
  }
}

TEST(PackedHostile, ForgedSections) {
  const auto refused = [](PackedInfo info) {
    const std::size_t n = static_cast<std::size_t>(*packed_block_bytes(info));
    Buffer memory = *Buffer::create(n);
    std::memset(memory.data(), 0, n);
    const auto p = seal_packed(info, memory.bytes(), {}, "", nullptr);
    return !p && p.error().code == Code::format;
  };
  PackedInfo info = small_info();
  info.experts = {4, 4, 5};
  EXPECT_TRUE(refused(info));
  info.experts = {-1, 4, 5};
  EXPECT_TRUE(refused(info));
  info.experts = {1, 2};
  EXPECT_TRUE(refused(info));
  info.experts = {1, 2, INT64_MAX};
  EXPECT_TRUE(refused(info));
  for (const char* config : {"", "{", "[]", "1", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}"}) {
    info = small_info();
    info.config = config;
    EXPECT_TRUE(refused(info)) << config;
  }
  info = small_info();
  info.layout_id = "p16/int4-g64-bias/1";
  EXPECT_TRUE(refused(info));
}

TEST(PackedHostile, CutAnywhereOrTooLong) {
  const TempDir dir;
  const Sealed s = seal(small_info());
  const auto whole = copy_of(s.packed);
  const auto expect_refused = [&](std::size_t n) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    const auto p = open_copy(cut);
    ASSERT_FALSE(p) << n;
    EXPECT_EQ(p.error().code, Code::format) << n;
    const std::string path = dir.write("cut", {reinterpret_cast<const char*>(cut.data()), cut.size()});
    for (const LoadFlags f : {LoadFlags{}, LoadFlags{.mmap = true}}) {
      const auto loaded = load_packed(path.c_str(), f, system_allocator(), nullptr, {}, nullptr);
      ASSERT_FALSE(loaded) << n;
      EXPECT_EQ(loaded.error().code, Code::format) << n;
      EXPECT_EQ(loaded.error().subject, path);
    }
  };
  for (std::size_t n = 0; n < 300; n += 7) expect_refused(n);
  for (std::size_t n = 1024; n < whole.size(); n += 1024) expect_refused(n);
  expect_refused(whole.size() - 1);
  auto longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_EQ(open_copy(longer).error().code, Code::format);
}

// An allocator that counts, and refuses from a limit on.
struct Counting {
  std::size_t largest = 0, live = 0, refuse_from = SIZE_MAX;
  Allocator table() {
    return {this,
            [](void* user, std::size_t size, std::size_t alignment, std::int32_t) -> void* {
              auto& c = *static_cast<Counting*>(user);
              c.largest = std::max(c.largest, size);
              if (size >= c.refuse_from) return nullptr;
              ++c.live;
              return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
            },
            [](void* user, void* p, std::size_t, std::size_t) {
              --static_cast<Counting*>(user)->live;
              std::free(p);
            }};
  }
};

TEST(PackedHostile, NothingLargerThanTheFileIsAllocated) {
  const TempDir dir;
  const Sealed s = seal(small_info());
  const auto lying = forged(s.packed, [](PackedHead& h) {
    h.block_bytes = std::uint64_t{1} << 50, h.payload_bytes = h.block_bytes - h.payload_offset;
  });
  const std::string path = dir.write("lying", {reinterpret_cast<const char*>(lying.data()), lying.size()});
  Counting counting;
  EXPECT_FALSE(load_packed(path.c_str(), {}, counting.table(), nullptr, {}, nullptr));
  EXPECT_EQ(counting.largest, 0u);
  const std::string good = dir.file("good");
  ASSERT_TRUE(save_packed(s.packed, good.c_str(), nullptr));
  {
    const auto p = load_packed(good.c_str(), {}, counting.table(), nullptr, {}, nullptr);
    ASSERT_TRUE(p);
    EXPECT_EQ(counting.largest, s.packed.block.size());
    EXPECT_EQ(counting.live, 1u);
  }
  EXPECT_EQ(counting.live, 0u);
  counting.refuse_from = 1;
  EXPECT_EQ(load_packed(good.c_str(), {}, counting.table(), nullptr, {}, nullptr).error().code, Code::out_of_memory);
}

TEST(PackedHostile, NotAFile) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  for (const std::string& path : {dir.file("absent"), dir.path(), dir.file("fifo"), std::string("/dev/zero")})
    for (const LoadFlags f : {LoadFlags{}, LoadFlags{.mmap = true}})
      EXPECT_EQ(load_packed(path.c_str(), f, system_allocator(), nullptr, {}, nullptr).error().code, Code::io) << path;
}

TEST(PackedSave, ABigBlockByteForByte) {
  const TempDir dir;
  const Sealed s = seal(big_info());
  ASSERT_GT(s.packed.block.size(), std::size_t{8} << 20);
  const std::string path = dir.file("layer");
  ASSERT_TRUE(save_packed(s.packed, path.c_str(), nullptr));
  EXPECT_EQ(std::filesystem::file_size(path), s.packed.block.size());
  const auto loaded = load_packed(path.c_str(), {.verify = true}, system_allocator(), nullptr, {}, nullptr);
  ASSERT_TRUE(loaded) << loaded.error().message;
  expect_same(*loaded, s.packed);
}

TEST(PackedSave, LeavesNothingBehind) {
  const TempDir dir;
  const Sealed s = seal(small_info());
  std::filesystem::create_directory(dir.file("folder"));
  const Check onto_folder = save_packed(s.packed, dir.file("folder").c_str(), nullptr);
  ASSERT_FALSE(onto_folder);
  EXPECT_EQ(onto_folder.error().code, Code::io);
  EXPECT_THAT(onto_folder.error().details, HasSubstr("\"errno\":"));
  EXPECT_THAT(dir.names(), testing::ElementsAre("folder"));

  const Check absent = save_packed(s.packed, dir.file("no/such/folder").c_str(), nullptr);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::io);

  Control cancelled(nullptr, nullptr, nullptr);
  cancelled.cancel();
  EXPECT_EQ(save_packed(s.packed, dir.file("c").c_str(), &cancelled).error().code, Code::cancelled);
  Control late([](void*, std::uint64_t done, std::uint64_t) -> std::int32_t { return done > 0 ? 15 : 0; }, nullptr,
               nullptr);
  EXPECT_EQ(save_packed(s.packed, dir.file("c").c_str(), &late).error().code, Code::cancelled);
  EXPECT_THAT(dir.names(), testing::ElementsAre("folder"));
}

TEST(PackedSave, AFailedSaveKeepsTheOldFile) {
  const TempDir dir;
  const Sealed s = seal(small_info());
  const std::string path = dir.write("layer", "old");
  Control late([](void*, std::uint64_t done, std::uint64_t) -> std::int32_t { return done > 0 ? 15 : 0; }, nullptr,
               nullptr);
  EXPECT_FALSE(save_packed(s.packed, path.c_str(), &late));
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
}

TEST(PackedLoad, CancelAndProgress) {
  const TempDir dir;
  const Sealed s = seal(small_info());
  const std::string path = dir.file("layer");
  std::vector<std::uint64_t> seen;
  Control control(
      [](void* user, std::uint64_t done, std::uint64_t) -> std::int32_t {
        static_cast<std::vector<std::uint64_t>*>(user)->push_back(done);
        return 0;
      },
      &seen, nullptr);
  ASSERT_TRUE(save_packed(s.packed, path.c_str(), &control));
  EXPECT_EQ(seen.back(), s.packed.block.size());
  seen.clear();
  ASSERT_TRUE(load_packed(path.c_str(), {}, system_allocator(), nullptr, {}, &control));
  EXPECT_EQ(seen.back(), s.packed.block.size());
  control.cancel();
  EXPECT_EQ(load_packed(path.c_str(), {}, system_allocator(), nullptr, {}, &control).error().code, Code::cancelled);
}

// The Qwen3-30B-A3B layer has 302 MB; here a sparse file of that size: mapping it must not read it.
TEST(PackedLoad, MappingABigFileIsLazy) {
  const TempDir dir;
  PackedInfo info = small_info(0);
  info.layout = p16_int4_layout({.experts = 128,
                                 .hidden = 2048,
                                 .intermediate = 768,
                                 .groups = Groups::of_size(128),
                                 .gated = true,
                                 .has_bias = false});
  info.layout_id = info.layout.id();
  for (std::int64_t e = 0; e < 128; ++e) info.experts.push_back(e);
  Buffer memory = *Buffer::create(static_cast<std::size_t>(*packed_block_bytes(info)));
  std::memset(memory.data(), 0, memory.size());
  const auto sealed = seal_packed(info, memory.bytes(), {}, "owned", nullptr);
  ASSERT_TRUE(sealed);
  const std::size_t header = packed_payload_offset(info);
  const std::string path = dir.write("big", {reinterpret_cast<const char*>(memory.data()), header});
  std::filesystem::resize_file(path, memory.size());
  const auto p = load_packed(path.c_str(), {.mmap = true}, system_allocator(), nullptr, {}, nullptr);
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_GT(p->block.size(), std::size_t{290} << 20);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((p->block.size() + page - 1) / page);
  ASSERT_EQ(mincore(const_cast<std::byte*>(p->block.data()), p->block.size(), resident.data()), 0);
  const auto read = std::count_if(resident.begin(), resident.end(), [](unsigned char c) { return (c & 1) != 0; });
  EXPECT_LT(static_cast<std::size_t>(read), resident.size() / 20);
}

}  // namespace
}  // namespace moe::test::packed_test
