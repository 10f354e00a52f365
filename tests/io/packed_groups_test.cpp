// Packed blocks of layouts whose groups are filled up (layouts/p16/p16.h): the numbers in the header give the layout
// back, and headers that contradict themselves are refused.
#include <gtest/gtest.h>

#include <cstring>

#include "io/hash.h"
#include "io/packed.h"
#include "io/packed_format.h"
#include "layouts/p16/p16_layout.h"
#include "support/rooms.h"

namespace moe::test::packed_groups_test {
namespace {

PackedInfo info_of(const Layout& layout) {
  PackedInfo info;
  info.layout = layout;
  info.layout_id = layout.id();
  info.backend = "CPU";
  info.config = "{}";
  for (std::int64_t e = 0; e < layout.experts; ++e) info.experts.push_back(e);
  return info;
}

std::vector<std::byte> block_of(const PackedInfo& info) {
  Buffer memory = *Buffer::create(static_cast<std::size_t>(*packed_block_bytes(info)));
  std::memset(memory.data(), 0, memory.bytes().size());
  const auto sealed = seal_packed(info, memory.bytes(), {}, "owned", nullptr);
  EXPECT_TRUE(sealed);
  return {sealed->block.begin(), sealed->block.end()};
}

std::vector<Layout> layouts() {
  std::vector<Layout> list;
  for (const LayoutKind kind : {LayoutKind::p16_w4, LayoutKind::p16_w8, LayoutKind::p16_int4})
    for (const bool order : {false, true})
      for (const std::int64_t group : {16, 48, 96, 32, -1}) {
        LayoutShape s{.experts = 2,
                      .hidden = 96,
                      .intermediate = 192,
                      .groups = Groups::of_size(group),
                      .gated = true,
                      .has_bias = order};
        s.has_order = order && group != -1;
        list.push_back(p16_layout(kind, s));
        list.push_back(with_any_groups(list.back()));
        if (!s.has_order) continue;
        s.w2_groups = Groups::uneven(2 * s.intermediate / group);
        list.push_back(p16_layout(kind, s));
      }
  return list;
}

TEST(PackedGroups, LayoutsComeBack) {
  for (const Layout& l : layouts()) {
    SCOPED_TRACE(l.id());
    const auto p = open_packed(block_of(info_of(l)), {.verify = true}, "caller", nullptr, {});
    ASSERT_TRUE(p) << p.error().message;
    EXPECT_EQ(p->info.layout, l);
    EXPECT_EQ(p->info.layout_id, l.id());
    EXPECT_EQ(p->payload.size(), l.payload_bytes());
  }
}

TEST(PackedGroups, HeadersThatContradictThemselves) {
  const LayoutShape s{
      .experts = 2, .hidden = 96, .intermediate = 192, .groups = Groups::of_size(48), .gated = true, .has_bias = false};
  const Layout layout = p16_layout(LayoutKind::p16_w4, s);
  for (const auto change :
       {+[](PackedHead& h) { h.w13.has_order = h.w2.has_order = 0; },  // groups of 48 without lists
        +[](PackedHead& h) {                                           // of any sizes without lists
          h.w13.has_order = h.w2.has_order = 0;
          h.w13.any_sizes = h.w2.any_sizes = 1;
          h.w13.group = h.w2.group = 0;
        },
        +[](PackedHead& h) { h.w13.any_sizes = 1, h.w13.group = 0; },  // another layout than the stored sizes
        +[](PackedHead& h) { h.w2.any_sizes = 1, h.w2.group = 0, h.w2.groups = 0; },          // no groups
        +[](PackedHead& h) { h.w2.any_sizes = 1, h.w2.group = 0, h.w2.groups = 1; },          // one has one size
        +[](PackedHead& h) { h.w2.any_sizes = 1, h.w2.group = 0, h.w2.groups = INT64_MAX; },  // too many
        +[](PackedHead& h) { h.w2.any_sizes = 1; },  // of any sizes and of one size
        +[](PackedHead& h) {                         // smaller than any that is filled up
          h.w13.group = h.w2.group = 8;
          h.w13.groups = 12, h.w2.groups = 24;
        },
        +[](PackedHead& h) { h.w13.group = h.w2.group = 36; },         // no divisor
        +[](PackedHead& h) { h.w13.any_sizes = h.w2.any_sizes = 2; },  // an unknown mark
        +[](PackedHead& h) { h.w13.scale_panels = h.w2.scale_panels = 1; },
        +[](PackedHead& h) { h.w13.k = h.w2.half_rows = std::int64_t{1} << 40; }}) {
    std::vector<std::byte> bytes = block_of(info_of(layout));
    PackedHead h{};
    std::memcpy(&h, bytes.data(), sizeof h);
    const auto offset = static_cast<std::size_t>(h.payload_offset);
    change(h);
    std::memcpy(bytes.data(), &h, sizeof h);
    h.header_hash = xxh3(std::span<const std::byte>(bytes).first(offset).subspan(kHashedFrom));
    std::memcpy(bytes.data(), &h, sizeof h);
    const auto p = open_packed(bytes, {}, "caller", nullptr, {});
    ASSERT_FALSE(p);
    EXPECT_EQ(p.error().code, Code::format) << p.error().message;
  }
}

}  // namespace
}  // namespace moe::test::packed_groups_test
